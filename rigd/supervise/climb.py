"""Climbing: after a long stretch with room, one change is undone, or one made beyond the wish, on trial. Pure.

    stretch over, room -> a moment without requests -> the engine asked once more -> restart on trial
        -> it holds for a healthy stretch: kept
        -> it fails (`failing`), is too slow, or preempts: taken back, next stretch doubled

Climbing back undoes the newest change. Only when none is left, and requests had to wait although there was room,
`max_num_seqs` is raised beyond the wish, up to the stated ceiling: to twice as many, or half-way to what failed.
"""

from dataclasses import replace

from rigd.rig.schema import Ladder
from rigd.supervise import knobs
from rigd.supervise.decision import Decision, Entry, LookBeforeTrial, UseOverlay
from rigd.supervise.ladder import OFFLINE_KNOB
from rigd.supervise.moves import Policy, stop, with_job
from rigd.supervise.observations import TrialLook
from rigd.supervise.overlay import OPERATOR, RAISED, KnobStep
from rigd.supervise.room import BUCKETS, Roominess, after_look, roominess, with_gpu
from rigd.supervise.state import JobKind, State, Status

MOST_DOUBLINGS = 6
CONDITION_OF = {OFFLINE_KNOB: "network"}
"""What must hold (`conditions`) before a knob is turned back on trial: without it the start can only fail."""
SEQS = "max_num_seqs"
LEAST_STREAM_S = 30.0
"""Seconds of full batch, summed over its streams, below which a speed is not judged."""
PAUSE_S = 10.0
"""Looks further apart than this, or than five intervals, say nothing about speed."""
STALE_LOOKS = 3
"""Intervals after which a look no longer says that the engine is idle."""


def seen(status: Status, policy: Policy, *, gpu_free_mib: float | None = None) -> Status:
    """Return `status` with its last look at the load, or a reading of the cards, folded into the room."""
    vitals, rules = status.vitals, policy.supervision
    room = vitals.room
    if gpu_free_mib is not None:
        room = with_gpu(room, gpu_free_mib)
    elif vitals.load is not None and vitals.sample_s is not None:
        room = after_look(
            room,
            vitals.load,
            at_s=vitals.sample_s,
            bucket_s=rules.ladder.climb_after_s / BUCKETS,
            pause_s=max(PAUSE_S, 5 * rules.probe_interval_s),
            full=_full(status, policy),
        )
    return status if room is vitals.room else replace(status, vitals=replace(vitals, room=room))


def _full(status: Status, policy: Policy) -> int:
    """Return how many streams make a full batch: on trial beyond the wish, any that did not fit before."""
    trial = status.trial
    if trial is not None and trial.kind == RAISED and isinstance(trial.old, int):
        return trial.old + 1
    return _seqs(policy)


def _seqs(policy: Policy) -> int:
    now = knobs.in_effect(policy.engine, SEQS)
    return now if isinstance(now, int) else 1


def step(status: Status, policy: Policy, *, now_s: float, sure: bool = False) -> Decision | None:
    """Return the next step of climbing, or None when it is not the time for one.

    `sure`: the engine was asked just now, and nothing runs. Otherwise that is asked first.
    """
    limits = policy.supervision.ladder
    if status.ready_s is None or not limits.enabled or status.fallback_from:
        return None
    if status.trial is not None:
        raised = status.trial.kind == RAISED
        return _judge(status, status.trial, policy, now_s=now_s, sure=sure) if raised else None
    if status.state is not State.READY:
        return None
    due_s = max(status.ready_s, status.climb_from_s or 0.0) + _stretch_s(status, limits)
    if now_s < due_s:
        return None
    room = roominess(status.vitals.room)
    change = _undone(status, room, limits) or _raised(status, room, policy, now_s=now_s)
    if change is None:
        return None
    idle = _idle(status, policy, now_s=now_s)
    if idle and sure:
        return _try(status, change, room, policy, now_s=now_s)
    if now_s >= due_s + limits.climb_idle_s:
        said = f"no moment without requests within {limits.climb_idle_s:.0f} s: {_words(change)} is put off"
        entry = Entry(kind="climb", message=said)
        return Decision(status=replace(status, climb_from_s=now_s), entries=(entry,))
    condition = CONDITION_OF.get(change.knob, "")
    return _look_again(status, policy, now_s=now_s, condition=condition) if idle else None


def _stretch_s(status: Status, limits: Ladder) -> float:
    stretch_s: float = limits.climb_after_s * 2 ** min(status.trials_failed, MOST_DOUBLINGS)
    return stretch_s


def _idle(status: Status, policy: Policy, *, now_s: float) -> bool:
    """Return whether the last look, a fresh one, saw no request: a trial never cuts one off."""
    load, at_s = status.vitals.load, status.vitals.sample_s
    if load is None or at_s is None:
        return False
    rules = policy.supervision
    fresh = now_s - at_s <= STALE_LOOKS * rules.probe_interval_s + rules.probe_timeout_s
    return fresh and load.running + load.waiting == 0 and status.vitals.canary_sent_s is None


def _look_again(status: Status, policy: Policy, *, now_s: float, condition: str = "") -> Decision | None:
    """Ask the engine once more before it is stopped: the last look may be seconds old."""
    asked_s = status.vitals.trial_look_s
    if asked_s is not None and now_s - asked_s < policy.supervision.probe_interval_s:
        return None
    after, job = with_job(status, JobKind.LOOK, now_s=now_s)
    after = replace(after, vitals=replace(after.vitals, trial_look_s=now_s))
    return Decision(status=after, actions=(LookBeforeTrial(job=job, condition=condition),))


def looked(status: Status, result: TrialLook, policy: Policy, now_s: float, jitter: float) -> Decision:
    """Return the step that the look was for; or none yet, where a request has come in since the last probe."""
    del jitter
    before, now = status.vitals.load, result.load
    if not result.holds:
        entry = Entry(kind="climb", message=f"no trial yet: {result.detail}")
        return Decision(status=replace(status, climb_from_s=now_s), entries=(entry,))
    if now is None:
        return Decision(status=status)
    seen = replace(status, vitals=replace(status.vitals, load=now))
    if before is None or now.progress != before.progress or now.running + now.waiting:
        return Decision(status=seen)
    return step(seen, policy, now_s=now_s, sure=True) or Decision(status=seen)


def _has_room(room: Roominess, limits: Ladder) -> bool:
    cards = room.gpu_free_mib is None or room.gpu_free_mib >= limits.climb_gpu_free_mib
    looked = room.span_s >= limits.climb_after_s / 2
    return looked and room.kv_peak < limits.climb_kv_usage and not room.preemptions and cards


def _undone(status: Status, room: Roominess, limits: Ladder) -> KnobStep | None:
    """Return the newest change of rigd's own that may be undone; an operator's never is."""
    newest = status.overlay[-1] if status.overlay else None
    if newest is None or newest.kind in {OPERATOR, RAISED} or not _has_room(room, limits):
        return None
    # That requests wait is a reason to undo fewer sequences, and one to leave anything else as it is.
    crowded = room.waiting >= limits.raise_waiting and newest.knob != SEQS
    return None if crowded else newest


def _raised(status: Status, room: Roominess, policy: Policy, *, now_s: float) -> KnobStep | None:
    """Return the raise of `max_num_seqs` beyond the wish that the last stretch calls for."""
    limits, now = policy.supervision.ladder, _seqs(policy)
    most = limits.most_max_num_seqs
    own = any(one.kind not in {OPERATOR, RAISED} for one in status.overlay)
    pinned = any(one.kind == OPERATOR and one.knob == SEQS for one in status.overlay)
    if most is None or own or pinned or not _has_room(room, limits) or room.waiting < limits.raise_waiting:
        return None
    new = min(2 * now, most) if status.too_high is None else min((now + status.too_high) // 2, most)
    if new <= now:
        return None
    sentence = (
        f"Requests had to wait at {room.waiting:.0%} of the looks, and the KV pool was never more than "
        f"{room.kv_peak:.0%} full."
    )
    return KnobStep(
        knob=SEQS,
        old=now,
        new=new,
        kind=RAISED,
        sentence=sentence,
        at_s=now_s,
        start=0 if status.engine is None else status.engine.start,
        version=policy.engine.version,
        basis=policy.basis,
    )


def _words(change: KnobStep) -> str:
    return f"{change} beyond the wish" if change.kind == RAISED else f"a start without {change}"


def _try(status: Status, change: KnobStep, room: Roominess, policy: Policy, *, now_s: float) -> Decision:
    """Restart on trial: without the newest change, or with one beyond the wish."""
    if change.kind == RAISED:
        overlay = (*status.overlay, change)
        reason = f"{change.sentence} Trying {change}, beyond the wish."
    else:
        overlay = status.overlay[:-1]
        reason = f"trying again without the change {change}"
    tried = replace(
        status,
        overlay=overlay,
        overlay_basis=policy.basis,
        trial=change,
        trial_speed=room.stream_speed if change.kind == RAISED else None,
        climb_from_s=None,
    )
    return _restart(tried, overlay, reason, policy, now_s=now_s)


def _judge(status: Status, trial: KnobStep, policy: Policy, *, now_s: float, sure: bool) -> Decision | None:
    """Keep a raise that has held for a healthy stretch, or take it back when it costs too much."""
    rules, room = policy.supervision, roominess(status.vitals.room)
    wrong = _wrong(status, room, policy)
    if wrong is not None:
        if not _idle(status, policy, now_s=now_s):
            return None
        if not sure:
            return _look_again(status, policy, now_s=now_s)
        overlay = tuple(one for one in status.overlay if one != trial)
        back = replace(
            status,
            overlay=overlay,
            trial=None,
            trial_speed=None,
            trials_failed=status.trials_failed + 1,
            too_high=trial.new if isinstance(trial.new, int) else status.too_high,
        )
        return _restart(back, overlay, f"{trial} is taken back: {wrong}", policy, now_s=now_s)
    if status.ready_s is None or now_s - status.ready_s < rules.healthy_stretch_s:
        return None
    measured = room.stream_speed is not None and _measured(room, policy)
    figures = f": {_speeds(room.stream_speed, status.trial_speed)}" if measured else ""
    kept = replace(status, trial=None, trial_speed=None, trials_failed=0, climb_from_s=now_s)
    return Decision(status=kept, entries=(Entry(kind="climb", message=f"{trial} holds{figures}"),))


def _wrong(status: Status, room: Roominess, policy: Policy) -> str | None:
    """Return what a raise costs that it may not, or None."""
    before, after = status.trial_speed, room.stream_speed
    if room.preemptions:
        return f"requests were pushed out of the KV pool ({room.preemptions:.0f} preemptions)"
    if before is None or after is None or not _measured(room, policy):
        return None
    share = policy.supervision.ladder.raise_speed
    return None if after >= share * before else f"{_speeds(after, before)}, less than {share:.0%} of it"


def _measured(room: Roominess, policy: Policy) -> bool:
    return room.stream_s >= min(LEAST_STREAM_S, policy.supervision.healthy_stretch_s / 2)


def _speeds(after: float | None, before: float | None) -> str:
    was = "" if before is None else f", before {before:.1f}"
    return f"{after or 0.0:.1f} tokens/s a stream{was}"


def _restart(
    status: Status, overlay: tuple[KnobStep, ...], reason: str, policy: Policy, *, now_s: float
) -> Decision:
    decision = stop(status, reason, policy, now_s=now_s)
    entry = Entry(kind="overlay", message=reason)
    use = UseOverlay(steps=overlay)
    return replace(decision, actions=(*decision.actions, use), entries=(entry, *decision.entries))
