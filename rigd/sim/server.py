"""The API server's routes: vLLM's paths, codes and bodies."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rigd.sim import answers, wire
from rigd.sim.arguments import Settings
from rigd.sim.faults import Faults
from rigd.sim.lines import Log
from rigd.sim.link import Call, EngineDeadError, EngineLink
from rigd.sim.metrics import Metrics
from rigd.sim.tokenizer import Tokenizer

_GUARDED = ("/v1", "/v2", "/inference", "/cohere")
_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"

_Said = tuple[str, str, int, int | None]
_Handler = Callable[[Request], Awaitable[Response]]


class Guard:
    """Asks for the key on the paths on which vLLM asks for it; the others are open there, too."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app = app
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        asks = scope["type"] == "http" and scope["method"] != "OPTIONS" and scope["path"].startswith(_GUARDED)
        if self._keys and asks and not self._known(dict(scope["headers"]).get(b"authorization", b"")):
            await JSONResponse({"error": "Unauthorized"}, status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _known(self, header: bytes) -> bool:
        scheme, _, key = header.partition(b" ")
        digest = hashlib.sha256(key).digest()
        return scheme.lower() == b"bearer" and any(secrets.compare_digest(digest, one) for one in self._keys)


@dataclass(kw_only=True)
class Server:
    """The state behind the routes."""

    settings: Settings
    faults: Faults
    engine: EngineLink
    metrics: Metrics
    tokenizer: Tokenizer
    out: Log
    load: int = 0

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[Route(path, handler, methods=[method]) for method, path, handler in self._table()],
            middleware=[Middleware(Guard, keys=self.settings.api_keys)],
            exception_handlers={
                wire.ApiError: self._refuse,
                EngineDeadError: self._mourn,
                ClientDisconnect: _nobody,
                404: _plain_error,
                405: _plain_error,
            },
        )

    def routes(self) -> tuple[tuple[str, str], ...]:
        """Return paths and methods, for the log."""
        return tuple((path, method) for method, path, _ in self._table())

    def _table(self) -> tuple[tuple[str, str, _Handler], ...]:
        return (
            ("GET", "/load", self._load),
            ("GET", "/version", self._version),
            ("GET", "/health", self._health),
            ("GET", "/metrics", self._metrics),
            ("POST", "/tokenize", self._tokenize),
            ("POST", "/detokenize", self._detokenize),
            ("GET", "/v1/models", self._models),
            ("GET", "/ping", self._health),
            ("POST", "/ping", self._health),
            ("POST", "/v1/chat/completions", self._chat),
            ("POST", "/v1/completions", self._completions),
        )

    async def _health(self, _request: Request) -> Response:
        slow_s = self.faults.now().number("slow-health")
        if slow_s:
            await asyncio.sleep(slow_s)
        return Response(status_code=503 if self.engine.dead.is_set() else 200)

    async def _load(self, _request: Request) -> Response:
        return JSONResponse({"server_load": self.load})

    async def _version(self, _request: Request) -> Response:
        return JSONResponse({"version": self.settings.version})

    async def _metrics(self, _request: Request) -> Response:
        return Response(self.metrics.text(), media_type=_METRICS_TYPE)

    async def _models(self, _request: Request) -> Response:
        cards: list[dict[str, Any]] = [
            {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "vllm",
                "root": self.settings.model,
                "parent": None,
                "max_model_len": self.settings.max_model_len,
                "permission": [],
            }
            for name in self.settings.served_model_names
        ]
        return JSONResponse({"object": "list", "data": cards})

    async def _tokenize(self, request: Request) -> Response:
        body = wire.body_of(await request.body())
        wire.check_model(body, self.settings)
        prompt = body.get("prompt")
        text = prompt if isinstance(prompt, str) else wire.render(body)
        tokens = self.tokenizer.encode(text)
        texts = [self.tokenizer.piece(token) for token in tokens] if body.get("return_token_strs") else None
        return JSONResponse(
            {
                "count": len(tokens),
                "max_model_len": self.settings.max_model_len,
                "tokens": tokens,
                "token_strs": texts,
            }
        )

    async def _detokenize(self, request: Request) -> Response:
        body = wire.body_of(await request.body())
        wire.check_model(body, self.settings)
        return JSONResponse({"prompt": self.tokenizer.decode(body.get("tokens", ()))})

    async def _completions(self, request: Request) -> Response:
        body = wire.body_of(await request.body())
        wire.check_model(body, self.settings)
        return await self._answer(request, wire.completion(body, self.settings), chat=False)

    async def _chat(self, request: Request) -> Response:
        body = wire.body_of(await request.body())
        wire.check_model(body, self.settings)
        return await self._answer(request, wire.chat(body, self.settings), chat=True)

    async def _answer(self, request: Request, ask: wire.Ask, *, chat: bool) -> Response:
        switches = self.faults.now()
        if switches.on("http-500"):
            raise wire.ApiError(500, "Internal server error", "InternalServerError")
        if self.engine.dead.is_set():
            raise EngineDeadError
        settings = self.settings
        shape = answers.new_shape(
            chat=chat,
            model=settings.name,
            fingerprint=f"vllm-{settings.version}-tp{settings.ranks}-5b6f3a1c",
            details=settings.prompt_tokens_details,
        )
        turns = [self._turn(prompt, ask, f"{shape.id}-{index}") for index, prompt in enumerate(ask.prompts)]
        if ask.stream:
            stream = self._stream(shape, turns, ask)
            return StreamingResponse(stream, media_type="text/event-stream")
        results = await _unless_gone(request, asyncio.gather(*(self._whole(turn) for turn in turns)))
        choices = [
            ((turn.text if ask.echo else "") + text, reason)
            for turn, (text, reason, _, _) in zip(turns, results, strict=True)
        ]
        cached = [result[3] for result in results if result[3] is not None]
        usage = shape.usage(
            sum(len(turn.call.prompt) for turn in turns),
            sum(result[2] for result in results),
            sum(cached) if cached else None,
        )
        return JSONResponse(shape.whole(choices, usage))

    def _turn(self, prompt: str | tuple[int, ...], ask: wire.Ask, call_id: str) -> "_Turn":
        text = prompt if isinstance(prompt, str) else ""
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        most = wire.check_length(len(tokens), ask, self.settings)
        answer = answers.compose(
            tokens,
            text,
            most=most,
            ignore_eos=ask.ignore_eos,
            tokenizer=self.tokenizer,
            switches=self.faults.now(),
        )
        answer = answers.ended_at(answer, ask.stops)
        call = Call(id=call_id, prompt=tokens, answer=answer.tokens, reason=answer.reason)
        return _Turn(text=text, call=call, answer=answer)

    async def _whole(self, turn: "_Turn") -> _Said:
        """Return text, why it ends, its tokens, and the prompt tokens that were cached."""
        texts, reason, cached = [], "length", None
        async for text, finished, hit in self._texts(turn):
            texts.append(text)
            reason = finished or reason
            cached = hit if hit is not None else cached
        return "".join(texts), reason, len(turn.answer.tokens), cached

    async def _texts(self, turn: "_Turn") -> AsyncGenerator[tuple[str, str | None, int | None]]:
        done = 0
        self.load += 1
        try:
            async with contextlib.aclosing(self.engine.generate(turn.call)) as pieces:
                async for piece in pieces:
                    text = "".join(turn.answer.texts[done : done + piece.tokens])
                    done += piece.tokens
                    yield text, piece.finished, piece.cached
        finally:
            self.load -= 1

    async def _stream(
        self, shape: answers.Shape, turns: Sequence["_Turn"], ask: wire.Ask
    ) -> AsyncIterator[str]:
        cached: int | None = None
        try:
            for index, turn in enumerate(turns):
                async for text, finished, hit in self._texts(turn):
                    if hit is not None:
                        cached = (cached or 0) + hit
                        yield shape.opening(index) or ""
                    yield shape.chunk(index, text, finished)
        except EngineDeadError as error:
            body = wire.ApiError(500, str(error), "InternalServerError").body
            yield f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n"
            return
        if ask.include_usage:
            prompt = sum(len(turn.call.prompt) for turn in turns)
            yield shape.closing(shape.usage(prompt, sum(len(turn.answer.tokens) for turn in turns), cached))
        yield "data: [DONE]\n\n"

    async def _refuse(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, wire.ApiError)  # noqa: S101  (starlette's signature is wider than the table)
        if error.status == 404:  # noqa: PLR2004  (HTTP's own number)
            self.out.error("serving.py:274", f"Error with model error={error.body['error']}")
        return JSONResponse(error.body, status_code=error.status)

    async def _mourn(self, _request: Request, error: Exception) -> Response:
        body = wire.ApiError(500, str(error), "InternalServerError").body
        return JSONResponse(body, status_code=500)


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """One prompt of a request and what it will be answered."""

    text: str
    call: Call
    answer: answers.Answer


async def _unless_gone(request: Request, work: "asyncio.Future[list[_Said]]") -> list[_Said]:
    """Return what `work` comes to; give it up when the client has gone, as vLLM does."""
    gone = asyncio.ensure_future(_gone(request))
    either: set[asyncio.Future[Any]] = {work, gone}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            raise ClientDisconnect
        return work.result()
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _nobody(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _plain_error(_request: Request, error: Exception) -> Response:
    status: int = getattr(error, "status_code", 500)
    detail: Any = getattr(error, "detail", "Internal Server Error")
    return JSONResponse({"detail": detail}, status_code=status)
