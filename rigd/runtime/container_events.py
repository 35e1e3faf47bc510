"""Docker's events for one rig's containers, from a thread; anyone waiting is woken, and looks for himself.

An event is only a reason to look: after a gap (Docker restarted) everyone is woken too.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from rigd.adapters import docker
from rigd.adapters.docker import Client, ContainerEvent, DockerError, Stream
from rigd.log import get

log = get("runtime.container_events")

_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_KEEP = 64
_WORTH_A_LOOK = frozenset({"die", "oom", "kill", "stop", "destroy", "pause", "unpause", "start"})


class EventWatch(threading.Thread):
    """Follows the events stream through losses of Docker and remembers the latest few."""

    def __init__(self, connect: Callable[[], Client], label: str) -> None:
        super().__init__(name="rigd-docker-events", daemon=True)
        self._connect = connect
        self._label = label
        self._stopped = threading.Event()
        self._stream: Stream[ContainerEvent] | None = None
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._recent: deque[ContainerEvent] = deque(maxlen=_KEEP)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def waker(self) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever something happened; clear it before looking."""
        event = asyncio.Event()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[event]

    def last(self, container: str, action: str) -> ContainerEvent | None:
        """Return the latest event of that kind seen for the container."""
        with self._lock:
            return next(
                (one for one in reversed(self._recent) if (one.container, one.action) == (container, action)),
                None,
            )

    def stop(self) -> None:
        """End the stream soon."""
        self._stopped.set()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        """Follow until stopped."""
        since_s, failures = time.time(), 0
        while not self._stopped.is_set():
            try:
                self._stream = docker.events(self._connect(), self._label, since_s=since_s)
                failures = 0
                self._wake()  # What happened in the gap is seen by looking.
                for event in self._stream:
                    since_s = max(since_s, event.at_s)
                    with self._lock:
                        self._recent.append(event)
                    if event.action in _WORTH_A_LOOK:
                        self._wake()
            except DockerError as error:
                if failures == 0:
                    log.warning("Docker's events interrupted", error=error.detail)
                failures += 1
            except Exception as error:  # noqa: BLE001  (this thread must outlive whatever the SDK does)
                log.warning("Docker's events interrupted", error=repr(error))
                failures += 1
            self._stream = None
            self._wake()
            self._stopped.wait(_RETRY_S[min(failures, len(_RETRY_S) - 1)])

    def _wake(self) -> None:
        with self._lock:
            for event, loop in self._waiting.items():
                with contextlib.suppress(RuntimeError):  # That loop has closed.
                    loop.call_soon_threadsafe(event.set)
