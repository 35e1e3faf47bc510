"""Writes a file so that a reader sees the old content or the new, and a power cut leaves one of the two."""

import contextlib
import errno
import os
import shutil
import stat
import time

from rigd.provision.target.contract import ModuleError

_SENTENCES = {
    errno.ENOSPC: "no space is left on its disk; free some, nothing was changed",
    errno.EDQUOT: "the user's quota of disk space is used up; nothing was changed",
    errno.EROFS: "its file system is mounted read-only",
    errno.EACCES: "permission denied; does the task need `become: true`?",
    errno.EPERM: "not permitted (another owner, or an immutable file); does the task need `become: true`?",
    errno.EBUSY: "it is a mount point of its own, so it cannot be replaced in one step",
    errno.EXDEV: "it is a mount point of its own, so it cannot be replaced in one step",
    errno.EISDIR: "it is a folder",
}


def umask() -> int:
    """Return this process's umask without touching it, as setting it would for all threads."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def write_file(path: str, content: bytes, *, mode: int | None) -> None:
    """Put `content` at `path` in one step; owner, group and mode stay, a new file gets `mode` or the umask's."""
    folder, name = os.path.split(path)
    folder = folder or "."
    old = _old(path)
    if not os.path.isdir(folder):
        raise ModuleError(f"cannot write {path}: there is no folder {folder}")
    # Always the same name: what a power cut leaves behind goes away with the next try.
    temporary = os.path.join(folder, f".{name[:200]}.rigd-new")
    try:
        _place(path, temporary, content, old=old, mode=mode)
    except OSError as error:
        raise ModuleError(f"cannot write {path}: {_reason(error)}") from error
    finally:
        _remove(temporary)


def put_link(path: str, target: str) -> None:
    """Make `path` a symbolic link, in one step: never a moment without what was there."""
    fresh = _fresh(path)
    os.symlink(target, fresh)
    os.replace(fresh, path)


def put_hard_link(path: str, source: str) -> None:
    """Make `path` another name of a file, in one step."""
    fresh = _fresh(path)
    os.link(source, fresh)
    os.replace(fresh, path)
    _remove(fresh)  # It stays where both were names of the same file already.


def _fresh(path: str) -> str:
    fresh = f"{path}.rigd-new"
    _remove(fresh)
    return fresh


def back_up(path: str) -> str | None:
    """Copy a file beside itself under Ansible's name for it; return that path, None where there is no file."""
    if not os.path.isfile(path):
        return None
    stamp = time.strftime("%Y-%m-%d@%H:%M:%S~")
    copy = f"{path}.{os.getpid()}.{stamp}"
    try:
        shutil.copy2(path, copy)
        known = os.stat(path)
        if os.geteuid() == 0:
            os.chown(copy, known.st_uid, known.st_gid)
    except OSError as error:
        raise ModuleError(f"cannot back up {path}: {_reason(error)}") from error
    return copy


def _old(path: str) -> os.stat_result | None:
    try:
        old = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise ModuleError(f"cannot write {path}: it is a folder")
    return old if stat.S_ISREG(old.st_mode) else None


def _place(
    path: str, temporary: str, content: bytes, *, old: os.stat_result | None, mode: int | None
) -> None:
    _remove(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(file.fileno(), old.st_uid, old.st_gid)
        # After the owner, since that drops the set-id bits.
        os.fchmod(file.fileno(), _mode(old, mode))
        os.fsync(file.fileno())
    os.rename(temporary, path)
    _sync_folder(os.path.dirname(path) or ".")


def _mode(old: os.stat_result | None, wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    return stat.S_IMODE(old.st_mode) if old is not None else 0o666 & ~umask()


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError:
        pass  # Some file systems cannot; the file itself is safe.
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _reason(error: OSError) -> str:
    return _SENTENCES.get(error.errno or 0) or (error.strerror or str(error)).lower()
