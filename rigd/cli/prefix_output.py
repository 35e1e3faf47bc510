"""How `rigd prefix` prints what it found, for people and as JSON."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigd.cli.status import printable
from rigd.gateway.capture import Captured, Shared
from rigd.prefix.finding import Finding
from rigd.prefix.hits import Cache, Rate, seconds
from rigd.prefix.sequence import Comparison
from rigd.prefix.watch import Row

WATCH_HEAD = "time      prompt tokens  cached  rate  usual  running    KV"
REFUSED: Mapping[int, str] = {
    400: "the engine takes no such request; the client shows its words",
    401: "give the client the engine's key",
    404: "the engine has no model of this name, or does not speak this interface",
    413: "the request is larger than the pass-through lets through",
    502: "the engine did not answer; `rigd status` says why",
    503: "more at once than the pass-through lets through",
}
"""What is behind an error's number, where it says too little."""
MOST_SHOWN = 40
"""Comparisons and findings that are printed; `--json` has all."""


def findings_text(findings: Sequence[Finding], rate: Rate | None) -> Iterator[str]:
    """Yield the findings, each with what it costs and what to do."""
    for one in findings[:MOST_SHOWN]:
        yield f"{one.place}: {one.level}: {one.kind} '{printable(one.text)}': {one.why}{_behind(one, rate)}"
        yield f"  -> {one.advice}"
    if len(findings) > MOST_SHOWN:
        yield f"... and {len(findings) - MOST_SHOWN} more (--json has all)"


def _behind(one: Finding, rate: Rate | None) -> str:
    if not one.tokens_behind:
        return ""
    took_s = seconds(one.tokens_behind, rate)
    cost = f", {span(took_s)}" if took_s is not None else ""
    return f" (about {one.tokens_behind:,} tokens behind it{cost})"


def comparisons_text(comparisons: Sequence[Comparison], cache: Cache, rate: Rate | None) -> Iterator[str]:
    """Yield what each request could find of the earlier ones, and where they part ways."""
    if not comparisons:
        return
    yield counted_by(comparisons[0], cache, rate)
    for one in comparisons[:MOST_SHOWN]:
        yield from comparison_text(one)
    if len(comparisons) > MOST_SHOWN:
        yield f"... and {len(comparisons) - MOST_SHOWN} more (--json has all)"
    lost = sum(one.again for one in comparisons)
    if lost:
        took_s = seconds(lost, rate)
        cost = f": {span(took_s)}" if took_s is not None else ""
        yield f"in all {lost:,} tokens were the same and are read again{cost}"


def span(took_s: float) -> str:
    """Return a length of time, short ones to the hundredth."""
    return f"{took_s:.1f} s" if took_s >= 1 else f"{took_s:.2f} s"


def _said_by(rate: Rate | None) -> str:
    if rate is None:
        return "no prefill rate is known: --rate, or name the engine"
    return f"prompts are read at {rate.tokens_per_s:,.0f} tokens/s, {rate.said_by}"


def counted_by(one: Comparison, cache: Cache, rate: Rate | None) -> str:
    """Return by what tokens, blocks and seconds are counted."""
    how = (
        "the engine's own tokens"
        if one.by_engine
        else "tokens counted from the text (about 4 characters each)"
    )
    given_up = ", one more given up for speculative decoding" if cache.speculative else ""
    states = "; a hybrid model: hits need about three sightings" if cache.hybrid else ""
    return f"{how}; blocks of {cache.block} ({cache.said_by}){given_up}{states}; {_said_by(rate)}"


def comparison_text(one: Comparison) -> Iterator[str]:
    """Yield one comparison."""
    read = f", the rest takes {span(one.read_s)}" if one.read_s is not None else ""
    yield (
        f"{one.later} after {one.earlier}: {one.hit:,} of {one.length:,} tokens can hit "
        f"({one.hit_share:.0%}){read}: {one.difference.cause}"
    )
    if one.difference.expected:
        return
    found = one.difference
    first = one.block * one.block_tokens
    line = f", line {found.line}" if found.line > 1 else ""
    yield (
        f"  first difference: token {one.shared:,}, block {one.block} (tokens {first:,} to "
        f"{first + one.block_tokens - 1:,}): {found.path}{line}: {found.kind}: "
        f"'{printable(found.earlier)}' became '{printable(found.later)}'"
    )
    cost = f": {span(one.again_s)}" if one.again_s is not None else ""
    yield f"  {found.why}; about {one.again:,} tokens behind it are the same and are read again{cost}"
    yield f"  -> {found.advice}"


def capture_text(
    found: Captured, written: Mapping[str, Path], yaml: Sequence[str], *, kept: bool
) -> Iterator[str]:
    """Yield what a run of a client came to, and what to add to the rig file."""
    recorder = found.recorder
    refused = {status: count for status, count in recorder.statuses.items() if status >= 400}  # noqa: PLR2004  (HTTP's)
    yield (
        f"{len(recorder.kept)} requests recorded in {found.folder} (private; `rigd prefix forget` deletes all); "
        f"the client {found.ended}"
    )
    for status, count in sorted(refused.items()):
        yield f"  {count} answered with {status}" + (f": {REFUSED[status]}" if status in REFUSED else "")
    for reason, count in recorder.left_out.items():
        yield f"  {count} not kept: {reason}"
    for shared in found.shared:
        yield from _shared_text(shared, found, written.get(shared.name))
    if not found.shared:
        yield "  no prompt was answered, so nothing is known that can be warmed"
    if not written:
        return
    yield ""
    yield (
        "add to the rig file:"
        if kept
        else "add to the rig file (--write DIR keeps the files; `forget` deletes these):"
    )
    yield from yaml
    if kept and os.geteuid() == 0:
        yield "the files are root's alone: `chgrp rigd FILE && chmod 0640 FILE` lets a service of user rigd read them"


def _shared_text(shared: Shared, found: Captured, path: Path | None) -> Iterator[str]:
    kind, opened = shared.kind, len(shared.kind.openings)
    yield ""
    yield (
        f"{shared.name}: {len(kind.requests)} requests, {opened} conversation{'s' if opened > 1 else ''}, "
        f"{kind.tools} tools, model {printable(kind.model) or '?'}"
    )
    for one in shared.kept[:MOST_SHOWN]:
        figures = one.figures
        first = f", first token after {figures.ttft_s:.2f} s" if figures.ttft_s is not None else ""
        asked = f", {figures.prompt_tokens:,} prompt tokens" if figures.prompt_tokens is not None else ""
        cached = f", {figures.cached_tokens:,} of them cached" if figures.cached_tokens is not None else ""
        yield f"  {one.path.name}: {figures.status or 'no answer'}{first}{asked}{cached}"
    if shared.body is None:
        yield "  nothing is shared that can be warmed: that takes chat completions or messages with a system prompt"
    else:
        how = "the engine's own tokens" if shared.by_engine else "counted from the text"
        share = shared.hit / shared.opening_tokens if shared.opening_tokens else 0.0
        yield (
            f"  shared beginning: {shared.tokens:,} tokens ({how}); once warm, {shared.hit:,} of a first turn's "
            f"{shared.opening_tokens:,} can hit ({share:.0%})"
        )
        took_s = seconds(shared.hit, found.answers.rate)
        if took_s is not None:
            yield f"  which saves {span(took_s)} of reading ({_said_by(found.answers.rate)})"
    for line in findings_text(shared.findings[:5], found.answers.rate):
        yield f"  {line}"
    odd = [one for one in shared.comparisons if not one.difference.expected]
    for pair in odd[:5]:
        for line in comparison_text(pair):
            yield f"  {line}"
    if path is not None:
        yield f"  written: {path}"


def capture_document(
    found: Captured, written: Mapping[str, Path], yaml: Sequence[str], errors: Sequence[str]
) -> dict[str, Any]:
    """Return a capture as JSON, without a word of what was said."""
    return {
        "folder": str(found.folder),
        "client": found.ended,
        "requests": len(found.recorder.kept),
        "statuses": {str(status): count for status, count in found.recorder.statuses.items()},
        "left_out": dict(found.recorder.left_out),
        "engine": found.answers.target.base_url,
        "cache": cache_document(found.answers.cache),
        "rate": rate_document(found.answers.rate),
        "kinds": [_shared_document(shared, written.get(shared.name)) for shared in found.shared],
        "yaml": "\n".join(yaml),
        "errors": list(errors),
    }


def _shared_document(shared: Shared, path: Path | None) -> dict[str, Any]:
    return {
        "name": shared.name,
        "model": shared.kind.model,
        "tools": shared.kind.tools,
        "requests": [
            {
                "file": one.path.name,
                "status": one.figures.status,
                "ttft_s": None if one.figures.ttft_s is None else round(one.figures.ttft_s, 4),
                "prompt_tokens": one.figures.prompt_tokens,
                "cached_tokens": one.figures.cached_tokens,
                "ended": None if one.figures.end is None else str(one.figures.end),
            }
            for one in shared.kept
        ],
        "conversations": len(shared.kind.openings),
        "shared_tokens": shared.tokens,
        "first_turn_tokens": shared.opening_tokens,
        "first_turn_hit_tokens": shared.hit,
        "counted_by": "engine" if shared.by_engine else "text",
        "prefix": None if path is None else str(path),
        "findings": [one.document() for one in shared.findings],
        "comparisons": [one.document() for one in shared.comparisons],
    }


def cache_document(cache: Cache) -> dict[str, Any]:
    """Return how the cache counts as JSON."""
    return {
        "block_tokens": cache.block,
        "speculative": cache.speculative,
        "hybrid": cache.hybrid,
        "said_by": cache.said_by,
    }


def rate_document(rate: Rate | None) -> dict[str, Any] | None:
    """Return the prefill rate as JSON."""
    return None if rate is None else {"tokens_per_s": round(rate.tokens_per_s, 1), "said_by": rate.said_by}


def row_text(row: Row) -> str:
    """Return a row of the live table."""
    rate = "-" if row.rate is None else f"{row.rate:.0%}"
    usual = "-" if row.usual is None else f"{row.usual:.0%}"
    clock = time.strftime("%H:%M:%S", time.localtime(row.at_s))
    note = f"  {row.note}" if row.note else ""
    figures = (
        f"{row.queries:>13,}  {row.hits:>6,}  {rate:>4}  {usual:>5}  {row.running:>7}  {row.kv_usage:>4.0%}"
    )
    return f"{clock}  {figures}{note}"


def row_document(row: Row) -> dict[str, Any]:
    """Return a row as JSON."""
    return {
        "at_s": row.at_s,
        "prompt_tokens": row.queries,
        "cached_tokens": row.hits,
        "hit_rate": None if row.rate is None else round(row.rate, 4),
        "usual": None if row.usual is None else round(row.usual, 4),
        "running": row.running,
        "kv_usage": row.kv_usage,
        "note": row.note or None,
    }
