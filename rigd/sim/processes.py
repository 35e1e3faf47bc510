"""Real processes with vLLM's names, and the sockets between them."""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_NAME = 15
_CHUNK = 1 << 16
_WORKER_LINGER_S = 2.0


class WorkerDiedError(Exception):
    """A worker has ended; `rank` says which."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"worker {rank} died")
        self.rank = rank


class StepTimedOutError(Exception):
    """A worker has not answered in time."""


def set_name(name: str) -> None:
    """Name this process in `/proc/PID/comm`, of which the kernel keeps fifteen characters."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def set_title(title: str) -> None:
    """Name this process there and in its command line."""
    set_name(title)
    # What `ps` shows lies at the addresses that the kernel tells in fields 48 and 49.
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = (
            Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
        start, end = int(fields[45]), int(fields[46])
        room = end - start
        if 0 < room < _CHUNK and start:
            ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)


def fork(run: Callable[[], int]) -> int:
    """Run `run` in a child process and return its pid; the child ends with what `run` returns."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run_child(run)
    return pid


def _run_child(run: Callable[[], int]) -> NoReturn:
    code = 1
    try:
        code = run()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001  (the child's boundary: nothing above it may run twice)
        traceback.print_exc()
    end(code)


def ignore_term() -> None:
    """Let TERM pass without effect in this process and its children."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One tensor-parallel rank, seen from the engine core."""

    rank: int
    pid: int
    link: socket.socket

    @property
    def title(self) -> str:
        """What the log calls it."""
        return f"Worker_TP{self.rank}"


def start_workers(ranks: int, *, inherited: tuple[socket.socket, ...]) -> tuple[Worker, ...]:
    """Fork one worker for each rank; `inherited` are the core's own sockets, which a worker closes."""
    workers: list[Worker] = []
    for rank in range(ranks):
        ours, theirs = socket.socketpair()
        others = (*inherited, ours, *(worker.link for worker in workers))

        def run(rank: int = rank, link: socket.socket = theirs, others: tuple[Any, ...] = others) -> int:
            for other in others:
                other.close()
            return _work(rank, link)

        pid = fork(run)
        theirs.close()
        workers.append(Worker(rank=rank, pid=pid, link=ours))
    return tuple(workers)


def _work(rank: int, link: socket.socket) -> int:
    set_title(f"VLLM::Worker_TP{rank}")
    while data := link.recv(_CHUNK):
        link.sendall(data)
    # vLLM's workers need a moment, too, to notice that their core has gone.
    time.sleep(_WORKER_LINGER_S)
    return 0


def run_step(workers: tuple[Worker, ...], *, timeout_s: float, waiting: Callable[[float], None]) -> None:
    """Have every worker take part in a step; `waiting` is called every second that one does not answer."""
    for worker in workers:
        try:
            worker.link.sendall(b"s")
        except OSError as error:
            raise WorkerDiedError(worker.rank) from error
    start_s = time.monotonic()
    missing = {worker.link: worker for worker in workers}
    while missing:
        readable, _, _ = select.select(list(missing), [], [], 1.0)
        for link in readable:
            answer = _receive(link)
            if not answer:
                raise WorkerDiedError(missing[link].rank)
            del missing[link]
        waited_s = time.monotonic() - start_s
        if missing and waited_s >= timeout_s:
            raise StepTimedOutError
        if missing and not readable:
            waiting(waited_s)


def _receive(link: socket.socket) -> bytes:
    try:
        return link.recv(1)
    except OSError:
        return b""


class Lines:
    """JSON messages over a socket, for the blocking side of a link."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._rest = bytearray()

    def send(self, message: dict[str, Any]) -> bool:
        """Send one message; False when nobody is there any more."""
        try:
            self.link.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that have come, waiting for more bytes; None at the end."""
        try:
            data = self.link.recv(_CHUNK)
        except OSError:
            return None
        if not data:
            return None
        self._rest += data
        *whole, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        return [json.loads(line) for line in whole]


def end(code: int) -> NoReturn:
    """End this process at once with `code`."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
