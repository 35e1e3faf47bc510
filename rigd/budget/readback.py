"""What an engine's log says about its pool, and what follows from it."""

import re
from dataclasses import dataclass

from rigd.budget.figure import Figure, Source
from rigd.budget.settings import GIB, PoolSettings

_POOL = re.compile(r"(?:GPU|CPU|XPU) KV cache size: ([\d,]+) tokens")
_CONTEXT = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_AVAILABLE = re.compile(r"Available KV cache memory: (-?[\d.]+) GiB")
_BLOCK = re.compile(r"Setting (?:attention|kv cache) block size to (\d+)")
_WEIGHTS = re.compile(r"Model loading took ([\d.]+) Gi?B")
HUNDREDTH = GIB // 100
"""The log rounds to hundredths of a GiB."""


@dataclass(frozen=True, kw_only=True)
class LogSays:
    """What the last start in a log said; None where it said nothing."""

    pool_tokens: int | None = None
    context: int | None = None
    concurrency: float | None = None
    block: int | None = None
    available: Figure | None = None
    """Bytes of each card that were left for the pool."""
    weights: Figure | None = None
    """Bytes of the weights on each card."""

    def activation(self, settings: PoolSettings, card: Figure) -> Figure | None:
        """Return what of a card is neither weights nor pool, calibrated by this start."""
        if self.available is None or self.weights is None:
            return None
        rest = int(card.value * settings.utilization) - self.weights.value - self.available.value
        note = "the card's share less weights and pool of that start"
        return Figure(value=rest, source=Source.READ, note=note, error=card.error + 2 * HUNDREDTH)


def read_log(text: str) -> LogSays:
    """Return what the last start in a log said of its pool."""
    pool, context, available = _last(_POOL, text), _last(_CONTEXT, text), _last(_AVAILABLE, text)
    block, weights = _last(_BLOCK, text), _last(_WEIGHTS, text)
    return LogSays(
        pool_tokens=_whole(pool[1]) if pool else None,
        context=_whole(context[1]) if context else None,
        concurrency=float(context[2]) if context else None,
        block=int(block[1]) if block else None,
        available=_gib(available[1], "Available KV cache memory") if available else None,
        weights=_gib(weights[1], "Model loading took") if weights else None,
    )


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007  (the last one counts)
        pass
    return found


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _gib(text: str, note: str) -> Figure:
    return Figure(
        value=round(float(text) * GIB), source=Source.READ, note=f"{note} {text} GiB", error=HUNDREDTH
    )
