"""One thread that carries out functions in order, for a thing that must stay with one thread.

It is a daemon thread: a function that never returns (a disk that does not answer) does not keep the program
alive.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs one function after another; the results come as futures."""

    def __init__(self, name: str) -> None:
        """Start the thread under this name."""
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._began_s: float | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def run(self, function: Callable[[], T]) -> Future[T]:
        """Queue `function`; a future that is cancelled before its turn is passed over."""
        future: Future[T] = Future()
        self._jobs.put((future, function))
        return future

    def busy_s(self) -> float:
        """Return how long the function in progress has been at it; 0 when none is."""
        began_s = self._began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def end(self) -> None:
        """End the thread after what is queued."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if not future.set_running_or_notify_cancel():
                continue
            self._began_s = time.monotonic()
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001  (carried over to the caller's side)
                future.set_exception(error)
            finally:
                self._began_s = None
            del job, future, function  # Nothing is kept alive while waiting for the next one.
