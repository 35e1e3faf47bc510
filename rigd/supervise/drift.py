"""Is the host still as a playbook says? When to look, when to apply, what to tell. Pure.

    rules + what is known + situation -> next_act() -> a run elsewhere -> after_check(), after_apply() -> entries()

A difference is certain when a second look shows it again: a box that just booted, or that a person is working on,
passes through states that mean nothing.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from rigd.rig.drift import Drift
from rigd.supervise.decision import Entry
from rigd.supervise.drift_report import Difference, Report
from rigd.supervise.state import SERVING, JobKind, State, Status

RETRY_S = 600.0
"""Pause after a look that could not be made; doubled each time."""
RETRY_MAX_S = 21600.0
AGAIN_S = 3600.0
"""Pause after an apply that did not end what it was for; doubled each time, up to a day."""
AGAIN_MAX_S = 86400.0
BUSY_S = 3.0
"""An engine that works for this long is busy; a canary of ours is not that long."""
BUSY_LOOKS = 3
"""Looks in a row that another run kept away, or that took too long, after which that is a trouble, too."""
STALE_S = 30.0
"""Counters older than this say nothing of an engine, in seconds."""
SHOWN = 3
_LOUD = frozenset({JobKind.LAUNCH, JobKind.STOP, JobKind.WARM, JobKind.CHECK})


class DriftAct(enum.StrEnum):
    """What root's one-shot may be asked."""

    CHECK = "check"
    APPLY = "apply"


@dataclass(frozen=True, kw_only=True)
class Known:
    """A difference and its history."""

    difference: Difference
    since_s: float
    looks: int = 1

    @property
    def certain(self) -> bool:
        """Whether it has been seen twice."""
        return self.looks > 1


@dataclass(frozen=True, kw_only=True)
class DriftState:
    """Everything that is known; stored, so that a new daemon repeats nothing."""

    playbook: str = ""
    boot: str = ""
    """The boot of the last look that was made."""
    checked_s: float | None = None
    tried_s: float | None = None
    """When the last look was tried, whatever came of it."""
    fails: int = 0
    """Looks in a row that could not be made."""
    problem: str = ""
    hint: str = ""
    known: tuple[Known, ...] = ()
    more: int = 0
    told: bool = False
    """Whether people were told of a difference, and not yet that all is over."""
    running: DriftAct | None = None
    """What is under way; a daemon that finds one does not know what came of it."""
    applied_s: float | None = None
    applies: int = 0
    """Applies in a row after which something that they are for was left."""
    reboot: bool = False
    """Whether the last apply wanted a reboot."""

    @property
    def certain(self) -> tuple[Known, ...]:
        """The differences that are told."""
        return tuple(one for one in self.known if one.certain)


DRIFT_STATE = TypeAdapter(DriftState)
"""Writes a state as JSON and reads it back, for the store."""


@dataclass(frozen=True, kw_only=True)
class Calm:
    """Since when the engine has had no request, and since when it has been at work without a break."""

    idle_s: float | None = None
    busy_s: float | None = None

    def busy(self, now_s: float) -> bool:
        """Whether it is at work, and not with a canary alone."""
        return self.busy_s is not None and now_s - self.busy_s >= BUSY_S

    def idle(self, now_s: float, for_s: float) -> bool:
        """Whether it has been without a request for so long."""
        return self.idle_s is not None and now_s - self.idle_s >= for_s


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What else a decision needs."""

    now_s: float
    boot: str
    began_s: float
    """When this daemon began."""
    calm: Calm
    hands_off: bool = False
    """Whether maintenance is on."""
    settle_s: float = 60.0
    """From the daemon's start to the first look after a boot, while services come up; and from a look that shows
    something new to the one that confirms it."""
    canary_s: float = 60.0
    """How often rigd itself asks an idle engine."""


def after_look(calm: Calm, status: Status, *, now_s: float) -> Calm:
    """Return how calm the engine is, seen now."""
    if _at_work(status, now_s=now_s):
        return Calm(busy_s=now_s if calm.busy_s is None else calm.busy_s)
    return Calm(idle_s=now_s if calm.idle_s is None else calm.idle_s)


def _at_work(status: Status, *, now_s: float) -> bool:
    if status.state in {State.STARTING, State.STOPPING, State.MAINTENANCE}:
        return True
    if status.job is not None and status.job.kind in _LOUD:
        return True
    if status.state not in SERVING:
        return False
    load, seen_s = status.vitals.load, status.vitals.sample_s
    if load is None or seen_s is None or now_s - seen_s > STALE_S:
        return True  # Not known is not idle.
    return load.running > 0 or load.waiting > 0


def next_act(state: DriftState, rules: Drift, at: Situation) -> DriftAct | None:
    """Return what to ask for now, or None."""
    if rules.playbook is None or state.running is not None or at.hands_off:
        return None
    if _may_apply(state, rules, at):
        return DriftAct.APPLY
    due_s = next_check_s(state, rules, at)
    return DriftAct.CHECK if due_s is not None and at.now_s >= due_s else None


def next_check_s(state: DriftState, rules: Drift, at: Situation) -> float | None:
    """Return when the next look is due; None: not before the next boot."""
    if rules.playbook is None:
        return None
    if state.fails and state.tried_s is not None and state.playbook == rules.playbook:
        if state.tried_s < at.began_s:
            return (
                at.began_s + at.settle_s
            )  # Whatever it was, it may have gone with the boot, or the old daemon.
        return state.tried_s + min(RETRY_S * 2.0 ** min(state.fails - 1, 10), RETRY_MAX_S)
    if state.playbook != rules.playbook or state.checked_s is None:
        return at.began_s + at.settle_s
    if state.applied_s is not None and state.applied_s >= state.checked_s:
        return state.applied_s
    if any(not one.certain for one in state.known):
        return state.checked_s + at.settle_s
    times = [state.checked_s + rules.every_s] if rules.every_s is not None else []
    if rules.at_boot and state.boot != at.boot:
        times.append(at.began_s + at.settle_s)
    return min(times, default=None)


def _may_apply(state: DriftState, rules: Drift, at: Situation) -> bool:
    wanted = rules.apply and any(one.difference.allowed for one in state.certain)
    if not wanted or state.fails or state.boot != at.boot or state.playbook != rules.playbook:
        return False
    if state.applied_s is not None and state.applies:
        pause_s = min(AGAIN_S * 2.0 ** min(state.applies - 1, 10), AGAIN_MAX_S)
        if at.now_s - state.applied_s < pause_s:
            return False
    return at.calm.idle(at.now_s, min(rules.idle_s, at.canary_s / 2))


def must_stop(state: DriftState, at: Situation) -> bool:
    """Return whether an apply that runs has to end after the task in hand."""
    return state.running is DriftAct.APPLY and (at.hands_off or at.calm.busy(at.now_s))


# --- what came of it ---


def begun(state: DriftState, act: DriftAct, rules: Drift, *, now_s: float) -> DriftState:
    """Return the state with something under way; another playbook begins from nothing but what people were told."""
    if state.playbook != rules.playbook:
        state = DriftState(
            playbook=rules.playbook or "", told=state.told, problem=state.problem, hint=state.hint
        )
    return replace(state, running=act, tried_s=now_s)


def forgotten(state: DriftState, rules: Drift) -> bool:
    """Return whether the rig file no longer asks, so that whatever was told is over."""
    return rules.playbook is None and state.running is None and state != DriftState()


def after_check(state: DriftState, report: Report, *, boot: str, now_s: float) -> DriftState:
    """Take up what a look found; one that could not be made leaves what is known."""
    if (report.stopped or report.busy) and state.fails + 1 < BUSY_LOOKS:
        return replace(state, running=None, fails=state.fails + 1)
    if not report.ok:
        return replace(state, running=None, fails=state.fails + 1, problem=report.message, hint=report.hint)
    before = {one.difference.key: one for one in state.known}
    known = []
    for difference in report.differences:
        old = before.get(difference.key)
        known.append(
            Known(difference=difference, since_s=now_s)
            if old is None
            else replace(old, difference=difference, looks=old.looks + 1)
        )
    after = replace(
        state,
        running=None,
        boot=boot,
        checked_s=now_s,
        fails=0,
        problem="",
        hint="",
        known=tuple(known),
        more=report.more,
    )
    after = replace(after, told=bool(after.certain) or (state.told and bool(after.known)))
    left = any(one.difference.allowed for one in after.known)
    return after if left else replace(after, applies=0, reboot=False)


def after_apply(state: DriftState, report: Report, *, now_s: float) -> DriftState:
    """Take up what came of an apply; what it was for counts as ended when the next look says so."""
    tries = state.applies if report.stopped or report.busy else state.applies + 1
    return replace(state, running=None, applied_s=now_s, applies=tries, reboot=report.reboot)


def interrupted(state: DriftState, *, now_s: float) -> tuple[DriftState, tuple[Entry, ...]]:
    """Return the state of a daemon that finds something under way that it did not begin."""
    if state.running is DriftAct.APPLY:
        message = "the daemon ended while the playbook was applied: what came of it, the next look says"
        after = replace(state, running=None, applied_s=now_s)
        return after, (_applied("interrupted", message),)
    return replace(state, running=None), ()


# --- what is told ---


def entries(before: DriftState, after: DriftState) -> tuple[Entry, ...]:
    """Return what the journal is told: each difference once, and the end; each trouble once, and its end."""
    told: list[Entry] = []
    if after.problem and not before.problem:
        message = f"cannot say whether the host is as {after.playbook} says: {after.problem}"
        told.append(Entry(kind="drift-trouble", message=message, data=(("hint", after.hint),)))
    if before.problem and not after.problem:
        told.append(
            Entry(kind="drift-trouble-over", message="the host could be held against its playbook again")
        )
    old = {one.difference.key for one in before.certain}
    new = {one.difference.key for one in after.certain}
    if new - old:
        told.append(_found(after))
    elif before.told and not after.told:
        told.append(Entry(kind="drift-over", message=f"the host is as {before.playbook} says again"))
    return tuple(told)


def _found(state: DriftState) -> Entry:
    certain = state.certain
    count = len(certain) + state.more
    names = "; ".join(_told(one.difference) for one in certain[:SHOWN])
    rest = f"; and {count - SHOWN} more" if count > SHOWN else ""
    verb = "task differs" if count == 1 else "tasks differ"
    allowed = sum(one.difference.allowed for one in certain)
    return Entry(
        kind="drift",
        message=f"the host is no longer as {state.playbook} says, {count} {verb}: {names}{rest}",
        data=(
            ("playbook", state.playbook),
            ("count", count),
            ("allowed", allowed),
            ("hint", "rigd applies what it may when the engine rests" if allowed == count else HINT),
        ),
    )


HINT = "`rigd provision check PLAYBOOK --diff` shows it, `rigd provision apply PLAYBOOK` mends it"


def _told(difference: Difference) -> str:
    return f"{difference.task} ({difference.what})" if difference.what else difference.task


def applying(state: DriftState) -> Entry:
    """Return the journal's line before an apply."""
    names = "; ".join(one.difference.task for one in state.certain if one.difference.allowed)
    return _applied("intended", f"applying {state.playbook}, as far as host.drift.apply allows: {names}")


def applied(state: DriftState, report: Report) -> Entry:
    """Return the journal's line about what came of an apply."""
    changed = "; ".join(_told(one) for one in report.differences[:SHOWN]) or "nothing"
    if report.ok:
        reboot = "; it wants a reboot, which is a person's to do" if report.reboot else ""
        return _applied("done", f"applied {state.playbook}: {changed}{reboot}")
    if report.stopped:
        return _applied("stopped", f"stopped applying {state.playbook} for the engine's sake: {changed}")
    hint = f"; {report.hint}" if report.hint else ""
    return _applied("failed", f"could not apply {state.playbook}: {report.message}{hint}")


def _applied(state: str, message: str) -> Entry:
    return Entry(kind="drift-apply", message=message, data=(("state", state),))


def document(state: DriftState, rules: Drift, at: Situation) -> Mapping[str, Any] | None:
    """Return what the status document says of it; None where the rig file asks for nothing."""
    if rules.playbook is None:
        return None
    same = state.playbook == rules.playbook
    due_s = next_check_s(state, rules, at)
    return {
        "playbook": rules.playbook,
        "checked_s": state.checked_s if same else None,
        "tried_s": state.tried_s if same else None,
        "this_boot": same and state.boot == at.boot,
        "next_s": None if state.running else due_s,
        "running": None if state.running is None else str(state.running),
        "problem": state.problem if same else "",
        "hint": state.hint if same else "",
        "applied_s": state.applied_s if same else None,
        "reboot": same and state.reboot,
        "more": state.more if same else 0,
        "differences": [
            {
                "task": one.difference.task,
                "place": one.difference.place,
                "what": one.difference.what,
                "allowed": one.difference.allowed,
                "certain": one.certain,
                "since_s": one.since_s,
            }
            for one in (state.known if same else ())
        ],
    }
