"""Which prefixes to send, how often, and when it is proved that the engine has them cached. Pure.

One request proves nothing: on hybrid models the second sighting still misses. So a prefix is sent with
another tail each time until the engine's own count of cached tokens covers it, or its sightings are used up.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from rigd.prefix.hits import Cache, hit_tokens
from rigd.rig.schema import Warm
from rigd.supervise.health import CacheMark, Vitals
from rigd.supervise.state import PrefixWarmth, Status

TAIL = "Reply with one word. ({number})"
"""Last user message of a warm request; the number differs at each sighting: the tail is never cached."""
LOST_SHARE = 0.5
"""Hits below this share of what was asked since the last look mean that prefixes may be gone."""
RECHECK_S = 60.0
"""Least time between two looks for lost hits, in seconds."""


@dataclass(frozen=True, kw_only=True)
class PrefixRequest:
    """One prefix as a chat request body without its tail; `tools` stay, they are part of the prompt."""

    name: str
    body: Mapping[str, Any] = field(default_factory=dict)


def from_request(name: str, body: Mapping[str, Any]) -> PrefixRequest:
    """Return the prefix of a recorded chat request: all but its last message, if a user sent that.

    Raises `ValueError` when the body has no messages.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("the request has no `messages`")
    kept = (
        messages[:-1] if isinstance(messages[-1], dict) and messages[-1].get("role") == "user" else messages
    )
    if not kept:
        raise ValueError("the request has only one user message: there is no prefix before it")
    prefix_keys = ("messages", "tools", "tool_choice", "chat_template_kwargs", "documents")
    body = {key: deepcopy(body[key]) for key in prefix_keys if key in body}
    return PrefixRequest(name=name, body=body | {"messages": deepcopy(kept)})


def from_system(
    name: str, system: str | None, files: tuple[tuple[str, str], ...], tools: list[Any] | None
) -> PrefixRequest:
    """Return a prefix of a system text and files (path and text), in order, each after a line with its path."""
    parts = [system] if system is not None else []
    parts += [f"--- {path}\n{text}" for path, text in files]
    body: dict[str, Any] = {"messages": [{"role": "system", "content": "\n\n".join(parts)}]}
    return PrefixRequest(name=name, body=body | ({"tools": tools} if tools is not None else {}))


def with_tail(prefix: PrefixRequest, model: str, number: int) -> dict[str, Any]:
    """Return the chat body of sighting `number`: the prefix, another tail, one token of answer."""
    tail = {"role": "user", "content": TAIL.format(number=number)}
    return {
        **prefix.body,
        "model": model,
        "messages": [*prefix.body["messages"], tail],
        "max_tokens": 1,
        "temperature": 0.0,
    }


def proves(cached_tokens: int, prefix_tokens: int, policy: Warm, cache: Cache | None) -> bool:
    """Return whether a sighting proves the prefix warm: the target share, or all that can be cached at all.

    `cache` is how the engine counts hits, None where it does not say. Measured on vLLM 0.32.0 with speculative
    decoding and blocks of 128: at best 3,840 of a prefix's 4,023 tokens.
    """
    # A tail follows the prefix, so all of it may hit but for the last, broken block.
    possible = prefix_tokens if cache is None else hit_tokens(prefix_tokens, prefix_tokens + 1, cache)
    return cached_tokens >= min(policy.target_hit * prefix_tokens, possible) and cached_tokens > 0


def proved_names(results: tuple[PrefixWarmth, ...]) -> frozenset[str]:
    """Return the names of the prefixes that are proved warm."""
    return frozenset(result.prefix for result in results if result.proved)


def all_proved(results: tuple[PrefixWarmth, ...], prefixes: tuple[str, ...]) -> bool:
    """Return whether each of `prefixes` is proved warm."""
    return proved_names(results).issuperset(prefixes)


def due(status: Status, prefixes: tuple[str, ...], *, now_s: float) -> str | None:
    """Return why the prefixes should be looked at again now, or None."""
    if not prefixes or status.warmed_s is None:
        return None
    if now_s - status.warmed_s >= RECHECK_S and hit_lost(status.vitals, smallest_tokens(status.warm)):
        return "the engine's counters show that hits are being lost"
    return None


def smallest_tokens(results: tuple[PrefixWarmth, ...]) -> int:
    """Return the length of the shortest prefix that was proved, in tokens; 0 without any."""
    return min((result.prefix_tokens for result in results if result.proved), default=0)


def hit_lost(vitals: Vitals, prefix_tokens: int) -> bool:
    """Return whether enough was asked since the last look, and too little of it was found cached."""
    mark, load = vitals.cache_mark, vitals.load
    if mark is None or load is None or prefix_tokens <= 0:
        return False
    asked = load.prefix_queries - mark.queries
    return asked >= 2 * prefix_tokens and load.prefix_hits - mark.hits < LOST_SHARE * asked


def marked(vitals: Vitals) -> Vitals:
    """Return `vitals` with the cache counters of now as the mark to compare with."""
    if vitals.load is None:
        return vitals
    mark = CacheMark(queries=vitals.load.prefix_queries, hits=vitals.load.prefix_hits)
    return replace(vitals, cache_mark=mark)


def first_mark(vitals: Vitals) -> Vitals:
    """Return `vitals` with a mark, if there was none yet."""
    return vitals if vitals.cache_mark is not None else marked(vitals)
