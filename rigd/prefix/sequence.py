"""Requests in the order in which they came: what each could find of the earlier ones, and what was lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigd.prefix.causes import difference, no_difference
from rigd.prefix.differences import Cause, Difference, explained
from rigd.prefix.hits import Cache, Rate, hit_tokens, seconds, shared_length
from rigd.prefix.kinds import alike_systems
from rigd.prefix.pieces import CHARACTERS_PER_TOKEN, as_text
from rigd.prefix.sources import Recorded

MOST_REQUESTS = 400
"""Requests that are compared with one another; each with all before it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A request and the earlier one that it shares most with."""

    earlier: str
    later: str
    by_engine: bool
    """Tokens are the engine's own; otherwise they are counted from the text, about four characters each."""
    shared: int
    """Tokens that both begin with."""
    length: int
    """Tokens of the later request."""
    hit: int
    """Tokens of it that can hit."""
    block: int
    """The first block that differs, from 0."""
    block_tokens: int
    again: int
    """About how many tokens behind the difference are the same in both and are read again."""
    again_s: float | None
    read_s: float | None
    """How long everything that cannot hit takes to read."""
    difference: Difference

    @property
    def hit_share(self) -> float:
        """Share of the prompt that can hit."""
        return self.hit / self.length if self.length else 0.0

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "earlier": self.earlier,
            "later": self.later,
            "counted_by": "engine" if self.by_engine else "text",
            "prompt_tokens": self.length,
            "shared_tokens": self.shared,
            "first_differing_token": self.shared,
            "first_differing_block": self.block,
            "block_tokens": self.block_tokens,
            "hit_tokens": self.hit,
            "hit_share": round(self.hit_share, 4),
            "read_again_tokens": self.again,
            "read_again_s": None if self.again_s is None else round(self.again_s, 3),
            "read_s": None if self.read_s is None else round(self.read_s, 3),
            "difference": self.difference.document(),
        }


def compare(
    recorded: Sequence[Recorded],
    tokens: Mapping[str, tuple[int, ...]],
    cache: Cache,
    rate: Rate | None,
) -> tuple[Comparison, ...]:
    """Return each request from the second on against the earlier one that it shares most with.

    `tokens` holds the engine's own for the requests that it was asked about, by name.
    """
    kept = recorded[:MOST_REQUESTS]
    by_engine = all(one.name in tokens for one in kept)
    prompts: list[tuple[int, ...] | str] = [
        tokens[one.name] if by_engine else as_text(one.body, tools_first=cache.tools_first) for one in kept
    ]
    return tuple(_against_earlier(index, kept, prompts, cache, rate) for index in range(1, len(kept)))


def _against_earlier(
    index: int,
    recorded: Sequence[Recorded],
    prompts: Sequence[tuple[int, ...] | str],
    cache: Cache,
    rate: Rate | None,
) -> Comparison:
    prompt = prompts[index]
    by_engine = not isinstance(prompt, str)
    lengths = [shared_length(prompts[before], prompt) for before in range(index)]
    body = recorded[index].body
    alike = [alike_systems(recorded[before].body, body) for before in range(index)]
    nearest = max(range(index), key=lambda before: (alike[before], lengths[before], before))
    found = difference(recorded[nearest].body, body, tools_first=cache.tools_first)
    if not alike[nearest]:
        found = explained(Cause.KIND, found.path, (found.earlier, found.later))
    elif found.cause is Cause.SALT:
        lengths[nearest] = 0
    elif by_engine and lengths[nearest] == min(len(prompt), len(prompts[nearest])):
        found = no_difference()  # The template evens out what differs in the bodies.
    scale = 1 if by_engine else CHARACTERS_PER_TOKEN
    shared, length = lengths[nearest] // scale, len(prompt) // scale
    hit = hit_tokens(shared, length, cache)
    characters = len(as_text(body)) if by_engine else len(prompt)
    # The engine's tokens of this prompt say what a character of it comes to.
    again = min(length - shared, round(found.again * length / characters) if characters else 0)
    return Comparison(
        earlier=recorded[nearest].name,
        later=recorded[index].name,
        by_engine=by_engine,
        shared=shared,
        length=length,
        hit=hit,
        block=shared // cache.block,
        block_tokens=cache.block,
        again=again,
        again_s=seconds(again, rate),
        read_s=seconds(length - hit, rate),
        difference=found,
    )
