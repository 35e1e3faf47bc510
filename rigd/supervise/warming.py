"""The warm job: send each prefix with another tail until the engine's own count proves the hit.

    read files -> prefix body -> tokens (from the engine's tokenizer) -> sightings -> PrefixWarmth

Live traffic goes first: a sighting waits for it, with a limit. The first sighting of a warm prefix is already its
proof, so looking again costs one request a prefix.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rigd.adapters.vllm import AnswerKind, ChatAnswer, Counters, VllmClient
from rigd.errors import UsageError
from rigd.prefix.hits import Cache, shared_length
from rigd.rig.schema import Prefix, Rig
from rigd.supervise import warm
from rigd.supervise.live import Board, Live
from rigd.supervise.observations import WarmDone
from rigd.supervise.state import PrefixWarmth

IDLE_POLL_S = 0.5
FILE_LIMIT_BYTES = 8 << 20
"""Largest file of a prefix, in bytes: more is no prompt."""
TOKENIZE_TIMEOUT_S = 60.0


class Warmer:
    """Warms the prefixes of one rig; numbers its tails so that no two sightings ever share one."""

    def __init__(self, rig: Rig, folder: Path, *, now: Callable[[], float], board: Board) -> None:
        self._rig = rig
        self._folder = folder
        self._now = now
        self._board = board
        # A daemon that adopts an engine must not repeat an earlier daemon's tails: they would be cached.
        self._numbers = itertools.count(int(now() * 10))

    async def run(self, client: VllmClient) -> WarmDone:
        """Warm every prefix in order and return what each came to."""
        results: list[PrefixWarmth] = []
        try:
            async with asyncio.timeout(self._rig.supervision.deadlines.warm_s):
                for prefix in self._rig.prefixes:
                    results.append(await self._warm(prefix, client))  # noqa: PERF401  (kept when time runs out)
        except TimeoutError:
            limit_s = self._rig.supervision.deadlines.warm_s
            return WarmDone(results=tuple(results), complete=False, detail=f"not done within {limit_s:.0f} s")
        finally:
            self._board.show(None)
        failed = "; ".join(
            f"{result.prefix}: {result.detail}" for result in results if not result.proved and result.detail
        )
        return WarmDone(results=tuple(results), complete=not failed, detail=failed)

    async def _warm(self, prefix: Prefix, client: VllmClient) -> PrefixWarmth:
        try:
            request = await asyncio.to_thread(read_prefix, prefix, self._folder)
        except (OSError, ValueError, UsageError) as error:
            return self._cold(prefix.name, f"cannot read the prefix: {error}")
        tokens = await self._prefix_tokens(request, client)
        result = self._cold(prefix.name, "the hit could not be proved", tokens=tokens)
        for sighting in range(1, self._rig.warm.max_sightings + 1):
            self._board.show(
                Live(
                    phase=f"warming '{prefix.name}'",
                    detail=f"sighting {sighting}, {tokens:,} tokens",
                    since_s=self._now(),
                )
            )
            await self._wait_for_idle(client)
            before = await client.counters(self._rig.supervision.probe_timeout_s)
            body = warm.with_tail(request, self._served_model, next(self._numbers))
            answer = await client.chat(body, self._rig.warm.request_timeout_s)
            after = await client.counters(self._rig.supervision.probe_timeout_s)
            result = self._seen(result, sighting, answer, before, after)
            if result.proved or answer.kind is AnswerKind.HTTP_ERROR:
                break
            if answer.kind is not AnswerKind.ANSWERED:
                await asyncio.sleep(IDLE_POLL_S)
        return result

    @property
    def _served_model(self) -> str:
        return self._rig.engine.served_model_name or self._rig.engine.model

    async def _prefix_tokens(self, request: warm.PrefixRequest, client: VllmClient) -> int:
        """Return the prefix's length: what the engine's own tokenizer makes of two prompts with other tails."""
        bodies = [warm.with_tail(request, self._served_model, next(self._numbers)) for _ in range(2)]
        first, second = [await client.tokenize(body, TOKENIZE_TIMEOUT_S) for body in bodies]
        return 0 if first is None or second is None else shared_length(first, second)

    async def _wait_for_idle(self, client: VllmClient) -> None:
        deadline_s = time.monotonic() + self._rig.warm.wait_for_idle_s
        while time.monotonic() < deadline_s:
            counters = await client.counters(self._rig.supervision.probe_timeout_s)
            if counters is None or counters.running + counters.waiting == 0:
                return
            await asyncio.sleep(IDLE_POLL_S)

    def _seen(
        self,
        result: PrefixWarmth,
        sighting: int,
        answer: ChatAnswer,
        before: Counters | None,
        after: Counters | None,
    ) -> PrefixWarmth:
        if answer.kind is not AnswerKind.ANSWERED:
            detail = f"the engine answered {answer.kind}: {answer.detail}"
            return self._result(result, sighting=sighting, detail=detail)
        cached = answer.cached_tokens
        if cached is None and before is not None and after is not None:
            # Without `--enable-prompt-tokens-details` the engine-wide counter must do; traffic may blur it.
            cached = int(after.prefix_hits - before.prefix_hits)
        cached = cached or 0
        tokens = result.prefix_tokens or answer.prompt_tokens or 0
        proved = warm.proves(cached, tokens, self._rig.warm, self._cache(after))
        return self._result(
            result,
            sighting=sighting,
            cached=cached,
            tokens=tokens,
            proved=proved,
            ttft_s=answer.ttft_s,
            detail="" if proved else f"{cached:,} of {tokens:,} tokens cached",
        )

    def _cache(self, counters: Counters | None) -> Cache | None:
        """Return how the engine counts hits; None where it does not say."""
        if counters is None or not counters.hit_step:
            return None
        return Cache(block=counters.hit_step, speculative=self._rig.engine.arguments.speculative is not None)

    def _result(
        self,
        result: PrefixWarmth,
        *,
        sighting: int,
        cached: int = 0,
        tokens: int | None = None,
        proved: bool = False,
        ttft_s: float | None = None,
        detail: str = "",
    ) -> PrefixWarmth:
        length = tokens if tokens is not None else result.prefix_tokens
        return PrefixWarmth(
            prefix=result.prefix,
            proved=proved,
            sightings=sighting,
            prefix_tokens=length,
            cached_tokens=cached,
            hit=round(cached / length, 4) if length else 0.0,
            cold_ttft_s=result.cold_ttft_s if sighting > 1 else ttft_s,
            warm_ttft_s=ttft_s if proved else None,
            detail=detail,
            at_s=self._now(),
        )

    def _cold(self, name: str, detail: str, *, tokens: int = 0) -> PrefixWarmth:
        return PrefixWarmth(
            prefix=name,
            proved=False,
            sightings=0,
            prefix_tokens=tokens,
            cached_tokens=0,
            hit=0.0,
            detail=detail,
            at_s=self._now(),
        )


def read_prefix(prefix: Prefix, folder: Path) -> warm.PrefixRequest:
    """Read the files of a prefix. Raises `OSError`, or `ValueError` with a sentence."""
    if prefix.request is not None:
        body = _json(folder / prefix.request)
        if not isinstance(body, dict):
            raise ValueError(f"'{prefix.request}' is not a JSON object")
        return warm.from_request(prefix.name, body)
    tools = _json(folder / prefix.tools) if prefix.tools is not None else None
    if tools is not None and not isinstance(tools, list):
        raise ValueError(f"'{prefix.tools}' is not a JSON array")
    files = tuple((name, _text(folder / name)) for name in prefix.files)
    return warm.from_system(prefix.name, prefix.system, files, tools)


def prefix_files(rig: Rig, folder: Path) -> tuple[Path, ...]:
    """Return every file that the rig's prefixes are made of."""
    names = [name for prefix in rig.prefixes for name in (prefix.request, prefix.tools, *prefix.files)]
    return tuple(folder / name for name in names if name is not None)


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"'{path}' is not JSON: line {error.lineno}: {error.msg}") from error


def _text(path: Path) -> str:
    if path.stat().st_size > FILE_LIMIT_BYTES:
        raise ValueError(f"'{path}' is larger than {FILE_LIMIT_BYTES >> 20} MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"'{path}' is not UTF-8 text: {error}") from error
