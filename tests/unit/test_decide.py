"""The supervisor's decisions: status and observation in, next status and actions out."""

from dataclasses import replace

import pytest
from supervise import (
    ENGINE,
    NO_PREFIXES,
    NOW_S,
    OTHER,
    POLICY,
    REPORT,
    RULES,
    answered,
    asked,
    canary_result,
    cold,
    exited,
    failure,
    finished,
    healthy,
    launched,
    load,
    proved,
    sampled,
    status,
    vitals,
)

from rigd.runtime.base import EngineSeen, Presence
from rigd.supervise.decide import decide
from rigd.supervise.decision import (
    CancelJob,
    CheckConfiguration,
    Launch,
    SendCanary,
    StopEngine,
    UseSpecification,
    WarmPrefixes,
)
from rigd.supervise.health import Answer, CacheMark, Health, Vitals
from rigd.supervise.observations import (
    CheckDone,
    LaunchDone,
    LaunchFailed,
    Observation,
    RequestKind,
    StopDone,
    StopFailed,
    WarmDone,
)
from rigd.supervise.state import Desired, GiveUp, JobKind, State


def kinds(decision) -> tuple[type, ...]:
    return tuple(type(action) for action in decision.actions)


def test_launch_done_waits_for_health_with_fresh_vitals():
    starting = status(State.STARTING, vitals=vitals(failing=2))

    decision = decide(starting, finished(LaunchDone(ref=ENGINE)), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.engine, decision.status.vitals) == (
        State.STARTING,
        ENGINE,
        Vitals(),
    )


def test_first_health_answer_is_not_ready_but_sends_a_canary():
    decision = decide(launched(), sampled(), POLICY, now_s=NOW_S)

    assert decision.status.state is State.STARTING
    assert kinds(decision) == (SendCanary,)


def test_first_real_answer_begins_warming():
    decision = decide(healthy(), answered(), POLICY, now_s=NOW_S)

    assert (decision.status.state, kinds(decision)) == (State.WARMING, (WarmPrefixes,))


def test_first_real_answer_is_ready_when_there_is_nothing_to_warm():
    decision = decide(healthy(), answered(), NO_PREFIXES, now_s=NOW_S)

    assert (decision.status.state, decision.status.ready_s) == (State.READY, NOW_S)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer.EMPTY, "garbage_output"),
        (Answer.DEGENERATE, "garbage_output"),
        (Answer.WRONG, "garbage_output"),
        (Answer.ERROR, "cannot_serve"),
    ],
)
def test_engine_that_never_answers_with_text_is_never_ready(answer, kind):
    now = healthy()
    for second in range(1, 20):
        at_s = NOW_S + 2 * second
        now = decide(now, answered(answer, at_s=at_s), POLICY, now_s=at_s).status
        now = decide(now, Observation(), POLICY, now_s=at_s + 1).status
        assert now.state in {State.STARTING, State.STOPPING}

    assert (now.state, now.failure.kind) == (State.STOPPING, kind)


def test_refused_canary_says_what_to_check_and_is_not_tried_again():
    now = healthy()
    for second in range(1, 10):
        at_s = NOW_S + 3 * second
        now = decide(now, answered(Answer.REFUSED, at_s=at_s), POLICY, now_s=at_s).status

    assert (now.failure.kind, now.failure.retry_helps) == ("canary_refused", False)
    assert "api_key" in now.failure.hint


def test_silent_engine_is_given_up_at_the_load_deadline():
    late_s = NOW_S + RULES.deadlines.load_s

    decision = decide(launched(), Observation(), POLICY, now_s=late_s)

    assert (decision.status.state, decision.status.failure.kind) == (State.STOPPING, "ready_timeout")


def test_unanswered_first_completion_is_given_up_at_its_deadline():
    late_s = NOW_S + RULES.deadlines.first_answer_s

    decision = decide(healthy(), Observation(), POLICY, now_s=late_s)

    assert (decision.status.state, decision.status.failure.kind) == (State.STOPPING, "cannot_serve")


@pytest.mark.parametrize("state", [State.WARMING, State.READY, State.DEGRADED])
@pytest.mark.parametrize("code", [0, 1, 137, None])
def test_any_exit_nobody_asked_for_ends_the_whole_tree(state, code):
    decision = decide(status(state), exited(code), POLICY, now_s=NOW_S)

    assert decision.status.state is State.STOPPING
    assert kinds(decision)[-1] is StopEngine


def test_exit_of_a_member_counts_as_the_engines_end():
    decision = decide(status(State.READY), exited(None, member="VLLM::Worker_TP0"), POLICY, now_s=NOW_S)

    assert decision.status.failure.kind == "worker_died"
    assert "VLLM::Worker_TP0" in decision.status.failure.sentence


def test_exit_of_an_earlier_engine_changes_nothing():
    ready = status(State.READY)

    decision = decide(ready, exited(1, engine=OTHER.id), POLICY, now_s=NOW_S)

    assert decision.status.state is State.READY
    assert decision.actions == ()


def test_engine_removed_by_hand_is_a_failure():
    gone = Observation(seen=EngineSeen(presence=Presence.ABSENT, ref=ENGINE))

    decision = decide(status(State.READY), gone, POLICY, now_s=NOW_S)

    assert decision.status.state is State.STOPPING


def test_failure_cleared_up_backs_off_then_starts_again():
    stopping = status(State.STOPPING, ending=failure())

    backoff = decide(
        stopping, finished(StopDone(report=REPORT, diagnosis=failure())), POLICY, now_s=NOW_S
    ).status
    waiting = decide(backoff, Observation(), POLICY, now_s=NOW_S + 0.5)
    started = decide(backoff, Observation(), POLICY, now_s=NOW_S + 1.0)

    assert (backoff.state, backoff.engine, backoff.retry_s) == (State.BACKOFF, None, NOW_S + 1.0)
    assert waiting.actions == ()
    assert (started.status.state, kinds(started)) == (State.STARTING, (Launch,))


def test_backoff_counts_from_the_moment_the_failure_was_noticed():
    stopping = status(State.STOPPING, ending=failure(at_s=NOW_S - 3))
    done = finished(StopDone(report=REPORT, diagnosis=failure(at_s=NOW_S - 3)))

    decision = decide(stopping, done, POLICY, now_s=NOW_S)

    assert decision.status.retry_s == NOW_S


def test_backoff_doubles_and_is_reset_only_by_a_healthy_stretch():
    done = finished(StopDone(report=REPORT, diagnosis=failure()))
    third = status(State.STOPPING, streak=2, failures=())
    after_long_health = status(State.STOPPING, streak=2, ready_s=NOW_S - RULES.healthy_stretch_s)
    after_short_health = status(State.STOPPING, streak=2, ready_s=NOW_S - RULES.healthy_stretch_s + 1)

    waits = [
        decide(now, done, POLICY, now_s=NOW_S).status.retry_s - NOW_S
        for now in (third, after_short_health, after_long_health)
    ]

    assert waits == [4.0, 4.0, 1.0]


def test_breaker_opens_after_the_attempts_with_a_typed_reason():
    stopping = status(State.STOPPING, failures=(NOW_S - 20, NOW_S - 10))
    done = finished(StopDone(report=REPORT, diagnosis=failure()))

    decision = decide(stopping, done, POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.gave_up) == (State.FAILED, GiveUp.ATTEMPTS)
    assert "gave up after 3 failures" in decision.status.reason


def test_failures_outside_the_window_are_forgotten():
    stopping = status(State.STOPPING, failures=(NOW_S - 2000, NOW_S - 1500))
    done = finished(StopDone(report=REPORT, diagnosis=failure()))

    decision = decide(stopping, done, POLICY, now_s=NOW_S)

    assert decision.status.state is State.BACKOFF


def test_failed_stays_failed_whatever_time_passes():
    failed = status(State.FAILED, gave_up=GiveUp.ATTEMPTS)

    decision = decide(failed, Observation(), POLICY, now_s=NOW_S + 1e6)

    assert (decision.status, decision.actions) == (failed, ())


def test_useless_retry_is_given_up_at_once_before_ready():
    stopping = status(State.STOPPING)
    done = finished(StopDone(report=REPORT, diagnosis=failure("bad_cli", retry_helps=False)))

    decision = decide(stopping, done, POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.gave_up) == (State.FAILED, GiveUp.USELESS)


def test_failure_of_an_engine_that_was_ready_is_always_tried_again():
    stopping = status(State.STOPPING, ready_s=NOW_S - 100)
    done = finished(StopDone(report=REPORT, diagnosis=failure("bad_cli", retry_helps=False)))

    decision = decide(stopping, done, POLICY, now_s=NOW_S)

    assert decision.status.state is State.BACKOFF


def test_runtime_that_does_not_answer_is_no_failure_of_the_rig():
    starting = status(State.STARTING, failures=(NOW_S - 20, NOW_S - 10))
    away = LaunchFailed(failure=failure("runtime_unavailable"), temporary=True)

    decision = decide(starting, finished(away), POLICY, now_s=NOW_S)

    assert decision.status.state is State.BACKOFF
    assert decision.status.failures == starting.failures


def test_stop_that_the_runtime_refused_is_tried_again():
    stopping = status(State.STOPPING, ending=failure())

    waiting = decide(stopping, finished(StopFailed(message="Docker is away")), POLICY, now_s=NOW_S).status
    again = decide(waiting, Observation(), POLICY, now_s=NOW_S + 2)

    assert (waiting.state, waiting.job) == (State.STOPPING, None)
    assert kinds(again) == (StopEngine,)
    assert again.actions[0].failure == failure()


@pytest.mark.parametrize("state", [State.READY, State.WARMING, State.STARTING], ids=str)
def test_end_of_a_job_no_longer_in_hand_is_ignored(state):
    now = status(state)

    decision = decide(now, finished(LaunchDone(ref=OTHER), job=1), POLICY, now_s=NOW_S)

    assert (decision.status, decision.actions) == (now, ())


def test_warming_done_is_ready():
    decision = decide(status(State.WARMING), finished(WarmDone(results=(proved(),))), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.warm) == (State.READY, (proved(),))


def test_prefix_that_cannot_be_proved_serves_degraded():
    decision = decide(status(State.WARMING), finished(WarmDone(results=(cold(),))), POLICY, now_s=NOW_S)

    assert decision.status.state is State.DEGRADED
    assert "agents" in decision.status.reason


def test_later_proof_of_a_prefix_is_ready_again():
    degraded = status(State.DEGRADED, warm=(cold(),), job=replace(status(State.WARMING).job))

    decision = decide(degraded, finished(WarmDone(results=(proved(),))), POLICY, now_s=NOW_S)

    assert decision.status.state is State.READY


def test_lost_hits_are_warmed_again():
    marked = vitals(load=load(prefix_queries=10_000, prefix_hits=100))
    marked = replace(marked, cache_mark=CacheMark(queries=0, hits=0))
    ready = status(State.READY, vitals=marked, warmed_s=NOW_S - 100)

    decision = decide(ready, Observation(), POLICY, now_s=NOW_S)

    assert kinds(decision) == (WarmPrefixes,)
    assert decision.status.state is State.READY


def test_one_bad_canary_degrades_and_the_threshold_restarts():
    now = status(State.READY)
    states = []
    for number in range(1, 4):
        at_s = NOW_S + 3 * number
        now = decide(now, answered(Answer.DEGENERATE, at_s=at_s), POLICY, now_s=at_s).status
        states.append(now.state)

    assert states == [State.DEGRADED, State.DEGRADED, State.STOPPING]
    assert now.failure.kind == "garbage_output"


def test_good_canary_after_a_bad_one_is_ready_again():
    degraded = status(State.DEGRADED, vitals=vitals(canary_failures=1))

    decision = decide(degraded, answered(at_s=NOW_S + 1), POLICY, now_s=NOW_S + 1)

    assert decision.status.state is State.READY


def test_client_side_refusals_never_restart_an_engine():
    now = status(State.READY)
    for number in range(1, 20):
        at_s = NOW_S + 3 * number
        now = decide(now, answered(Answer.REFUSED, at_s=at_s), POLICY, now_s=at_s).status

    assert now.state is State.DEGRADED


def test_health_refused_as_often_as_the_threshold_is_a_failure():
    now = status(State.READY)
    for number in range(3):
        at_s = NOW_S + 2 * number
        now = decide(now, sampled(Health.FAILING, at_s=at_s), POLICY, now_s=at_s).status

    assert (now.state, now.failure.kind) == (State.STOPPING, "health_failing")


def test_probes_of_another_engine_are_dropped():
    ready = status(State.READY)

    decision = decide(ready, sampled(Health.FAILING, engine=OTHER.id), POLICY, now_s=NOW_S)

    assert decision.status.vitals.failing == 0


def test_stall_is_a_failure_and_its_tree_gets_a_short_grace():
    frozen = vitals(load=load(running=1), progress_s=NOW_S - RULES.stall_deadline_s)

    decision = decide(status(State.READY, vitals=frozen), Observation(), POLICY, now_s=NOW_S)

    assert decision.status.failure.kind == "engine_stalled"
    assert decision.actions[-1].grace_s < RULES.stop_grace_s


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (State.STARTING, "already starting"),
        (State.WARMING, "already warming"),
        (State.READY, "already ready"),
    ],
)
def test_starting_twice_says_so_and_changes_nothing(state, message):
    before = status(state)

    decision = decide(before, asked(RequestKind.START), POLICY, now_s=NOW_S)

    assert (decision.status, decision.actions) == (before, ())
    assert (decision.replies[0].ok, decision.replies[0].message) == (True, message)


def test_stopping_a_stopped_engine_says_so():
    decision = decide(status(State.STOPPED), asked(RequestKind.STOP), POLICY, now_s=NOW_S)

    assert (decision.replies[0].message, decision.actions) == ("already stopped", ())


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.BACKOFF])
def test_start_asked_starts_at_once_with_a_clean_count(state):
    decision = decide(status(state), asked(RequestKind.START), POLICY, now_s=NOW_S)

    assert (decision.status.state, kinds(decision)) == (State.STARTING, (Launch,))
    assert decision.status.failures == ()


def test_stop_while_launching_cancels_the_launch_and_ends_what_it_made():
    decision = decide(status(State.STARTING), asked(RequestKind.STOP), POLICY, now_s=NOW_S)

    assert (decision.status.state, kinds(decision)) == (State.STOPPING, (CancelJob, StopEngine))


def test_stop_asked_while_a_failure_is_cleared_up_ends_stopped():
    stopping = status(State.STOPPING, ending=failure())

    wanted = decide(stopping, asked(RequestKind.STOP), POLICY, now_s=NOW_S).status
    done = decide(wanted, finished(StopDone(report=REPORT, diagnosis=failure())), POLICY, now_s=NOW_S).status

    assert (done.state, done.desired) == (State.STOPPED, Desired.STOPPED)


def test_restart_with_the_same_configuration_stops_then_starts():
    stopping = decide(status(State.READY), asked(RequestKind.RESTART, digest="d1"), POLICY, now_s=NOW_S)
    job = stopping.status.job.id

    started = decide(stopping.status, finished(StopDone(report=REPORT), job=job), POLICY, now_s=NOW_S)

    assert stopping.status.state is State.STOPPING
    assert (started.status.state, kinds(started)) == (State.STARTING, (Launch,))


def test_restart_with_a_new_configuration_asks_the_parser_before_touching_the_engine():
    decision = decide(status(State.READY), asked(RequestKind.RESTART, digest="d2"), POLICY, now_s=NOW_S)

    assert (decision.status.state, kinds(decision)) == (State.READY, (CheckConfiguration,))
    assert decision.replies == ()


@pytest.mark.parametrize("accepted", [True, None])
def test_accepted_configuration_is_restarted_into(accepted):
    checking = decide(status(State.READY), asked(RequestKind.RESTART, digest="d2"), POLICY, now_s=NOW_S)
    done = finished(CheckDone(accepted=accepted, message=""), job=checking.status.job.id)

    decision = decide(checking.status, done, POLICY, now_s=NOW_S)

    assert decision.status.state is State.STOPPING
    assert {UseSpecification, StopEngine} <= set(kinds(decision))
    assert decision.replies[0].ok


def test_refused_configuration_never_costs_a_working_engine():
    checking = decide(status(State.READY), asked(RequestKind.RESTART, digest="d2"), POLICY, now_s=NOW_S)
    refused = CheckDone(accepted=False, message="unrecognized arguments: --nope")
    done = finished(refused, job=checking.status.job.id)

    decision = decide(checking.status, done, POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.actions) == (State.READY, ())
    assert not decision.replies[0].ok
    assert "--nope" in decision.replies[0].message


def test_warm_is_refused_while_nothing_serves():
    decision = decide(status(State.BACKOFF), asked(RequestKind.WARM), POLICY, now_s=NOW_S)

    assert not decision.replies[0].ok


@pytest.mark.parametrize("state", [state for state in State if state is not State.MAINTENANCE])
def test_maintenance_cancels_what_is_in_hand_and_touches_nothing(state):
    decision = decide(status(state), asked(RequestKind.MAINTENANCE_ON), POLICY, now_s=NOW_S)

    assert decision.status.state is State.MAINTENANCE
    assert set(kinds(decision)) <= {CancelJob}


@pytest.mark.parametrize("kind", [RequestKind.START, RequestKind.STOP, RequestKind.RESTART, RequestKind.WARM])
def test_maintenance_refuses_everything_but_its_end(kind):
    decision = decide(status(State.MAINTENANCE, engine=ENGINE), asked(kind), POLICY, now_s=NOW_S)

    assert (decision.actions, decision.replies[0].ok) == ((), False)


def test_no_exit_and_no_time_makes_maintenance_act():
    maintained = status(State.MAINTENANCE, engine=ENGINE)

    for seen in (exited(1), Observation(), sampled(Health.FAILING)):
        assert decide(maintained, seen, POLICY, now_s=NOW_S + 1e6).actions == ()


def test_end_of_maintenance_adopts_what_runs():
    maintained = status(State.MAINTENANCE)

    decision = decide(maintained, asked(RequestKind.MAINTENANCE_OFF, found=(ENGINE,)), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.engine) == (State.STARTING, ENGINE)
    assert Launch not in kinds(decision)


def test_end_of_maintenance_starts_what_is_wanted_and_not_there():
    decision = decide(status(State.MAINTENANCE), asked(RequestKind.MAINTENANCE_OFF), POLICY, now_s=NOW_S)

    assert kinds(decision) == (Launch,)


@pytest.mark.parametrize(
    ("state", "kind", "after"),
    [
        (State.STARTING, JobKind.LAUNCH, State.BACKOFF),
        (State.STOPPING, JobKind.STOP, State.STOPPING),
        (State.WARMING, JobKind.WARM, State.DEGRADED),
    ],
)
def test_job_that_hangs_is_no_longer_waited_for(state, kind, after):
    hanging = status(state)
    assert hanging.job.kind is kind

    decision = decide(hanging, sampled(at_s=NOW_S + 1e5), POLICY, now_s=NOW_S + 1e5)

    assert decision.status.state is after
    assert CancelJob in kinds(decision)


def test_idle_engine_is_asked_for_a_completion_at_half_the_stall_deadline():
    ready = status(State.READY)
    early = decide(ready, Observation(), POLICY, now_s=NOW_S + 19)
    due = decide(ready, Observation(), POLICY, now_s=NOW_S + 20)

    assert early.actions == ()
    assert kinds(due) == (SendCanary,)


def test_canary_is_not_sent_twice():
    ready = status(State.READY, vitals=vitals(canary=canary_result()))
    sent = decide(ready, Observation(), POLICY, now_s=NOW_S + 20).status

    again = decide(sent, Observation(), POLICY, now_s=NOW_S + 21)

    assert again.actions == ()


def test_adopted_engine_that_refuses_the_rigs_own_key_goes_on_serving_degraded():
    now = healthy(ready_s=NOW_S - 1000)
    for second in range(1, 4):
        at_s = NOW_S + 3 * second
        now = decide(now, answered(Answer.REFUSED, at_s=at_s), POLICY, now_s=at_s).status

    assert now.state is State.DEGRADED
    assert "refused" in now.reason
