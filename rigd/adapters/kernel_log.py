"""The kernel's log, followed: the lines that matter to a GPU host, in order, each once.

    /dev/kmsg (numbered records) -> lines      where it may be read
    journalctl -k -f (cursors)   -> lines      otherwise, for members of the group systemd-journal

Both can go on after a given position, so that a restarted daemon misses and doubles nothing. Records that the
kernel overwrote before they were read are counted, never an error.
"""

import asyncio
import contextlib
import errno
import json
import os
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path

KMSG = Path("/dev/kmsg")
KEEP_LINES = 200
TEXT_LIMIT = 1000
RECORD_BYTES = 8192
"""The kernel's own limit of a record; a shorter buffer would be refused."""
BATCH_RECORDS = 500
BATCH_PAUSE_S = 0.1
"""Pause between two full batches: a flood costs a bounded share of a core."""
RETRY_S = 30.0
FROM_NOW, FROM_BOOT = "", "boot"
"""Positions: after what is there already, and before everything of this boot."""

_NEEDLES = (
    "nvrm",
    "nvidia-modeset",
    "fallen off the bus",
    "oom-kill",
    "oom_reaper",
    "out of memory",
    "amd-vi",
    "aer:",
)
_RECORD = re.compile(rb"\d+,(\d+),(\d+),[^;\n]*;([^\n]*)")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, kw_only=True)
class KernelLine:
    """One line of the kernel; `at_s` is its Unix time."""

    at_s: float
    text: str


@dataclass(frozen=True, kw_only=True)
class _Record:
    """A record as its source numbers it; one may hold several lines."""

    position: str
    at_s: float
    text: str


def matters(text: str) -> bool:
    """Whether a line is about GPUs, their bus, the IOMMU or lack of memory."""
    lowered = text.lower()
    return any(needle in lowered for needle in _NEEDLES)


class KernelLog:
    """Follows the kernel's log and keeps its last lines that matter."""

    def __init__(self, *, kmsg: Path = KMSG, journalctl: str = "journalctl") -> None:
        self.position = FROM_NOW
        """How far it was read; `batches` goes on after it."""
        self.problem: str | None = None
        """Why nobody hears the kernel, in a sentence."""
        self.overwritten = 0
        """How many records were lost before they could be read, as far as the source tells."""
        self._kmsg = kmsg
        self._journalctl = journalctl
        self._lines: deque[KernelLine] = deque(maxlen=KEEP_LINES)

    @property
    def lines(self) -> tuple[KernelLine, ...]:
        """The last lines that matter, oldest first."""
        return tuple(self._lines)

    async def batches(self, position: str) -> AsyncGenerator[tuple[KernelLine, ...], None]:
        """Yield the lines that matter after `position`, for ever; an empty batch when reading begins.

        `self.position` is that of the batch when it is yielded. Never raises: a log that cannot be read is a
        `problem`, and is tried again.
        """
        self.position = position
        refused = ""
        while True:
            if not refused:
                try:
                    handle = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                except OSError as error:
                    refused = f"{self._kmsg}: {error.strerror}"
            records = self._from_journal() if refused else self._from_kmsg(handle)
            reason = "its reading ended"
            try:
                async with contextlib.aclosing(records):
                    async for batch in records:
                        if batch or not refused:  # A journal that ends at once has not been read either.
                            self.problem = None
                        yield self._taken(batch)
            except (OSError, ValueError) as error:
                reason = str(error)
            if not refused:  # It could be opened, but is no kernel's log: a container's stand-in, perhaps.
                refused = f"{self._kmsg}: {reason}"
                continue
            self.problem = f"the kernel's log cannot be read ({refused}; {reason})"
            refused = ""
            await asyncio.sleep(RETRY_S)

    def _taken(self, batch: list[_Record]) -> tuple[KernelLine, ...]:
        if batch:
            self.position = batch[-1].position
        lines = tuple(
            KernelLine(at_s=record.at_s, text=line[:TEXT_LIMIT])
            for record in batch
            for line in record.text.splitlines()
            if matters(line)
        )
        self._lines.extend(lines)
        return lines

    # /dev/kmsg

    async def _from_kmsg(self, handle: int) -> AsyncGenerator[list[_Record], None]:
        try:
            last = _number(self.position)
            if last is None and self.position != FROM_BOOT:
                last = self._newest(handle)
                self.position = f"kmsg:{last}"
            with contextlib.suppress(OSError):
                os.lseek(handle, 0, os.SEEK_SET)
            known = -1 if last is None else last
            yield []
            while True:
                batch, more = drain(lambda: os.read(handle, RECORD_BYTES), known)
                if batch:
                    numbers = [_number(record.position) or 0 for record in batch]
                    self.overwritten += max(0, numbers[-1] - known - len(batch)) if known >= 0 else 0
                    known = numbers[-1]
                    yield batch
                await (asyncio.sleep(BATCH_PAUSE_S) if more else _readable(handle))
        finally:
            os.close(handle)

    def _newest(self, handle: int) -> int:
        """Return the number of the newest record; what is older than the daemon is no news."""
        newest = -1
        while True:
            batch, more = drain(lambda: os.read(handle, RECORD_BYTES), newest)
            if batch:
                newest = _number(batch[-1].position) or 0
            if not more:
                return newest

    # journalctl

    async def _from_journal(self) -> AsyncGenerator[list[_Record], None]:
        cursor = self.position.removeprefix("journal:") if self.position.startswith("journal:") else None
        if cursor is not None:
            since = ["--no-tail", f"--after-cursor={cursor}"]
        elif self.position == FROM_BOOT:
            since = ["--no-tail"]
        else:
            since = ["--lines=1"]  # The last old entry is only asked for its cursor.
        began_s = time.time()
        process = await asyncio.create_subprocess_exec(
            self._journalctl,
            *("--dmesg", "--follow", "--output=json", "--no-pager", *since),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        assert process.stdout is not None  # noqa: S101  (asked for above)
        assert process.stderr is not None  # noqa: S101  (asked for above)
        try:
            yield []
            while line := await process.stdout.readline():
                record = _journal_record(line)
                if record is None:
                    continue
                old = since == ["--lines=1"] and record.at_s < began_s
                yield [_Record(position=record.position, at_s=record.at_s, text="") if old else record]
            said = (await process.stderr.read(1000)).decode(errors="replace").strip()
            if cursor is not None:
                self.position = FROM_NOW  # Its journal may have been rotated away.
            raise OSError(errno.EIO, f"{self._journalctl} ended: {said or 'it says nothing'}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def drain(read: Callable[[], bytes], after: int) -> tuple[list[_Record], bool]:
    """Return the records after number `after` that can be had now, and whether there may be more.

    `read` returns one record, or raises as a non-blocking read of /dev/kmsg does. Malformed records are left out.
    """
    found: list[_Record] = []
    boot_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    for _ in range(BATCH_RECORDS):
        try:
            data = read()
        except BlockingIOError:
            return found, False
        except OSError as error:
            if error.errno == errno.EPIPE:  # Overwritten; the next read gives the oldest that is left.
                continue
            raise
        if not data:
            raise OSError(errno.EIO, "it ended")
        match = _RECORD.match(data)
        if match is None or int(match[1]) <= after:
            continue
        text = _ESCAPE.sub(lambda escape: bytes([int(escape[1], 16)]), match[3])
        found.append(
            _Record(
                position=f"kmsg:{int(match[1])}",
                at_s=min(time.time(), boot_s + int(match[2]) / 1e6),
                text=text.decode(errors="replace"),
            )
        )
    return found, True


def _journal_record(line: bytes) -> _Record | None:
    try:
        entry = json.loads(line)
        message = entry["MESSAGE"]
        text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
        return _Record(
            position=f"journal:{entry['__CURSOR']}",
            at_s=int(entry["__REALTIME_TIMESTAMP"]) / 1e6,
            text=text,
        )
    except (ValueError, KeyError, TypeError):
        return None


def _number(position: str) -> int | None:
    digits = position.removeprefix("kmsg:")
    return int(digits) if position.startswith("kmsg:") and digits.lstrip("-").isdigit() else None


async def _readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(handle, wake)
    try:
        await ready
    finally:
        loop.remove_reader(handle)
