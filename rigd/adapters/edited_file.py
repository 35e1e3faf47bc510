"""A person's file that is changed for them: read whole, the old one kept beside it, replaced at once.

A link is followed (files of one's home often lie in a repository), and mode and owner of the file stay.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 4 * 2**20
KEPT_BACKUPS = 5
NEW_MODE = 0o600
_BACKUP = ".rigd-backup-"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file as it was read."""

    path: Path
    """Where it really lies."""
    text: str | None
    """None: there is none."""


def read_whole(path: Path) -> Found:
    """Return a file's text, line ends as they are. Raises `OSError`, and `ValueError` for what is no text."""
    real = path.resolve()
    try:
        with real.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Found(path=real, text=None)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES // 2**20} MiB")
    try:
        return Found(path=real, text=content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line}: it is not UTF-8") from error


def replace_text(found: Found, text: str) -> Path | None:
    """Write the new text and return the backup of the old one; None: there was none. Raises `OSError`.

    Raises `ValueError` where the file is no longer as it was read.
    """
    path = found.path
    if read_whole(path).text != found.text:
        raise ValueError("it was changed meanwhile")
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    mode, owner = NEW_MODE, None
    if found.text is not None:
        status = path.stat()
        mode, owner = status.st_mode & 0o7777, (status.st_uid, status.st_gid)
        backup = _free(path.with_name(f"{path.name}{_BACKUP}{time.strftime('%Y%m%d-%H%M%S')}"))
        _put(backup, found.text, mode, owner)
    fresh = path.with_name(f"{path.name}.rigd-new-{os.getpid()}")
    try:
        _put(fresh, text, mode, owner)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    _drop_old(path)
    return backup


def _free(path: Path) -> Path:
    """Return the path, or the first like it at which nothing is."""
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _put(path: Path, text: str, mode: int, owner: tuple[int, int] | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, NEW_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8"))
        file.flush()
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):
                os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def _drop_old(path: Path) -> None:
    """Delete all backups but the newest few."""
    backups = sorted(path.parent.glob(f"{path.name}{_BACKUP}*"), key=lambda one: one.stat().st_mtime_ns)
    for old in backups[:-KEPT_BACKUPS]:
        with contextlib.suppress(OSError):
            old.unlink()
