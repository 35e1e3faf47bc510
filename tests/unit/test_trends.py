"""Troubles that the numbers show: told once at their beginning and end, answered when nothing runs."""

from dataclasses import replace

import pytest
from supervise import ENGINE, NOW_S, OTHER, POLICY, REPORT, RULES, answered, finished, load, sampled, status

from rigd.rig.trends import Trends
from rigd.supervise.decide import decide
from rigd.supervise.decision import UseOverlay
from rigd.supervise.health import Vitals
from rigd.supervise.memory_trend import GIB, MemorySample
from rigd.supervise.observations import Observation, StopDone
from rigd.supervise.resume import resume
from rigd.supervise.slow_answers import SlowAnswer
from rigd.supervise.state import State, Trouble

LIMITS = Trends(acceptance_draft_tokens=100, undrafted_tokens=100, preemption_stretch_s=20)
POLICY_T = replace(POLICY, supervision=RULES.model_copy(update={"trends": LIMITS, "attempts": 5}))
COLLAPSED = Trouble(
    kind="spec_accept_collapse",
    engine=ENGINE.id,
    sentence="Drafts are hardly accepted any more.",
    hint="rigd status",
    since_s=NOW_S - 10,
    grave_s=NOW_S - 10,
)


class Run:
    """A serving engine whose counters go on, and everything that was journalled."""

    def __init__(self, policy=POLICY_T, now=None):
        self.status = status(State.READY) if now is None else now
        self.policy = policy
        self.now_s = NOW_S
        self.counters = {
            "generation_tokens": 0.0,
            "drafts": 0.0,
            "draft_tokens": 0.0,
            "accepted_tokens": 0.0,
            "preemptions": 0.0,
            "successes": 0.0,
        }
        self.entries = []
        self.actions = []
        self.look()

    def look(self, *, running=1, **more):
        for name, value in more.items():
            self.counters[name] += value
        self.now_s += 2
        seen = load(running=running, progress=self.now_s, **self.counters)
        self.see(sampled(at_s=self.now_s, seen=seen))

    def see(self, observation):
        decision = decide(self.status, observation, self.policy, now_s=self.now_s)
        self.status = decision.status
        self.entries += decision.entries
        self.actions += decision.actions

    def kinds(self, *among):
        return [entry.kind for entry in self.entries if entry.kind in among]


def collapse(run, looks=12):
    for _ in range(looks):
        run.look(generation_tokens=20, drafts=15, draft_tokens=45)


def test_collapse_degrades_at_once_says_so_once_and_restarts_when_nothing_runs():
    run = Run()
    collapse(run)

    assert run.status.state is State.DEGRADED
    assert run.kinds("trend", "trend-over", "failure") == ["trend"]
    assert "0.0% of 135 draft tokens" in run.status.reason

    run.look(running=0)

    assert (run.status.state, run.status.ending.kind) == (State.STOPPING, "spec_accept_collapse")


def test_answer_does_not_wait_for_ever():
    run = Run()
    collapse(run)
    run.now_s += LIMITS.idle_wait_s
    run.look(running=1, generation_tokens=1)

    assert run.status.state is State.STOPPING


def stopped(run):
    """End the stop in hand as the effects would."""
    done = StopDone(report=REPORT, diagnosis=run.status.ending)
    run.see(finished(done, job=run.status.job.id))


def test_restart_is_the_first_answer_and_no_speculation_the_second():
    run = Run()
    collapse(run)
    run.look(running=0)
    stopped(run)
    assert (run.status.state, run.status.overlay) == (State.BACKOFF, ())
    assert run.kinds("trend", "trend-over") == ["trend", "trend-over"]

    answers = run.status.slow_answers
    again = Run(now=status(State.READY, slow_answers=answers))
    collapse(again)
    again.look(running=0)
    stopped(again)

    (step,) = again.status.overlay
    assert (step.knob, step.new, step.kind) == ("speculative", None, "spec_accept_collapse")
    assert any(isinstance(action, UseOverlay) for action in again.actions)


def test_answer_of_long_ago_does_not_count():
    old = (SlowAnswer(kind="spec_accept_collapse", at_s=NOW_S - LIMITS.again_s - 1),)
    run = Run(now=status(State.READY, slow_answers=old))
    collapse(run)
    run.look(running=0)
    stopped(run)

    assert run.status.overlay == ()


def test_missing_drafter_is_told_and_never_restarted_for():
    run = Run()
    for _ in range(30):
        run.look(generation_tokens=20)
    run.look(running=0)

    assert (run.status.state, run.kinds("trend", "failure")) == (State.DEGRADED, ["trend"])
    assert run.status.troubles[0].kind == "drafter_missing"
    assert "(mtp)" in run.status.reason


def test_thrash_halves_the_sequences():
    run = Run()
    for _ in range(24):
        run.look(generation_tokens=20, drafts=4, draft_tokens=12, accepted_tokens=6, preemptions=4)
    run.look(running=0)
    stopped(run)

    assert [str(step) for step in run.status.overlay] == ["max_num_seqs 10 -> 5"]


def test_trend_that_passes_is_over_once_and_the_engine_ready_again():
    run = Run()
    collapse(run)
    for _ in range(12):
        run.look(generation_tokens=40, drafts=15, draft_tokens=45, accepted_tokens=25)

    assert (run.status.state, run.status.troubles) == (State.READY, ())
    assert run.kinds("trend", "trend-over") == ["trend", "trend-over"]
    assert run.kinds("ready") == ["ready"]


@pytest.mark.parametrize(("tokens", "learnt"), [(40, True), (8, False)], ids=["answers", "canaries"])
def test_acceptance_and_speed_of_real_answers_become_the_baseline(tokens, learnt):
    long_s = NOW_S - RULES.healthy_stretch_s - 1
    run = Run(now=status(State.READY, ready_s=long_s, launched_s=long_s - 60))
    for _ in range(12):
        run.look(generation_tokens=tokens, drafts=15, draft_tokens=45, accepted_tokens=25, successes=1)

    assert (run.status.baselines[0].acceptance == pytest.approx(0.556)) is learnt


def test_switched_off_nothing_is_judged():
    off = POLICY_T.supervision.model_copy(update={"trends": LIMITS.model_copy(update={"enabled": False})})
    run = Run(policy=replace(POLICY_T, supervision=off))
    collapse(run)

    assert (run.status.state, run.status.troubles) == (State.READY, ())


@pytest.mark.parametrize(
    "spent",
    [
        pytest.param({"failures": (NOW_S - 3, NOW_S - 2, NOW_S - 1, NOW_S)}, id="attempts"),
        pytest.param({"boots": tuple(NOW_S - n for n in range(13))}, id="boots"),
    ],
)
def test_engine_that_serves_badly_is_never_given_up_for_it(spent):
    run = Run(now=status(State.DEGRADED, troubles=(COLLAPSED,), **spent))
    run.look(running=0)

    assert run.status.state is State.DEGRADED


def test_trouble_survives_the_daemon_with_its_engine_and_is_not_told_again():
    stored = status(State.DEGRADED, troubles=(COLLAPSED,))
    adopted = resume(stored, (ENGINE,), POLICY_T, now_s=NOW_S).status
    run = Run(now=replace(adopted, vitals=Vitals(progress_s=NOW_S, answered_s=NOW_S, passing=1)))

    assert run.status.state is State.DEGRADED
    assert run.kinds("trend", "trend-over", "degraded") == []
    assert run.kinds("trend-lasts") == ["trend-lasts"]


def test_trouble_is_over_with_its_engine():
    stored = status(State.DEGRADED, troubles=(COLLAPSED,))
    adopted = resume(stored, (OTHER,), POLICY_T, now_s=NOW_S).status
    run = Run(now=adopted)

    assert (run.status.troubles, run.kinds("trend-over")) == ((), ["trend-over"])


def grow(run, *, gib_per_h, left_gib, hours=2.0):
    for minute in range(int(hours * 60)):
        run.now_s += 58
        run.look(running=1, generation_tokens=1)
        if run.status.vitals.canary_sent_s is not None:
            run.see(answered(at_s=run.now_s))
        own, left = 10 + gib_per_h * minute / 60, left_gib - gib_per_h * minute / 60
        run.see(
            Observation(
                memory=MemorySample(
                    engine=ENGINE.id, at_s=run.now_s, own_bytes=int(own * GIB), left_bytes=int(left * GIB)
                )
            )
        )


def test_growing_memory_is_told_while_the_engine_stays_ready():
    run = Run()
    grow(run, gib_per_h=1, left_gib=30)

    assert run.status.state is State.READY
    assert run.kinds("trend", "failure") == ["trend"]
    assert "1.00 GiB an hour" in run.status.troubles[0].sentence


def test_memory_that_is_full_soon_earns_a_restart_before_the_kernel_kills():
    run = Run()
    grow(run, gib_per_h=4, left_gib=14, hours=1.0)
    run.look(running=0)

    assert (run.status.state, run.status.ending.kind) == (State.STOPPING, "host_ram_leak")


def test_memory_of_another_engine_is_dropped():
    run = Run()
    run.see(Observation(memory=MemorySample(engine="other", at_s=NOW_S, own_bytes=1, left_bytes=1)))

    assert run.status.vitals.track.memory == ()
