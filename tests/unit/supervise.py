"""Builders of statuses and observations for the supervisor's tests; they refuse impossible states."""

from dataclasses import replace

from rigd.rig.schema import Arguments, Backoff, Engine, Ladder, RuntimeKind, Speculative, Supervision, Warm
from rigd.runtime.base import EngineExit, EngineRef, StopReport
from rigd.supervise.decide import decide
from rigd.supervise.decision import Decision, LookBeforeTrial
from rigd.supervise.health import Answer, CanaryResult, Health, Sample, Vitals
from rigd.supervise.load import Load
from rigd.supervise.moves import Policy
from rigd.supervise.observations import Exited, Finished, Observation, Request, RequestKind, Result, TrialLook
from rigd.supervise.room import Bucket, Room
from rigd.supervise.state import Desired, Failure, Job, JobKind, PrefixWarmth, State, Status

NOW_S = 1_000_000.0
RULES = Supervision(
    stall_deadline_s=40,
    attempts=3,
    attempts_window_s=1000,
    healthy_stretch_s=300,
    backoff=Backoff(initial_s=1, factor=2, max_s=60, jitter=0.1),
    ladder=Ladder(climb_after_s=500),
)
WISH = Engine(
    runtime=RuntimeKind.PROCESS,
    version="0.32.0",
    model="m",
    arguments=Arguments(
        max_num_seqs=10,
        max_num_batched_tokens=4096,
        speculative=Speculative(method="mtp", num_speculative_tokens=3),
    ),
)
POLICY = Policy(
    supervision=RULES,
    warm=Warm(),
    digest="d1",
    engine=WISH,
    wished=WISH,
    basis="d1",
    prefixes=("agents",),
)
NO_PREFIXES = replace(POLICY, prefixes=())

ENGINE = EngineRef(
    runtime=RuntimeKind.PROCESS, id="100:5", pid=100, start=7, digest="d1", created_s=NOW_S - 60
)
OTHER = replace(ENGINE, id="200:9", pid=200, start=8)
WITH_ENGINE = {State.WARMING, State.READY, State.DEGRADED}
WITHOUT_ENGINE = {State.STOPPED, State.BACKOFF, State.FAILED}


def status(state: State, **changes: object) -> Status:
    """Return a status in `state` as the supervisor would have it; `changes` on top."""
    base = Status(state=state, since_s=NOW_S, desired=Desired.RUNNING, reason="test", jobs=3)
    if state in WITH_ENGINE:
        base = replace(base, engine=ENGINE, launched_s=NOW_S - 60, healthy_s=NOW_S - 30, vitals=vitals())
    if state is State.WARMING:
        base = replace(base, job=Job(id=3, kind=JobKind.WARM, began_s=NOW_S))
    if state in {State.READY, State.DEGRADED}:
        base = replace(base, ready_s=NOW_S - 20, warm=(proved(),), warmed_s=NOW_S - 20)
    if state is State.STOPPING:
        base = replace(base, engine=ENGINE, job=Job(id=3, kind=JobKind.STOP, began_s=NOW_S))
    if state is State.STARTING:
        base = replace(base, job=Job(id=3, kind=JobKind.LAUNCH, began_s=NOW_S))
    if state is State.BACKOFF:
        base = replace(base, retry_s=NOW_S + 5, failures=(NOW_S,), streak=1)
    if state is State.STOPPED:
        base = replace(base, desired=Desired.STOPPED)
    made = replace(base, **changes)
    if made.state in WITH_ENGINE and made.engine is None:
        raise AssertionError(f"{made.state} without an engine is impossible")
    if made.state in WITHOUT_ENGINE and made.engine is not None:
        raise AssertionError(f"{made.state} with an engine is impossible")
    return made


def launched(**changes: object) -> Status:
    """Return a status whose engine exists and is loading."""
    loading = {"engine": ENGINE, "launched_s": NOW_S - 10, "job": None, "vitals": Vitals()}
    return status(State.STARTING, **{**loading, **changes})


def healthy(**changes: object) -> Status:
    """Return a status whose engine answers /health and has a canary in flight."""
    vitals_now = Vitals(passing=1, progress_s=NOW_S - 1, canary_sent_s=NOW_S - 1, sample_s=NOW_S)
    return launched(**{"healthy_s": NOW_S - 1, "vitals": vitals_now, **changes})


def vitals(**changes: object) -> Vitals:
    """Return the vitals of an idle engine that answered its last canary just now."""
    base = Vitals(
        sample_s=NOW_S, passing=5, load=load(), progress_s=NOW_S, answered_s=NOW_S, canary=canary_result()
    )
    return replace(base, **changes)


def load(*, running: int = 0, waiting: int = 0, progress: float = 1.0, **more: float) -> Load:
    """Return counters of an engine."""
    return Load(running=running, waiting=waiting, progress=(progress,), **more)


def room(*, span_s: float = 500.0, **seen: float) -> Room:
    """Return the room of an engine that was looked at for `span_s`, and had plenty."""
    bucket = Bucket(began_s=NOW_S - span_s, ended_s=NOW_S, looks=100)
    return Room(buckets=(replace(bucket, **seen),), at_s=NOW_S, load=load())


def proved(prefix: str = "agents") -> PrefixWarmth:
    """Return a prefix proved warm."""
    return PrefixWarmth(
        prefix=prefix, proved=True, sightings=2, prefix_tokens=1000, cached_tokens=992, hit=0.992
    )


def cold(prefix: str = "agents") -> PrefixWarmth:
    """Return a prefix that could not be proved warm."""
    return replace(proved(prefix), proved=False, cached_tokens=0, hit=0.0, detail="0 of 1,000 tokens cached")


def canary_result(
    answer: Answer = Answer.GOOD, *, at_s: float = NOW_S, engine: str = ENGINE.id
) -> CanaryResult:
    """Return a canary's end."""
    return CanaryResult(engine=engine, at_s=at_s, answer=answer, took_s=0.1, detail="'text'")


def sampled(
    health: Health = Health.PASSING, *, at_s: float = NOW_S, engine: str = ENGINE.id, seen: Load | None = None
) -> Observation:
    """Return the observation of one probe."""
    return Observation(sample=Sample(engine=engine, at_s=at_s, health=health, load=seen, detail="probe"))


def answered(answer: Answer = Answer.GOOD, *, at_s: float = NOW_S) -> Observation:
    """Return the observation of a canary's end."""
    return Observation(canary=canary_result(answer, at_s=at_s))


def finished(result: Result, job: int = 3) -> Observation:
    """Return the observation of a job's end."""
    return Observation(finished=Finished(job=job, result=result))


def idle_at_last(now: Status, policy: Policy, **look: object) -> Decision:
    """Return the decision after time has passed, and the engine was asked once more where that is due."""
    decision = decide(now, Observation(), policy, now_s=NOW_S)
    if not any(isinstance(action, LookBeforeTrial) for action in decision.actions):
        return decision
    asked = decision.status
    result = TrialLook(**{"load": asked.vitals.load, **look})
    return decide(asked, finished(result, job=asked.job.id), policy, now_s=NOW_S)


def exited(code: int | None = 0, *, engine: str = ENGINE.id, **more: object) -> Observation:
    """Return the observation of an engine's end."""
    return Observation(exited=Exited(engine=engine, exit=EngineExit(code=code, **more)))


def asked(kind: RequestKind, **more: object) -> Observation:
    """Return the observation of a request."""
    return Observation(request=Request(id=1, kind=kind, **more))


def failure(kind: str = "engine_exited", **changes: object) -> Failure:
    """Return a failure noticed just now."""
    return replace(Failure(kind=kind, sentence="The engine ended.", at_s=NOW_S, start=7), **changes)


REPORT = StopReport(processes=4, killed=0, survivors=(), took_s=0.5)
