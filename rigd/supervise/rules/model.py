"""What a failure rule is made of: signatures, sentences, and the knob changes that may help."""

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from rigd.engine import card_memory

JsonScalar: TypeAlias = str | int | float | bool
Captured: TypeAlias = Mapping[str, str | int | float]
ValueOf: TypeAlias = Callable[[Captured], JsonScalar | None]


class Retry(enum.StrEnum):
    """Whether the same start may succeed when nothing is changed."""

    YES = "yes"
    """It passes by itself: a bounded number of tries helps."""
    NEVER = "never"
    """It fails the same way each time."""
    CONDITIONAL = "conditional"
    """Only after what the remedy states."""


class Weight(enum.IntEnum):
    """How much a hit explains. The lightest number wins; among equals, the earliest line."""

    DECISIVE = 0
    """Hardware or kernel: explains whatever the engine said."""
    CAUSE = 1
    """A root cause in the engine's own words."""
    CONSEQUENCE = 2
    """True, but mostly follows from something else: named only when nothing else was found."""
    HINT = 3
    """Printed by working engines too; explains a failure that nothing else explains."""
    CLIENT = 4
    """A client's doing; the engine is fine. Never explains a death."""
    OBSERVED = 5
    """Read from the statistics of an engine that runs."""


class Change(enum.StrEnum):
    """What a step does to its knob."""

    SET = "set"
    HALVE = "halve"
    LOWER = "lower"
    """By `value`, which is a difference."""
    RAISE = "raise"
    """By `value`, which is a difference."""
    REMOVE = "remove"
    """Leave the setting out."""
    RESTART = "restart"
    RECREATE = "recreate"
    WAIT = "wait"
    MOVE_ASIDE = "move_aside"
    RESET = "reset"
    REBOOT = "reboot"
    FIX = "fix"
    """A person's work; rigd can only tell."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change that may help, in the order to try. `value` is None where the log does not state it."""

    knob: str
    change: str
    value: JsonScalar | None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """How a step is made from what was captured."""

    knob: str
    change: Change
    value: JsonScalar | ValueOf | None = None

    def step(self, known: Captured) -> Step | None:
        """Return the step, or None when it says "set" and the number is not known."""
        value = self.value(known) if callable(self.value) else self.value
        if value is None and self.change is Change.SET:
            return None
        return Step(knob=self.knob, change=self.change, value=value)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The stable part of a message.

    `needle` is a literal that every match contains (compared without case): lines without it cost nothing.
    `pattern` is searched in the cleaned line (`needle` itself if left out); its named groups are captured,
    with numbers converted and sizes brought to the unit that ends the name (`_gib`, `_mib`).
    """

    needle: str
    pattern: str = ""
    frames: str = ""
    """Searched in the traceback or the lines of the same process just before the hit."""
    during: frozenset[str] = frozenset()
    """Start-up stages in which it counts; empty: all."""
    marks: frozenset[str] = frozenset()
    """Things that must have been seen before in this log."""
    follow: int = 0
    """Lines that are joined to this one before the pattern is tried."""
    check: Callable[[Captured], bool] | None = None
    """A last condition on the captured values."""
    tail: bool = False
    """Counts only when nothing but harmless lines comes after it."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern or re.escape(self.needle), re.IGNORECASE)

    @cached_property
    def frames_regex(self) -> re.Pattern[str]:
        return re.compile(self.frames)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One class of failure. In a sentence `{name}` is a captured value; a `[[...]]` that misses one goes."""

    kind: str
    phase: str
    retry: Retry
    signatures: tuple[Signature, ...]
    sentence: str
    remedy: str
    documented: str
    turns: tuple[Turn, ...] = ()
    weight: Weight = Weight.CAUSE
    starting_only: bool = False
    """Counts only until the engine is ready: later, the same words are about a client's request."""
    overrides: tuple[str, ...] = ()
    """Kinds that this one explains when both were hit."""


def sig(needle: str, pattern: str = "", **conditions: object) -> Signature:
    """Return a signature; short, because the tables have hundreds."""
    return Signature(needle=needle.lower(), pattern=pattern, **conditions)  # type: ignore[arg-type]


def first(*names: str) -> ValueOf:
    """Give the first of the named values that is known."""
    return lambda known: next((known[name] for name in names if name in known), None)


def unless(name: str, value: JsonScalar) -> ValueOf:
    """Give `value`, unless the named one is known: then the message says something better."""
    return lambda known: None if name in known else value


def halved(*names: str) -> ValueOf:
    """Give half of the first named value that is known, at least 1."""

    def value(known: Captured) -> JsonScalar | None:
        found = first(*names)(known)
        return max(1, int(found) // 2) if isinstance(found, int | float) else None

    return value


def rounded_down(name: str, step: int) -> ValueOf:
    """Give the named value rounded down to a multiple of `step`."""

    def value(known: Captured) -> JsonScalar | None:
        found = known.get(name)
        return int(found) // step * step or None if isinstance(found, int | float) else None

    return value


def utilization_that_fits(free: str, total: str) -> ValueOf:
    """Give the share of a card that is free, less 0.3 GiB, in hundredths rounded down."""

    def value(known: Captured) -> JsonScalar | None:
        has, of = known.get(free), known.get(total)
        if not isinstance(has, int | float) or not isinstance(of, int | float):
            return None
        return card_memory.utilization_that_fits(has, of)

    return value


RESTART = Turn(knob="engine", change=Change.RESTART)
RECREATE = Turn(knob="engine", change=Change.RECREATE)
WAIT_FOR_GPU_MEMORY = Turn(knob="gpu_memory", change=Change.WAIT)
MTP_OFF = Turn(knob="speculative", change=Change.REMOVE)
FEWER_SEQS = Turn(knob="max_num_seqs", change=Change.HALVE, value=halved("max_num_seqs"))
FEWER_BATCHED_TOKENS = Turn(
    knob="max_num_batched_tokens", change=Change.HALVE, value=halved("max_num_batched_tokens")
)
NO_P2P = Turn(knob="environment.NCCL_P2P_DISABLE", change=Change.SET, value="1")
NO_CUSTOM_ALL_REDUCE = Turn(knob="disable_custom_all_reduce", change=Change.SET, value=True)


def lower_utilization(by: float) -> Turn:
    """Return the turn that gives the engine a smaller share of each card."""
    return Turn(knob="gpu_memory_utilization", change=Change.LOWER, value=by)


def fix(what: str) -> Turn:
    """Return the turn that only a person can make."""
    return Turn(knob=what, change=Change.FIX)
