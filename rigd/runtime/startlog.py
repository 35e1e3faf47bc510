"""One folder a start: the engine's output, how it ended, what was launched. Private to the daemon's user.

STATE/starts/000123/engine.log      what the engine writes; appended to (O_APPEND), so it may be cut while written
                    engine.log.1    the part before the last cut
                    exit            exit code, as the recorder wrote it
                    spec.json       what was launched; secrets are references
                    identity.json   which process it is
"""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rigd.engine.spec import LaunchSpec

LOG_NAME = "engine.log"
OLDER_NAME = "engine.log.1"
EXIT_NAME = "exit"
SPEC_NAME = "spec.json"
_POLL_S = 0.1
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_READ_BYTES = 65536
MAX_LINE = 16384
"""Longest line handed on; the rest of a longer one follows as lines of its own."""


def folder_of(state_dir: Path, start: int) -> Path:
    """Return the folder of a start."""
    return state_dir / "starts" / f"{start:06d}"


def prepare(folder: Path) -> Path:
    """Make the start's folder (0700) with an empty log (0600) and return the log's path."""
    for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(folder / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    return folder / LOG_NAME


def write_spec(folder: Path, spec: LaunchSpec) -> None:
    """Keep what was launched beside its output."""
    text = json.dumps(asdict(spec), indent=2, default=lambda value: value.model_dump(exclude_none=True))
    write_private(folder / SPEC_NAME, text + "\n")


def write_private(path: Path, text: str) -> None:
    """Replace the file's content in one step; mode 0600."""
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def exit_code(folder: Path) -> int | None:
    """Return the exit code that the recorder wrote, or None while there is none."""
    try:
        text = (folder / EXIT_NAME).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    code = text.strip()
    return int(code) if text.endswith("\n") and code.isdigit() else None


def limit(log: Path, max_bytes: int) -> bool:
    """Cut the log when it is larger than `max_bytes`, keeping what there was as one older part.

    The writer appends, so it goes on at the new end. Where the disk has no room for the copy, the older part is lost
    rather than the engine's disk.
    """
    try:
        if log.stat().st_size <= max_bytes:
            return False
    except OSError:
        return False
    older = log.with_name(OLDER_NAME)
    try:
        with log.open("rb") as source, open(older, "wb", opener=_private_opener) as copy:
            source.seek(max(0, log.stat().st_size - max_bytes))
            shutil.copyfileobj(source, copy, _READ_BYTES)
    except OSError:
        older.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.truncate(log, 0)
    return True


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def prune(state_dir: Path, keep: int) -> tuple[int, ...]:
    """Remove the folders of all but the newest `keep` starts and return the numbers removed."""
    folder = state_dir / "starts"
    try:
        numbers = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except OSError:
        return ()
    gone = numbers[: max(0, len(numbers) - keep)]
    for number in gone:
        shutil.rmtree(folder_of(state_dir, number), ignore_errors=True)
    return tuple(gone)


def starts(state_dir: Path) -> tuple[int, ...]:
    """Return the numbers of the starts whose logs are still there, newest first."""
    try:
        numbers = [int(entry.name) for entry in (state_dir / "starts").iterdir() if entry.name.isdigit()]
    except OSError:
        return ()
    return tuple(sorted(numbers, reverse=True))


def tail(folder: Path, max_bytes: int) -> str:
    """Return the last whole lines of a start's output, at most `max_bytes` of it, the older part included."""
    text = _last_bytes(folder / LOG_NAME, max_bytes)
    if len(text) < max_bytes:
        text = _last_bytes(folder / OLDER_NAME, max_bytes - len(text)) + text
    cut = text.find(b"\n") + 1 if len(text) >= max_bytes else 0
    return readable(text[cut:])


def follow(folder: Path, *, deadline_s: float, from_end_bytes: int = 0) -> Iterator[str]:
    """Yield lines as they are written until `deadline_s` is over (blocking; for a thread or a command).

    Begins `from_end_bytes` before the end. A cut log is read from its beginning.
    """
    log = folder / LOG_NAME
    until_s = time.monotonic() + deadline_s
    position, rest = -1, b""
    while True:
        try:
            with log.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                position = (
                    max(0, size - from_end_bytes) if position < 0 else 0 if position > size else position
                )
                file.seek(position)
                part = file.read(_READ_BYTES)
        except OSError:
            part = b""
        position += len(part)
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        yield from (readable(line) for line in lines)
        if time.monotonic() > until_s:
            return
        if not part:
            time.sleep(_POLL_S)


def readable(text: bytes) -> str:
    """Return output as text for a terminal or JSON: no control characters, whatever the engine wrote."""
    plain = text.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ESCAPE.sub("", plain))


def _last_bytes(path: Path, count: int) -> bytes:
    if count <= 0:
        return b""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - count))
            return file.read(count)
    except OSError:
        return b""
