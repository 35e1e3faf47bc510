"""The status document that the API serves and `rigd status` prints. Pure; times are Unix seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rigd.supervise import health
from rigd.supervise.baselines import of_digest
from rigd.supervise.conditions import CONDITIONS
from rigd.supervise.ladder import Move
from rigd.supervise.live import Live
from rigd.supervise.load import Load
from rigd.supervise.plan import Plan
from rigd.supervise.state import Failure, State, Status, Trouble

NEXT = {
    State.FAILED: "rigd logs; then rigd start",
    State.STOPPED: "rigd start",
    State.MAINTENANCE: "rigd maintenance off",
}
"""What to type next in a state that does not move by itself."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a status document says beside the engine."""

    pid: int
    version: str
    started_s: float
    store_problem: str | None
    gpus: Sequence[dict[str, Any]] = ()
    """One reading a card, already as JSON."""
    host: Sequence[dict[str, Any]] = ()
    """What is wrong with the host, as JSON, the gravest first."""
    drift: Mapping[str, Any] | None = None
    """Whether the host is as its playbook says, as JSON; None where the rig file names none."""
    trouble: str | None = None
    """What keeps the daemon itself from working, for example a Docker that does not answer."""


def status_document(
    status: Status, plan: Plan, live: Live | None, around: Surroundings, *, now_s: float
) -> dict[str, Any]:
    """Return everything a person or program may want to know at a glance."""
    return {
        "rig": plan.rig.name,
        "state": str(status.state),
        "since_s": status.since_s,
        "reason": around.trouble or status.reason,
        "desired": str(status.desired),
        "now_s": now_s,
        "engine": _engine(status, plan),
        "live": None if live is None else _live(live, now_s=now_s),
        "ready_s": status.ready_s,
        "retry_s": status.retry_s,
        "waiting": _waiting(status),
        "attempts": {
            "failed": len(status.failures),
            "limit": plan.rig.supervision.attempts,
            "window_s": plan.rig.supervision.attempts_window_s,
        },
        "failure": None if status.failure is None else _failure(status.failure),
        "gave_up": None if status.gave_up is None else str(status.gave_up),
        "warm": [asdict(result) for result in status.warm],
        "troubles": [_trouble(one) for one in status.troubles],
        "baseline": _baseline(status, plan),
        "health": _health(status, now_s=now_s),
        "gpus": list(around.gpus),
        "host": list(around.host),
        "drift": None if around.drift is None else dict(around.drift),
        "store": {"problem": around.store_problem},
        "configuration": {
            "path": str(plan.path),
            "digest": plan.spec.digest,
            "running_digest": None if status.engine is None else status.engine.digest,
            "fallback": bool(status.fallback_from),
            "changed": status.engine is not None and status.engine.digest != plan.spec.digest,
        },
        "overlay": [{**asdict(step), "text": str(step)} for step in status.overlay],
        "trial": None if status.trial is None else {**asdict(status.trial), "text": str(status.trial)},
        "asides": [asdict(aside) for aside in status.asides],
        "daemon": {"pid": around.pid, "version": around.version, "started_s": around.started_s},
        "hint": _hint(status),
    }


def _engine(status: Status, plan: Plan) -> dict[str, Any] | None:
    ref = status.engine
    if ref is None:
        return None
    return {
        "runtime": str(ref.runtime),
        "id": ref.id,
        "pid": ref.pid,
        "start": ref.start,
        "digest": ref.digest,
        "created_s": ref.created_s,
        "url": plan.spec.base_url,
        "model": plan.spec.served_model_name,
        "version": plan.spec.version,
    }


def _live(live: Live, *, now_s: float) -> dict[str, Any]:
    return {
        "phase": live.phase,
        "detail": live.detail,
        "fraction": live.fraction,
        "elapsed_s": round(now_s - live.since_s, 1) if live.since_s else None,
        "eta_s": None if live.eta_s is None else max(0.0, round(live.eta_s - now_s, 1)),
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "kind": failure.kind,
        "sentence": failure.sentence,
        "hint": failure.hint,
        "at_s": failure.at_s,
        "start": failure.start,
        "evidence": list(failure.evidence),
        "exit_code": None if failure.exit is None else failure.exit.code,
    }


def _waiting(status: Status) -> dict[str, Any] | None:
    """Return what the next start waits for, and since when."""
    pending = status.pending
    if pending is None or pending.move is not Move.WAIT:
        return None
    return {
        "what": pending.what,
        "for": CONDITIONS[pending.what].words,
        "since_s": pending.since_s,
        "until_s": pending.until_s,
        "looks": pending.looks,
        "detail": pending.detail,
    }


def _trouble(trouble: Trouble) -> dict[str, Any]:
    return {
        "class": str(trouble.kind),
        "sentence": trouble.sentence,
        "hint": trouble.hint,
        "since_s": trouble.since_s,
        "degrades": trouble.degrades,
    }


def _baseline(status: Status, plan: Plan) -> dict[str, Any] | None:
    """Return what the settings that run, or would run next, come to when they are healthy."""
    digest = plan.spec.digest if status.engine is None else status.engine.digest
    known = of_digest(status.baselines, digest)
    return None if known is None else asdict(known)


def _health(status: Status, *, now_s: float) -> dict[str, Any]:
    vitals, load = status.vitals, status.vitals.load
    canary = vitals.canary
    return {
        "health": "passing" if vitals.passing else "failing" if vitals.failing else "unknown",
        "detail": vitals.health_detail,
        "running": None if load is None else load.running,
        "waiting": None if load is None else load.waiting,
        "kv_usage": None if load is None else load.kv_usage,
        "generation_tokens": None if load is None else load.generation_tokens,
        "pool_tokens": None if load is None else load.pool_tokens,
        "preemptions": None if load is None else load.preemptions,
        "acceptance": _acceptance(load),
        "silent_s": round(health.silent_s(vitals, now_s=now_s), 1),
        "canary": None
        if canary is None
        else {
            "answer": str(canary.answer),
            "took_s": round(canary.took_s, 3),
            "at_s": canary.at_s,
            "detail": canary.detail,
        },
    }


def _acceptance(load: Load | None) -> float | None:
    """Return the share of the draft tokens that was accepted since the engine's start."""
    return None if load is None or not load.draft_tokens else load.accepted_tokens / load.draft_tokens


def _hint(status: Status) -> str | None:
    failure = status.failure
    stuck = status.state in {State.FAILED, State.BACKOFF}
    if stuck and failure is not None and failure.hint:
        return failure.hint
    return NEXT.get(status.state)
