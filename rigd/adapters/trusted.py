"""May root run what lies here? Only where nobody else could have written it."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

FILES_LIMIT = 5000
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def untrusted(files: Iterable[Path], *, folders: Iterable[Path] = ()) -> str | None:
    """Return why one of these files, or what lies in these folders, is not root's alone; None: all is.

    The way to each counts too, and what a link leads to: whoever may write there may put another in its place.
    """
    budget = [FILES_LIMIT]
    for place in (*files, *folders):
        if reason := _way(place):
            return reason
    for folder in folders:
        if reason := _below(folder.resolve(), budget, set()):
            return reason
    return None


def _way(place: Path) -> str | None:
    """Judge a place and every folder above it, as it is named and as it really is."""
    for whole in dict.fromkeys((Path(os.path.abspath(place)), place.resolve())):  # noqa: PTH100  (keeps links)
        for step in (whole, *whole.parents):
            if reason := _other(step, above=step != whole):
                return reason
    return None


def _below(folder: Path, budget: list[int], seen: set[Path]) -> str | None:
    if folder in seen:
        return None
    seen.add(folder)
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            budget[0] -= 1
            if budget[0] < 0:
                return f"{folder} holds more than {FILES_LIMIT} files: give the playbook a folder of its own"
            place = Path(root) / name
            if place.is_symlink():
                reason = _way(place)
                if reason is None and place.is_dir():
                    reason = _below(place.resolve(), budget, seen)
            else:
                reason = _other(place, above=False)
            if reason is not None:
                return reason
    return None


def _other(place: Path, *, above: bool) -> str | None:
    try:
        seen = place.stat()
    except OSError as error:
        return f"{place}: {(error.strerror or str(error)).lower()}"
    if seen.st_uid != os.geteuid() and seen.st_uid != 0:
        return f"{place} does not belong to root"
    # In a sticky folder such as /tmp others make files, but cannot replace this one.
    if seen.st_mode & _OTHERS and not (above and seen.st_mode & stat.S_ISVTX):
        return f"{place} can be written by others than root"
    return None
