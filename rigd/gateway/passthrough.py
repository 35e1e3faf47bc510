"""The pass-through itself, as an ASGI application: what comes in goes on, piece by piece, both ways.

    receive -> _Inbox -> upstream (streamed)         the answer's pieces -> send, each as it comes
                  `-> the client hung up: the exchange is cancelled, and with it the engine's work

Nothing is collected, nothing is changed but headers of the connection itself. The engine's errors are the client's;
our own have its form and the type `gateway_error`.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import httpx

from rigd.gateway.headers import content_length, has_body, towards_client, towards_engine, value_of
from rigd.gateway.tap import End, Exchange, Tap, Watcher
from rigd.gateway.upstream import Limits, Upstream

INBOX_PIECES = 8
"""Pieces of a request's body that wait for the engine; uvicorn holds back the client behind them."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class RefusedError(Exception):
    """An exchange that is answered here."""

    def __init__(self, status: int, message: str, *, retry_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_s = retry_s


class PassThrough:
    """Hands every request on to one engine."""

    def __init__(self, upstream: Upstream, limits: Limits, taps: Sequence[Tap] = ()) -> None:
        self.under_way = 0
        """Exchanges that run now."""
        self._upstream = upstream
        self._limits = limits
        self._taps = tuple(taps)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        watchers = _Watchers(self._taps, self._exchange(scope))
        if self.under_way >= self._limits.exchanges:
            full = RefusedError(
                503, f"{self.under_way} requests are under way already, which is the limit here", retry_s=2
            )
            watchers.answered(full.status)
            await _refuse(send, full)
            watchers.ended(End.REFUSED)
            return
        self.under_way += 1
        end = End.BROKEN
        try:
            end = await self._exchanged(scope, _Inbox(receive, self._limits, watchers), send, watchers)
        finally:
            self.under_way -= 1
            watchers.ended(end)

    def _exchange(self, scope: MutableMapping[str, Any]) -> Exchange:
        return Exchange(
            number=next(self._numbers),
            method=scope["method"],
            path=scope["path"],
            encoding=(value_of(scope["headers"], b"content-encoding") or b"").decode("latin-1").lower(),
            begun_s=time.monotonic(),
        )

    async def _exchanged(
        self, scope: MutableMapping[str, Any], inbox: "_Inbox", send: Send, watchers: "_Watchers"
    ) -> End:
        """Run the exchange until it is over or its client is gone."""
        relay = asyncio.ensure_future(self._relay(scope, inbox, send, watchers))
        reading = asyncio.ensure_future(inbox.run())
        try:
            await asyncio.wait({relay, reading}, return_when=asyncio.FIRST_COMPLETED)
            # After the last piece "disconnected" only means that this exchange is over.
            return await relay if relay.done() or inbox.answered else End.HANG_UP
        finally:
            for task in (relay, reading):
                task.cancel()
            # The engine's connection is closed before this returns: its work ends now, not some time later.
            await asyncio.gather(relay, reading, return_exceptions=True)

    async def _relay(
        self, scope: MutableMapping[str, Any], inbox: "_Inbox", send: Send, watchers: "_Watchers"
    ) -> End:
        try:
            answer = await self._open(scope, inbox)
        except RefusedError as error:
            inbox.answered = True
            watchers.answered(error.status)
            await _refuse(send, error)
            return End.REFUSED
        try:
            watchers.answered(answer.status_code)
            await self._sent(
                send,
                {
                    "type": "http.response.start",
                    "status": answer.status_code,
                    "headers": towards_client(answer.headers.raw),
                },
            )
            async for piece in answer.aiter_raw():
                watchers.told(piece)
                await self._sent(send, {"type": "http.response.body", "body": piece, "more_body": True})
            inbox.answered = True
            await self._sent(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except (httpx.HTTPError, httpx.StreamError):
            # Without its last piece the client's connection is cut: it must not take half an answer for a whole one.
            return End.BROKEN
        except TimeoutError:
            return End.HANG_UP  # It has taken nothing for so long that it counts as gone.
        finally:
            with contextlib.suppress(httpx.HTTPError):
                await answer.aclose()
        return End.DONE

    async def _open(self, scope: MutableMapping[str, Any], inbox: "_Inbox") -> httpx.Response:
        """Send the request on. Raises `RefusedError` where no answer comes of it."""
        headers = scope["headers"]
        if (content_length(headers) or 0) > self._limits.body_bytes:
            raise _too_large(self._limits)
        path = scope.get("raw_path") or scope["path"].encode()
        if query := scope.get("query_string"):
            path += b"?" + query
        where = str(self._upstream.url)
        try:
            return await self._upstream.open(
                scope["method"],
                path,
                towards_engine(headers, self._upstream.host),
                inbox.body() if has_body(headers) else None,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise RefusedError(
                502, f"the engine at {where} does not answer; `rigd status` says why", retry_s=5
            ) from error
        except httpx.PoolTimeout as error:
            raise RefusedError(503, f"no connection to the engine at {where} is free", retry_s=2) from error
        except httpx.TimeoutException as error:
            silence_s = self._limits.silence_s
            raise RefusedError(
                504, f"the engine at {where} said nothing for {silence_s:.0f} s; `rigd status` says why"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            text = str(error) or type(error).__name__
            raise RefusedError(
                502, f"the exchange with the engine at {where} broke: {text}; `rigd status` says why"
            ) from error

    async def _sent(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._limits.client_s):
            await send(message)


class _Inbox:
    """The one reader of what the client sends; ends when the client hangs up."""

    def __init__(self, receive: Receive, limits: Limits, watchers: "_Watchers") -> None:
        self.answered = False
        """The whole answer was handed over."""
        self._receive = receive
        self._limits = limits
        self._watchers = watchers
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(INBOX_PIECES)

    async def run(self) -> None:
        """Read until the client hangs up, which may be long after its request is complete."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
            if piece := message.get("body", b""):
                await self._pieces.put(piece)
            if not message.get("more_body"):
                await self._pieces.put(None)

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the request's body as it comes. Raises `RefusedError` when it grows too large or stalls."""
        size = 0
        while True:
            try:
                async with asyncio.timeout(self._limits.client_s):
                    piece = await self._pieces.get()
            except TimeoutError as error:
                raise RefusedError(
                    408, f"the rest of the request did not come within {self._limits.client_s:.0f} s"
                ) from error
            if piece is None:
                self._watchers.asked_all()
                return
            size += len(piece)
            if size > self._limits.body_bytes:
                raise _too_large(self._limits)
            self._watchers.asked(piece)
            yield piece


class _Watchers:
    """All who watch one exchange; one that raises is let go, and the exchange goes on."""

    def __init__(self, taps: Sequence[Tap], exchange: Exchange) -> None:
        found = (self._try(lambda tap=tap: tap.watch(exchange)) for tap in taps)  # type: ignore[misc]
        self._all: list[Watcher] = [watcher for watcher in found if watcher is not None]

    def asked(self, piece: bytes) -> None:
        self._tell(lambda watcher: watcher.asked(piece))

    def asked_all(self) -> None:
        self._tell(lambda watcher: watcher.asked_all())

    def answered(self, status: int) -> None:
        self._tell(lambda watcher: watcher.answered(status))

    def told(self, piece: bytes) -> None:
        self._tell(lambda watcher: watcher.told(piece))

    def ended(self, end: End) -> None:
        self._tell(lambda watcher: watcher.ended(end))

    def _tell(self, what: Callable[[Watcher], None]) -> None:
        for watcher in tuple(self._all):
            try:
                what(watcher)
            except Exception:  # noqa: BLE001  (who watches may have any fault, and must not break the exchange)
                self._all.remove(watcher)

    @staticmethod
    def _try(watch: Callable[[], Watcher | None]) -> Watcher | None:
        try:
            return watch()
        except Exception:  # noqa: BLE001  (as above)
            return None


async def _refuse(send: Send, error: RefusedError) -> None:
    body = json.dumps(
        {
            "error": {
                "message": str(error),
                "type": "gateway_error",
                "param": None,
                "code": error.status,
            }
        }
    ).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_s is not None:
        headers.append((b"retry-after", str(error.retry_s).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _too_large(limits: Limits) -> RefusedError:
    return RefusedError(413, f"the request is larger than {limits.body_bytes >> 20} MiB, the limit here")
