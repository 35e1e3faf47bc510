"""The trends that counters show, one row each: when a block of work is long enough, and what it comes to. Pure.

    counters -> Block (what happened since its beginning) -> Grade: fine, poor (told), grave (told and answered)

Blocks close by work done rather than by time, so an idle engine is never judged. How to add a trend: a member of
`Trend` and a row in `RULES`; what answers a grave one is its road in `ladder.ROADS`.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from rigd.rig.schema import Speculative
from rigd.rig.trends import Trends
from rigd.supervise.baselines import Baseline
from rigd.supervise.load import Load

SOMETIMES = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Drafters that look for text seen before: that they find none, or the wrong one, is no fault of theirs."""


class Trend(enum.StrEnum):
    """Class of a trend, in the failure catalogue's vocabulary."""

    ACCEPTANCE = "spec_accept_collapse"
    NO_DRAFTS = "drafter_missing"
    PREEMPTIONS = "preempt_thrash"
    SLOW = "slow_not_stuck"
    MEMORY = "host_ram_leak"
    POOL = "kv_pool_shrunk"


class Grade(enum.IntEnum):
    """What a block comes to."""

    FINE = 0
    POOR = 1
    """Told; nothing that rigd does would help, or it is not certain enough to act on."""
    GRAVE = 2
    """Told, and answered where the ladder has an answer."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The counters at one moment, and how long one request alone was decoding until then."""

    at_s: float
    load: Load
    alone_s: float = 0.0
    alone_tokens: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Block:
    """What happened between two marks."""

    took_s: float
    generation_tokens: float
    drafts: float
    draft_tokens: float
    accepted_tokens: float
    preemptions: float
    successes: float
    alone_s: float
    alone_tokens: float

    @property
    def acceptance(self) -> float:
        """Share of the draft tokens that was accepted."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else 0.0

    @property
    def later_tokens(self) -> float:
        """Tokens after the first of each request: only for these a draft can be made."""
        return max(0.0, self.generation_tokens - self.successes)

    @property
    def tokens_per_s(self) -> float:
        """Decode speed of a request alone."""
        return self.alone_tokens / self.alone_s if self.alone_s else 0.0

    @property
    def preemptions_per_request(self) -> float:
        """Preemptions for each request that ended; those of none count as of one."""
        return self.preemptions / max(1.0, self.successes)


def between(before: Mark, after: Mark) -> Block:
    """Return what happened between two marks of the same engine."""
    old, new = before.load, after.load
    return Block(
        took_s=after.at_s - before.at_s,
        generation_tokens=new.generation_tokens - old.generation_tokens,
        drafts=new.drafts - old.drafts,
        draft_tokens=new.draft_tokens - old.draft_tokens,
        accepted_tokens=new.accepted_tokens - old.accepted_tokens,
        preemptions=new.preemptions - old.preemptions,
        successes=new.successes - old.successes,
        alone_s=after.alone_s - before.alone_s,
        alone_tokens=after.alone_tokens - before.alone_tokens,
    )


@dataclass(frozen=True, kw_only=True)
class Standard:
    """What blocks are measured against."""

    limits: Trends
    speculative: Speculative | None = None
    """The speculation that the running engine was launched with."""
    baseline: Baseline | None = None

    @property
    def always_drafts(self) -> bool:
        """Whether the engine was asked for a drafter that has something to say about any text."""
        return self.speculative is not None and self.speculative.method not in SOMETIMES

    @property
    def acceptance(self) -> float | None:
        """The baseline's acceptance."""
        return None if self.baseline is None else self.baseline.acceptance

    @property
    def tokens_per_s(self) -> float | None:
        """The baseline's decode speed of a request alone."""
        return None if self.baseline is None else self.baseline.tokens_per_s


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One trend."""

    trend: Trend
    closes: Callable[[Block, Trends], bool]
    """Whether the block is long enough to be judged."""
    grade: Callable[[Block, Standard], Grade]
    sentence: Callable[[Block, Standard], str]
    hint: str
    """What a person can do about it."""


def _acceptance(block: Block, standard: Standard) -> Grade:
    if block.acceptance < standard.limits.acceptance_floor:
        return Grade.GRAVE if standard.always_drafts else Grade.POOR
    usual = standard.acceptance
    poor = usual is not None and block.acceptance < standard.limits.acceptance_share * usual
    return Grade.POOR if poor else Grade.FINE


def _acceptance_said(block: Block, standard: Standard) -> str:
    usual = "" if standard.acceptance is None else f" ({standard.acceptance:.0%} when it was healthy)"
    return (
        f"Drafts are hardly accepted any more: {block.acceptance:.1%} of {block.draft_tokens:,.0f} draft tokens"
        f"{usual}; speculation costs and brings nothing."
    )


def _no_drafts(block: Block, standard: Standard) -> Grade:
    silent = block.drafts == 0 and block.draft_tokens == 0
    return Grade.POOR if standard.always_drafts and silent else Grade.FINE


def _no_drafts_said(block: Block, standard: Standard) -> str:
    method = standard.speculative.method if standard.speculative is not None else "speculation"
    return (
        f"Speculative decoding ({method}) was asked for but does not run: {block.later_tokens:,.0f} tokens "
        "came without one draft; answers are right, only slow."
    )


def _preemptions(block: Block, standard: Standard) -> Grade:
    limits = standard.limits
    many = block.preemptions >= limits.preemptions
    return (
        Grade.GRAVE
        if many and block.preemptions_per_request >= limits.preemptions_per_request
        else Grade.FINE
    )


def _preemptions_said(block: Block, _standard: Standard) -> str:
    each = block.preemptions_per_request
    return (
        f"Requests push one another out of the KV pool: {block.preemptions:,.0f} preemptions in "
        f"{block.took_s / 60:.0f} min, {each:.1f} for each request that ended."
    )


def _slow(block: Block, standard: Standard) -> Grade:
    usual = standard.tokens_per_s
    slow = usual is not None and block.tokens_per_s < standard.limits.rate_share * usual
    return Grade.POOR if slow else Grade.FINE


def _slow_said(block: Block, standard: Standard) -> str:
    return (
        f"A request alone gets {block.tokens_per_s:.1f} tokens/s, far less than the "
        f"{standard.tokens_per_s or 0.0:.1f} tokens/s of these settings when they were healthy."
    )


RULES: tuple[Rule, ...] = (
    Rule(
        trend=Trend.ACCEPTANCE,
        closes=lambda block, limits: block.draft_tokens >= limits.acceptance_draft_tokens,
        grade=_acceptance,
        sentence=_acceptance_said,
        hint="use another checkpoint, or turn it off: rigd set speculative default",
    ),
    Rule(
        trend=Trend.NO_DRAFTS,
        closes=lambda block, limits: block.later_tokens >= limits.undrafted_tokens,
        grade=_no_drafts,
        sentence=_no_drafts_said,
        hint="rigd logs; fetch the drafter (a gated one needs a token), check engine.arguments.speculative",
    ),
    Rule(
        trend=Trend.PREEMPTIONS,
        closes=lambda block, limits: block.took_s >= limits.preemption_stretch_s,
        grade=_preemptions,
        sentence=_preemptions_said,
        hint="send fewer requests at once, or give more KV memory; a shorter max_model_len helps too",
    ),
    Rule(
        trend=Trend.SLOW,
        closes=lambda block, limits: block.alone_s >= limits.rate_busy_s,
        grade=_slow,
        sentence=_slow_said,
        hint="rigd status shows clocks and heat of the cards; rigd restart where they are fine",
    ),
)
