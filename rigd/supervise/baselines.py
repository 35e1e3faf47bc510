"""What settings do when they are healthy: KV pool, start-up time, decode speed, acceptance. Pure values.

Each set of settings (digest of the launch, which names image, version and arguments) has a baseline of its own, so
that a change that is undone on trial finds the figures of the wish again.
"""

from dataclasses import dataclass, replace

BASELINES_KEPT = 8
"""Sets of settings whose baseline is kept; the ladder has fewer rungs."""
SECOND = 2
"""Closed blocks before a figure is taken: the first one pays for kernels that are compiled on use."""
SLOW_START_S = 30.0
"""A start that is longer by less than this is never remarkable."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What one set of settings came to over a healthy stretch. None: not measured yet."""

    digest: str
    start: int
    """The last start that taught something."""
    startup_s: float | None = None
    """From the engine's creation to ready; the shortest healthy start."""
    pool_tokens: int | None = None
    """KV pool; the largest of a healthy start (a cold compile cache costs a tenth of it)."""
    tokens_per_s: float | None = None
    """Decode speed of a request that is alone."""
    acceptance: float | None = None
    """Share of draft tokens accepted."""


@dataclass(frozen=True, kw_only=True)
class PoolRestart:
    """The one restart that a shrunken KV pool has earned."""

    digest: str
    start: int
    pool_tokens: int
    """Size that led to it."""
    at_s: float


def of_digest(baselines: tuple[Baseline, ...], digest: str) -> Baseline | None:
    """Return the baseline of these settings, if they have one."""
    return next((one for one in baselines if one.digest == digest), None)


def kept(baselines: tuple[Baseline, ...], new: Baseline) -> tuple[Baseline, ...]:
    """Return the table with this baseline in it; the one longest unused goes when there are too many."""
    others = tuple(one for one in baselines if one.digest != new.digest)
    return (*others, new)[-BASELINES_KEPT:]


def after_healthy_start(
    before: Baseline | None, *, digest: str, start: int, startup_s: float | None, pool_tokens: int | None
) -> Baseline:
    """Return the baseline once a start has stayed healthy: its best pool and its shortest start-up."""
    if before is None:
        return Baseline(digest=digest, start=start, startup_s=startup_s, pool_tokens=pool_tokens)
    pools = [pool for pool in (before.pool_tokens, pool_tokens) if pool is not None]
    times = [time for time in (before.startup_s, startup_s) if time is not None]
    return replace(
        before, start=start, startup_s=min(times, default=None), pool_tokens=max(pools, default=None)
    )


def said(baseline: Baseline) -> str:
    """Return the figures in words: `KV pool 691,176 tokens, ready after 104 s`."""
    parts = (
        None if baseline.pool_tokens is None else f"KV pool {baseline.pool_tokens:,} tokens",
        None if baseline.startup_s is None else f"ready after {baseline.startup_s:.0f} s",
        None if baseline.tokens_per_s is None else f"{baseline.tokens_per_s:.1f} tokens/s to a request alone",
        None if baseline.acceptance is None else f"{baseline.acceptance:.0%} of draft tokens accepted",
    )
    return ", ".join(part for part in parts if part)
