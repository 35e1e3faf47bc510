"""A daemon killed at any step of a remediation: the next one goes on, no step is done twice, and none is lost.

Each story runs once undisturbed, which counts what is stored; then again for each of these times, with the daemon
killed right after it stored (before it acted), and right after it acted. A stored status crosses as JSON.
"""

import contextlib
from dataclasses import dataclass, field, replace

import pytest
from supervise import ENGINE, NOW_S, POLICY, REPORT, WISH, failure, load, proved

from rigd.rig.schema import Rig
from rigd.runtime.base import EngineExit
from rigd.supervise.decide import decide
from rigd.supervise.decision import (
    CancelJob,
    Launch,
    LookAt,
    MoveAside,
    SendCanary,
    StopEngine,
    UseOverlay,
    WarmPrefixes,
)
from rigd.supervise.health import Answer, CanaryResult, Health, Sample
from rigd.supervise.ladder import Remedy
from rigd.supervise.observations import (
    Exited,
    Finished,
    LaunchDone,
    LaunchFailed,
    Looked,
    MovedAside,
    Observation,
    StopDone,
    WarmDone,
)
from rigd.supervise.overlay import apply
from rigd.supervise.resume import resume
from rigd.supervise.state import STATUS, State

STEPS_LIMIT = 400
RULES = POLICY.supervision.model_copy(update={"attempts": 5})


class KilledError(Exception):
    """The daemon is gone."""


@dataclass(kw_only=True)
class Machine:
    """What outlives a daemon: the store, the engine, the caches; and what fails on it."""

    fails: object
    """Takes the machine and the engine section; returns the failure of such a start, or None."""
    shut_for_looks: int = 0
    """Looks for which the condition does not hold."""
    poisoned: bool = False
    away: bool = False
    """Whether the network is away for good, and all that was downloaded is whole."""
    now_s: float = NOW_S
    stored: bytes | None = None
    engine: object = None
    starts: int = 0
    moves: list[int] = field(default_factory=list)
    logs: dict[int, object] = field(default_factory=dict)
    """What the log of each start says went wrong, or None."""

    @property
    def doomed(self):
        """Whether the engine that is loading will end."""
        return self.engine is not None and self.logs[self.engine.start] is not None


class Daemon:
    """The real decisions over a machine, killed after so many times of storing."""

    def __init__(self, machine, *, dies_after=None, acts=False):
        self.machine, self.left, self.acts = machine, dies_after, acts
        self.policy = replace(POLICY, supervision=RULES)
        self.jobs, self.canary, self.status = {}, None, None
        machine.now_s += 1
        found = () if machine.engine is None else (machine.engine,)
        stored = None if machine.stored is None else STATUS.validate_json(machine.stored)
        self.apply(resume(stored, found, self.policy, now_s=machine.now_s))

    def apply(self, decision):
        before, self.status = self.status, decision.status
        if decision.entries or before is None or _kept(before) != _kept(decision.status):
            self.machine.stored = STATUS.dump_json(decision.status)
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    if self.acts:
                        self.act(decision)
                        self.finish_in_the_world()
                    raise KilledError
        self.act(decision)

    def act(self, decision):
        for action in decision.actions:
            if isinstance(action, CancelJob):
                self.jobs.pop(action.job, None)
            elif isinstance(action, SendCanary):
                self.canary = action.engine
            elif isinstance(action, UseOverlay):
                self.policy = replace(
                    self.policy, engine=apply(Rig(name="r", engine=WISH), action.steps).engine
                )
            elif hasattr(action, "job"):
                self.jobs[action.job] = action

    def finish_in_the_world(self):
        """Let what was begun come to its end on the machine, although nobody hears of it."""
        for action in self.jobs.values():
            self.result(action)

    def see(self, **what):
        self.apply(decide(self.status, Observation(**what), self.policy, now_s=self.machine.now_s))

    def run(self):
        """Go on until the engine is ready, or given up."""
        for _ in range(STEPS_LIMIT):
            if self.status.state in {State.READY, State.FAILED} and not self.jobs and self.canary is None:
                return self.status
            self.machine.now_s += 1
            if self.jobs:
                number, action = self.jobs.popitem()
                self.see(finished=Finished(job=number, result=self.result(action)))
            elif self.canary is not None:
                engine, self.canary = self.canary, None
                at_s = self.machine.now_s
                self.see(canary=CanaryResult(engine=engine, at_s=at_s, answer=Answer.GOOD, took_s=0.1))
            elif self.machine.doomed and self.status.engine is not None:
                engine, self.machine.engine = self.machine.engine, None
                self.see(exited=Exited(engine=engine.id, exit=EngineExit(code=1)))
            elif self.machine.engine is not None and self.status.engine is not None:
                at_s = self.machine.now_s
                seen = load(progress=at_s)
                engine = self.machine.engine.id
                self.see(sample=Sample(engine=engine, at_s=at_s, health=Health.PASSING, load=seen))
            else:
                self.see()
        raise AssertionError(f"neither ready nor given up: {self.status}")

    def result(self, action):
        machine = self.machine
        if isinstance(action, Launch):
            assert machine.engine is None, "two engines"
            failed = machine.fails(machine, self.policy.engine)
            if failed is not None and machine.shut_for_looks:
                return LaunchFailed(failure=replace(failed, at_s=machine.now_s))
            machine.starts += 1
            machine.logs[machine.starts] = failed
            machine.engine = replace(ENGINE, id=f"{machine.starts}:1", start=machine.starts)
            return LaunchDone(ref=machine.engine)
        if isinstance(action, StopEngine):
            machine.engine = None
            if action.failure is None:
                return StopDone(report=REPORT)
            said = machine.logs.get(action.failure.start) or action.failure
            return StopDone(report=REPORT, diagnosis=replace(said, start=action.failure.start))
        if isinstance(action, LookAt):
            machine.shut_for_looks = max(0, machine.shut_for_looks - 1)
            holds = machine.shut_for_looks == 0 and not machine.away
            return Looked(holds=holds, detail="taken", whole=machine.away)
        if isinstance(action, MoveAside):
            if machine.poisoned or action.stamp in machine.moves:
                if action.stamp not in machine.moves:
                    machine.moves.append(action.stamp)
                machine.poisoned = False
                return MovedAside(moved=True, detail="moved")
            return MovedAside(moved=False, detail="nothing there")
        assert isinstance(action, WarmPrefixes)
        return WarmDone(results=(proved(),))


def _kept(status):
    return replace(status, vitals=type(status.vitals)())


def out_of_memory(_machine, engine):
    seqs = engine.arguments.max_num_seqs
    return None if seqs <= 2 else failure("oom_sampler_warmup", retry_helps=False)


def poisoned_cache(machine, _engine):
    move = (
        Remedy(knob="compile_cache", change="move_aside"),
        Remedy(knob="environment.VLLM_DISABLE_COMPILE_CACHE", change="set", value="1"),
    )
    return failure("compile_cache_poisoned", remedies=move) if machine.poisoned else None


def port_taken(machine, _engine):
    return failure("port_in_use") if machine.shut_for_looks else None


def network_away(machine, engine):
    online = machine.away and "HF_HUB_OFFLINE" not in engine.environment
    return failure("hf_network") if online else None


STORIES = {
    "two-knobs": (lambda: Machine(fails=out_of_memory), ["max_num_seqs 10 -> 5", "max_num_seqs 5 -> 2"], 0),
    "cache-moved": (lambda: Machine(fails=poisoned_cache, poisoned=True), [], 1),
    "port-waited-for": (lambda: Machine(fails=port_taken, shut_for_looks=4), [], 0),
    "offline": (
        lambda: Machine(fails=network_away, away=True),
        ["environment.HF_HUB_OFFLINE vLLM's default -> 1"],
        0,
    ),
}


def undisturbed(make):
    """Return the machine after an undisturbed story, and how often its daemon stored."""
    machine, stored = make(), 0
    daemon = Daemon.__new__(Daemon)
    original = Daemon.apply

    def counting(self, decision):
        nonlocal stored
        before = self.status
        stored += bool(decision.entries or before is None or _kept(before) != _kept(decision.status))
        original(self, decision)

    try:
        Daemon.apply = counting
        daemon.__init__(machine)
        daemon.run()
    finally:
        Daemon.apply = original
    return machine, stored


@pytest.mark.parametrize("acts", [False, True], ids=["before-it-acted", "after-it-acted"])
@pytest.mark.parametrize("story", STORIES)
def test_next_daemon_goes_on_from_every_stored_step(story, acts):
    make, overlay, moves = STORIES[story]
    whole, stored = undisturbed(make)
    assert stored >= 5

    for number in range(stored):
        machine = make()
        with contextlib.suppress(KilledError):
            Daemon(machine, dies_after=number, acts=acts).run()
        status = Daemon(machine).run()

        assert status.state is State.READY, (number, status.reason)
        assert [str(step) for step in status.overlay] == overlay, number
        assert len(machine.moves) == moves, number
        # One start may be spent where the daemon died with it in hand and its failure was never heard of.
        assert machine.starts <= whole.starts + 1, number


@pytest.mark.parametrize("story", STORIES)
def test_daemon_that_is_killed_again_and_again_still_comes_through(story):
    make, overlay, moves = STORIES[story]
    machine = make()
    for _ in range(60):
        try:
            status = Daemon(machine, dies_after=2, acts=True).run()
        except KilledError:
            continue
        break
    else:
        raise AssertionError("it never came through")

    assert (status.state, [str(step) for step in status.overlay]) == (State.READY, overlay)
    assert len(machine.moves) == moves
