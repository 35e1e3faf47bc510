"""Streams: journal entries, live status and log lines, each with limits on silence and on slow readers.

A stream of documents is NDJSON. It says `{"type": "ping"}` when nothing happens, so that a reader can tell a
quiet daemon from a dead one, and ends with `{"type": "end"}` when the daemon stops.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rigd.api.backend import Backend, Document
from rigd.api.connections import Connection
from rigd.api.logs import LogCursor, start_number

STREAMS_LIMIT = 32
PING_S = 10.0
LIVE_INTERVAL_S = 0.5
"""Least time between two status documents of one watcher."""
SLOW_READER_S = 300.0
"""A reader that takes nothing for this long is cut; until then it costs one buffer and one queue."""
LOG_POLL_S = 0.25
PAGE = 500
"""Entries fetched at a time when a reader has fallen behind."""
VOLATILE = frozenset({"now_s"})
"""Keys of the status that alone make no news."""


class SlowReaderError(Exception):
    """The reader took nothing for too long; its connection has been cut."""


class FeedEndedError(Exception):
    """The daemon stops: no more items."""


class StreamSlots:
    """Counts the streams that are open, and says when the daemon stops."""

    def __init__(self, limit: int = STREAMS_LIMIT) -> None:
        self.free = limit
        self.closing = asyncio.Event()

    def room(self) -> bool:
        """Return whether one more stream may be opened."""
        return self.free > 0 and not self.closing.is_set()


class Stream(StreamingResponse):
    """A streaming response that counts, whose reader may not stall for ever, and whose source is closed."""

    def __init__(
        self,
        content: AsyncGenerator[bytes, None],
        *,
        slots: StreamSlots,
        connection: Connection,
        media_type: str,
    ) -> None:
        super().__init__(content, media_type=media_type)
        self._content = content
        self._slots = slots
        self._connection = connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what the source yields until it ends, the reader leaves, or the reader stalls."""

        async def patient(message: Any) -> None:
            try:
                async with asyncio.timeout(SLOW_READER_S):
                    await send(message)
            except TimeoutError as error:
                self._connection.abort()
                raise SlowReaderError from error

        self._slots.free -= 1
        try:
            with contextlib.suppress(SlowReaderError):
                await super().__call__(scope, receive, patient)
        finally:
            self._slots.free += 1
            await self._content.aclose()


class Feed:
    """The backend's live items, to be waited for with a deadline without losing one."""

    def __init__(self, backend: Backend, closing: asyncio.Event) -> None:
        self._items = aiter(backend.subscribe())
        self._next: asyncio.Task[Document] | None = None
        self._closing = asyncio.ensure_future(closing.wait())

    async def begin(self) -> None:
        """Subscribe now: whatever happens from here on is not missed."""
        self._expect()
        await asyncio.sleep(0)

    async def item(self, timeout_s: float) -> Document | None:
        """Return the next item, or None when there was none in time. Raises `FeedEndedError` at the end."""
        pending = self._expect()
        await asyncio.wait({pending, self._closing}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if pending.done():
            self._next = None
            try:
                return pending.result()
            except StopAsyncIteration as error:
                raise FeedEndedError from error
        if self._closing.done():
            raise FeedEndedError
        return None

    async def close(self) -> None:
        """Let go of the subscription."""
        self._closing.cancel()
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
            if not self._next.cancelled():
                self._next.exception()
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()

    def _expect(self) -> asyncio.Task[Document]:
        if self._next is None:
            self._next = asyncio.ensure_future(_following(self._items))
        return self._next


async def event_lines(
    backend: Backend, slots: StreamSlots, *, after: int | None, limit: int
) -> AsyncGenerator[bytes, None]:
    """Yield journal entries: the past ones asked for, then each new one, none twice and none left out."""
    feed = Feed(backend, slots.closing)
    try:
        await feed.begin()
        last = after or 0
        for entry in await backend.events(after, limit) if limit or after is not None else ():
            last = max(last, entry["id"])
            yield line(entry)
        while True:
            item = await feed.item(PING_S)
            if item is None:
                yield PING
            if item is None or item.get("type") != "live":
                # The journal is the truth. The item only says that there is something new, or that this
                # reader was too slow and items were dropped.
                async for entry in _since(backend, last):
                    last = max(last, entry["id"])
                    yield line(entry)
    except FeedEndedError:
        yield END
    finally:
        await feed.close()


async def live_lines(backend: Backend, slots: StreamSlots) -> AsyncGenerator[bytes, None]:
    """Yield the status whenever it changes, with the items that happen in between."""
    feed = Feed(backend, slots.closing)
    shown: Document | None = None
    sent_s = 0.0
    try:
        await feed.begin()
        while True:
            now_s = time.monotonic()
            due = shown is None or now_s - sent_s >= LIVE_INTERVAL_S
            status = backend.status() if due else shown
            if due and _differs(status, shown):
                shown, sent_s = status, now_s
                yield line({"type": "status", "status": status})
            elif now_s - sent_s >= PING_S:
                sent_s = now_s
                yield PING
            item = await feed.item(LIVE_INTERVAL_S)
            if item is not None and item.get("type") != "live":  # What is live, the status says as well.
                yield line({key: value for key, value in item.items() if key != "status"})
    except FeedEndedError:
        yield END
    finally:
        await feed.close()


async def log_bytes(
    backend: Backend, slots: StreamSlots, *, start: int | None, past: bytes, cursor: LogCursor
) -> AsyncGenerator[bytes, None]:
    """Yield `past` and what is added to the log after it; with `start` None go on to the next start's log."""
    if past:
        yield past
    while not slots.closing.is_set():
        while chunk := await asyncio.to_thread(cursor.read):
            yield chunk
        newest = backend.log_path(start)
        if newest is not None and newest != cursor.path:
            yield f"--- start {start_number(newest)} ---\n".encode()
            cursor = LogCursor(newest)
        else:
            await _pause(slots.closing, LOG_POLL_S)


def line(document: Document) -> bytes:
    """Return a document as one line of NDJSON."""
    return json.dumps(document, separators=(",", ":"), default=str).encode() + b"\n"


PING = line({"type": "ping"})
END = line({"type": "end"})


async def _since(backend: Backend, last: int) -> AsyncIterator[Document]:
    while entries := await backend.events(last, PAGE):
        for entry in entries:
            yield entry
        last = max(entry["id"] for entry in entries)


def _differs(status: Document | None, shown: Document | None) -> bool:
    if status is None or shown is None:
        return status is not shown
    return any(status.get(key) != shown.get(key) for key in status.keys() - VOLATILE)


async def _following(items: AsyncIterator[Document]) -> Document:
    return await anext(items)


async def _pause(closing: asyncio.Event, timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await closing.wait()
