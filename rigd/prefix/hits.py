"""What of a prompt the engine can find in its prefix cache, and what the rest costs.

Whole blocks count, from the left; the last token is always computed, and with speculative decoding one more block is
given up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

CHUNK = 4096


@dataclass(frozen=True, kw_only=True)
class Cache:
    """How an engine's prefix cache counts, and in which order its template writes."""

    block: int = 16
    """Tokens in steps of which hits count."""
    speculative: bool = False
    """Speculative decoding gives up one block more."""
    hybrid: bool = False
    """Hits need about three sightings of a prefix."""
    tools_first: bool = False
    """The chat template puts the tools before the system text."""
    said_by: str = "assumed"
    """Where these come from."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How fast prompts are read."""

    tokens_per_s: float
    said_by: str
    """Where it comes from."""


def shared_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return how many items (tokens, characters) two sequences share from the left."""
    most = min(len(first), len(second))
    for start in range(0, most, CHUNK):
        end = min(start + CHUNK, most)
        if first[start:end] != second[start:end]:
            return next(at for at in range(start, end) if first[at] != second[at])
    return most


def hit_tokens(shared: int, length: int, cache: Cache) -> int:
    """Return how many tokens of a prompt of `length` can hit when its first `shared` tokens are known."""
    blocks = min(shared, max(0, length - 1)) // cache.block
    return max(0, blocks - (1 if cache.speculative else 0)) * cache.block


def seconds(tokens: int, rate: Rate | None) -> float | None:
    """Return how long it takes to read so many tokens; None where nobody knows the rate."""
    return None if rate is None or rate.tokens_per_s <= 0 else tokens / rate.tokens_per_s
