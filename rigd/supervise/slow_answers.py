"""Which failures were answered, and when: one that comes back after hours gets the next answer, not the same. Pure.

Failures that end an engine are counted until it has been healthy for a stretch. A collapse of acceptance may take
hours to come back, so its answers are remembered for `supervision.trends.again_s`.
"""

from dataclasses import dataclass

from rigd.rig.trends import Trends

ANSWERED = frozenset({"spec_accept_collapse", "preempt_thrash", "host_ram_leak"})
"""Classes that the ladder may answer while the engine serves."""
RECURRING = frozenset(
    {"ima_mtp_gdn", "ima_other", "post_ready_oom", "rpc_timeout", "engine_stalled", "garbage_output"}
)
"""Classes that end an engine, and come back after hours of health: counted by the healthy stretch, a restart would
be the answer for ever."""
REMEMBERED = ANSWERED | RECURRING
KEPT = 32


@dataclass(frozen=True, kw_only=True)
class SlowAnswer:
    """One answer to a failure of such a class."""

    kind: str
    at_s: float


def recent(answers: tuple[SlowAnswer, ...], limits: Trends, *, now_s: float) -> tuple[SlowAnswer, ...]:
    """Return the answers that still count."""
    return tuple(one for one in answers if now_s - one.at_s < limits.again_s)


def marks(answers: tuple[SlowAnswer, ...], kind: str) -> tuple[str, ...] | None:
    """Return what answered this class, as the ladder's marks; None for classes that are soon forgotten."""
    return tuple(one.kind for one in answers if one.kind == kind) if kind in REMEMBERED else None


def with_answer(answers: tuple[SlowAnswer, ...], kind: str, *, at_s: float) -> tuple[SlowAnswer, ...]:
    """Return the answers with one more, where this is a class of theirs."""
    return (*answers, SlowAnswer(kind=kind, at_s=at_s))[-KEPT:] if kind in REMEMBERED else answers
