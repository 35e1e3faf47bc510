"""The controller's end of a helper: requests out, events in, over any stream of bytes."""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from rigd.provision.connection.target import HostUnreachableError
from rigd.provision.target import frames

Event = dict[str, Any]
BlobSource = Callable[[str], bytes | None]
"""Gives the content whose sha256 it is asked for; None where it is not held."""

Knock = Callable[[], bool | None]
"""Tries a new connection to the host: whether it comes through; None where the host is this machine."""

BEAT_S = 15.0
SILENT_BEATS = 4
"""A helper answers every beat, even in the middle of a task; so many without an answer mean that the link is cut.
The helper waits for one more of ours before it ends itself and what it runs."""
HELLO_DEADLINE_S = 30.0
CANCEL_DEADLINE_S = 10.0
EVENT_LIMIT = 10_000
"""Events that may wait for the caller; then the helper waits."""


class Stream(Protocol):
    """Bytes to and from a process."""

    def receive(self) -> bytes:
        """Return the next bytes; none at the end."""

    def send(self, data: bytes) -> None:
        """Send all of it; raises OSError where nobody takes it."""

    def close(self) -> None:
        """End the process's input, and let go of it."""

    def last_words(self) -> str:
        """Return the end of what the process said on stderr."""


class Helper:
    """A running helper. One request at a time, from one thread at a time."""

    def __init__(
        self, stream: Stream, reader: frames.Reader, *, host: str, blobs: BlobSource,
        knock: Knock = lambda: None, beats: bool = True,
    ) -> None:  # fmt: skip
        """Speak with a helper that has said it is ready; `reader` holds what of the stream was read already."""
        self._stream = stream
        self._reader = reader
        self._host = host
        self._blobs = blobs
        self._knock = knock
        self._sending = threading.Lock()
        self._events: queue.Queue[Event | None] = queue.Queue(EVENT_LIMIT)
        self._next_id = 0
        self._present: int | None = None
        self._closed = threading.Event()
        self._heard_s = time.monotonic()
        self._send(frames.SYNC)
        threading.Thread(target=self._read, name=f"helper {host}", daemon=True).start()
        if beats:
            threading.Thread(target=self._beat, name=f"beat {host}", daemon=True).start()
        self.hello = self._greet()
        """Protocol, Python, uid, user, boot_id, hostname, pid of the helper."""

    @property
    def alive(self) -> bool:
        """Whether requests can be sent."""
        return not self._closed.is_set()

    def request(self, kind: str, *, deadline_s: float | None = None, **fields: Any) -> Iterator[Event]:
        """Send a request and give its events as they come; what runs is called off after `deadline_s`.

        Leaving the loop early calls the request off, too.
        """
        self._next_id += 1
        self._present = self._next_id
        self._send(frames.pack({"request": kind, "id": self._present, **fields}))
        until_s = None if deadline_s is None else time.monotonic() + deadline_s
        try:
            yield from self._answers(until_s)
        finally:
            if self._present is not None and self.alive:
                self._call_off()
            self._present = None

    def one(self, kind: str, *, deadline_s: float | None = None, **fields: Any) -> Event:
        """Send a request that has one event for an answer, and return that."""
        events = [event for event in self.request(kind, deadline_s=deadline_s, **fields) if "event" in event]
        if not events or events[-1]["event"] == "refused":
            raise self._lost(f"does not know the request '{kind}'")
        return events[-1]

    def facts(self, subset: frozenset[str] | None = None) -> dict[str, Any]:
        """Return the host's facts under Ansible's names without `ansible_`; all, or those named."""
        wanted = None if subset is None else sorted(subset)
        facts: dict[str, Any] = self.one("facts", subset=wanted, deadline_s=60)["facts"]
        return facts

    def close(self) -> None:
        """End the helper, and with it whatever it still runs."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._stream.close()

    def _greet(self) -> Event:
        hello = self.one("hello", silence_limit_s=BEAT_S * (SILENT_BEATS + 1), deadline_s=HELLO_DEADLINE_S)
        if hello["protocol"] != frames.PROTOCOL:
            self.close()
            raise self._lost(f"speaks protocol {hello['protocol']}, not {frames.PROTOCOL}")
        return hello

    def _answers(self, until_s: float | None) -> Iterator[Event]:
        while (event := self._next(until_s)) is not None:
            if event.get("id") != self._present:
                continue
            if event["event"] == "done":
                self._present = None
                return
            if event["event"] == "debug":
                _debug("module broke off", host=self._host, task=event.get("task"), trace=event.get("text"))
                continue
            yield event
        # Time is up: what runs is ended, and the helper says how.
        self._cancel()
        until_s = time.monotonic() + CANCEL_DEADLINE_S
        while (event := self._next(until_s)) is not None:
            if event.get("id") == self._present and event["event"] == "done":
                self._present = None
                return
            if event.get("id") == self._present:
                yield event
        self.close()
        raise self._lost("does not answer", temporary=True)

    def _next(self, until_s: float | None) -> Event | None:
        """Return the next event, None when the time is up."""
        timeout_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            # Left for whoever asks next.
            self._events.put(None)
            self._closed.set()
            said = self._stream.last_words().strip().splitlines()
            raise self._lost("is cut" + (f": {said[-1]}" if said else ""), temporary=True)
        return event

    def _call_off(self) -> None:
        """End what runs, and drop what it still says."""
        self._cancel()
        until_s = time.monotonic() + CANCEL_DEADLINE_S
        with contextlib.suppress(HostUnreachableError):
            while (event := self._next(until_s)) is not None:
                if event.get("id") == self._present and event["event"] == "done":
                    return
            self.close()

    def _cancel(self) -> None:
        with contextlib.suppress(HostUnreachableError):
            self._send(frames.pack({"request": "cancel", "of": self._present}))

    def _send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._stream.send(data)
        except OSError as error:
            self._closed.set()
            raise self._lost("is cut", temporary=True) from error

    def _read(self) -> None:
        try:
            while (frame := self._reader.read()) is not None:
                self._heard_s = time.monotonic()
                self._take(frame[0])
        except (OSError, EOFError, frames.FrameError, HostUnreachableError) as error:
            _debug("helper's stream broke", host=self._host, error=str(error))
        self._events.put(None)

    def _take(self, event: Event) -> None:
        if event["event"] == "need":
            self._give(event["digest"])
        elif event["event"] == "knock":
            # On a thread of its own: a door that is shut says so late, and the beats' answers must be read.
            threading.Thread(target=self._try_door, args=(event["knock"],), daemon=True).start()
        elif event["event"] != "beat":
            self._events.put(event)

    def _give(self, digest: str) -> None:
        """Send content that the helper asks for, or why it does not come."""
        answer: Mapping[str, Any] = {"request": "blob", "digest": digest}
        try:
            content = self._blobs(digest)
        except OSError as error:
            self._send(frames.pack({**answer, "missing": f"the controller cannot read it: {error}"}))
            return
        if content is None:
            self._send(frames.pack({**answer, "missing": "the controller does not hold it; run it again"}))
        elif len(content) > frames.PAYLOAD_LIMIT_BYTES:
            self._send(
                frames.pack({**answer, "missing": "it is larger than 1 GiB; have the box get it by get_url"})
            )
        else:
            self._send(frames.pack(answer, content))

    def _try_door(self, number: int) -> None:
        """Tell the helper whether a new connection comes through."""
        seen = self._knock()
        with contextlib.suppress(HostUnreachableError):
            self._send(frames.pack({"request": "knocked", "knock": number, "open": seen}))

    def _beat(self) -> None:
        beat = frames.pack({"request": "beat"})
        while not self._closed.wait(BEAT_S):
            if time.monotonic() - self._heard_s > BEAT_S * SILENT_BEATS:
                self._events.put(None)
                self.close()
                return
            # Whoever sends now may be stuck in a cut link, and is freed by the close above.
            if not self._sending.acquire(timeout=BEAT_S):
                continue
            try:
                self._stream.send(beat)
            except OSError:
                return
            finally:
                self._sending.release()

    def _lost(self, what: str, *, temporary: bool = False) -> HostUnreachableError:
        hint = "run the same command again: it goes on where it was" if temporary else None
        return HostUnreachableError(
            f"the helper on '{self._host}' {what}" if not what.startswith("is cut") else
            f"the link to '{self._host}' {what}",
            hint=hint, temporary=temporary,
        )  # fmt: skip


def _debug(what: str, **fields: object) -> None:
    """Log something for the curious; a run in which all goes well does not pay for the logger's import."""
    import structlog  # noqa: PLC0415  (it takes 70 ms)

    from rigd import log  # noqa: PLC0415  (as above)

    if not structlog.is_configured():
        # A command that prints results: its stdout is not for logs, and only the curious want these.
        log.configure(level="debug" if os.environ.get("RIGD_DEBUG") else "warning")
    log.get("provision.connection").debug(what, **fields)
