"""The last known good settings: remembered once proved, and gone back to when a changed rig file fails."""

from dataclasses import replace

from supervise import ENGINE, NOW_S, POLICY, REPORT, RULES, failure, finished, status

from rigd.supervise.decide import decide
from rigd.supervise.decision import Launch, RememberGood, UseKnownGood, UseOverlay, UseSpecification
from rigd.supervise.observations import Observation, Request, RequestKind, StopDone
from rigd.supervise.resume import resume
from rigd.supervise.state import KnownGood, State

GOOD = KnownGood(digest="d0", basis="d0", start=3)


def failed_start(**changes):
    now = status(State.STOPPING, good=GOOD, **changes)
    done = finished(StopDone(report=REPORT, diagnosis=failure("bad_cli", retry_helps=False)))
    return decide(now, done, POLICY, now_s=NOW_S)


def test_settings_are_known_good_after_a_healthy_stretch_and_kept_once():
    ready = status(State.READY, ready_s=NOW_S - RULES.healthy_stretch_s)

    decision = decide(ready, Observation(), POLICY, now_s=NOW_S)
    again = decide(decision.status, Observation(), POLICY, now_s=NOW_S + 1)

    assert decision.actions == (RememberGood(digest="d1"),)
    assert (decision.status.good.digest, decision.status.good.start) == ("d1", ENGINE.start)
    assert again.actions == ()


def test_changed_rig_file_that_fails_makes_way_for_what_last_worked_and_says_so():
    decision = failed_start()

    assert (decision.status.state, decision.actions) == (State.BACKOFF, (UseKnownGood(),))
    assert "last known good" in decision.status.reason
    started = decide(decision.status, Observation(), POLICY, now_s=NOW_S + 1)
    assert [type(action) for action in started.actions] == [Launch]


def test_known_good_settings_that_fail_too_are_given_up():
    assert failed_start(fallback_from="d1").status.state is State.FAILED


def test_same_rig_file_does_not_fall_back_on_itself():
    same = replace(GOOD, basis=POLICY.basis)
    now = status(State.STOPPING, good=same)
    done = finished(StopDone(report=REPORT, diagnosis=failure("bad_cli", retry_helps=False)))

    assert decide(now, done, POLICY, now_s=NOW_S).status.state is State.FAILED


def test_fallback_survives_the_daemon_until_the_rig_file_changes():
    stored = status(State.READY, good=GOOD, fallback_from=POLICY.basis)

    kept = resume(stored, (ENGINE,), POLICY, now_s=NOW_S)
    changed = resume(stored, (ENGINE,), replace(POLICY, basis="d9"), now_s=NOW_S)

    assert kept.actions == (UseKnownGood(),)
    assert (changed.actions, changed.status.fallback_from) == ((), "")


def test_another_rig_file_gets_its_chance():
    request = Request(id=1, kind=RequestKind.START, digest="d2")

    decision = decide(
        status(State.FAILED, good=GOOD, fallback_from="d1"), Observation(request=request), POLICY, now_s=NOW_S
    )

    assert decision.status.fallback_from == ""
    assert decision.actions[0] == UseSpecification(digest="d2")


def test_knob_turned_while_the_known_good_settings_run_is_turned_on_top_of_them():
    """The rig file's own settings have failed: they must not come back under another name."""
    oom = finished(StopDone(report=REPORT, diagnosis=failure("oom_sampler_warmup", retry_helps=False)))

    decision = decide(status(State.STOPPING, good=GOOD, fallback_from="d1"), oom, POLICY, now_s=NOW_S)

    assert decision.actions == (UseOverlay(steps=decision.status.overlay, on_good=True),)
    resumed = resume(decision.status, (), POLICY, now_s=NOW_S + 1)
    assert resumed.actions[:2] == (UseKnownGood(), *decision.actions)
