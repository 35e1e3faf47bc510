"""What a daemon does with what it finds: its stored status, and engines that may be running. Pure.

A fresh observation decides; the stored status only says what was wanted and what was in hand. So the engine
outlives the daemon: one that runs is adopted, never restarted for the daemon's sake.
"""

from dataclasses import replace

from rigd.runtime.base import EngineRef
from rigd.supervise.decision import Decision, EndExtra, Entry, UseKnownGood, UseOverlay
from rigd.supervise.health import Vitals
from rigd.supervise.ladder import Move
from rigd.supervise.moves import Policy, as_wished, launch, move, moved, stop
from rigd.supervise.state import Desired, JobKind, State, Status


def resume(
    stored: Status | None,
    found: tuple[EngineRef, ...],
    policy: Policy,
    *,
    now_s: float,
    insist: bool = False,
    boot: str = "",
) -> Decision:
    """Return the first decision of a daemon.

    `insist`: a person asked for it to run (`rigd up`), whatever was stored.
    `boot` is the kernel's id of this boot: after a restart of the host a breaker that opened before is closed.
    """
    before = stored if stored is not None else Status(desired=Desired.RUNNING, since_s=now_s)
    same_boot = before.boot in {"", boot}
    before = replace(before, boot=boot)
    if before.fallback_from and before.fallback_from != policy.basis:
        before = replace(before, fallback_from="")  # The rig file was changed again: it gets its chance.
    if before.overlay and before.overlay_basis != policy.basis:
        cleared = replace(as_wished(before), fallback_from=before.fallback_from)
        entry = Entry(
            kind="overlay", message="the rig file changed: what was changed on top of it is cleared"
        )
        decision = _resume(cleared, found, policy, now_s=now_s, insist=insist, same_boot=same_boot)
        return replace(decision, entries=(entry, *decision.entries))
    decision = _resume(before, found, policy, now_s=now_s, insist=insist, same_boot=same_boot)
    fallback = (UseKnownGood(),) if before.fallback_from else ()
    overlay = (UseOverlay(steps=before.overlay, on_good=bool(fallback)),) if before.overlay else ()
    return replace(decision, actions=(*fallback, *overlay, *decision.actions))


def _resume(
    before: Status,
    found: tuple[EngineRef, ...],
    policy: Policy,
    *,
    now_s: float,
    insist: bool,
    same_boot: bool,
) -> Decision:
    if before.state is State.MAINTENANCE and not insist:
        return Decision(status=replace(before, job=None))
    if insist:
        before = replace(before, desired=Desired.RUNNING)
    if not same_boot or insist:
        before = replace(before, failures=(), streak=0, boots=(), answered=(), gave_up=None)
    if before.desired is Desired.STOPPED:
        return _stay_stopped(before, found, policy, now_s=now_s)
    if before.state is State.STOPPING or (before.job is not None and before.job.kind is JobKind.STOP):
        return _finish_stop(before, found, policy, now_s=now_s)
    if found:
        return _adopt(before, found, now_s=now_s)
    if before.state is State.FAILED and before.gave_up is not None and not insist and same_boot:
        return Decision(status=replace(before, job=None, engine=None))
    moving = before.pending is not None and before.pending.move is Move.MOVE_ASIDE
    if before.state is State.BACKOFF and before.retry_s is not None and (not insist or moving):
        return Decision(status=replace(before, job=None, engine=None))
    fresh = replace(before, state=State.STOPPED, since_s=now_s, job=None)
    reason = "the daemon started, and no engine of this rig is running"
    return launch(fresh, reason, now_s=now_s)


def after_maintenance(status: Status, found: tuple[EngineRef, ...], *, now_s: float) -> Decision:
    """Return the decision that takes the engine in hand again after maintenance."""
    if status.desired is Desired.STOPPED and not found:
        after = replace(move(status, State.STOPPED, "maintenance off", now_s=now_s), engine=None)
        return Decision(status=after, entries=(moved(status, after, "stopped", "maintenance off"),))
    # Whoever ran or left an engine during maintenance wanted it so: it is adopted, not ended.
    wanted = replace(status, desired=Desired.RUNNING)
    if found:
        return _adopt(wanted, found, now_s=now_s)
    return launch(wanted, "maintenance off", now_s=now_s)


def _adopt(before: Status, found: tuple[EngineRef, ...], *, now_s: float) -> Decision:
    ref, *extra = found
    same = before.engine is not None and before.engine.id == ref.id
    after = replace(
        before,
        state=State.STARTING,
        since_s=now_s,
        reason=f"adopted the running engine (start {ref.start}); asking it for a completion",
        engine=ref,
        job=None,
        candidate=None,
        ending=None,
        retry_s=None,
        gave_up=None,
        launched_s=(before.launched_s if same and before.launched_s is not None else ref.created_s),
        # One that has answered before is asked for a completion at once; a loading one gets its time.
        healthy_s=now_s if same and before.healthy_s is not None else None,
        ready_s=before.ready_s if same else None,
        warm=before.warm if same else (),
        warmed_s=before.warmed_s if same else None,
        vitals=Vitals(),
    )
    data = (("start", ref.start), ("pid", ref.pid), ("engine", ref.id), ("was", str(before.state)))
    entry = Entry(kind="adopted", message="adopted the running engine", data=data)
    return Decision(status=after, actions=tuple(EndExtra(ref=other) for other in extra), entries=(entry,))


def _stay_stopped(before: Status, found: tuple[EngineRef, ...], policy: Policy, *, now_s: float) -> Decision:
    if not found:
        stopped = replace(before, state=State.STOPPED, job=None, engine=None, retry_s=None)
        return Decision(status=stopped)
    # The wish to stop was stored before the daemon died: it is carried out, not forgotten.
    running = replace(before, state=State.STARTING, engine=found[0], job=None)
    return stop(running, "stop asked before the daemon ended", policy, now_s=now_s)


def _finish_stop(before: Status, found: tuple[EngineRef, ...], policy: Policy, *, now_s: float) -> Decision:
    """Go on with a stop that the earlier daemon did not finish; doing it again does no harm."""
    ref = found[0] if found else before.engine
    running = replace(before, state=State.STARTING, engine=ref, job=None)
    return stop(running, before.reason, policy, now_s=now_s, failure=before.ending)
