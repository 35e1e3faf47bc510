"""The live hit rate, from the engine's own counters: rows of a table, and when it falls."""

from collections import deque
from dataclasses import dataclass, field

LEAST_QUERIES = 256
"""Tokens asked for in an interval, below which its rate says nothing."""
FALL = 0.2
"""Points below the usual rate that count as a fall."""
USUAL_ROWS = 20
"""Rows that the usual rate is the mean of, weighted by tokens."""
BLIND = (
    "prompts are read and none is looked up: the engine runs without prefix caching (enable_prefix_caching)"
)
LEAST_ROWS = 3
"""Rows before there is a usual rate."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The engine's counters at a time."""

    at_s: float
    queries: float
    hits: float
    prompts: float = 0.0
    """Prompt tokens read, whether looked up or not."""
    running: float = 0.0
    kv_usage: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """What happened between two samples."""

    at_s: float
    queries: int
    hits: int
    rate: float | None
    """Share of the prompt tokens found cached; None without any."""
    usual: float | None
    """The rate of the rows before."""
    running: int
    kv_usage: float
    note: str = ""


@dataclass(kw_only=True)
class Watch:
    """Turns samples into rows."""

    _last: Sample | None = None
    _rows: deque[Row] = field(default_factory=lambda: deque(maxlen=USUAL_ROWS))
    _low: bool = False
    _blind: bool = False

    def add(self, sample: Sample) -> Row | None:
        """Return the row up to this sample; None for the first one, and when nothing was asked."""
        last, self._last = self._last, sample
        if not self._blind and sample.queries == 0 and sample.prompts >= LEAST_QUERIES:
            self._blind = True
            return _row(sample, 0, 0, None, BLIND)
        if last is None:
            return None
        if sample.queries < last.queries or sample.hits < last.hits:
            self._rows.clear()
            self._low = self._blind = False
            return _row(
                sample, 0, 0, None, "the counters began anew: the engine was restarted, its cache is empty"
            )
        queries, hits = int(sample.queries - last.queries), int(sample.hits - last.hits)
        if queries == 0:
            return None
        usual = self._usual()
        row = _row(sample, queries, hits, usual, self._note(queries, hits, usual))
        self._rows.append(row)
        return row

    def _usual(self) -> float | None:
        asked = sum(row.queries for row in self._rows)
        if len(self._rows) < LEAST_ROWS or not asked:
            return None
        return sum(row.hits for row in self._rows) / asked

    def _note(self, queries: int, hits: int, usual: float | None) -> str:
        if usual is None or queries < LEAST_QUERIES:
            return ""
        rate = hits / queries
        if rate < usual - FALL:
            self._low = True
            return f"fell from {usual:.0%}: {queries - hits:,} tokens were read afresh"
        if self._low and rate >= usual - FALL / 2:
            self._low = False
            return "is as usual again"
        return ""


def _row(sample: Sample, queries: int, hits: int, usual: float | None, note: str) -> Row:
    return Row(
        at_s=sample.at_s,
        queries=queries,
        hits=hits,
        rate=hits / queries if queries else None,
        usual=usual,
        running=int(sample.running),
        kv_usage=sample.kv_usage,
        note=note,
    )
