"""Small files that only their owner may read, replaced as a whole: a reader finds the old or the new content."""

import contextlib
import os
from pathlib import Path

MODE = 0o600


def read_private(path: Path, *, limit: int) -> str | None:
    """Return the text of a file; None where there is none, or none that can be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return None


def write_private(path: Path, text: str) -> None:
    """Replace the file, durably. Raises `OSError`; the old content then stays."""
    fresh = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
