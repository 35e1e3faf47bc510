"""Runs a command of a task: a session of its own, a deadline, an output that cannot fill the memory."""

import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from rigd.provision.target.contract import CommandResult, ModuleError

OUTPUT_LIMIT_BYTES = 8 << 20
"""Of each stream the end is kept; more would fill the memory, and the journal."""
GRACE_S = 2.0
"""From the polite signal to the one that cannot be ignored."""
LINGER_S = 0.3
"""How long output is still awaited once the command itself has ended: something that it left behind may hold it."""
POLL_S = 0.05
_CHUNK_BYTES = 65536


class TaskCancelled(BaseException):
    """The task was called off: whoever asked is gone, or does not want it any more."""


class Groups:
    """The process groups that run now, so that all of them can be ended."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Set when everything must end."""
        self._lock = threading.Lock()
        self._leaders: set[int] = set()

    def add(self, leader: int) -> None:
        """Know a new group by the process that leads it; one that comes too late is ended at once."""
        with self._lock:
            self._leaders.add(leader)
        if self.stop.is_set():
            _signal(leader, signal.SIGKILL)

    def discard(self, leader: int) -> None:
        """Forget a group that has ended."""
        with self._lock:
            self._leaders.discard(leader)

    def end_all(self) -> None:
        """End every group: politely first, for good after a moment."""
        self.stop.set()
        with self._lock:
            leaders = tuple(self._leaders)
        for leader in leaders:
            _signal(leader, signal.SIGTERM)
        until_s = time.monotonic() + GRACE_S
        while time.monotonic() < until_s and any(_alive(leader) for leader in leaders):
            time.sleep(POLL_S)
        for leader in leaders:
            _signal(leader, signal.SIGKILL)


def run(
    argv: Sequence[str],
    *,
    stdin: bytes | None,
    environment: Mapping[str, str],
    folder: str | None,
    timeout_s: float,
    groups: Groups,
) -> CommandResult:
    """Run a command to its end; whatever its exit code, that is the answer."""
    process = _start(argv, stdin=stdin, environment=environment, folder=folder)
    groups.add(process.pid)
    try:
        outputs = _talk(process, stdin or b"", until_s=time.monotonic() + timeout_s, stop=groups.stop)
    except BaseException:
        _end(process)
        raise
    finally:
        groups.discard(process.pid)
    if groups.stop.is_set():
        raise TaskCancelled
    stdout, stderr = (tail.text() for tail in outputs[:2])
    if outputs[2]:
        raise ModuleError(
            f"`{shown(argv)}` did not end within {timeout_s:.3g} s and was ended",
            stdout=stdout, stderr=stderr, cmd=[*argv], timedout={"period": timeout_s},
        )  # fmt: skip
    return CommandResult(argv=tuple(argv), rc=process.returncode, stdout=stdout, stderr=stderr)


def shown(argv: Sequence[str], *, limit: int = 300) -> str:
    """Return the command as a person would type it, cut where it is long."""
    text = shlex.join(argv)
    return text if len(text) <= limit else f"{text[:limit]}..."


class _Tail:
    """The end of a stream."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._dropped_bytes = 0

    def add(self, chunk: bytes) -> None:
        self._held += chunk
        # Trimmed at twice the limit, so that each byte is moved once.
        if len(self._held) > 2 * OUTPUT_LIMIT_BYTES:
            self._trim()

    def text(self) -> str:
        self._trim()
        text = self._held.decode(errors="replace")
        return f"[{self._dropped_bytes} bytes left out]\n{text}" if self._dropped_bytes else text

    def _trim(self) -> None:
        extra = len(self._held) - OUTPUT_LIMIT_BYTES
        if extra > 0:
            del self._held[:extra]
            self._dropped_bytes += extra


def _start(
    argv: Sequence[str], *, stdin: bytes | None, environment: Mapping[str, str], folder: str | None
) -> subprocess.Popen[bytes]:
    if folder is not None and not os.path.isdir(folder):
        raise ModuleError(
            f"cannot run `{shown(argv)}` in {folder}: there is no such folder", rc=1, cmd=[*argv]
        )
    try:
        return subprocess.Popen(
            [*argv],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**environment},
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ModuleError(f"there is no command '{argv[0]}' on the box", rc=2, cmd=[*argv]) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModuleError(f"cannot run '{argv[0]}': {reason.lower()}", rc=error.errno, cmd=[*argv]) from error


def _talk(
    process: subprocess.Popen[bytes], stdin: bytes, *, until_s: float, stop: threading.Event
) -> tuple[_Tail, _Tail, bool]:
    """Feed and read the command until it ends; return its two streams, and whether its time was up."""
    tails = (_Tail(), _Tail())
    # Every way out ends it, since leaving `with process` waits for it.
    with process, selectors.DefaultSelector() as streams:
        _register(streams, process, tails, stdin)
        while streams.get_map() and process.poll() is None:
            if _given_up(process, until_s=until_s, stop=stop):
                return (*tails, True)
            for key, _ in streams.select(POLL_S):
                _move(streams, key)
        while process.poll() is None:
            if _given_up(process, until_s=until_s, stop=stop):
                return (*tails, True)
            time.sleep(POLL_S / 10)
        # What it left in its pipes is read; something that it left behind may hold them open for ever.
        linger_until_s = time.monotonic() + LINGER_S
        while streams.get_map() and time.monotonic() < linger_until_s:
            for key, _ in streams.select(POLL_S):
                _move(streams, key)
    return (*tails, False)


def _register(
    streams: selectors.BaseSelector,
    process: subprocess.Popen[bytes],
    tails: tuple[_Tail, _Tail],
    stdin: bytes,
) -> None:
    for stream, tail in ((process.stdout, tails[0]), (process.stderr, tails[1])):
        if stream is not None:
            streams.register(stream, selectors.EVENT_READ, tail)
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        streams.register(process.stdin, selectors.EVENT_WRITE, memoryview(stdin))


def _given_up(process: subprocess.Popen[bytes], *, until_s: float, stop: threading.Event) -> bool:
    """End the command if its time is up, or everything is being called off (which raises)."""
    if stop.is_set():
        _end(process)
        raise TaskCancelled
    if time.monotonic() > until_s:
        _end(process)
        return True
    return False


def _move(streams: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Carry one chunk from or to the command; a stream that is through is closed."""
    stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
    data: Any = key.data
    if isinstance(data, _Tail):
        if chunk := os.read(stream.fileno(), _CHUNK_BYTES):
            data.add(chunk)
            return
    else:
        left = b""
        with contextlib.suppress(BrokenPipeError):
            left = data[os.write(stream.fileno(), data[:_CHUNK_BYTES]) :] if data else data
        if left:
            streams.modify(stream, selectors.EVENT_WRITE, left)
            return
    streams.unregister(stream)
    stream.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _alive(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
