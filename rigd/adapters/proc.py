"""/proc, read 1:1: processes, their state, their environment, and handles that tell of their end.

Reading `environ` or `cmdline` can block on a process stuck in state D, so those run in a thread with a deadline;
`stat` does not.
"""

import contextlib
import functools
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_STAT_BYTES = 4096
_ENVIRON_BYTES = 1024 * 1024
_KTHREADD = 2
_PF_EXITING = 0x4
_DEAD = frozenset("ZXx")


@dataclass(frozen=True, kw_only=True)
class ProcessId:
    """A process that no other can be taken for: a pid alone is used again by the kernel."""

    pid: int
    ticks: int
    """Start time in clock ticks since boot."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process as `/proc/PID/stat` tells it."""

    pid: int
    ticks: int
    parent: int
    session: int
    state: str
    """One letter: R, S, D, T (stopped), Z (zombie)."""
    exiting: bool
    """Whether the kernel is taking it down: it may be a while until it has let go of its memory."""
    name: str
    """At most 15 characters, as the kernel keeps it (`VLLM::EngineCor`)."""

    @property
    def id(self) -> ProcessId:
        """Return its identity."""
        return ProcessId(pid=self.pid, ticks=self.ticks)

    @property
    def gone(self) -> bool:
        """Whether it has ended; a zombie holds no memory, port or GPU."""
        return self.state in _DEAD


def read(pid: int) -> Process | None:
    """Return the process, or None where there is none."""
    text = _slurp(f"/proc/{pid}/stat", _STAT_BYTES)
    if text is None:
        return None
    left, right = text.find(b"("), text.rfind(b")")  # The name may hold spaces and parentheses.
    fields = text[right + 2 :].split()
    try:
        return Process(
            pid=pid,
            name=text[left + 1 : right].decode(errors="replace"),
            state=fields[0].decode(),
            parent=int(fields[1]),
            session=int(fields[3]),
            exiting=bool(int(fields[6]) & _PF_EXITING),
            ticks=int(fields[19]),
        )
    except (IndexError, ValueError):  # The process ended while we read.
        return None


def is_alive(process: ProcessId) -> bool:
    """Whether this very process is still there and not a zombie."""
    seen = read(process.pid)
    return seen is not None and seen.ticks == process.ticks and not seen.gone


def pids() -> tuple[int, ...]:
    """Return the ids of all processes, kernel threads included."""
    return tuple(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  (ten times as fast)


def table() -> dict[int, Process]:
    """Return all processes by pid, without kernel threads."""
    seen = (read(pid) for pid in pids())
    return {one.pid: one for one in seen if one is not None and _KTHREADD not in (one.pid, one.parent)}


def environment(pid: int, names: Iterable[str]) -> Mapping[str, str]:
    """Return those variables that the process was started with; empty where they may not be read."""
    text = _slurp(f"/proc/{pid}/environ", _ENVIRON_BYTES)
    if not text:
        return {}
    found: dict[str, str] = {}
    wanted = tuple((name, name.encode() + b"=") for name in names)
    for entry in text.split(b"\0"):
        for name, prefix in wanted:
            if entry.startswith(prefix):
                found.setdefault(name, entry[len(prefix) :].decode(errors="replace"))
    return found


def command_line(pid: int) -> tuple[str, ...]:
    """Return the argument list; empty for zombies, kernel threads and what may not be read."""
    text = _slurp(f"/proc/{pid}/cmdline", _ENVIRON_BYTES) or b""
    return tuple(part.decode(errors="replace") for part in text.rstrip(b"\0").split(b"\0")) if text else ()


def mapped_files(pid: int, folder: str) -> frozenset[str]:
    """Return the files below `folder` of this host that the process has mapped and that still have their name."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123  (hot)
            mapped = {tuple(line.rstrip("\n").split(None, 5)[3:]) for line in lines if folder in line}
    except OSError:
        return frozenset()
    found: set[str] = set()
    for device, inode, *path in mapped:
        name = "".join(path)
        if not name.startswith(folder):
            continue
        with contextlib.suppress(OSError):
            seen = os.stat(name)  # noqa: PTH116  (hot)
            # A container's own folder may hold the same name: another file.
            if (
                inode == str(seen.st_ino)
                and device == f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
            ):
                found.add(name)
    return frozenset(found)


def private_memory(pid: int) -> int:
    """Return the bytes of a process that no file and no shared memory backs, swapped out or not; 0 of none.

    Unlike PSS it may be read of another user's process, and costs nothing: the kernel keeps these counts.
    """
    text = _slurp(f"/proc/{pid}/status", _STAT_BYTES) or b""
    found = dict(line.split(b":", 1) for line in text.split(b"\n") if b":" in line)
    kib = (found.get(name, b"0 kB").split()[0] for name in (b"RssAnon", b"VmSwap"))
    return 1024 * sum(map(int, kib))


def available_memory() -> int | None:
    """Return the bytes that this host can still give to processes; None where the kernel does not say."""
    for line in (_slurp("/proc/meminfo", _STAT_BYTES) or b"").split(b"\n"):
        if line.startswith(b"MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


def control_groups(pid: int) -> str:
    """Return the text of `/proc/PID/cgroup`; empty where there is no such process."""
    return (_slurp(f"/proc/{pid}/cgroup", _STAT_BYTES) or b"").decode(errors="replace")


@functools.cache
def boot_id() -> str:
    """Return the first eight digits of this boot's id; zeros where the kernel does not say."""
    text = _slurp("/proc/sys/kernel/random/boot_id", 64)
    return text.decode().strip()[:8] if text else "00000000"


@functools.cache
def _boot_time_s() -> float:
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def started_s(process: ProcessId) -> float:
    """Return the Unix time at which the process started, to about a second."""
    return _boot_time_s() + process.ticks / os.sysconf("SC_CLK_TCK")


def open_handle(process: ProcessId) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None when it has ended already."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if not is_alive(process):  # Checked after opening, so that the handle cannot be another's.
        os.close(handle)
        return None
    return handle


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal this very process; False when it is not there any more or not ours to signal."""
    handle = open_handle(process)
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def _slurp(path: str, limit: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts: list[bytes] = []
        left = limit
        while left > 0:
            wanted = min(left, 65536)
            part = os.read(descriptor, wanted)
            parts.append(part)
            left -= len(part)
            if len(part) < wanted:  # /proc fills what was asked for unless it is at its end.
                break
        return b"".join(parts)
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
