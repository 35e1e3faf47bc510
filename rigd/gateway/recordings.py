"""Where recorded request bodies lie, who may read them, and how all of them go.

STATE/prefix/20260711-142530-opencode/0001-chat.json      one body each, mode 0600, folders 0700
"""

import contextlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from rigd import paths
from rigd.errors import RigdError

FOLDER = "prefix"
MODE_FILE = 0o600
MODE_FOLDER = 0o700
KEPT = 20
"""Recordings kept; the oldest goes when there are more."""
KEPT_BYTES = 2 << 30
"""Bytes of all recordings before a new one begins; the oldest goes when there are more."""


class RecordingError(RigdError):
    """Recordings cannot be written or deleted."""


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What was deleted."""

    recordings: int
    files: int
    size_bytes: int


def base() -> Path:
    """Return the folder of all recordings."""
    return paths.state_dir(os.environ) / FOLDER


def new_recording(client: str, *, now_s: float) -> Path:
    """Make the folder of a new recording, and let the oldest go. Raises `RecordingError`."""
    folder = base()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    try:
        _make_private(folder)
        folder.chmod(MODE_FOLDER)
        for number in range(1, 100):
            made = folder / (f"{stamp}-{client}" if number == 1 else f"{stamp}-{client}-{number}")
            try:
                made.mkdir(mode=MODE_FOLDER)
            except FileExistsError:
                continue
            _let_old_go(folder)
            return made
    except OSError as error:
        raise RecordingError(
            f"cannot make a folder for recordings in '{folder}'",
            hint="RIGD_STATE_DIR names another folder, one that this user may write",
        ) from error
    raise RecordingError(f"cannot find a free name for a recording in '{folder}'")


def write_new(path: Path, content: bytes) -> None:
    """Write a private file that must not be there yet. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        path.unlink(missing_ok=True)  # Half a body is none, and the next one takes its name.
        raise


def write_prefix(path: Path, body: dict[str, object], *, replace: bool) -> str:
    """Write a prefix and return `written`, `replaced` or `unchanged`. Raises `RecordingError`.

    A file that is there with other content stays as it is, unless `replace` says so.
    """
    content = _as_file(body)
    try:
        _make_private(path.parent)
        old = path.read_bytes() if path.exists() else None
        if old == content:
            return "unchanged"
        if old is not None and not replace:
            raise RecordingError(
                f"cannot write '{path}': another prefix is there already",
                hint="--replace writes over it; the rig warms it again as soon as it has changed",
            )
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        write_new(fresh, content)
        if old is not None:  # Whoever could read the old one, the daemon for example, can read this one.
            _like(path, fresh)
        fresh.replace(path)
    except OSError as error:
        raise RecordingError(f"cannot write the prefix '{path}'") from error
    return "written" if old is None else "replaced"


def forget() -> Forgotten:
    """Delete every recording. Raises `RecordingError` that names the one that stays."""
    folder = base()
    if not folder.is_dir():
        return Forgotten(recordings=0, files=0, size_bytes=0)
    try:
        recordings = _recordings(folder)
        files = [path for recording in recordings for path in _files(recording)]
        size = sum(path.stat().st_size for path in files)
        shutil.rmtree(folder)
    except OSError as error:
        raise RecordingError(f"cannot delete the recordings in '{folder}'", hint=f"rm -r {folder}") from error
    return Forgotten(recordings=len(recordings), files=len(files), size_bytes=size)


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing; `parents=True` would leave these open to all."""
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=MODE_FOLDER, exist_ok=True)


def _as_file(body: dict[str, object]) -> bytes:
    """Return a body as text that people can read; halves of characters, which some clients send, as escapes."""
    try:
        return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(body, indent=1) + "\n").encode()


def _like(old: Path, fresh: Path) -> None:
    before = old.stat()
    fresh.chmod(before.st_mode & 0o660)
    with contextlib.suppress(PermissionError):
        os.chown(fresh, before.st_uid, before.st_gid)


def _let_old_go(folder: Path) -> None:
    """Keep the youngest recordings, within both limits; the new one, empty still, stays in any case."""
    total = 0
    for at, recording in enumerate(sorted(_recordings(folder), reverse=True)):
        total += sum(path.stat().st_size for path in _files(recording))
        if at >= KEPT or total > KEPT_BYTES:
            shutil.rmtree(recording, ignore_errors=True)


def _recordings(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()]


def _files(recording: Path) -> list[Path]:
    return [path for path in recording.rglob("*") if path.is_file() and not path.is_symlink()]
