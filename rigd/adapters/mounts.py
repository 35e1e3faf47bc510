"""Which file systems this host means to mount: `/etc/fstab` and systemd's mount units."""

import os
from collections.abc import Iterator
from pathlib import Path

FSTAB = Path("/etc/fstab")
UNIT_FOLDERS = (
    Path("/etc/systemd/system"),
    Path("/run/systemd/generator"),
    Path("/usr/local/lib/systemd/system"),
)


def awaited(path: Path, *, fstab: Path = FSTAB, unit_folders: tuple[Path, ...] = UNIT_FOLDERS) -> Path | None:
    """Return the mount point above `path` that something means to mount and that is not mounted now; None if none."""
    meant = {*_in_fstab(fstab), *_in_units(unit_folders)}
    return next((point for point in path.parents if point in meant and not os.path.ismount(point)), None)


def _in_fstab(fstab: Path) -> Iterator[Path]:
    for line in _lines(fstab):
        words = line.split()
        if len(words) > 1 and not words[0].startswith("#") and words[1].startswith("/"):
            yield Path(words[1].replace("\\040", " "))


def _in_units(folders: tuple[Path, ...]) -> Iterator[Path]:
    for folder in folders:
        for unit in (*folder.glob("*.mount"), *folder.glob("*.automount")):
            for line in _lines(unit):
                name, _, where = line.partition("=")
                if name.strip() == "Where":
                    yield Path(where.strip())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
