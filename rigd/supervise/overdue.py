"""Jobs that outlive their own deadline: the loop stops waiting, whatever the effect does. Pure.

Every effect has deadlines of its own; this is the second net, for an effect that hangs all the same.
"""

from dataclasses import replace

from rigd.rig.schema import Deadlines
from rigd.supervise.decision import CancelJob, Decision
from rigd.supervise.finished import on_finished
from rigd.supervise.moves import Policy
from rigd.supervise.observations import (
    CheckDone,
    Finished,
    LaunchFailed,
    Looked,
    MovedAside,
    Result,
    StopFailed,
    WarmDone,
)
from rigd.supervise.state import Failure, Job, JobKind, Status

LOOK_S = 60.0
"""Longest look at a condition, in seconds."""
ASIDE_S = 900.0
"""Longest moving of a cache, in seconds: what is moved of a download is found by reading it whole."""
SLACK_S = 60.0
"""How much longer than its deadline a job may take before the loop stops waiting for it, in seconds."""


def limit_s(kind: JobKind, limits: Deadlines) -> float:
    """Return how long the loop waits for a job of this kind, in seconds."""
    own = {
        JobKind.LAUNCH: limits.gates_s + limits.pull_s + limits.create_s,
        JobKind.STOP: limits.stop_s,
        JobKind.WARM: limits.warm_s,
        JobKind.CHECK: limits.check_s,
        JobKind.LOOK: LOOK_S,
        JobKind.ASIDE: ASIDE_S,
    }
    return own[kind] + SLACK_S


def on_overdue(status: Status, policy: Policy, *, now_s: float, jitter: float) -> Decision | None:
    """Return what follows when the job in hand is overdue, else None."""
    job = status.job
    if job is None:
        return None
    waited_s = limit_s(job.kind, policy.supervision.deadlines)
    if now_s - job.began_s < waited_s:
        return None
    finished = Finished(job=job.id, result=_missed(status, job, waited_s, now_s=now_s))
    decision = on_finished(status, finished, policy, now_s=now_s, jitter=jitter)
    return replace(decision, actions=(CancelJob(job=job.id), *decision.actions))


def _missed(status: Status, job: Job, waited_s: float, *, now_s: float) -> Result:
    said = f"rigd's own {job.kind} job did not end within {waited_s:.0f} s"
    if job.kind is JobKind.WARM:
        return WarmDone(results=status.warm, complete=False, detail=said)
    if job.kind is JobKind.CHECK:
        return CheckDone(accepted=False, message=said)
    if job.kind is JobKind.LOOK:
        return Looked(holds=False, detail=said)
    if job.kind is JobKind.ASIDE:
        return MovedAside(moved=False, detail=said)
    if job.kind is JobKind.STOP:
        return StopFailed(message=said)
    failure = Failure(kind="launch_timeout", sentence=f"{said}.", hint="rigd events", at_s=now_s)
    return LaunchFailed(failure=failure)
