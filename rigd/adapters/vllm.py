"""vLLM's HTTP surface, asked and reported: every answer is a value, also the bad ones.

No judgement here. What another program sends is bounded in size and time, and never trusted to be what it
should: HTML, half a body or the wrong JSON become a kind and a detail, never a traceback.
"""

import asyncio
import enum
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from rigd.adapters.vllm_metrics import Counters, parse_counters, whole_number

__all__ = [
    "AnswerKind",
    "ChatAnswer",
    "Completion",
    "Counters",
    "HealthAnswer",
    "HealthKind",
    "VllmClient",
    "parse_counters",
]

BODY_LIMIT_BYTES = 16 << 20
"""Largest answer that is read, in bytes; a long completion is far below it."""

PAGE_LIMIT_BYTES = 512 << 10
"""Most of a metrics page that is remembered."""

DETAIL_LIMIT = 500
"""Most characters of another program's text that are kept."""

_OK_STATUS = 200


class HealthKind(enum.StrEnum):
    """What `/health` came to."""

    PASSING = "passing"
    FAILING = "failing"
    """It answered, but not with 200."""
    REFUSED = "refused"
    """Nobody listens there."""
    TIMEOUT = "timeout"
    ERROR = "error"
    """The connection broke, or what answers is no HTTP server."""


class AnswerKind(enum.StrEnum):
    """What a completion came to."""

    ANSWERED = "answered"
    EMPTY = "empty"
    """Well-formed, and without any text."""
    HTTP_ERROR = "http_error"
    """A status that is not 200; `status` and `detail` say which."""
    TIMEOUT = "timeout"
    REFUSED = "refused"
    """Nobody listens there."""
    ERROR = "error"
    """The connection broke, or the answer is none of vLLM's."""


@dataclass(frozen=True, kw_only=True)
class HealthAnswer:
    """One look at `/health`."""

    kind: HealthKind
    took_s: float
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The answer to `/v1/completions`."""

    kind: AnswerKind
    took_s: float
    text: str = ""
    completion_tokens: int = 0
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """The answer to `/v1/chat/completions`; times count from the request.

    It is EMPTY when the engine gave no token at all: one that has no readable text is an answer here.
    """

    kind: AnswerKind
    took_s: float
    text: str = ""
    ttft_s: float | None = None
    """Until the first token, seconds."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens that came from the prefix cache; None when the engine does not tell."""
    status: int | None = None
    detail: str = ""


class VllmClient:
    """Asks one engine; connections are kept alive between questions."""

    def __init__(self, base_url: str, *, model: str, api_key: str | None) -> None:
        self.last_metrics: tuple[float, bytes] | None = None
        """When `/metrics` last answered (Unix seconds), and what it said; kept for when the engine is gone."""
        self._model = model
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # A proxy of the environment is for the way out, never for this box or its tailnet.
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers=headers,
            trust_env=False,
            verify=False,  # noqa: S501  (plain HTTP only; the certificates would cost 3 MB for nothing)
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=2, keepalive_expiry=4.0),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def health(self, timeout_s: float) -> HealthAnswer:
        """Ask `/health`."""
        reply = await self._ask("GET", "/health", timeout_s=timeout_s)
        if reply.failure is not None:
            return HealthAnswer(kind=HealthKind(reply.failure), took_s=reply.took_s, detail=reply.detail)
        passing = reply.status == _OK_STATUS
        return HealthAnswer(
            kind=HealthKind.PASSING if passing else HealthKind.FAILING,
            took_s=reply.took_s,
            status=reply.status,
            detail="" if passing else f"HTTP {reply.status} {reply.text}".strip(),
        )

    async def counters(self, timeout_s: float) -> Counters | None:
        """Return what `/metrics` says, or None when there is nothing of vLLM's to be had."""
        reply = await self._ask("GET", "/metrics", timeout_s=timeout_s)
        if reply.failure is not None or reply.status != _OK_STATUS:
            return None
        self.last_metrics = (time.time(), reply.body[:PAGE_LIMIT_BYTES])
        return parse_counters(reply.body)

    async def complete(self, prompt: str, max_tokens: int, timeout_s: float) -> Completion:
        """Ask for exactly `max_tokens` tokens, greedily; special tokens are shown, so that empty means empty."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "skip_special_tokens": False,
        }
        reply = await self._ask("POST", "/v1/completions", body=body, timeout_s=timeout_s)
        if reply.failure is not None:
            return Completion(kind=AnswerKind(reply.failure), took_s=reply.took_s, detail=reply.detail)
        if reply.status != _OK_STATUS:
            return Completion(
                kind=AnswerKind.HTTP_ERROR,
                took_s=reply.took_s,
                status=reply.status,
                detail=reply.error_detail,
            )
        found = reply.json()
        text = _find(found, "choices", 0, "text")
        if not isinstance(text, str):
            detail = f"not an answer of vLLM: {reply.text}"
            return Completion(kind=AnswerKind.ERROR, took_s=reply.took_s, status=reply.status, detail=detail)
        return Completion(
            kind=AnswerKind.ANSWERED if text.strip() else AnswerKind.EMPTY,
            took_s=reply.took_s,
            text=text,
            completion_tokens=whole_number(_find(found, "usage", "completion_tokens")) or 0,
            status=reply.status,
        )

    async def chat(self, body: Mapping[str, Any], timeout_s: float) -> ChatAnswer:
        """Send a chat request as a stream and return what it said, and when."""
        asked = {**body, "model": body.get("model") or self._model, "stream": True}
        asked["stream_options"] = {"include_usage": True}
        heard = _Heard()
        start_s = time.monotonic()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._stream("POST", "/v1/chat/completions", asked) as answer,
            ):
                if answer.status_code != _OK_STATUS:
                    reply = _Reply(status=answer.status_code, body=await _read(answer))
                    heard.kind, heard.detail = AnswerKind.HTTP_ERROR, reply.error_detail
                else:
                    await _hear(answer, heard, start_s)
                heard.status = answer.status_code
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
            kind, heard.detail = _failure(error, timeout_s)
            heard.kind = AnswerKind(kind)
        return heard.answer(took_s=time.monotonic() - start_s)

    async def tokenize(self, body: Mapping[str, Any], timeout_s: float) -> tuple[int, ...] | None:
        """Return the tokens that a chat body, or a `prompt`, becomes; None when the engine does not say."""
        keys = ("messages", "prompt", "tools", "add_generation_prompt", "chat_template_kwargs")
        asked = {"model": body.get("model") or self._model} | {
            key: body[key] for key in keys if body.get(key) is not None
        }
        reply = await self._ask("POST", "/tokenize", body=asked, timeout_s=timeout_s)
        tokens = _find(reply.json(), "tokens") if reply.status == _OK_STATUS else None
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            return None
        return tuple(tokens)

    async def models(self, timeout_s: float) -> tuple[str, ...] | None:
        """Return the names of the models that are served; None when the engine does not say."""
        reply = await self._ask("GET", "/v1/models", timeout_s=timeout_s)
        cards = _find(reply.json(), "data") if reply.status == _OK_STATUS else None
        if not isinstance(cards, list):
            return None
        return tuple(name for card in cards if isinstance(name := _find(card, "id"), str))

    async def version(self, timeout_s: float) -> str | None:
        """Return the engine's version; None when it does not say."""
        reply = await self._ask("GET", "/version", timeout_s=timeout_s)
        version = _find(reply.json(), "version") if reply.status == _OK_STATUS else None
        return version if isinstance(version, str) else None

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> AsyncIterator[httpx.Response]:
        # The deadline is the caller's, over the whole exchange; httpx's own are for each read.
        async with self._http.stream(method, path, json=body, timeout=None) as answer:
            yield answer

    async def _ask(
        self, method: str, path: str, *, timeout_s: float, body: Mapping[str, Any] | None = None
    ) -> "_Reply":
        start_s = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s), self._stream(method, path, body) as answer:
                found = await _read(answer)
                return _Reply(status=answer.status_code, body=found, took_s=time.monotonic() - start_s)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
            kind, detail = _failure(error, timeout_s)
            return _Reply(failure=kind, detail=detail, took_s=time.monotonic() - start_s)


@dataclass(frozen=True, kw_only=True)
class _Reply:
    """A whole answer, or why there is none."""

    status: int = 0
    body: bytes = b""
    took_s: float = 0.0
    failure: str | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        return self.body[: DETAIL_LIMIT * 4].decode("utf-8", "replace")[:DETAIL_LIMIT].strip()

    @property
    def error_detail(self) -> str:
        message = _find(self.json(), "error", "message")
        return f"HTTP {self.status}: {message[:DETAIL_LIMIT] if isinstance(message, str) else self.text}"

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(kw_only=True)
class _Heard:
    """What of a stream has come so far."""

    kind: AnswerKind | None = None
    detail: str = ""
    status: int | None = None
    texts: list[str] = field(default_factory=list)
    size: int = 0
    ended: bool = False
    ttft_s: float | None = None
    usage: Any = None

    def answer(self, *, took_s: float) -> ChatAnswer:
        text = "".join(self.texts)
        kind, detail = self.kind, self.detail
        if kind is None and not self.ended:
            kind, detail = AnswerKind.ERROR, "the stream broke off"
        if kind is None:
            tokens = whole_number(_find(self.usage, "completion_tokens")) or 0
            kind = AnswerKind.ANSWERED if text.strip() or tokens else AnswerKind.EMPTY
        return ChatAnswer(
            kind=kind,
            took_s=took_s,
            text=text,
            ttft_s=self.ttft_s,
            prompt_tokens=whole_number(_find(self.usage, "prompt_tokens")),
            completion_tokens=whole_number(_find(self.usage, "completion_tokens")),
            cached_tokens=whole_number(_find(self.usage, "prompt_tokens_details", "cached_tokens")),
            status=self.status,
            detail=detail,
        )


async def _read(answer: httpx.Response) -> bytes:
    """Return the body. Raises `ValueError` when it is longer than anything vLLM sends."""
    parts = bytearray()
    async for part in answer.aiter_bytes():
        parts += part
        if len(parts) > BODY_LIMIT_BYTES:
            raise ValueError(f"an answer of more than {BODY_LIMIT_BYTES >> 20} MiB")
    return bytes(parts)


async def _hear(answer: httpx.Response, heard: _Heard, start_s: float) -> None:
    """Take in the events of a stream up to its end."""
    rest = b""
    async for part in answer.aiter_bytes():
        heard.size += len(part)
        if heard.size > BODY_LIMIT_BYTES:
            raise ValueError(f"an answer of more than {BODY_LIMIT_BYTES >> 20} MiB")
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                _take_event(line[5:].strip(), heard, start_s)


def _take_event(data: bytes, heard: _Heard, start_s: float) -> None:
    if data == b"[DONE]":
        heard.ended = True
        return
    event = json.loads(data)
    message = _find(event, "error", "message")
    if isinstance(message, str):
        heard.kind, heard.detail = AnswerKind.HTTP_ERROR, message[:DETAIL_LIMIT]
        return
    delta = _find(event, "choices", 0, "delta")
    if not isinstance(delta, dict):
        usage = _find(event, "usage")
        heard.usage = usage if isinstance(usage, dict) else heard.usage
        return
    # The opening chunk has a role and an empty text: the first token comes after it.
    texts = [_find(delta, key) for key in ("content", "reasoning", "reasoning_content")]
    said = [text for text in texts if isinstance(text, str) and text]
    if heard.ttft_s is None and (said or "role" not in delta):
        heard.ttft_s = time.monotonic() - start_s
    heard.texts += said


def _failure(error: Exception, timeout_s: float) -> tuple[str, str]:
    """Return the kind and a sentence for an exchange that came to nothing."""
    match error:
        case TimeoutError() | httpx.TimeoutException():
            return "timeout", f"no answer within {timeout_s:g} s"
        case httpx.ConnectError():
            refused = "refused" if _refused(error) else "error"
            return refused, f"cannot connect: {error}"[:DETAIL_LIMIT]
        case _:
            return "error", f"{type(error).__name__}: {error}"[:DETAIL_LIMIT]


def _refused(error: BaseException) -> bool:
    """Whether the other side refused, as opposed to an address that cannot be resolved or reached."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionRefusedError):
            return True
        seen = seen.__cause__ or seen.__context__
    return "refused" in str(error).lower() or "all connection attempts failed" in str(error).lower()


def _find(value: Any, *path: str | int) -> Any:
    """Return what lies at `path` in parsed JSON, or None."""
    for key in path:
        if isinstance(key, str) and isinstance(value, dict):
            value = value.get(key)
        elif isinstance(key, int) and isinstance(value, list) and len(value) > key:
            value = value[key]
        else:
            return None
    return value
