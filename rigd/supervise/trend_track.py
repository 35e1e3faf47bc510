"""Folds looks at the counters into blocks of work, and readings of memory into a window. Pure, bounded memory."""

from dataclasses import dataclass, replace

from rigd.supervise.load import Load
from rigd.supervise.memory_trend import MemoryPoint, MemorySample, with_reading
from rigd.supervise.trend_rules import RULES, Block, Grade, Mark, Rule, Standard, Trend, between

COUNTERS = (
    "generation_tokens",
    "prompt_tokens",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "preemptions",
    "successes",
)


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """How one trend stands: where the open block began, and what the closed ones came to."""

    trend: Trend
    began: Mark
    block: Block | None = None
    """The last closed block."""
    closed: int = 0
    poor: int = 0
    """Blocks in a row that were not fine."""
    grave: int = 0
    """Blocks in a row that were grave."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """What was seen of the present engine so far."""

    mark: Mark | None = None
    """The latest look."""
    gauges: tuple[Gauge, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()

    def gauge(self, trend: Trend) -> Gauge | None:
        """Return how a trend stands; None before the first look."""
        return next((one for one in self.gauges if one.trend is trend), None)


def after_load(track: Track, load: Load, standard: Standard, *, at_s: float, pause_s: float) -> Track:
    """Fold one look into the track. Looks further apart than `pause_s` say nothing about speed."""
    before = track.mark
    if before is None or _went_back(before.load, load) or at_s < before.at_s:
        mark = Mark(at_s=at_s, load=load)
        return replace(track, mark=mark, gauges=tuple(Gauge(trend=rule.trend, began=mark) for rule in RULES))
    mark = _marked(before, load, at_s=at_s, pause_s=pause_s)
    gauges = tuple(
        _folded(rule, gauge, mark, standard) for rule, gauge in zip(RULES, track.gauges, strict=True)
    )
    return replace(track, mark=mark, gauges=gauges)


def after_memory(track: Track, sample: MemorySample, standard: Standard) -> Track:
    """Fold one reading of the memory into the track."""
    load = None if track.mark is None else track.mark.load
    tokens = 0.0 if load is None else load.generation_tokens + load.prompt_tokens
    return replace(track, memory=with_reading(track.memory, sample, tokens, standard.limits))


def _went_back(before: Load, after: Load) -> bool:
    """Return whether a counter began again: another API server answers."""
    return any(getattr(after, name) < getattr(before, name) for name in COUNTERS)


def _marked(before: Mark, load: Load, *, at_s: float, pause_s: float) -> Mark:
    old, took_s = before.load, at_s - before.at_s
    came = load.generation_tokens - old.generation_tokens
    alone = (old.running, old.waiting, load.running, load.waiting) == (1, 0, 1, 0)
    # A prompt that is read, or a request that ends, in between: part of the time was not decoding.
    same = (old.prompt_tokens, old.prefix_queries, old.successes) == (
        load.prompt_tokens,
        load.prefix_queries,
        load.successes,
    )
    if not (alone and same and came > 0 and took_s <= pause_s):
        return replace(before, at_s=at_s, load=load)
    return Mark(
        at_s=at_s,
        load=load,
        alone_s=before.alone_s + took_s,
        alone_tokens=before.alone_tokens + came,
    )


def _folded(rule: Rule, gauge: Gauge, mark: Mark, standard: Standard) -> Gauge:
    block = between(gauge.began, mark)
    if not rule.closes(block, standard.limits):
        return gauge
    grade = rule.grade(block, standard)
    return Gauge(
        trend=gauge.trend,
        began=mark,
        block=block,
        closed=gauge.closed + 1,
        poor=gauge.poor + 1 if grade >= Grade.POOR else 0,
        grave=gauge.grave + 1 if grade >= Grade.GRAVE else 0,
    )
