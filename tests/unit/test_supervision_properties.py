"""What holds for every schedule of faults, exits, probe errors, requests and daemon deaths."""

import os
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from supervise import ENGINE, NOW_S, POLICY, REPORT, WISH, cold, failure, load, proved
from supervise import status as serving_status

from rigd.rig.schema import Rig
from rigd.runtime.base import EngineExit
from rigd.supervise.baselines import Baseline
from rigd.supervise.decide import decide
from rigd.supervise.decision import (
    CancelJob,
    CheckConfiguration,
    EndExtra,
    Launch,
    LookAt,
    LookBeforeTrial,
    MoveAside,
    RememberGood,
    SendCanary,
    StopEngine,
    UseKnownGood,
    UseOverlay,
    UseSpecification,
    WarmPrefixes,
)
from rigd.supervise.health import Answer, CanaryResult, Health, Sample
from rigd.supervise.ladder import Move, Remedy
from rigd.supervise.memory_trend import GIB, MemorySample
from rigd.supervise.observations import (
    CheckDone,
    Exited,
    Finished,
    LaunchDone,
    LaunchFailed,
    Looked,
    MovedAside,
    Observation,
    Request,
    RequestKind,
    StopDone,
    StopFailed,
    TrialLook,
    WarmDone,
)
from rigd.supervise.overlay import OPERATOR, KnobStep, apply
from rigd.supervise.resume import resume
from rigd.supervise.slow_answers import ANSWERED
from rigd.supervise.state import Desired, State

KINDS = st.sampled_from(
    [
        "unknown",
        "oom_sampler_warmup",
        "engine_stalled",
        "worker_died",
        "kv_small",
        "bad_cli",
        "port_in_use",
        "gpu_mem_busy",
        "disk_full",
        "runtime_unavailable",
        "compile_cache_poisoned",
        "weights_corrupt",
        "hf_network",
    ]
)
STEPS = {
    "compile_cache_poisoned": (
        Remedy(knob="compile_cache", change="move_aside"),
        Remedy(knob="environment.VLLM_DISABLE_COMPILE_CACHE", change="set", value="1"),
    ),
    "gpu_mem_busy": (Remedy(knob="gpu_memory_utilization", change="set", value=0.88),),
}
LADDER = {
    "climb_after_s": 40,
    "most_max_num_seqs": 16,
    "climb_idle_s": 30,
    "wait_s": 300,
    "wait_memory_s": 60,
}
TRENDS = {
    "acceptance_draft_tokens": 50,
    "undrafted_tokens": 50,
    "preemption_stretch_s": 4,
    "preemptions": 3,
    "idle_wait_s": 30,
    "again_s": 400,
    "memory_stretch_s": 40,
    "pool_accept_s": 500,
}
RULES = POLICY.supervision.model_copy(
    update={
        "ladder": POLICY.supervision.ladder.model_copy(update=LADDER),
        "trends": POLICY.supervision.trends.model_copy(update=TRENDS),
        "healthy_stretch_s": 60,
    }
)
COUNTERS = (
    "generation_tokens",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "preemptions",
    "successes",
)
SETTLED = {State.READY, State.DEGRADED, State.FAILED, State.STOPPED, State.MAINTENANCE}
TICKS = 3


class World(RuleBasedStateMachine):
    """A world with at most one engine, driven by the decisions and by chance."""

    def __init__(self):
        super().__init__()
        self.now_s = NOW_S
        self.policy = replace(POLICY, supervision=RULES)
        self.engine = None
        self.jobs = {}
        self.canary = None
        self.kind = "unknown"
        self.number = 0
        self.automatic_launches = []
        self.requested = False
        self.launched_with = ()
        self.held = True
        self.moved = {}
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.pool = 1000
        self.own = 10 * GIB
        self.told = set()
        self.good = ("", WISH)
        self.just_started = True
        self.pool_restarts = {}

    @initialize(serving=st.booleans())
    def first_daemon(self, serving):
        if not serving:
            self.apply(resume(None, (), self.policy, now_s=self.now_s))
            return
        # Schedules are too short to serve for long from nothing: half of them begin there.
        self.engine = ENGINE
        whole = Baseline(digest=ENGINE.digest, start=1, startup_s=10.0, pool_tokens=1000, acceptance=0.5)
        long_s = self.now_s - 2 * RULES.healthy_stretch_s
        self.status = serving_status(State.READY, baselines=(whole,), ready_s=long_s, launched_s=long_s - 10)

    def apply(self, decision):
        before = getattr(self, "status", None)
        self.status = decision.status
        if (
            before is not None
            and before.state is State.MAINTENANCE
            and self.status.state is State.MAINTENANCE
        ):
            touching = [
                action for action in decision.actions if not isinstance(action, UseOverlay | UseKnownGood)
            ]
            assert touching == [], "an action in maintenance"
        self.hear(decision)
        waits = before is not None and before.pending is not None and before.pending.move is Move.WAIT
        for action in decision.actions:
            if isinstance(action, Launch) and waits and not self.requested:
                assert self.held, "a launch although the condition does not hold"
            self.begin(action)
        if waits and self.status.pending is not None:
            assert (self.status.boots, self.status.failures) == (before.boots, before.failures), (
                "a wait is free"
            )

    def hear(self, decision):
        """Check that troubles begin and end once each, and that a pool earns one restart."""
        for entry in decision.entries:
            kind = dict(entry.data).get("class")
            if entry.kind == "trend":
                assert kind not in self.told, "told twice"
                self.told.add(kind)
            elif entry.kind == "trend-over":
                assert kind in self.told, "over without having begun"
                self.told.remove(kind)
            elif entry.kind == "pool-restart":
                digest = self.status.engine.digest
                self.pool_restarts[digest] = self.pool_restarts.get(digest, 0) + 1
                assert self.pool_restarts[digest] == 1, "started again for the pool twice"
        if self.status.state in {State.READY, State.DEGRADED} and self.status.engine is not None:
            self.pool_restarts.pop(self.status.engine.digest, None)
        for action in decision.actions:
            if isinstance(action, StopEngine) and action.failure and action.failure.kind in ANSWERED:
                seen = self.status.vitals.load
                since_s = min(one.grave_s for one in self.status.troubles if one.grave_s is not None)
                idle = seen is not None and seen.running + seen.waiting == 0
                again = self.status.state is State.STOPPING and self.now_s - self.status.since_s > 0
                again = again or self.requested  # A new daemon goes on with what the old one began.
                assert idle or again or self.now_s - since_s >= TRENDS["idle_wait_s"], "not while it works"

    def begin(self, action):
        if isinstance(action, CancelJob):
            self.jobs.pop(action.job, None)
        elif isinstance(action, SendCanary):
            assert self.status.engine is not None
            self.canary = action.engine
        elif isinstance(action, UseSpecification | UseOverlay | RememberGood | UseKnownGood):
            self.use(action)
        elif isinstance(action, EndExtra):
            raise AssertionError("there never is a second engine to end")
        else:
            assert not self.jobs, "two jobs at once"
            if isinstance(action, LookAt | MoveAside):
                assert self.engine is None
            if isinstance(action, MoveAside):
                aside = self.status.asides[-1]
                assert (aside.cache, aside.stamp) == (action.cache, action.stamp), "noted before it is done"
                once = self.moved.setdefault((aside.cache, aside.kind, aside.basis), aside.stamp)
                assert once == aside.stamp, "moved aside twice"
            self.jobs[action.job] = action
            if isinstance(action, Launch):
                assert self.engine is None, "a launch while an engine is there"
                own = [step for step in self.status.overlay if step.kind != OPERATOR]
                turned = [step for step in own if step not in self.launched_with]
                assert self.requested or len(turned) <= 1, "two knobs in one boot"
                self.launched_with = self.status.overlay
                below = self.good[1] if self.status.fallback_from else WISH
                assert self.policy.engine == apply(Rig(name="r", engine=below), self.status.overlay).engine
                if not self.requested:
                    self.automatic_launches.append(self.now_s)

    def use(self, action):
        if isinstance(action, UseSpecification):
            self.policy = replace(self.policy, digest=action.digest, basis=action.digest, engine=WISH)
        elif isinstance(action, UseOverlay):
            rig = apply(Rig(name="r", engine=self.good[1] if action.on_good else WISH), action.steps)
            self.policy = replace(self.policy, engine=rig.engine)
        elif isinstance(action, RememberGood):
            self.good = (action.digest, self.policy.engine)
        else:
            digest, engine = self.good
            self.policy = replace(self.policy, digest=digest, engine=engine)

    def see(self, requested=False, **what):
        self.requested, self.just_started = requested, False
        self.apply(decide(self.status, Observation(**what), self.policy, now_s=self.now_s, jitter=0.0))
        self.requested = False

    @rule(seconds=st.sampled_from([0.1, 0.5, 1, 2, 5, 30, 400]))
    def time_passes(self, seconds):
        self.now_s += seconds
        self.see()

    @precondition(lambda self: self.jobs)
    @rule(good=st.sampled_from([True, True, True, False]), useless=st.booleans(), kind=KINDS)
    def job_ends(self, good, useless, kind):
        self.kind = kind
        number, action = next(iter(self.jobs.items()))
        del self.jobs[number]
        self.see(finished=Finished(job=number, result=self.result(action, good, useless)))

    def result(self, action, good, useless):
        if isinstance(action, Launch):
            if not good:
                steps = STEPS.get(self.kind, ())
                sad = failure(self.kind, retry_helps=not useless, at_s=self.now_s, remedies=steps)
                return LaunchFailed(failure=sad, temporary=useless)
            self.number += 1
            digest = self.policy.digest
            self.engine = replace(
                ENGINE, id=f"{self.number}:1", pid=self.number, start=self.number, digest=digest
            )
            self.counters = dict.fromkeys(COUNTERS, 0)
            self.pool = 600 if useless else 1000
            return LaunchDone(ref=self.engine)
        if isinstance(action, StopEngine):
            if not good:
                return StopFailed(message="Docker is away")
            self.engine = None
            steps = STEPS.get(self.kind, ())
            diagnosed = action.failure
            if diagnosed is not None and diagnosed.kind not in ANSWERED:
                diagnosed = replace(diagnosed, kind=self.kind, remedies=steps)
            return StopDone(report=REPORT, diagnosis=diagnosed)
        if isinstance(action, LookAt):
            self.held = good
        return {
            WarmPrefixes: WarmDone(results=(proved() if good else cold(),)),
            LookAt: Looked(holds=good, detail="seen", whole=useless),
            MoveAside: MovedAside(moved=good, detail="moved"),
            LookBeforeTrial: TrialLook(load=self.status.vitals.load if good else None, holds=not useless),
            CheckConfiguration: CheckDone(accepted=good, message="said"),
        }[type(action)]

    @precondition(lambda self: self.engine is not None)
    @rule(code=st.sampled_from([0, 1, 137, None]), member=st.sampled_from([None, "VLLM::EngineCor"]))
    def engine_ends(self, code, member):
        engine, gone = self.engine, EngineExit(code=code, member=member)
        if member is None:
            self.engine = None
        self.see(exited=Exited(engine=engine.id, exit=gone))

    @precondition(lambda self: self.engine is not None)
    @rule(
        health=st.sampled_from([Health.PASSING, *Health]),
        running=st.integers(0, 2),
        waiting=st.sampled_from([0, 0, 3]),
        progress=st.integers(0, 3),
    )
    def probe_reports(self, health, running, waiting, progress):
        seen = None
        if health is Health.PASSING:
            seen = self.load(running=running, waiting=waiting, progress=progress)
        self.now_s += 2
        self.see(sample=Sample(engine=self.engine.id, at_s=self.now_s, health=health, load=seen))

    def load(self, **more):
        return load(**{"pool_tokens": self.pool, **self.counters, **more})

    @precondition(lambda self: self.engine is not None)
    @rule(
        accepted=st.sampled_from([0, 0, 30]),
        drafts=st.sampled_from([0, 20, 20]),
        preemptions=st.sampled_from([0, 4]),
        looks=st.integers(1, 5),
        running=st.integers(0, 1),
    )
    def work_is_done(self, accepted, drafts, preemptions, looks, running):
        for _ in range(looks):
            if self.engine is None:
                return
            self.counters["generation_tokens"] += 60
            self.counters["drafts"] += drafts
            self.counters["draft_tokens"] += 3 * drafts
            self.counters["accepted_tokens"] += min(accepted, 3 * drafts)
            self.counters["preemptions"] += preemptions
            self.now_s += 2
            seen = self.load(running=running, progress=self.now_s)
            self.see(sample=Sample(engine=self.engine.id, at_s=self.now_s, health=Health.PASSING, load=seen))

    @precondition(lambda self: self.engine is not None)
    @rule(gib=st.sampled_from([0.0, 0.2]), readings=st.integers(1, 10))
    def memory_is_read(self, gib, readings):
        for _ in range(readings):
            self.now_s += 3
            self.own += gib * GIB
            self.see(
                memory=MemorySample(
                    engine=self.engine.id, at_s=self.now_s, own_bytes=int(self.own), left_bytes=4 << 30
                )
            )

    @precondition(lambda self: self.status.state is State.READY and self.engine is not None and not self.jobs)
    @rule(waiting=st.sampled_from([0, 3]), seconds=st.sampled_from([45, 70, 110]))
    def all_is_calm(self, waiting, seconds):
        """Pass a stretch of good looks; at each the engine has made progress, and at the last it is idle."""
        until_s = self.now_s + seconds
        while self.now_s < until_s and self.status.state is State.READY and not self.jobs:
            self.now_s += 5
            busy = 0 if self.now_s >= until_s else 2
            seen = load(running=busy, waiting=waiting * (busy > 0), progress=self.now_s)
            self.see(sample=Sample(engine=self.engine.id, at_s=self.now_s, health=Health.PASSING, load=seen))
            if self.canary is not None:
                engine, self.canary = self.canary, None
                good = CanaryResult(engine=engine, at_s=self.now_s, answer=Answer.GOOD, took_s=0.1)
                self.see(canary=good)

    @precondition(lambda self: self.canary is not None)
    @rule(answer=st.sampled_from([Answer.GOOD, Answer.GOOD, *Answer]))
    def canary_returns(self, answer):
        engine, self.canary = self.canary, None
        self.see(canary=CanaryResult(engine=engine, at_s=self.now_s, answer=answer, took_s=0.1, detail="'x'"))

    @rule(kind=st.sampled_from(list(RequestKind)), digest=st.sampled_from([None, "d1", "d2"]))
    def operator_asks(self, kind, digest):
        found = (self.engine,) if self.engine is not None else ()
        if kind is RequestKind.MAINTENANCE_OFF and self.jobs:
            return
        self.automatic_launches.clear()
        step = KnobStep(knob="max_num_seqs", old=10, new=3, kind=OPERATOR, sentence="asked")
        self.see(requested=True, request=Request(id=1, kind=kind, digest=digest, found=found, step=step))

    @rule()
    def daemon_is_killed_and_started_again(self):
        self.jobs.clear()
        self.canary = None
        self.requested = True
        found = (self.engine,) if self.engine is not None else ()
        self.apply(resume(self.status, found, self.policy, now_s=self.now_s))
        self.just_started = True
        self.requested = False

    @invariant()
    def failed_says_why(self):
        if getattr(self, "status", None) is not None and self.status.state is State.FAILED:
            assert self.status.gave_up is not None
            assert len(self.status.reason) > 10

    @invariant()
    def troubles_are_of_the_engine_in_hand(self):
        status = getattr(self, "status", None)
        if status is None:
            return
        engine = "" if status.engine is None else status.engine.id
        known = {one.engine for one in status.troubles}
        # A daemon that has just started has not decided anything yet.
        assert known <= {engine} or self.just_started
        after = self.in_a_moment(status)
        assert (
            after.state is not State.READY
            or not any(one.degrades for one in after.troubles)
            or (after.job is not None or self.just_started)
        )

    def in_a_moment(self, status):
        """Return what the next ticks make of it: a job that is overdue, or a canary, goes before the state."""
        for _ in range(TICKS):
            if status.state is State.READY and status.job is None:
                status = decide(status, Observation(), self.policy, now_s=self.now_s).status
        return status

    @invariant()
    def launches_stay_within_the_budget(self):
        rules = self.policy.supervision
        recent = [at for at in self.automatic_launches if self.now_s - at < rules.attempts_window_s]
        healthy = rules.attempts_window_s / rules.healthy_stretch_s
        # A temporary trouble of the runtime and each daemon's start are counted by the same budget.
        assert len(recent) <= rules.ladder.boots + healthy + 40

    def teardown(self):
        """Whatever happened: once the world behaves, the engine serves, or rigd says why it does not."""
        if not hasattr(self, "status"):
            return
        for _ in range(400):
            if self.status.state in SETTLED and not self.jobs and self.canary is None:
                break
            self.now_s += 2
            if self.jobs:
                number, action = next(iter(self.jobs.items()))
                del self.jobs[number]
                self.see(finished=Finished(job=number, result=self.result(action, True, False)))
            elif self.canary is not None:
                engine, self.canary = self.canary, None
                good = CanaryResult(engine=engine, at_s=self.now_s, answer=Answer.GOOD, took_s=0.1)
                self.see(canary=good)
            elif self.engine is not None:
                seen = self.load(progress=self.now_s)
                self.see(
                    sample=Sample(engine=self.engine.id, at_s=self.now_s, health=Health.PASSING, load=seen)
                )
                if self.status.engine is None and self.status.state is not State.BACKOFF:
                    break
            else:
                self.see()
                if self.status.engine is not None:  # It ended while nobody looked: its watcher says so.
                    gone = Exited(engine=self.status.engine.id, exit=EngineExit(code=None))
                    self.see(exited=gone)
        assert self.status.state in SETTLED, self.status
        if self.status.state is State.STOPPED:
            assert self.status.desired is Desired.STOPPED


World.TestCase.settings = settings(
    max_examples=int(os.environ.get("RIGD_SCHEDULES", "300")),  # 10,000 take some two minutes
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSupervision = World.TestCase
