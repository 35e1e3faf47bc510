"""Climbing beyond the wish: when it is tried, how far, and what takes it back."""

from dataclasses import replace

import pytest
from supervise import (
    ENGINE,
    NOW_S,
    POLICY,
    REPORT,
    RULES,
    failure,
    finished,
    idle_at_last,
    load,
    room,
    sampled,
    status,
    vitals,
)

from rigd.supervise.decide import decide
from rigd.supervise.decision import LookBeforeTrial, StopEngine, UseOverlay
from rigd.supervise.health import Health
from rigd.supervise.observations import Observation, StopDone, TrialLook
from rigd.supervise.overlay import RAISED, KnobStep
from rigd.supervise.room import BUCKETS, Room, after_look, roominess, with_gpu
from rigd.supervise.state import KnownGood, State

CEILING = replace(
    POLICY,
    supervision=RULES.model_copy(
        update={"ladder": RULES.ladder.model_copy(update={"most_max_num_seqs": 16, "climb_idle_s": 60})}
    ),
)
GOOD = KnownGood(digest="d1", basis="d1", start=7)
RAISE = KnobStep(knob="max_num_seqs", old=10, new=16, kind=RAISED, sentence="s")
CROWDED = {"waiting": 30, "tokens": 5000.0, "stream_s": 100.0}


def ready(*, seen=CROWDED, running=0, **changes):
    calm = vitals(load=load(running=running), room=room(**seen))
    return status(State.READY, **{"ready_s": NOW_S - 510, "vitals": calm, "good": GOOD, **changes})


def at(now, policy=CEILING):
    return idle_at_last(now, policy)


def test_requests_that_had_to_wait_with_room_raise_the_batch_on_trial():
    decision = at(ready())

    step = decision.status.overlay[0]
    assert (str(step), step.kind, decision.status.trial) == ("max_num_seqs 10 -> 16", RAISED, step)
    assert decision.status.trial_speed == pytest.approx(50.0)
    assert [type(action) for action in decision.actions] == [StopEngine, UseOverlay]
    assert "30%" in decision.status.reason.replace(" %", "%")


@pytest.mark.parametrize(
    "now",
    [
        ready(seen={**CROWDED, "waiting": 1}),
        ready(seen={**CROWDED, "kv_peak": 0.7}),
        ready(seen={**CROWDED, "preemptions": 2}),
        ready(seen={**CROWDED, "gpu_free_mib": 200.0}),
        ready(seen={**CROWDED, "span_s": 100}),
        ready(running=1),
        ready(ready_s=NOW_S - 300),
        ready(trials_failed=1),
        ready(too_high=11),
        ready(overlay=(replace(RAISE, kind="operator"),)),
        ready(overlay=(replace(RAISE, new=16),), seen={**CROWDED, "waiting": 0}),
    ],
    ids=[
        "nobody-waited",
        "pool-was-full",
        "preempted",
        "card-was-full",
        "looked-at-too-shortly",
        "busy-now",
        "too-soon",
        "doubled-stretch",
        "next-one-failed",
        "operators-own",
        "nobody-waits-any-more",
    ],
)
def test_batch_is_not_raised(now):
    assert at(now).actions == ()


def test_no_ceiling_no_raise():
    assert at(ready(), POLICY).actions == ()


def test_changes_of_the_ladder_are_undone_before_anything_is_raised():
    lowered = KnobStep(knob="max_num_seqs", old=10, new=5, kind="oom_sampler_warmup", sentence="s")

    assert at(ready(overlay=(lowered,))).status.overlay == ()


def test_after_a_failed_raise_the_next_goes_half_way():
    assert at(ready(too_high=16)).status.overlay[0].new == 13


def test_trial_is_put_off_to_the_next_stretch_when_requests_never_pause():
    late = at(ready(running=3, ready_s=NOW_S - RULES.ladder.climb_after_s - 60))

    assert (late.actions, late.status.climb_from_s) == ((), NOW_S)
    assert "put off" in late.entries[0].message


def test_engine_is_asked_once_more_right_before_it_is_stopped():
    """The last look may be seconds old, and a request that came since would be cut off."""
    first = decide(ready(), Observation(), CEILING, now_s=NOW_S)

    assert [type(action) for action in first.actions] == [LookBeforeTrial]
    assert (first.status.state, first.status.overlay) == (State.READY, ())


@pytest.mark.parametrize(
    "seen",
    [load(running=1), load(waiting=1), load(progress=2.0), None],
    ids=["runs", "waits", "came-and-went", "no-answer"],
)
def test_request_since_the_last_probe_puts_the_trial_off(seen):
    decision = idle_at_last(ready(), CEILING, load=seen)

    assert (decision.actions, decision.status.state, decision.status.overlay) == ((), State.READY, ())
    again = decide(decision.status, Observation(), CEILING, now_s=NOW_S)
    assert again.actions == (), "asked again only after an interval"


def test_requests_that_come_between_the_looks_put_the_trial_off_to_the_next_stretch():
    now, due_s = ready(), NOW_S - 510 + RULES.ladder.climb_after_s
    looks = 0
    for second in range(120):
        at_s = NOW_S + second
        now = decide(now, sampled(at_s=at_s, seen=load(progress=float(second))), CEILING, now_s=at_s).status
        if now.job is None:
            continue
        looks += 1
        busy = TrialLook(load=load(running=1, progress=second + 0.5))
        now = decide(now, finished(busy, job=now.job.id), CEILING, now_s=at_s).status

    limits = CEILING.supervision.ladder
    assert (now.state, now.trial) == (State.READY, None)
    assert now.climb_from_s >= due_s + limits.climb_idle_s
    assert looks <= limits.climb_idle_s / RULES.probe_interval_s + 1


OFFLINE = KnobStep(knob="environment.HF_HUB_OFFLINE", old=None, new="1", kind="hf_network", sentence="s")


def test_start_offline_is_undone_once_the_network_is_back():
    now = ready(overlay=(OFFLINE,), seen={})
    asked = decide(now, Observation(), CEILING, now_s=NOW_S)
    assert asked.actions[0].condition == "network"

    back = idle_at_last(now, CEILING).status
    assert (back.state, back.overlay, back.trial) == (State.STOPPING, (), OFFLINE)


def test_no_trial_without_the_network_while_it_is_away():
    away = idle_at_last(ready(overlay=(OFFLINE,), seen={}), CEILING, holds=False, detail="hub is away")

    assert (away.actions, away.status.overlay, away.status.climb_from_s) == ((), (OFFLINE,), NOW_S)
    assert away.entries[0].message == "no trial yet: hub is away"


def on_trial(*, before=50.0, seen, running=0, ready_s=NOW_S - 310):
    policy = replace(
        CEILING,
        engine=CEILING.engine.model_copy(
            update={"arguments": CEILING.engine.arguments.model_copy(update={"max_num_seqs": 16})}
        ),
    )
    now = ready(
        seen=seen, running=running, ready_s=ready_s, overlay=(RAISE,), trial=RAISE, trial_speed=before
    )
    return at(now, policy)


def test_raise_that_leaves_the_streams_fast_is_kept():
    decision = on_trial(seen={"tokens": 4000.0, "stream_s": 100.0})

    assert (decision.status.trial, decision.status.overlay, decision.status.trials_failed) == (
        None,
        (RAISE,),
        0,
    )
    assert "40.0 tokens/s a stream, before 50.0" in decision.entries[0].message


def test_raise_that_slows_the_streams_is_taken_back_with_both_figures():
    decision = on_trial(seen={"tokens": 2000.0, "stream_s": 100.0})

    assert (decision.status.overlay, decision.status.trials_failed, decision.status.too_high) == ((), 1, 16)
    assert "20.0 tokens/s a stream, before 50.0" in decision.status.reason
    assert [type(action) for action in decision.actions] == [StopEngine, UseOverlay]


def test_raise_that_preempts_is_taken_back_but_cuts_no_request_off():
    assert on_trial(seen={"preemptions": 3}, running=2).actions == ()
    assert "preemptions" in on_trial(seen={"preemptions": 3}).status.reason


def test_raise_is_not_judged_before_its_stretch_is_over():
    assert on_trial(seen={}, ready_s=NOW_S - 100).status.trial == RAISE


def test_start_that_fails_with_the_raise_takes_it_back_and_doubles_the_stretch():
    now = status(State.STOPPING, overlay=(RAISE,), trial=RAISE, launched_s=NOW_S - 20)
    oom = failure("oom_sampler_warmup", retry_helps=False)

    decision = decide(now, finished(StopDone(report=REPORT, diagnosis=oom)), CEILING, now_s=NOW_S)

    assert (decision.status.overlay, decision.status.trials_failed, decision.status.too_high) == ((), 1, 16)
    assert decision.status.failures == ()
    assert decision.status.reason.startswith("with max_num_seqs 10 -> 16, beyond the wish, it failed")


# The fold.


def folded(looks, *, full=4, bucket_s=10.0):
    seen = Room()
    for at_s, one in looks:
        seen = after_look(seen, one, at_s=at_s, bucket_s=bucket_s, pause_s=10, full=full)
    return seen


def test_fold_is_bounded_and_keeps_the_last_stretch():
    seen = folded([(float(second), load(waiting=1, kv_usage=0.2)) for second in range(1000)])

    assert len(seen.buckets) == BUCKETS
    assert roominess(seen).span_s <= BUCKETS * 10.0


def test_speed_counts_full_batches_only_and_by_the_stream():
    seen = folded(
        [
            (0.0, load(running=1, generation_tokens=0)),
            (2.0, load(running=4, generation_tokens=1000)),
            (4.0, load(running=4, generation_tokens=1400)),
            (6.0, load(running=6, generation_tokens=1900)),
        ]
    )

    assert roominess(seen).stream_s == pytest.approx(2 * 4 + 2 * 5)
    assert roominess(seen).stream_speed == pytest.approx(900 / 18)


def test_peaks_last_until_their_bucket_is_forgotten():
    peak = [(0.0, load()), (2.0, load(kv_usage=0.9, preemptions=3))]
    calm = [(float(second), load(kv_usage=0.1, preemptions=3)) for second in range(4, 400, 2)]

    assert roominess(folded(peak + calm[:50])).kv_peak == pytest.approx(0.9)
    assert roominess(folded(peak + calm[:50])).preemptions == 3
    assert roominess(folded(peak + calm)).kv_peak == pytest.approx(0.1)


def test_restarted_engine_begins_a_new_stretch():
    seen = folded([(0.0, load(generation_tokens=100)), (5.0, load(generation_tokens=3))])

    assert roominess(seen).span_s == 0


def test_least_memory_free_is_kept():
    seen = with_gpu(with_gpu(folded([(0.0, load())]), 900.0), 2000.0)

    assert roominess(seen).gpu_free_mib == 900.0


def test_looks_and_readings_of_the_cards_reach_the_room_of_a_ready_engine():
    now = decide(ready(), Observation(gpu_free_mib=700.0), CEILING, now_s=NOW_S).status
    waits = sampled(
        Health.PASSING, at_s=NOW_S + 2, engine=ENGINE.id, seen=load(waiting=5, generation_tokens=9)
    )
    now = decide(now, waits, CEILING, now_s=NOW_S + 2).status

    assert roominess(now.vitals.room).gpu_free_mib == 700.0
    assert roominess(now.vitals.room).waiting > 0.3
