"""Climbing back: after a long healthy stretch with room, the newest change is undone on trial. Pure.

A trial is a restart without that change. If it holds for a healthy stretch, the change stays undone; if it fails,
the change is back at once (`moves.failed`) and the next trial waits twice as long.
"""

from dataclasses import replace

from rigd.rig.schema import Ladder
from rigd.supervise.moves import Policy, stop
from rigd.supervise.overlay import OPERATOR
from rigd.supervise.state import Decision, Entry, State, Status, UseOverlay

MOST_DOUBLINGS = 6


def due(status: Status, limits: Ladder, *, now_s: float) -> bool:
    """Return whether it is time, and the engine has room and is idle. An operator's own change is never undone."""
    if status.state is not State.READY or not status.overlay or not limits.enabled:
        return False
    if status.trial is not None or status.overlay[-1].kind == OPERATOR or status.ready_s is None:
        return False
    stretch_s = limits.climb_after_s * 2 ** min(status.trials_failed, MOST_DOUBLINGS)
    load = status.vitals.load
    idle = load is not None and load.running + load.waiting == 0
    room = load is not None and (load.kv_usage or 0.0) < limits.climb_kv_usage
    return idle and room and now_s - status.ready_s >= stretch_s


def begin(status: Status, policy: Policy, *, now_s: float) -> Decision:
    """Restart without the newest change, on trial."""
    *kept, newest = status.overlay
    reason = f"trying again without the change {newest}"
    tried = replace(status, overlay=tuple(kept), trial=newest)
    decision = stop(tried, reason, policy, now_s=now_s)
    entry = Entry(kind="overlay", message=reason)
    use = UseOverlay(steps=tuple(kept))
    return replace(decision, actions=(*decision.actions, use), entries=(entry, *decision.entries))
