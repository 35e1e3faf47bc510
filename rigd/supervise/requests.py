"""What an operator may ask, as a table: request and state to an answer. Pure."""

from collections.abc import Callable
from dataclasses import replace

from rigd.supervise.decision import (
    CancelJob,
    CheckConfiguration,
    Decision,
    Entry,
    Reply,
    UseOverlay,
    UseRules,
    UseSpecification,
)
from rigd.supervise.moves import (
    Policy,
    as_wished,
    begin_warm,
    cancelled,
    launch,
    move,
    moved,
    stop,
    with_job,
    without_pending,
)
from rigd.supervise.observations import Request, RequestKind
from rigd.supervise.overlay import KnobStep
from rigd.supervise.resume import after_maintenance
from rigd.supervise.state import SERVING, Desired, JobKind, State, Status

_UP = SERVING | {State.STARTING}


def on_request(status: Status, request: Request, policy: Policy, *, now_s: float) -> Decision:
    """Answer a request. Asking for what is already so is no error; what cannot be done says why."""
    if status.state is State.MAINTENANCE and request.kind is not RequestKind.MAINTENANCE_OFF:
        if request.kind is RequestKind.MAINTENANCE_ON:
            return _answer(status, request, "maintenance is already on")
        return _refuse(status, request, "maintenance is on: rigd keeps its hands off", "rigd maintenance off")
    decision = _REQUESTS[request.kind](status, request, policy, now_s)
    return _with_rules(decision, request) if request.sections else decision


def _start(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    wanted = replace(status, desired=Desired.RUNNING)
    if status.state in _UP:
        return _answer(wanted, request, f"already {status.state}")
    if status.state is State.STOPPING:
        return _answer(wanted, request, "stopping; starts again when that is done")
    fresh = replace(wanted, failures=(), streak=0, boots=(), answered=())
    decision = launch(fresh, request.why if request.why != "asked" else "start asked", now_s=now_s)
    return _with_specification(_with_reply(decision, request, "starting"), request, policy)


def _stop(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    unwanted = replace(status, desired=Desired.STOPPED)
    if status.state is State.STOPPED:
        return _answer(unwanted, request, "already stopped")
    if status.state is State.STOPPING:
        return _answer(unwanted, request, "already stopping")
    if status.state in _UP:
        decision = stop(unwanted, "stop asked", policy, now_s=now_s)
        return _refuse_waiting(status, _with_reply(decision, request, "stopping"))
    after = replace(
        move(without_pending(unwanted), State.STOPPED, "stop asked", now_s=now_s),
        job=None,
        retry_s=None,
        gave_up=None,
    )
    entry = moved(status, after, "stopped", "stop asked")
    return _with_reply(
        Decision(status=after, actions=cancelled(status), entries=(entry,)), request, "stopped"
    )


def _restart(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    if request.sections and status.state in _UP and _as_launched(status, policy):
        # Nothing of what changed is the engine's: it goes on, and is not asked to pay for it.
        said = f"{_named(request)} of the rig file is in effect; the engine goes on untouched"
        wanted = replace(status, desired=Desired.RUNNING)
        hint = "`rigd restart --no-reload` restarts it all the same"
        return Decision(status=wanted, replies=(Reply(request=request.id, ok=True, message=said, hint=hint),))
    if status.state not in SERVING or status.engine is None:
        if status.state is State.STARTING:
            # Nothing serves yet, so nothing is lost: the new configuration simply starts instead.
            wanted = replace(status, desired=Desired.RUNNING)
            decision = stop(wanted, _restart_reason(request), policy, now_s=now_s)
            return _with_specification(_with_reply(decision, request, "restarting"), request, policy)
        return _start(status, request, policy, now_s)
    if request.digest is None or request.digest == status.engine.digest:
        wanted = replace(status, desired=Desired.RUNNING)
        decision = stop(wanted, _restart_reason(request), policy, now_s=now_s)
        decision = _refuse_waiting(status, _with_reply(decision, request, "restarting"))
        return _with_specification(decision, request, policy)
    if status.job is not None and status.job.kind is JobKind.CHECK:
        return _refuse(status, request, "a new configuration is already being checked", "rigd wait ready")
    # The engine's own parser is asked first: what it refuses never costs a working engine.
    wanted = replace(status, desired=Desired.RUNNING, candidate=request.digest, job=None)
    after, job = with_job(wanted, JobKind.CHECK, now_s=now_s, request=request.id)
    entry = Entry(kind="check", message="asking the engine's parser about the new configuration")
    return Decision(
        status=after,
        actions=(*cancelled(status), CheckConfiguration(job=job, digest=request.digest)),
        entries=(entry,),
    )


def _restart_reason(request: Request) -> str:
    return f"restart {request.why}"


def _warm(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    if not policy.prefixes:
        return _refuse(
            status, request, "the rig file declares no prefixes", "add `prefixes:` to the rig file"
        )
    if status.state is State.WARMING:
        return _answer(status, request, "already warming")
    if status.state not in SERVING:
        return _refuse(status, request, f"cannot warm while {status.state}", "rigd wait ready")
    if status.job is not None:
        return _answer(status, request, f"busy with {status.job.kind}; prefixes are looked at after that")
    decision = begin_warm(status, status.state, f"warm {request.why}", now_s=now_s)
    # A re-warm is not a change of state: the engine goes on serving, and says why it was ready.
    decision = replace(decision, status=replace(decision.status, reason=status.reason))
    return _with_reply(decision, request, "warming")


def _maintenance_on(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    del policy
    after = replace(
        move(without_pending(status), State.MAINTENANCE, "maintenance on: hands off", now_s=now_s),
        job=None,
        candidate=None,
    )
    entry = moved(status, after, "maintenance", "maintenance on")
    decision = Decision(status=after, actions=cancelled(status), entries=(entry,))
    said = "maintenance is on; the engine is left as it is"
    return _refuse_waiting(status, _with_reply(decision, request, said))


def _maintenance_off(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    """Leave maintenance: go on from what runs now, which the request carries."""
    if status.state is not State.MAINTENANCE:
        return _answer(status, request, "maintenance is already off")
    decision = after_maintenance(status, request.found, now_s=now_s)
    return _with_specification(_with_reply(decision, request, "maintenance is off"), request, policy)


def _set(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    """Turn a knob for an operator; the engine's parser has accepted it before the request was posted."""
    step = request.step
    if step is None:
        return _refuse(status, request, "no knob was named", "rigd set KNOB VALUE")
    step = replace(step, version=policy.engine.version, basis=policy.basis)
    return _use_overlay(
        status, request, (*status.overlay, step), f"{step} set by the operator", policy, now_s=now_s
    )


def _overlay_clear(status: Status, request: Request, policy: Policy, now_s: float) -> Decision:
    if not status.overlay and not status.fallback_from:
        return _answer(status, request, "there is nothing to clear: the rig file is in effect as it is")
    return _use_overlay(
        status, request, (), "every change on top of the rig file cleared", policy, now_s=now_s
    )


def _use_overlay(
    status: Status,
    request: Request,
    overlay: tuple[KnobStep, ...],
    message: str,
    policy: Policy,
    *,
    now_s: float,
) -> Decision:
    """Use another overlay from now on: at once where an engine serves or starts, else at the next start."""
    changed = replace(
        status, overlay=overlay, overlay_basis=policy.basis, trial=None, answered=(), fallback_from=""
    )
    entry = Entry(kind="overlay", message=message)
    use = UseOverlay(steps=overlay)
    if status.state in _UP:
        decision = stop(changed, message, policy, now_s=now_s)
        decision = _refuse_waiting(status, _with_reply(decision, request, f"{message}; restarting"))
        return replace(decision, actions=(*decision.actions, use), entries=(entry, *decision.entries))
    reply = Reply(request=request.id, ok=True, message=f"{message}; in effect at the next start")
    return Decision(status=changed, actions=(use,), entries=(entry,), replies=(reply,))


def _answer(status: Status, request: Request, message: str) -> Decision:
    return Decision(status=status, replies=(Reply(request=request.id, ok=True, message=message),))


def _refuse(status: Status, request: Request, message: str, hint: str) -> Decision:
    return Decision(status=status, replies=(Reply(request=request.id, ok=False, message=message, hint=hint),))


def _with_reply(decision: Decision, request: Request, message: str) -> Decision:
    reply = Reply(request=request.id, ok=True, message=message)
    return replace(decision, replies=(*decision.replies, reply))


def _with_specification(decision: Decision, request: Request, policy: Policy) -> Decision:
    """Use the specification of the request from now on, where it is another one."""
    if request.digest is None or request.digest == policy.digest:
        return decision
    # Another rig file: what was changed on top of the old one no longer holds.
    fresh = as_wished(decision.status)
    return replace(
        decision, status=fresh, actions=(UseSpecification(digest=request.digest), *decision.actions)
    )


def _as_launched(status: Status, policy: Policy) -> bool:
    """Whether the engine that runs or starts is the one that is in effect."""
    return status.engine is None or status.engine.digest == policy.digest


def _with_rules(decision: Decision, request: Request) -> Decision:
    """Go by the rig file as it was read again, before anything else is done; what is changed on top stays."""
    use = UseRules(steps=decision.status.overlay, on_good=bool(decision.status.fallback_from))
    entry = Entry(kind="rig-file", message=f"the rig file was read again: {_named(request)} changed")
    return replace(decision, actions=(use, *decision.actions), entries=(entry, *decision.entries))


def _named(request: Request) -> str:
    return ", ".join(f"`{name}`" for name in request.sections)


def _refuse_waiting(before: Status, decision: Decision) -> Decision:
    """Tell a request that waited for the cancelled job that it will not come."""
    waited = before.job.request if before.job is not None else None
    cancels = any(isinstance(action, CancelJob) for action in decision.actions)
    if waited is None or not cancels:
        return decision
    reply = Reply(request=waited, ok=False, message="given up for another request", hint="rigd status")
    return replace(
        decision, status=replace(decision.status, candidate=None), replies=(*decision.replies, reply)
    )


_REQUESTS: dict[RequestKind, Callable[[Status, Request, Policy, float], Decision]] = {
    RequestKind.START: _start,
    RequestKind.STOP: _stop,
    RequestKind.RESTART: _restart,
    RequestKind.WARM: _warm,
    RequestKind.MAINTENANCE_ON: _maintenance_on,
    RequestKind.MAINTENANCE_OFF: _maintenance_off,
    RequestKind.SET: _set,
    RequestKind.OVERLAY_CLEAR: _overlay_clear,
}
