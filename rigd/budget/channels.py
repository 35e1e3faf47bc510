"""Do the channels of a rig fit into the pool? The plan, why not, and the smallest change that would hold.

reserve   what all requests may generate: their output at once
worst     their whole contexts, nothing shared
expected  at a hit rate: the share that hits is there once for each channel, the rest for each request
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rigd.budget.blocks import Layout
from rigd.budget.figure import Figure
from rigd.rig.schema import Channel

ROUND = 1024
"""Contexts are proposed in whole multiples of this."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the plan must fit into."""

    pool: Figure
    """Tokens."""
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    layout: Layout | None = None
    """How the cache is laid out, where it is known; then blocks are counted, too."""
    blocks: int | None = None
    """Blocks that requests can have."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One channel's part of the plan, in tokens."""

    channel: Channel
    reserve: int
    worst: int
    expected: int
    blocks: int | None


@dataclass(frozen=True, kw_only=True)
class Change:
    """One number of the rig file that, changed alone, makes the plan hold."""

    key: str
    before: int
    after: int
    cut: float
    """Share of the number that goes (or comes, for the engine's own)."""

    def __str__(self) -> str:
        """Return it as a person would say it."""
        return f"{self.key}: {self.before:,} -> {self.after:,}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the channels need, and what is left."""

    pool: Figure
    rows: tuple[Row, ...]
    hit_rate: float | None
    blocks: int | None
    """Blocks that the worst case takes, where the layout is known."""
    usable_blocks: int | None
    refusals: tuple[str, ...] = ()
    """Why it cannot hold; empty: it holds."""
    changes: tuple[Change, ...] = ()
    """Each alone makes it hold; the smallest first."""

    @property
    def reserve(self) -> int:
        return sum(row.reserve for row in self.rows)

    @property
    def for_context(self) -> int:
        return self.pool.value - self.reserve

    @property
    def worst(self) -> int:
        return sum(row.worst for row in self.rows)

    @property
    def expected(self) -> int:
        return sum(row.expected for row in self.rows)

    @property
    def free(self) -> int:
        return self.for_context - self.worst

    @property
    def free_expected(self) -> int:
        return self.for_context - self.expected

    @property
    def holds(self) -> bool:
        return not self.refusals


def make_plan(channels: Sequence[Channel], limits: Limits, *, hit_rate: float | None = None) -> Plan:
    """Return the plan of these channels, with what would make it hold where it does not."""
    plan = _reckoned(channels, limits, hit_rate)
    if plan.holds:
        return plan
    return replace(plan, changes=_changes(channels, limits))


def _reckoned(channels: Sequence[Channel], limits: Limits, hit_rate: float | None) -> Plan:
    rows = tuple(_row(channel, limits.layout, hit_rate or 0.0) for channel in channels)
    counted = limits.layout is not None and limits.blocks is not None
    plan = Plan(
        pool=limits.pool,
        rows=rows,
        hit_rate=hit_rate,
        blocks=sum(row.blocks or 0 for row in rows) if counted else None,
        usable_blocks=limits.blocks if counted else None,
    )
    return replace(plan, refusals=tuple(_refusals(plan, channels, limits)))


def _row(channel: Channel, layout: Layout | None, hit_rate: float) -> Row:
    each = channel.context
    shared = math.floor(each * hit_rate)
    blocks = None if layout is None else channel.parallel * layout.request_blocks(each + channel.output)
    return Row(
        channel=channel,
        reserve=channel.parallel * channel.output,
        worst=channel.parallel * each,
        expected=shared + channel.parallel * (each - shared),
        blocks=blocks,
    )


def _refusals(plan: Plan, channels: Sequence[Channel], limits: Limits) -> list[str]:
    found = []
    if plan.free < 0:
        found.append(
            f"{plan.worst + plan.reserve:,} tokens in the worst case ({plan.worst:,} of context, {plan.reserve:,} of "
            f"output) exceed the pool of {plan.pool.value:,} by {-plan.free:,}: requests would push one another out "
            "and be computed again"
        )
    elif plan.blocks is not None and plan.usable_blocks is not None and plan.blocks > plan.usable_blocks:
        found.append(
            f"{plan.blocks:,} blocks in the worst case exceed the pool's {plan.usable_blocks:,}: tokens would do, "
            "but every request fills whole blocks, and some with its recurrent state"
        )
    length = limits.max_model_len
    if length is not None and limits.layout is not None and limits.blocks is not None:
        needed = limits.layout.request_blocks(length)
        if needed > limits.blocks:
            found.append(
                f"one request of max_model_len ({length:,}) takes {needed:,} blocks of {limits.blocks:,}: "
                "the engine refuses to start"
            )
    found += [
        f"{one.name}: context {one.context:,} and output {one.output:,} exceed max_model_len ({length:,})"
        for one in channels
        if length is not None and one.context + one.output > length
    ]
    together = sum(channel.parallel for channel in channels)
    if limits.max_num_seqs is not None and together > limits.max_num_seqs:
        found.append(
            f"{together} requests at once exceed max_num_seqs ({limits.max_num_seqs}): some would wait"
        )
    return found


# --- what would hold ---


def _changes(channels: Sequence[Channel], limits: Limits) -> tuple[Change, ...]:
    """Return each single change that makes the plan hold, the one that takes least first."""
    found: list[Change] = []
    for number, channel in enumerate(channels):
        for key, step in (("context", ROUND), ("parallel", 1), ("output", 1)):
            after = _largest(channels, number, key, step, limits)
            if after is not None:
                before = getattr(channel, key)
                name = f"channels[{number}].{key} ({channel.name})"
                found.append(Change(key=name, before=before, after=after, cut=1 - after / before))
    found.sort(key=lambda change: change.cut)
    return (*found, *_raised(channels, limits))


def _largest(channels: Sequence[Channel], number: int, key: str, step: int, limits: Limits) -> int | None:
    """Return the largest smaller number at which the plan holds, None where none does."""
    present: int = getattr(channels[number], key)

    def holds(value: int) -> bool:
        changed = channels[number].model_copy(update={key: value})
        return _reckoned((*channels[:number], changed, *channels[number + 1 :]), limits, None).holds

    low, high = 0, math.ceil(present / step) - 1  # in steps: at `low` it holds, above `high` it does not
    if high < 1 or not holds(step):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle * step):
            low = middle
        else:
            high = middle - 1
    return low * step or None


def _raised(channels: Sequence[Channel], limits: Limits) -> list[Change]:
    """Return what of the engine's own settings would make it hold: sequences, context, or the pool."""
    found: list[Change] = []
    together = sum(channel.parallel for channel in channels)
    longest = max(channel.context + channel.output for channel in channels)
    plan = _reckoned(channels, limits, None)
    wishes = (
        ("max_num_seqs", limits.max_num_seqs, together, replace(limits, max_num_seqs=together)),
        ("max_model_len", limits.max_model_len, longest, replace(limits, max_model_len=longest)),
    )
    for name, before, after, wider in wishes:
        if before is not None and after > before and _reckoned(channels, wider, None).holds:
            found.append(
                Change(key=f"engine.arguments.{name}", before=before, after=after, cut=after / before - 1)
            )
    needed = plan.worst + plan.reserve
    if needed > limits.pool.value:
        wider = replace(limits, pool=replace(limits.pool, value=needed), layout=None)
        if _reckoned(channels, wider, None).holds:
            before = limits.pool.value
            found.append(
                Change(key="the pool, in tokens", before=before, after=needed, cut=needed / before - 1)
            )
    return found
