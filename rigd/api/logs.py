"""Read an engine's log from its last lines on, across a cut of the log; what comes out is safe to print."""

import os
from pathlib import Path

from rigd.runtime import startlog

TAIL_LIMIT = 10_000
"""Most lines of the past that one request gets."""
TAIL_BYTES = 4 * 2**20
CHUNK = 64 * 1024


class LogCursor:
    """A place in one log. Reads whole lines; a line that never ends is handed on in pieces."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self.path = path
        self._position = position
        self._rest = b""

    def read(self) -> bytes:
        """Return what was added, as printable UTF-8, at most one chunk; empty when there is nothing new."""
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._position:  # The log was cut: what follows is new.
                    self._position, self._rest = 0, b""
                file.seek(self._position)
                part = file.read(CHUNK)
        except OSError:
            return b""
        self._position += len(part)
        whole, newline, self._rest = (self._rest + part).rpartition(b"\n")
        if len(self._rest) > startlog.MAX_LINE:
            whole, newline, self._rest = whole + newline + self._rest, b"\n", b""
        return startlog.readable(whole).encode() + b"\n" if newline else b""


def last_lines(path: Path, count: int) -> tuple[bytes, LogCursor]:
    """Return the last `count` lines, and the place from which to go on."""
    folder = path.parent
    size = _size(path)
    text = startlog.tail(folder, TAIL_BYTES)
    lines = text.splitlines()[-min(count, TAIL_LIMIT) :] if count > 0 else []
    shown = "".join(f"{entry}\n" for entry in lines).encode()
    return shown, LogCursor(path, size)


def start_number(path: Path) -> int | None:
    """Return the number of the start whose log this is."""
    return int(path.parent.name) if path.parent.name.isdigit() else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
