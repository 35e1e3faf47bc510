"""Run a client against the engine through the pass-through, and find what its requests share.

listen -> client's command -> recorder keeps the bodies -> kinds -> common beginning, proved by the engine's tokens
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.errors import RigdError
from rigd.gateway import child, recordings
from rigd.gateway.passthrough import PassThrough
from rigd.gateway.recorder import Kept, Recorder
from rigd.gateway.server import listen, serving
from rigd.gateway.target import Answers, Target, ask, tokenized
from rigd.gateway.upstream import Limits, Upstream
from rigd.prefix.common import client_name, common_prefixes, common_tokens, prefix_names
from rigd.prefix.finding import Finding
from rigd.prefix.hits import Cache, hit_tokens
from rigd.prefix.kinds import RequestKind, kinds
from rigd.prefix.lint import lint_body
from rigd.prefix.pieces import CHARACTERS_PER_TOKEN, as_text
from rigd.prefix.sequence import Comparison, compare
from rigd.prefix.sources import Recorded


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What one run of a client came to."""

    answers: Answers
    folder: Path
    ended: str
    """How the client ended, in words."""
    recorder: Recorder
    shared: tuple["Shared", ...]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the requests of one kind begin with."""

    name: str
    kind: RequestKind
    kept: tuple[Kept, ...]
    body: dict[str, Any] | None
    """The prefix as a request body; None where nothing is shared that can be warmed."""
    tokens: int
    """Tokens of the prefix that the requests really begin with."""
    opening_tokens: int
    """Tokens of the shortest opening request."""
    by_engine: bool
    cache: Cache
    findings: tuple[Finding, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def hit(self) -> int:
        """Tokens of a first turn that can hit once the prefix is warm."""
        return hit_tokens(self.tokens, self.opening_tokens, self.cache)


async def capture(
    target: Target,
    *,
    port: int,
    command: Sequence[str],
    timeout_s: float,
    rate: float | None,
    now_s: float,
    say: Callable[[str], None],
) -> Captured:
    """Run `command` (empty: wait for Ctrl-C) through a recording pass-through. Raises `RigdError`."""
    if command:
        child.check_command(command)
    answers = await ask(target, rate=rate)
    if not answers.reachable:
        raise RigdError(
            f"the engine at {target.base_url} does not answer",
            hint="`rigd status` says why; `rigd start` starts it",
        )
    listener = listen(port)
    try:
        folder = recordings.new_recording(client_name(command), now_s=now_s)
    except RigdError:
        listener.close()
        raise
    recorder, limits = Recorder(folder), Limits()
    upstream = Upstream(target.base_url, limits)
    try:
        async with serving(PassThrough(upstream, limits, (recorder,)), listener) as url:
            ended = await _client_ran(command, url, answers.target.model, timeout_s, say)
    finally:
        await upstream.aclose()
        await recorder.finished()
    shared = await shared_by_kind(recorder.kept, answers, command)
    return Captured(answers=answers, folder=folder, ended=ended, recorder=recorder, shared=shared)


async def _client_ran(
    command: Sequence[str], url: str, model: str, timeout_s: float, say: Callable[[str], None]
) -> str:
    if not command:
        say(f"recording at {url}/v1 (model {model}); Ctrl-C ends it")
        return await child.until_interrupted(timeout_s)
    words = child.filled(command, url=url, model=model)
    say(f"recording at {url}/v1: {words[0]} runs")
    return await child.run_command(words, child.environment(os.environ, url=url, model=model), timeout_s)


async def shared_by_kind(
    kept: Sequence[Kept], answers: Answers, command: Sequence[str]
) -> tuple[Shared, ...]:
    """Return what the requests of each kind share, the kind with most text first. Refused requests do not count."""
    good = [one for one in kept if (one.figures.status or 0) < 400]  # noqa: PLR2004  (HTTP's own number)
    found = kinds([one.recorded for one in good])
    tokens = await tokenized(answers.target, [one.recorded for one in good])
    by_name = {one.recorded.name: one for one in good}
    return tuple(
        await asyncio.gather(
            *(
                _shared(name, kind, tuple(by_name[one.name] for one in kind.requests), tokens, answers)
                for name, kind in zip(prefix_names(len(found), command), found, strict=True)
            )
        )
    )


async def _shared(
    name: str,
    kind: RequestKind,
    kept: tuple[Kept, ...],
    tokens: dict[str, tuple[int, ...]],
    answers: Answers,
) -> Shared:
    by_engine = all(one.name in tokens for one in kind.requests)
    body, covered = await _best(common_prefixes(kind), kind, tokens, answers) if by_engine else _by_text(kind)
    openings = kind.openings
    lengths = [
        len(tokens[one.name]) if by_engine else len(as_text(one.body)) // CHARACTERS_PER_TOKEN
        for one in openings
    ]
    return Shared(
        name=name,
        kind=kind,
        kept=kept,
        body=body,
        tokens=covered,
        opening_tokens=min(lengths, default=0),
        by_engine=by_engine,
        cache=answers.cache,
        findings=lint_body(openings[0], tools_first=answers.cache.tools_first) if openings else (),
        comparisons=compare(kind.requests, tokens, answers.cache, answers.rate),
    )


async def _best(
    candidates: Sequence[dict[str, Any]],
    kind: RequestKind,
    tokens: dict[str, tuple[int, ...]],
    answers: Answers,
) -> tuple[dict[str, Any] | None, int]:
    """Return the body that begins as most tokens of every opening do, and how many: the engine's template says."""
    named = [Recorded(name=f"candidate {at}", body=body) for at, body in enumerate(candidates)]
    found = await tokenized(answers.target, named)
    best: tuple[dict[str, Any] | None, int] = (None, 0)
    for one in named:
        if one.name in found:
            covered = common_tokens([found[one.name], *(tokens[opening.name] for opening in kind.openings)])
            if covered > best[1]:
                best = (one.body, covered)
    return best


def _by_text(kind: RequestKind) -> tuple[dict[str, Any] | None, int]:
    candidates = common_prefixes(kind)
    if not candidates:
        return None, 0
    body = candidates[-1]
    text = as_text({**body, "messages": body["messages"][:-1]})
    return body, len(text) // CHARACTERS_PER_TOKEN
