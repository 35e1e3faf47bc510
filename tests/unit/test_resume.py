"""A new daemon's first decision: what was stored, what runs, and which of the two counts."""

from dataclasses import replace

import pytest
from supervise import ENGINE, NOW_S, OTHER, POLICY, failure, healthy, launched, status

from rigd.rig.schema import Rig
from rigd.supervise.decision import EndExtra, Launch, StopEngine, UseOverlay
from rigd.supervise.overlay import KnobStep
from rigd.supervise.plan import make_plan
from rigd.supervise.resume import resume
from rigd.supervise.state import STATUS, Desired, GiveUp, Job, JobKind, State, Status

ALL_STORED = [
    pytest.param(status(State.READY), id="ready"),
    pytest.param(status(State.WARMING), id="warming"),
    pytest.param(status(State.DEGRADED), id="degraded"),
    pytest.param(launched(), id="loading"),
    pytest.param(healthy(), id="first-answer"),
    pytest.param(status(State.STARTING), id="launching"),
    pytest.param(None, id="store-lost"),
]


@pytest.mark.parametrize("stored", ALL_STORED)
def test_running_engine_is_adopted_and_nothing_is_started_or_ended(stored):
    decision = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.engine) == (State.STARTING, ENGINE)
    assert decision.actions == ()


@pytest.mark.parametrize("stored", ALL_STORED)
def test_engine_that_is_gone_is_started_again(stored):
    decision = resume(stored, (), POLICY, now_s=NOW_S)

    assert [type(action) for action in decision.actions] == [Launch]


def test_of_two_running_engines_the_newest_is_adopted_and_the_other_ended():
    decision = resume(status(State.READY), (OTHER, ENGINE), POLICY, now_s=NOW_S)

    assert decision.status.engine == OTHER
    assert decision.actions == (EndExtra(ref=ENGINE),)


def test_warmth_is_kept_for_the_same_engine_only():
    same = resume(status(State.READY), (ENGINE,), POLICY, now_s=NOW_S).status
    other = resume(status(State.READY), (OTHER,), POLICY, now_s=NOW_S).status

    assert [len(same.warm), len(other.warm)] == [1, 0]


def test_unfinished_stop_for_a_failure_is_carried_on():
    stored = status(State.STOPPING, ending=failure())

    decision = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.ending) == (State.STOPPING, failure())
    assert decision.actions[0].failure == failure()


def test_stop_asked_before_the_daemon_ended_is_carried_out():
    stored = status(State.STOPPING, desired=Desired.STOPPED)

    decision = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)

    assert decision.status.state is State.STOPPING
    assert isinstance(decision.actions[-1], StopEngine)


def test_stopped_stays_stopped():
    decision = resume(status(State.STOPPED), (), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.actions) == (State.STOPPED, ())


def test_open_breaker_survives_the_daemon_but_not_a_reboot():
    stored = status(State.FAILED, gave_up=GiveUp.ATTEMPTS, boot="boot-1")

    same = resume(stored, (), POLICY, now_s=NOW_S, boot="boot-1")
    rebooted = resume(stored, (), POLICY, now_s=NOW_S, boot="boot-2")

    assert (same.status.state, same.actions) == (State.FAILED, ())
    assert [type(action) for action in rebooted.actions] == [Launch]


def test_backoff_goes_on_where_it_was():
    stored = status(State.BACKOFF)

    decision = resume(stored, (), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.retry_s) == (State.BACKOFF, stored.retry_s)


def test_maintenance_survives_the_daemon():
    stored = status(State.MAINTENANCE, engine=ENGINE)

    decision = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.actions) == (State.MAINTENANCE, ())


@pytest.mark.parametrize(
    "stored",
    [status(State.STOPPED), status(State.FAILED, gave_up=GiveUp.USELESS), status(State.BACKOFF)],
    ids=lambda stored: str(stored.state),
)
def test_person_in_the_foreground_wants_it_running(stored):
    decision = resume(stored, (), POLICY, now_s=NOW_S, insist=True)

    assert (decision.status.desired, decision.status.gave_up) == (Desired.RUNNING, None)
    assert [type(action) for action in decision.actions] == [Launch]


def test_first_daemon_ever_starts_the_engine():
    decision = resume(None, (), POLICY, now_s=NOW_S)

    assert (decision.status.state, decision.status.desired) == (State.STARTING, Desired.RUNNING)


def test_unfinished_check_does_not_block_the_next_request():
    stored = replace(status(State.READY), job=Job(id=9, kind=JobKind.CHECK, began_s=NOW_S), candidate="d2")

    decision = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)

    assert (decision.status.job, decision.status.candidate) == (None, None)


def test_status_survives_the_store_whole():
    stored = status(State.STOPPING, ending=failure(), failures=(NOW_S,))

    assert STATUS.validate_json(STATUS.dump_json(stored)) == stored
    assert STATUS.validate_json(STATUS.dump_json(Status())) == Status()


TURNED = KnobStep(knob="max_num_seqs", old=10, new=5, kind="oom_profile", sentence="s")


def test_overlay_survives_the_daemon():
    stored = status(State.READY, overlay=(TURNED,), overlay_basis=POLICY.basis)

    decision = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)

    assert decision.actions == (UseOverlay(steps=(TURNED,)),)


def test_overlay_is_cleared_when_the_rig_file_changed():
    stored = status(State.READY, overlay=(TURNED,), overlay_basis="another")

    decision = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)

    assert (decision.status.overlay, decision.actions) == ((), ())
    assert "the rig file changed" in decision.entries[0].message


def test_status_of_an_earlier_version_is_understood_with_its_overlay():
    old = (
        '{"state": "ready", "since_s": 1.0, "reason": "serving", "desired": "running", "overlay_basis": "d1",'
        ' "overlay": [{"knob": "max_num_seqs", "old": 10, "new": 5, "kind": "oom_sampler_warmup",'
        ' "sentence": "s", "at_s": 1.0, "start": 3}], "answered": ["unknown"], "trials_failed": 1}'
    )

    step = STATUS.validate_json(old).overlay[0]

    assert (str(step), step.evidence, step.version, step.basis) == ("max_num_seqs 10 -> 5", "", "", "")


@pytest.mark.parametrize("change", [{"version": "0.33.0"}, {"model": "another"}], ids=["version", "engine"])
def test_overlay_and_what_was_learnt_of_it_end_with_another_engine_or_version(change, tmp_path):
    def policy(**changes):
        engine = {"runtime": "process", "version": "0.32.0", "model": "m", **changes}
        plan = make_plan(tmp_path / "rig.yaml", Rig.model_validate({"name": "r", "engine": engine}))
        return plan.policy(plan)

    before = policy()
    step = KnobStep(knob="max_num_seqs", old=10, new=5, kind="oom_sampler_warmup", sentence="s")
    stored = status(
        State.READY,
        overlay=(step,),
        overlay_basis=before.basis,
        trials_failed=2,
        too_high=16,
        answered=("x",),
    )

    kept = resume(stored, (ENGINE,), before, now_s=NOW_S).status
    cleared = resume(stored, (ENGINE,), policy(**change), now_s=NOW_S).status

    assert (kept.overlay, kept.trials_failed) == ((step,), 2)
    assert (cleared.overlay, cleared.trials_failed, cleared.too_high, cleared.answered) == ((), 0, None, ())
