"""When the host is held against its playbook, what is told of it, and when something may be applied."""

from dataclasses import replace

import pytest
from supervise import NOW_S, status, vitals

from rigd.rig.drift import Drift
from rigd.supervise import drift
from rigd.supervise.drift import Calm, DriftAct, DriftState, Situation
from rigd.supervise.drift_report import Difference, Report
from rigd.supervise.load import Load
from rigd.supervise.state import Job, JobKind, State

RULES = Drift(playbook="site.yml", every_s=3600, apply=("docker",), idle_s=30)
IDLE = Calm(idle_s=NOW_S - 100)
AT = Situation(now_s=NOW_S, boot="b2", began_s=NOW_S - 1000, calm=IDLE, settle_s=60)
LOOKED = DriftState(playbook="site.yml", boot="b2", checked_s=NOW_S - 100, tried_s=NOW_S - 100)
MINE = Difference(task="Docker's settings", place="docker.yml:7", what="live-restore", allowed=True)
THEIRS = Difference(task="Driver", place="driver.yml:3")


def looked(state: DriftState, *differences: Difference, now_s: float = NOW_S) -> DriftState:
    return drift.after_check(state, Report(ok=True, differences=differences), boot="b2", now_s=now_s)


def twice(state: DriftState, *differences: Difference) -> DriftState:
    return looked(looked(state, *differences), *differences)


def kinds(before: DriftState, after: DriftState) -> list[str]:
    return [entry.kind for entry in drift.entries(before, after)]


# --- when to look ---


@pytest.mark.parametrize(
    ("state", "rules", "began_ago_s", "act"),
    [
        pytest.param(DriftState(), Drift(), 1e6, None, id="no-playbook"),
        pytest.param(DriftState(), RULES, 59, None, id="the-box-settles-first"),
        pytest.param(DriftState(), RULES, 60, DriftAct.CHECK, id="first"),
        pytest.param(LOOKED, RULES, 1000, None, id="lately"),
        pytest.param(replace(LOOKED, checked_s=NOW_S - 3600), RULES, 1e5, DriftAct.CHECK, id="on-schedule"),
        pytest.param(replace(LOOKED, boot="b1"), RULES, 60, DriftAct.CHECK, id="after-a-boot"),
        pytest.param(
            replace(LOOKED, boot="b1"),
            RULES.model_copy(update={"at_boot": False}),
            60,
            None,
            id="not-at-boot",
        ),
        pytest.param(
            replace(LOOKED, checked_s=0.0),
            RULES.model_copy(update={"every_s": None}),
            1e5,
            None,
            id="boots-only",
        ),
        pytest.param(replace(LOOKED, playbook="old.yml"), RULES, 60, DriftAct.CHECK, id="another-playbook"),
        pytest.param(
            replace(LOOKED, running=DriftAct.CHECK, checked_s=0.0), RULES, 1e5, None, id="under-way"
        ),
        pytest.param(replace(LOOKED, fails=1, tried_s=NOW_S - 599), RULES, 1e5, None, id="failed-lately"),
        pytest.param(replace(LOOKED, fails=1, tried_s=NOW_S - 600), RULES, 1e5, DriftAct.CHECK, id="retry"),
        pytest.param(replace(LOOKED, fails=9, tried_s=NOW_S - 9000), RULES, 1e5, None, id="ever-more-rarely"),
        pytest.param(
            replace(LOOKED, fails=9, tried_s=NOW_S - 61), RULES, 60, DriftAct.CHECK, id="failed-before-us"
        ),
        pytest.param(replace(LOOKED, applied_s=NOW_S), RULES, 1e5, DriftAct.CHECK, id="after-an-apply"),
    ],
)
def test_a_look_is_due(state, rules, began_ago_s, act):
    at = replace(AT, began_s=NOW_S - began_ago_s)

    assert drift.next_act(state, rules, at) is act


def test_nothing_is_done_in_maintenance():
    assert drift.next_act(DriftState(), RULES, replace(AT, hands_off=True)) is None


def test_what_is_new_is_looked_at_again_soon():
    found = looked(LOOKED, THEIRS)

    assert drift.next_act(found, RULES, replace(AT, now_s=NOW_S + 59)) is None
    assert drift.next_act(found, RULES, replace(AT, now_s=NOW_S + 60)) is DriftAct.CHECK


# --- what is told ---


def test_a_difference_is_told_when_it_is_certain_and_once():
    first = looked(LOOKED, THEIRS)
    second = looked(first, THEIRS)
    third = looked(second, THEIRS)

    assert (kinds(LOOKED, first), kinds(first, second), kinds(second, third)) == ([], ["drift"], [])


def test_one_more_is_told_and_one_less_is_not():
    one = twice(LOOKED, THEIRS)
    both = twice(one, THEIRS, MINE)

    assert kinds(one, both) == ["drift"]
    assert kinds(both, looked(both, MINE)) == []


def test_the_end_is_told_also_when_something_uncertain_came_in_between():
    told = twice(LOOKED, THEIRS)
    other = looked(told, MINE)
    over = looked(other)

    assert (kinds(told, other), kinds(other, over)) == ([], ["drift-over"])


def test_what_passes_before_it_is_certain_is_not_told():
    assert kinds(looked(LOOKED, THEIRS), looked(looked(LOOKED, THEIRS))) == []


def test_a_look_that_fails_keeps_what_is_known_and_is_told_once():
    known = twice(LOOKED, THEIRS)
    bad = Report(ok=False, message="apt is locked", hint="later")

    failed = drift.after_check(known, bad, boot="b2", now_s=NOW_S)
    again = drift.after_check(failed, bad, boot="b2", now_s=NOW_S)

    assert (kinds(known, failed), kinds(failed, again)) == (["drift-trouble"], [])
    assert failed.known == known.known
    assert kinds(again, looked(again, THEIRS)) == ["drift-trouble-over"]


@pytest.mark.parametrize("report", [Report(ok=False, busy=True), Report(ok=False, stopped=True)])
def test_a_look_that_somebody_else_s_run_keeps_away_is_no_trouble(report):
    after = drift.after_check(LOOKED, report, boot="b2", now_s=NOW_S)

    assert kinds(LOOKED, after) == []
    assert drift.next_act(replace(after, tried_s=NOW_S), RULES, replace(AT, now_s=NOW_S + 600))


def test_a_run_that_keeps_looks_away_for_long_is_a_trouble():
    state, told = LOOKED, []
    for _ in range(4):
        after = drift.after_check(state, Report(ok=False, busy=True, message="busy"), boot="b2", now_s=NOW_S)
        told += kinds(state, after)
        state = after

    assert told == ["drift-trouble"]


# --- when to apply ---


def test_what_is_allowed_is_applied_once_it_is_certain_and_the_engine_rests():
    found = looked(LOOKED, MINE)
    certain = looked(found, MINE)

    assert drift.next_act(found, RULES, AT) is None
    assert drift.next_act(certain, RULES, AT) is DriftAct.APPLY


@pytest.mark.parametrize(
    ("state", "rules", "at"),
    [
        pytest.param(twice(LOOKED, THEIRS), RULES, AT, id="not-allowed"),
        pytest.param(twice(LOOKED, MINE), RULES.model_copy(update={"apply": ()}), AT, id="nothing-allowed"),
        pytest.param(twice(LOOKED, MINE), RULES, replace(AT, calm=Calm(busy_s=NOW_S)), id="at-work"),
        pytest.param(twice(LOOKED, MINE), RULES, replace(AT, calm=Calm(idle_s=NOW_S - 9)), id="just-idle"),
        pytest.param(twice(LOOKED, MINE), RULES, replace(AT, hands_off=True), id="maintenance"),
        pytest.param(replace(twice(LOOKED, MINE), boot="b1"), RULES, AT, id="seen-in-another-boot"),
    ],
)
def test_nothing_is_applied(state, rules, at):
    assert drift.next_act(state, rules, at) is not DriftAct.APPLY


def test_an_apply_that_ends_nothing_is_tried_ever_more_rarely():
    state, waits = twice(LOOKED, MINE), []
    for _ in range(7):
        state = drift.after_apply(state, Report(ok=True), now_s=NOW_S)
        state = looked(state, MINE)
        hours = next(
            h for h in range(1, 30) if drift.next_act(state, RULES, later(h * 3600)) is DriftAct.APPLY
        )
        waits.append(hours)

    assert waits == [1, 2, 4, 8, 16, 24, 24]
    assert looked(state).applies == 0


def later(seconds: float) -> Situation:
    return replace(AT, now_s=NOW_S + seconds)


def test_an_apply_is_called_off_for_work_and_maintenance_but_not_for_a_canary():
    applying = replace(LOOKED, running=DriftAct.APPLY)

    assert not drift.must_stop(applying, replace(AT, calm=Calm(busy_s=NOW_S - 1)))
    assert drift.must_stop(applying, replace(AT, calm=Calm(busy_s=NOW_S - 3)))
    assert drift.must_stop(applying, replace(AT, hands_off=True))
    assert not drift.must_stop(replace(LOOKED, running=DriftAct.CHECK), replace(AT, hands_off=True))


def load(running=0, waiting=0):
    return replace(vitals(), sample_s=NOW_S, load=Load(running=running, waiting=waiting, progress=(0.0,)))


@pytest.mark.parametrize(
    ("seen", "idle"),
    [
        pytest.param(status(State.READY, vitals=load()), True, id="no-request"),
        pytest.param(status(State.READY, vitals=load(running=1)), False, id="running"),
        pytest.param(status(State.DEGRADED, vitals=load(waiting=1)), False, id="waiting"),
        pytest.param(status(State.READY, vitals=replace(load(), sample_s=NOW_S - 60)), False, id="not-known"),
        pytest.param(status(State.READY, vitals=replace(load(), load=None)), False, id="no-counters"),
        pytest.param(status(State.WARMING, vitals=load()), False, id="warming"),
        pytest.param(status(State.STARTING), False, id="starting"),
        pytest.param(status(State.STOPPING), False, id="stopping"),
        pytest.param(status(State.FAILED), True, id="failed"),
        pytest.param(status(State.STOPPED), True, id="stopped"),
        pytest.param(status(State.BACKOFF), True, id="waits-for-its-host"),
        pytest.param(
            status(State.READY, vitals=load(), job=Job(id=1, kind=JobKind.CHECK, began_s=0)),
            False,
            id="checks",
        ),
    ],
)
def test_an_engine_is_idle_or_not(seen, idle):
    calm = drift.after_look(Calm(), seen, now_s=NOW_S)

    assert (calm.idle_s is not None) is idle


def test_a_daemon_that_finds_an_apply_under_way_says_so_and_looks_at_once():
    after, told = drift.interrupted(replace(LOOKED, running=DriftAct.APPLY), now_s=NOW_S)

    assert [dict(entry.data)["state"] for entry in told] == ["interrupted"]
    assert drift.next_act(after, RULES, AT) is DriftAct.CHECK


def test_another_playbook_begins_from_nothing():
    begun = drift.begun(twice(LOOKED, THEIRS), DriftAct.CHECK, Drift(playbook="new.yml"), now_s=NOW_S)

    assert (begun.playbook, begun.known, begun.running) == ("new.yml", (), DriftAct.CHECK)
    assert kinds(begun, looked(begun)) == ["drift-over"]


def test_a_rig_file_that_asks_no_more_ends_what_was_told():
    told = twice(LOOKED, THEIRS)

    assert drift.forgotten(told, Drift())
    assert not drift.forgotten(DriftState(), Drift())
    assert kinds(told, DriftState()) == ["drift-over"]


def test_the_document_says_what_differs_since_when_and_when_it_is_looked_next():
    state = twice(replace(LOOKED, known=()), MINE)

    found = drift.document(state, RULES, AT)

    assert (found["next_s"], found["this_boot"]) == (NOW_S + 3600, True)
    (difference,) = found["differences"]
    assert (difference["task"], difference["allowed"], difference["certain"]) == (MINE.task, True, True)
    assert drift.document(state, Drift(), AT) is None
