"""The first step on a box that has no helper yet, or another one: takes the package, unpacks it, becomes it.

The controller passes this text to `python3 -c`, so it imports nothing of rigd, and any Python 3.6 can read it.
Unpacked, Python keeps compiled files beside the sources: the next start takes half the time of one from a zip.
"""

import os
import stat
import sys

OLDEST = (3, 10)
DIGEST_BYTES = 32
STALE_S = 30 * 86400
OTHERS_MAY_WRITE = 0o022


def main(folder: str, digest: str, fresh: str, *rest: str) -> None:
    """Become the helper `digest` of one of the folders, received first where it is missing."""
    if sys.version_info < OLDEST:
        sys.exit("RIGD-HELPER OLD-PYTHON {}.{}".format(*sys.version_info[:2]))
    # A home that does not exist or is read-only, as system users have them, is no obstacle.
    bases = (folder, f"/tmp/rigd-helper-{os.geteuid()}")  # noqa: S108  (made 0700, and checked for its owner)
    if not fresh:
        for base in bases:
            _become(base, digest, rest)
    os.write(1, b"RIGD-HELPER NEED\n")
    archive = _receive()
    reasons = []
    for base in bases:
        try:
            _unpack(archive, base, digest, fresh)
        except OSError as error:
            reasons.append(f"{base}: {error.strerror or error}")
            continue
        _become(base, digest, rest)
    sys.exit("cannot unpack the helper: " + "; ".join(reasons))


def _become(base: str, digest: str, rest: "tuple[str, ...]") -> None:
    place = os.path.join(base, "helper-" + digest)
    if _ours(base) and os.path.exists(os.path.join(place, "__main__.py")):
        os.execv(sys.executable, [sys.executable, "-I", place, *rest])  # noqa: S606  (no shell wanted)


def _ours(folder: str) -> bool:
    """Return whether nobody else can have put anything into a folder."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return (
        found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode) and not found.st_mode & OTHERS_MAY_WRITE
    )


def _receive() -> bytes:
    """Return the archive: the controller's first words, its length, its sha256, itself."""
    import hashlib  # noqa: PLC0415  (most starts need none of this)

    seen = b""
    while not seen.endswith(b"RIGD-HELPER GO\n"):
        seen += _exactly(1)
    size = int.from_bytes(_exactly(4), "big")
    digest = _exactly(DIGEST_BYTES)
    archive = _exactly(size)
    if hashlib.sha256(archive).digest() != digest:
        sys.exit("the helper did not come whole")
    return archive


def _exactly(size: int) -> bytes:
    """Return so many bytes of the input, and leave the rest in it for who comes after."""
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            sys.exit("the controller is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _unpack(archive: bytes, base: str, digest: str, fresh: str) -> None:
    import compileall  # noqa: PLC0415  (most starts need none of this)
    import io  # noqa: PLC0415
    import shutil  # noqa: PLC0415
    import zipfile  # noqa: PLC0415

    os.makedirs(base, mode=0o755 if os.geteuid() == 0 else 0o700, exist_ok=True)
    if not _ours(base):
        raise OSError(1, "it is not ours alone")
    _forget_old(base)
    place = os.path.join(base, "helper-" + digest)
    new = f"{place}.{os.getpid()}"
    old_mask = os.umask(0o022)
    try:
        zipfile.ZipFile(io.BytesIO(archive)).extractall(new)
        compileall.compile_dir(new, quiet=2)
        if fresh:
            shutil.rmtree(place, ignore_errors=True)
        try:
            os.rename(new, place)
        except OSError:
            # Another start was quicker, and may run from what it unpacked, which is the same.
            if not os.path.isdir(place):
                raise
    finally:
        os.umask(old_mask)
        shutil.rmtree(new, ignore_errors=True)


def _forget_old(base: str) -> None:
    """Remove what older versions of rigd left, but not what may still run."""
    import shutil  # noqa: PLC0415  (most starts need none of this)
    import time  # noqa: PLC0415

    for name in os.listdir(base):
        path = os.path.join(base, name)
        if name.startswith("helper-") and os.lstat(path).st_mtime < time.time() - STALE_S:
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
