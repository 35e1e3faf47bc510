"""An engine that serves for two minutes and dies, for ever: a day of it, in which starts are counted."""

from dataclasses import replace

import pytest
from supervise import ENGINE, NOW_S, POLICY, REPORT, proved

from rigd.rig.schema import Rig, Supervision
from rigd.runtime.base import EngineExit
from rigd.supervise.decide import decide
from rigd.supervise.decision import Launch, LookAt, SendCanary, StopEngine, UseOverlay, WarmPrefixes
from rigd.supervise.health import Answer, CanaryResult, Health, Sample
from rigd.supervise.ladder import Remedy
from rigd.supervise.load import Load
from rigd.supervise.observations import Exited, Finished, LaunchDone, Looked, Observation, StopDone, WarmDone
from rigd.supervise.overlay import apply
from rigd.supervise.resume import resume
from rigd.supervise.state import State

DAY_S = 86_400
TICK_S = 5
LOAD_S = 60
RESTART = Remedy(knob="engine", change="restart")


class Box:
    """A box whose engine loads for a minute, serves for `life_s`, and dies of `kind`."""

    def __init__(self, kind, remedies, life_s):
        self.kind, self.remedies, self.life_s = kind, remedies, life_s
        self.now_s, self.policy, self.engine = NOW_S, replace(POLICY, supervision=Supervision()), None
        self.starts = []
        self.follow(resume(None, (), self.policy, now_s=self.now_s))

    def live(self, span_s):
        until_s = self.now_s + span_s
        while self.now_s < until_s and self.status.state is not State.FAILED:
            self.now_s += TICK_S
            ready_s = self.status.ready_s
            if self.engine is None or self.status.launched_s is None:
                self.see()
            elif ready_s is not None and self.now_s - ready_s >= self.life_s:
                gone = EngineExit(code=0, member="VLLM::EngineCor")
                self.see(exited=Exited(engine=self.engine.id, exit=gone))
            elif self.now_s - self.status.launched_s >= LOAD_S:
                seen = Load(running=0, waiting=0, progress=(self.now_s,))
                sample = Sample(engine=self.engine.id, at_s=self.now_s, health=Health.PASSING, load=seen)
                self.see(sample=sample)

    def see(self, **what):
        self.follow(decide(self.status, Observation(**what), self.policy, now_s=self.now_s, jitter=0.0))

    def follow(self, decision):
        self.status = decision.status
        for action in decision.actions:
            self.carry_out(action)

    def carry_out(self, action):
        if isinstance(action, Launch):
            self.starts.append(self.now_s)
            number = len(self.starts)
            self.engine = replace(ENGINE, id=f"{number}:1", pid=number, start=number)
            self.end(action, LaunchDone(ref=self.engine))
        elif isinstance(action, StopEngine):
            self.engine = None
            diagnosis = replace(action.failure, kind=self.kind, remedies=self.remedies)
            self.end(action, StopDone(report=REPORT, diagnosis=diagnosis))
        elif isinstance(action, WarmPrefixes):
            self.end(action, WarmDone(results=(proved(),)))
        elif isinstance(action, SendCanary):
            self.see(
                canary=CanaryResult(engine=action.engine, at_s=self.now_s, answer=Answer.GOOD, took_s=0.1)
            )
        elif isinstance(action, LookAt):
            self.end(action, Looked(holds=True, detail="released"))
        elif isinstance(action, UseOverlay):
            overlaid = apply(Rig(name="box", engine=self.policy.wished), action.steps)
            self.policy = replace(self.policy, engine=overlaid.engine)

    def end(self, action, result):
        self.see(finished=Finished(job=action.job, result=result))


ROADS = [
    pytest.param("unknown", (), id="unknown"),
    pytest.param("worker_died", (RESTART,), id="worker-died"),
    pytest.param(
        "ima_mtp_gdn",
        (
            RESTART,
            Remedy(knob="async_scheduling", change="set", value=False),
            Remedy(knob="speculative", change="remove"),
        ),
        id="illegal-memory-access",
    ),
    pytest.param("post_ready_oom", (), id="memory"),
]


@pytest.mark.parametrize(("kind", "remedies"), ROADS)
def test_engine_that_dies_two_minutes_after_ready_is_given_up_within_its_budget(kind, remedies):
    box = Box(kind, remedies, life_s=120)

    box.live(DAY_S)

    rules = box.policy.supervision
    assert box.status.state is State.FAILED
    assert box.status.gave_up is not None
    assert len(box.starts) <= rules.ladder.boots
    assert box.now_s - NOW_S <= rules.attempts_window_s


@pytest.mark.parametrize("life_s", [400, 900])
@pytest.mark.parametrize(("kind", "remedies"), [ROADS[0], ROADS[-1]])
def test_no_hour_of_a_day_sees_more_starts_than_the_budget(kind, remedies, life_s):
    box = Box(kind, remedies, life_s=life_s)

    box.live(DAY_S)

    rules = box.policy.supervision
    hours = [
        [at for at in box.starts if began <= at < began + rules.attempts_window_s] for began in box.starts
    ]
    assert max(map(len, hours)) <= rules.ladder.boots
