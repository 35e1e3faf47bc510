"""Caches renamed out of the way, on this host's disks. Blocks; judgement (which, when) lives above."""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

MARK = ".aside-"
MEASURE_S = 5.0
"""Longest time spent on finding out how large what was moved is, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What was moved where. `size_bytes` is a least where `complete` is False."""

    paths: tuple[Path, ...]
    size_bytes: int
    complete: bool = True
    dropped: int = 0
    """Older ones that were deleted to make room: one is kept."""


def move_aside(folder: Path, pattern: str, stamp: int, *, leave_empty: bool = False) -> Moved:
    """Rename what matches `pattern` in `folder` to `NAME.aside-STAMP`, and keep no older one.

    What already bears that name was moved before, and counts. `leave_empty` puts an empty folder in its place.
    Raises `OSError`; nothing is moved then.
    """
    end = f"{MARK}{stamp}"
    before = tuple(folder.glob(f"{pattern}{end}"))
    found = (
        [path for path in folder.glob(pattern) if MARK not in path.name]
        if not before or "*" in pattern
        else []
    )
    moved = list(before)
    for path in sorted(found):
        seen = path.stat()
        target = path.with_name(path.name + end)
        path.rename(target)
        moved.append(target)
        if leave_empty and not path.exists():
            path.mkdir(mode=seen.st_mode & 0o7777)
            with contextlib.suppress(OSError):
                os.chown(path, seen.st_uid, seen.st_gid)
    dropped = _drop_older(folder, pattern, end) if moved else 0
    size_bytes, complete = _size(moved)
    return Moved(paths=tuple(moved), size_bytes=size_bytes, complete=complete, dropped=dropped)


def _drop_older(folder: Path, pattern: str, end: str) -> int:
    older = [
        path
        for path in folder.glob(f"{pattern}{MARK}*")
        if not path.name.endswith(end) and path.name.rpartition(MARK)[2].isdigit()
    ]
    for path in older:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(older)


def _size(paths: list[Path]) -> tuple[int, bool]:
    """Return the bytes below the paths, each file once, and whether there was time for all of them."""
    until_s = time.monotonic() + MEASURE_S
    total, seen = 0, set[tuple[int, int]]()
    for path in paths:
        for place in (path, *path.rglob("*")):
            if time.monotonic() > until_s:
                return total, False
            with contextlib.suppress(OSError):
                found = place.lstat()
                if (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * 512
    return total, True
