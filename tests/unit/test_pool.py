"""Baselines of healthy settings; a KV pool below them earns one restart, and then is served with and said."""

from dataclasses import replace

import pytest
from supervise import (
    ENGINE,
    NO_PREFIXES,
    NOW_S,
    POLICY,
    REPORT,
    RULES,
    answered,
    finished,
    healthy,
    load,
    status,
    vitals,
)

from rigd.supervise.baselines import BASELINES_KEPT, Baseline, PoolRestart, kept
from rigd.supervise.decide import decide
from rigd.supervise.decision import Launch, StopEngine
from rigd.supervise.observations import Observation, StopDone
from rigd.supervise.resume import resume
from rigd.supervise.state import STATUS, State

WHOLE = Baseline(digest="d1", start=3, startup_s=60.0, pool_tokens=691_176)
SPENT = PoolRestart(digest="d1", start=6, pool_tokens=500_000, at_s=NOW_S - 100)


def first_answer(pool_tokens, **changes):
    """Return what follows when a fresh start gives its first answer."""
    now = healthy(**{"baselines": (WHOLE,), **changes})
    now = replace(now, vitals=replace(now.vitals, load=load(pool_tokens=pool_tokens)))
    return decide(now, answered(), NO_PREFIXES, now_s=NOW_S)


def entries(decision, *among):
    return [entry.kind for entry in decision.entries if entry.kind in among]


def test_shrunken_pool_earns_a_restart_that_is_no_failure_and_is_stored_first():
    decision = first_answer(500_000)

    assert (decision.status.state, decision.status.failures) == (State.STOPPING, ())
    assert decision.status.pool_restart.pool_tokens == 500_000
    assert entries(decision, "pool-restart", "failure") == ["pool-restart"]
    (stop,) = decision.actions
    assert (type(stop), stop.failure) == (StopEngine, None)
    assert "500,000 tokens, 72% of the 691,176" in decision.entries[0].message
    gone = decide(
        decision.status,
        finished(StopDone(report=REPORT), job=decision.status.job.id),
        NO_PREFIXES,
        now_s=NOW_S + 5,
    )
    assert [type(action) for action in gone.actions] == [Launch]


def test_second_shrunken_start_serves_degraded_and_says_both_numbers():
    decision = first_answer(500_000, pool_restart=SPENT)

    assert (decision.status.state, decision.actions) == (State.DEGRADED, ())
    assert entries(decision, "trend") == ["trend"]
    for number in ("500,000", "691,176"):
        assert number in decision.status.reason


def test_restart_is_never_repeated_whatever_the_daemon_does():
    stored = STATUS.validate_json(STATUS.dump_json(first_answer(500_000).status))
    resumed = resume(stored, (), NO_PREFIXES, now_s=NOW_S + 9).status

    assert resumed.pool_restart == stored.pool_restart
    assert first_answer(500_000, pool_restart=resumed.pool_restart).status.state is State.DEGRADED


@pytest.mark.parametrize(
    ("pool_tokens", "changes"),
    [
        pytest.param(691_176, {}, id="whole"),
        pytest.param(630_000, {}, id="nearly-whole"),
        pytest.param(None, {}, id="not-said"),
        pytest.param(100, {"baselines": ()}, id="no-baseline"),
        pytest.param(100, {"baselines": (replace(WHOLE, digest="d9"),)}, id="of-other-settings"),
        pytest.param(100, {"ready_s": NOW_S - 500}, id="adopted"),
    ],
)
def test_pool_that_is_no_reason_to_start_again(pool_tokens, changes):
    assert first_answer(pool_tokens, **changes).status.state is State.READY


def test_whole_pool_earns_the_restart_again():
    decision = first_answer(691_176, pool_restart=SPENT)

    assert (decision.status.state, decision.status.pool_restart) == (State.READY, None)


def test_small_pool_of_a_day_is_the_new_baseline():
    degraded = first_answer(500_000, pool_restart=SPENT).status
    later_s = NOW_S + RULES.trends.pool_accept_s
    fresh = replace(
        degraded, vitals=vitals(load=load(pool_tokens=500_000), progress_s=later_s, answered_s=later_s)
    )

    decision = decide(fresh, Observation(), NO_PREFIXES, now_s=later_s)

    assert (decision.status.state, decision.status.pool_restart) == (State.READY, None)
    assert decision.status.baselines[0].pool_tokens == 500_000
    assert entries(decision, "trend-over") == ["trend-over"]


def learned(**changes):
    ready = status(
        State.READY,
        ready_s=NOW_S - RULES.healthy_stretch_s,
        launched_s=NOW_S - RULES.healthy_stretch_s - 104,
        vitals=vitals(load=load(pool_tokens=691_176)),
        **changes,
    )
    decision = decide(ready, Observation(), POLICY, now_s=NOW_S)
    return decide(decision.status, Observation(), POLICY, now_s=NOW_S)


def test_healthy_stretch_writes_the_baseline_once():
    decision = learned()

    assert decision.status.baselines == (
        Baseline(digest="d1", start=ENGINE.start, startup_s=104.0, pool_tokens=691_176),
    )
    assert (
        decision.entries[0].message
        == "these settings when healthy: KV pool 691,176 tokens, ready after 104 s"
    )
    again = decide(decision.status, Observation(), POLICY, now_s=NOW_S + 1)
    assert again.entries == ()


def test_later_start_improves_the_baseline_and_never_worsens_it():
    better = learned(baselines=(replace(WHOLE, pool_tokens=600_000),)).status.baselines[0]
    worse = learned(baselines=(replace(WHOLE, pool_tokens=700_000),)).status.baselines[0]

    assert (better.pool_tokens, better.startup_s) == (691_176, 60.0)
    assert worse.pool_tokens == 700_000


@pytest.mark.parametrize(("usual_s", "told"), [(20.0, True), (58.0, False), (None, False)])
def test_start_that_takes_far_longer_than_usual_is_told_and_nothing_more(usual_s, told):
    base = replace(WHOLE, startup_s=usual_s)
    decision = first_answer(691_176, baselines=(base,), launched_s=NOW_S - 104)

    assert (decision.status.state, entries(decision, "slow-start")) == (State.READY, ["slow-start"] * told)


def test_few_baselines_are_kept_and_the_one_in_use_is_among_them():
    table = ()
    for number in range(20):
        table = kept(table, replace(WHOLE, digest=f"d{number}"))

    assert (len(table), table[-1].digest) == (BASELINES_KEPT, "d19")
