"""vLLM's HTTP surface, asked and reported: every answer is a value, also the bad ones.

No judgement here. What another program sends is bounded in size and time, and never trusted to be what it
should: HTML, half a body or the wrong JSON become a kind and a detail, never a traceback.
"""

import asyncio
import enum
import json
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

BODY_LIMIT_BYTES = 16 << 20
"""Largest answer that is read, in bytes; a long completion is far below it."""

DETAIL_LIMIT = 500
"""Most characters of another program's text that are kept."""

_ERROR_STATUS = 400
_OK_STATUS = 200
_CACHE_INFO = "vllm:cache_config_info"

_METRICS: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "generation_tokens": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "successes": ("vllm:request_success_total",),
    "steps": ("vllm:iteration_tokens_total_count",),
}
"""Fields of `Counters` that are sums over engines, and the names by which vLLM's versions call them."""

_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_FIELD_OF = {name: field_name for field_name, names in _METRICS.items() for name in names}
_WANTED = tuple(
    f"{name}{end}".encode() for name in (*_FIELD_OF, *_KV_USAGE, _CACHE_INFO) for end in ("{", " ")
)


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
class Counters:
    """What `/metrics` says, summed over engines. A counter that this engine does not have is 0."""

    running: float = 0.0
    waiting: float = 0.0
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    kv_usage: float = 0.0
    """Share of the KV pool in use, 0 to 1; of the fullest engine."""
    preemptions: float = 0.0
    prefix_queries: float = 0.0
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: float = 0.0
    """Prompt tokens found there."""
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    successes: float = 0.0
    """Requests that ended, whatever the reason."""
    steps: float = 0.0
    """Steps of the engine that gave tokens."""
    block_size: int | None = None
    """Tokens of one KV block."""
    pool_tokens: int | None = None
    """Size of the KV pool in tokens."""

    @property
    def fingerprint(self) -> tuple[float, ...]:
        """Everything that only a working core moves. The same twice with work in flight means no progress.

        The KV usage is in it because nothing else moves while a long prompt is prefilled in pieces.
        """
        return (
            self.running,
            self.waiting,
            self.generation_tokens,
            self.prompt_tokens,
            self.kv_usage,
            self.preemptions,
            self.prefix_queries,
            self.prefix_hits,
            self.drafts,
            self.draft_tokens,
            self.accepted_tokens,
            self.successes,
            self.steps,
        )


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
        self._model = model
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # A proxy of the environment is for the way out, never for this box or its tailnet.
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers=headers,
            trust_env=False,
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
            completion_tokens=_count(_find(found, "usage", "completion_tokens")) or 0,
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


def parse_counters(page: bytes) -> Counters | None:
    """Return what a `/metrics` page says about vLLM, or None when it says nothing.

    Only the wanted lines reach the parser: a page has 750 of them, and it is read every two seconds.
    """
    lines = [line for line in page.split(b"\n") if line.startswith(_WANTED)]
    sums: dict[str, float] = {}
    usage = 0.0
    cache: Mapping[str, str] = {}
    try:
        for family in text_string_to_metric_families(b"\n".join(lines).decode("utf-8", "replace") + "\n"):
            for sample in family.samples:
                if sample.name == _CACHE_INFO:
                    cache = sample.labels
                elif not math.isfinite(sample.value):
                    continue
                elif sample.name in _KV_USAGE:
                    usage = max(usage, sample.value)
                else:
                    name = _FIELD_OF[sample.name]
                    sums[name] = sums.get(name, 0.0) + sample.value
    except (ValueError, KeyError):
        return None
    if not sums:
        return None
    block = _count(cache.get("block_size"))
    pool = _count(cache.get("kv_cache_size_tokens"))
    blocks = _count(cache.get("num_gpu_blocks"))
    if pool is None and block and blocks:
        pool = block * blocks
    return Counters(kv_usage=usage, block_size=block, pool_tokens=pool, **sums)


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
            tokens = _count(_find(self.usage, "completion_tokens")) or 0
            kind = AnswerKind.ANSWERED if text.strip() or tokens else AnswerKind.EMPTY
        return ChatAnswer(
            kind=kind,
            took_s=took_s,
            text=text,
            ttft_s=self.ttft_s,
            prompt_tokens=_count(_find(self.usage, "prompt_tokens")),
            completion_tokens=_count(_find(self.usage, "completion_tokens")),
            cached_tokens=_count(_find(self.usage, "prompt_tokens_details", "cached_tokens")),
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


def _count(value: Any) -> int | None:
    """Return a whole number, also from text and from a float without a fraction; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if math.isfinite(number) and number == int(number) else None
