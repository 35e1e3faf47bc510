"""May root run what lies here? Only where nobody else could have written it."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

FILES_LIMIT = 5000
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def untrusted(files: Iterable[Path]) -> str | None:
    """Return why one of these files, its folder with all below, or the way there is not root's own; None: all is.

    A playbook brings in what lies beside it, so its whole folder counts.
    """
    for file in files:
        for place in (file, *file.parents):
            if reason := _other(place, above=place not in (file, file.parent)):
                return reason
        if reason := _below(file.parent):
            return reason
    return None


def _below(folder: Path) -> str | None:
    count = 0
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            count += 1
            if count > FILES_LIMIT:
                return f"{folder} holds more than {FILES_LIMIT} files: give the playbook a folder of its own"
            if reason := _other(Path(root) / name, above=False):
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
