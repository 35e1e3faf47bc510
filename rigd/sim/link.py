"""The API server's end of the link to the engine core: requests out, tokens in, and its death."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_LIMIT = 1 << 26


class EngineDeadError(Exception):
    """The engine core has gone; vLLM's sentence about it."""

    def __init__(self) -> None:
        super().__init__("EngineCore encountered an issue. See stack trace (above) for the root cause.")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Tokens that came in one step; `cached` comes with the first, `finished` with the last."""

    tokens: int
    finished: str | None
    cached: int | None


@dataclass(kw_only=True)
class Call:
    """One request in flight."""

    id: str
    prompt: Sequence[int]
    answer: Sequence[int]
    reason: str
    added_s: float = field(default_factory=time.monotonic)
    first_s: float | None = None
    last_s: float | None = None
    pieces: asyncio.Queue[Piece | None] = field(default_factory=asyncio.Queue)


class EngineLink:
    """Requests to the core and their tokens."""

    def __init__(
        self, link: socket.socket, *, observe: Callable[[dict[str, Any], dict[str, Call]], None]
    ) -> None:
        self._link = link
        self._observe = observe
        self._calls: dict[str, Call] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._ready: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.dead = asyncio.Event()

    async def run(self) -> None:
        """Read what the core says until it ends."""
        reader, self._writer = await asyncio.open_connection(sock=self._link, limit=_LIMIT)
        try:
            while line := await reader.readline():
                if not line.endswith(b"\n"):
                    break  # The core died in the middle of a message.
                self._take(json.loads(line))
        except OSError:
            pass
        self.dead.set()
        if not self._ready.done():
            self._ready.set_result(1)
        for call in self._calls.values():
            call.pieces.put_nowait(None)
        self._calls.clear()

    async def started(self) -> int | None:
        """Return None once the core is ready, or the exit code with which it gave up."""
        return await self._ready

    async def generate(self, call: Call) -> AsyncGenerator[Piece]:
        """Yield the pieces of the answer as they come; raises `EngineDeadError`."""
        if self.dead.is_set() or self._writer is None:
            raise EngineDeadError
        self._calls[call.id] = call
        finished = False
        try:
            await self._send(
                {"id": call.id, "prompt": call.prompt, "answer": call.answer, "reason": call.reason}
            )
            while not finished:
                piece = await call.pieces.get()
                if piece is None:
                    raise EngineDeadError
                finished = piece.finished is not None
                yield piece
        finally:
            if self._calls.pop(call.id, None) is not None and not finished and not self.dead.is_set():
                self._writer.write(json.dumps({"abort": call.id}).encode() + b"\n")

    async def _send(self, message: dict[str, Any]) -> None:
        if self._writer is None:
            raise EngineDeadError
        # No drain: a stopped core reads nothing, and the request must hang in the queue, not here.
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        await asyncio.sleep(0)

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message or "failed" in message:
            self._ready.set_result(message.get("failed"))
            return
        self._observe(message, self._calls)
        for call_id, tokens, finished, cached in message["out"]:
            call = self._calls.get(call_id)
            if call is not None:
                call.pieces.put_nowait(Piece(tokens=tokens, finished=finished, cached=cached))
