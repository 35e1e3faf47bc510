"""Which trends were answered, and when: a trend that comes back gets the next answer, and not the same one. Pure.

Failures that end an engine are counted until it has been healthy for a stretch. A collapse of acceptance may take
hours to come back, so its answers are remembered for `supervision.trends.again_s`.
"""

from dataclasses import dataclass

from rigd.rig.trends import Trends

ANSWERED = frozenset({"spec_accept_collapse", "preempt_thrash", "host_ram_leak"})
"""Classes that the ladder may answer while the engine serves."""
KEPT = 16


@dataclass(frozen=True, kw_only=True)
class SlowAnswer:
    """One answer to a trend."""

    kind: str
    at_s: float


def restarts(answers: tuple[SlowAnswer, ...], kind: str, limits: Trends, *, now_s: float) -> int:
    """Return how often this class was answered lately."""
    return sum(one.kind == kind and now_s - one.at_s < limits.again_s for one in answers)


def with_answer(answers: tuple[SlowAnswer, ...], kind: str, *, now_s: float) -> tuple[SlowAnswer, ...]:
    """Return the answers with one more, where this is a class of theirs."""
    return (*answers, SlowAnswer(kind=kind, at_s=now_s))[-KEPT:] if kind in ANSWERED else answers
