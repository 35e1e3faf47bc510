"""Liveness and readiness: what probe results come to."""

from dataclasses import replace

import pytest
from supervise import ENGINE, NOW_S, RULES, canary_result, load, vitals

from rigd.rig.schema import Canary
from rigd.supervise.health import (
    Answer,
    Health,
    Sample,
    Verdict,
    Vitals,
    after_canary,
    after_sample,
    canary_due,
    judge,
    judge_text,
)


def fold(start, samples):
    now = start
    for at_s, health, seen in samples:
        now = after_sample(now, Sample(engine=ENGINE.id, at_s=at_s, health=health, load=seen), RULES)
    return now


@pytest.mark.parametrize(
    ("text", "expect", "answer"),
    [
        ("Paris", None, Answer.GOOD),
        ("Paris.", "paris", Answer.GOOD),
        ("Berlin", "paris", Answer.WRONG),
        ("", None, Answer.EMPTY),
        ("!!!!!!!!", None, Answer.DEGENERATE),
        (" ! ! ! !", None, Answer.DEGENERATE),
        ("\n\n", None, Answer.GOOD),
        ("!!!", None, Answer.GOOD),
        ("the the the", None, Answer.GOOD),
    ],
)
def test_judge_text(text, expect, answer):
    assert judge_text(text, expect) is answer


def test_consecutive_failures_are_counted_and_one_success_clears_them():
    now = fold(Vitals(), [(1, Health.FAILING, None), (3, Health.FAILING, None)])
    assert judge(now, RULES, now_s=3) is not Verdict.DOWN

    now = fold(now, [(5, Health.PASSING, None), (7, Health.FAILING, None)])

    assert now.failing == 1


def test_error_of_the_prober_counts_neither_way():
    now = fold(Vitals(), [(1, Health.FAILING, None), (3, Health.UNKNOWN, None), (5, Health.FAILING, None)])

    assert now.failing == 2


def test_busy_is_not_hung_while_any_counter_moves():
    now = fold(
        vitals(),
        [(NOW_S + step, Health.PASSING, load(running=8, progress=step)) for step in range(0, 600, 2)],
    )

    assert judge(now, RULES, now_s=NOW_S + 599) is Verdict.FINE


def test_work_in_flight_without_progress_is_a_stall_just_before_the_deadline():
    flat = load(running=1, progress=5)
    samples = [(NOW_S + step, Health.PASSING, flat) for step in range(0, 42, 2)]
    now = fold(vitals(load=flat), samples)

    assert judge(now, RULES, now_s=NOW_S + 36) is Verdict.FINE
    assert judge(now, RULES, now_s=NOW_S + 37) is Verdict.STALLED


def test_idle_engine_is_never_stalled():
    idle = fold(vitals(), [(NOW_S + step, Health.PASSING, load()) for step in range(0, 600, 2)])

    assert judge(idle, RULES, now_s=NOW_S + 599) is Verdict.FINE


def test_frozen_idle_engine_is_noticed_within_the_deadline_by_its_canary():
    """A frozen core reads running 0, waiting 0: only the canary puts work in flight."""
    now, noticed_s = vitals(), None
    for step in range(0, 100, 2):
        at_s = NOW_S + step
        now = fold(now, [(at_s, Health.PASSING, load())])
        if canary_due(now, RULES, now_s=at_s):
            now = replace(now, canary_sent_s=at_s)
        if judge(now, RULES, now_s=at_s) is Verdict.STALLED:
            noticed_s = step
            break

    assert RULES.stall_deadline_s / 2 < noticed_s <= RULES.stall_deadline_s


def test_canary_whose_connection_breaks_leaves_the_engine_under_suspicion():
    now = vitals(progress_s=NOW_S - 30, canary=canary_result(Answer.NONE, at_s=NOW_S))

    assert judge(now, RULES, now_s=NOW_S) is Verdict.FINE
    assert canary_due(now, RULES, now_s=NOW_S + 3)
    assert judge(now, RULES, now_s=NOW_S + 7) is Verdict.STALLED


def test_canary_waiting_in_a_full_queue_is_not_a_stall():
    waiting = vitals(canary_sent_s=NOW_S - 200, progress_s=NOW_S - 1, load=load(running=8, waiting=4))

    assert judge(waiting, RULES, now_s=NOW_S) is Verdict.FINE


def test_paused_daemon_holds_nothing_against_the_engine():
    before = vitals(load=load(running=1), canary_sent_s=NOW_S)

    now = fold(before, [(NOW_S + 3600, Health.PASSING, load(running=1))])

    assert judge(now, RULES, now_s=NOW_S + 3600) is Verdict.FINE


def test_wrong_answers_are_progress_but_not_good():
    now = vitals()
    for step in range(3):
        now = after_canary(now, canary_result(Answer.EMPTY, at_s=NOW_S + step))

    assert (now.progress_s, judge(now, RULES, now_s=NOW_S + 3)) == (NOW_S + 2, Verdict.GARBAGE)


def test_busy_engine_is_asked_for_text_all_the_same_now_and_then():
    busy = vitals(load=load(running=4), progress_s=NOW_S + 159, answered_s=NOW_S)

    assert not canary_due(busy, RULES, now_s=NOW_S + 159)
    assert canary_due(busy, RULES, now_s=NOW_S + 160)


def test_canary_period_never_exceeds_half_the_stall_deadline():
    lazy = RULES.model_copy(update={"canary": Canary(every_s=3600)})

    assert canary_due(vitals(), lazy, now_s=NOW_S + 20)
