"""What an engine's log says about its pool, and what follows from it."""

import re
from dataclasses import dataclass

from rigd.budget.figure import Figure, Source
from rigd.budget.settings import GIB, PoolSettings

_POOL = re.compile(r"(?:GPU|CPU|XPU) KV cache size: ([\d,]+) tokens")
_AVAILABLE = re.compile(r"Available KV cache memory: (-?[\d.]+) GiB")
_WEIGHTS = re.compile(r"Model loading took ([\d.]+) Gi?B")
HUNDREDTH = GIB // 100
"""The log rounds to hundredths of a GiB."""


@dataclass(frozen=True, kw_only=True)
class LogSays:
    """What the last start in a log said; None where it said nothing."""

    pool_tokens: int | None = None
    available: Figure | None = None
    """Bytes of each card that were left for the pool."""
    weights: Figure | None = None
    """Bytes of the weights on each card."""

    def activation(self, settings: PoolSettings, card: Figure) -> Figure | None:
        """Return what of a card is neither weights nor pool, by this start: `budget.activation` from now on."""
        if self.available is None or self.weights is None:
            return None
        rest = int(card.value * settings.utilization) - self.weights.value - self.available.value
        note = (
            f"{card.value / GIB:.2f} GiB x {settings.utilization:g} - weights {self.weights.value / GIB:.2f} "
            f"- pool {self.available.value / GIB:.2f}, by the log"
        )
        return Figure(value=rest, source=Source.READ, note=note, error=card.error + 2 * HUNDREDTH)


def read_log(text: str) -> LogSays:
    """Return what the last start in a log said of its pool."""
    pool, available, weights = _last(_POOL, text), _last(_AVAILABLE, text), _last(_WEIGHTS, text)
    return LogSays(
        pool_tokens=int(pool[1].replace(",", "")) if pool else None,
        available=_gib(available[1], "Available KV cache memory") if available else None,
        weights=_gib(weights[1], "Model loading took") if weights else None,
    )


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007  (the last one counts)
        pass
    return found


def _gib(text: str, note: str) -> Figure:
    return Figure(
        value=round(float(text) * GIB), source=Source.READ, note=f"{note} {text} GiB", error=HUNDREDTH
    )
