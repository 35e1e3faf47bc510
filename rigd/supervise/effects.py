"""Carries out what `decide` asks for: one task a job, one watcher and one prober an engine. Makes no choice.

What does not belong here: thresholds, retries, states. Those are decisions.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rigd import log
from rigd.adapters.store import Store
from rigd.adapters.vllm import VllmClient
from rigd.errors import RigdError, explain, hint_of
from rigd.runtime import startlog
from rigd.runtime.base import CheckReport, EngineRef, Presence, Runtime, RuntimeUnavailableError
from rigd.runtime.secrets import resolve_api_key
from rigd.supervise import known_good, looking
from rigd.supervise.card_room import ReadCards, with_room
from rigd.supervise.decision import (
    Action,
    CancelJob,
    CheckConfiguration,
    EndExtra,
    Entry,
    Launch,
    LookAt,
    LookBeforeTrial,
    MoveAside,
    RememberGood,
    SendCanary,
    StopEngine,
    UseKnownGood,
    UseOverlay,
    UseRules,
    UseSpecification,
    WarmPrefixes,
)
from rigd.supervise.ending import AfterStop, BeforeStop, HostSays, end_engine
from rigd.supervise.knobs import UnknownKnobError
from rigd.supervise.launching import LaunchJob
from rigd.supervise.live import Board, Live
from rigd.supervise.memory_watch import watch_memory
from rigd.supervise.moves import Policy
from rigd.supervise.observations import (
    CheckDone,
    Exited,
    Finished,
    LaunchFailed,
    Looked,
    MovedAside,
    Observation,
    Result,
    StopFailed,
    TrialLook,
    WarmDone,
)
from rigd.supervise.plan import Plan
from rigd.supervise.probes import load_of, send_canary, watch_health
from rigd.supervise.start_follower import StartFollower
from rigd.supervise.state import STATUS, Failure, State, Status
from rigd.supervise.warming import Warmer

LOOK_AGAIN_S = 2.0
"""Pause before a watcher that lost its runtime (Docker restarting) looks again, in seconds."""
UNSTORED: dict[str, set[str]] = {"vitals": {"track"}}
"""What of the status each daemon measures afresh, and is too long to be written with every change."""


class EngineEffects:
    """The effects of one rig."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        state_dir: Path,
        make_runtime: Callable[[Plan], Runtime],
        now: Callable[[], float],
        report: Callable[[Observation], None],
        board: Board,
    ) -> None:
        self.wish = plan
        """The rig file as it is."""
        self.plan = plan
        """What is in effect: the wish, and the overlay on top."""
        self.runtime = make_runtime(plan)
        self.before_stop: BeforeStop | None = None
        self.after_stop: AfterStop | None = None
        self.host_says: HostSays | None = None
        self.read_cards: ReadCards | None = None
        self._plans = {plan.spec.digest: plan}
        self._make_runtime = make_runtime
        self._store = store
        self._state_dir = state_dir
        self._now = now
        self._report = report
        self._board = board
        self._listeners: list[Callable[[float, tuple[Entry, ...]], None]] = []
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._launches: dict[int, LaunchJob] = {}
        self._canary: asyncio.Task[None] | None = None
        self._loose: set[asyncio.Task[object]] = set()
        self._engine: EngineRef | None = None
        self._watchers: list[asyncio.Task[None]] = []
        self._probes: list[asyncio.Task[None]] = []
        self._follower = StartFollower(store, board, state_dir=state_dir, now=now)
        self._clients: dict[str, VllmClient] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._warmer = Warmer(plan.rig, plan.path.resolve().parent, now=now, board=board)
        self._log = log.get("effects")
        self._how: dict[type, Callable[[Any], None]] = {
            Launch: self._begin_launch,
            StopEngine: self._begin_stop,
            WarmPrefixes: self._begin_warm,
            CheckConfiguration: self._begin_check,
            LookAt: self._begin_look,
            LookBeforeTrial: self._begin_trial_look,
            MoveAside: self._begin_move,
            SendCanary: self._begin_canary,
            CancelJob: lambda action: self._cancel(action.job),
            EndExtra: lambda action: self._spawn(self._end_extra(action.ref)),
            UseSpecification: self._use_specification,
            UseOverlay: lambda action: self._use(self._with_overlay(action)),
            UseKnownGood: lambda _action: self._use(known_good.recall(self.wish, self._state_dir)),
            UseRules: self._use_rules,
            RememberGood: lambda action: self._spawn(
                asyncio.to_thread(known_good.keep, self._plans[action.digest], self._state_dir)
            ),
        }

    def on_journal(self, listener: Callable[[float, tuple[Entry, ...]], None]) -> None:
        """Call `listener` with the time and the entries whenever the journal grows."""
        self._listeners.append(listener)

    # What the loop asks for.

    def offer(self, plan: Plan) -> None:
        """Make a plan known by its digest, so that a decision may name it."""
        self._plans[plan.spec.digest] = plan

    @property
    def policy(self) -> Policy:
        """The policy of the plan in effect, which knows the wish as well."""
        return self.plan.policy(self.wish)

    async def persist(self, status: Status, entries: tuple[Entry, ...]) -> None:
        """Store status and journal; a store in trouble keeps both in memory and says so itself."""
        await self._store.save_status(STATUS.dump_json(status, exclude=UNSTORED).decode())
        if entries:
            await self.journal(*entries)

    async def journal(self, *entries: Entry) -> None:
        """Append to the journal and tell whoever listens."""
        at_s = self._now()
        rows = [(at_s, entry.kind, entry.message, json.dumps(dict(entry.data))) for entry in entries]
        await self._store.append_events(rows)
        for listener in self._listeners:
            listener(at_s, entries)

    def begin(self, action: Action) -> None:
        """Begin to carry out an action; its result comes back as an observation."""
        how: Callable[[Any], None] = self._how[type(action)]
        how(action)

    def attend(self, status: Status) -> None:
        """Watch and probe the engine of `status`, and nothing else; none in maintenance."""
        engine = None if status.state is State.MAINTENANCE else status.engine
        if engine != self._engine:
            self._leave()
            self._engine = engine
            if engine is not None:
                self._take_up(engine)
        loading = engine is not None and status.healthy_s is None and status.state is State.STARTING
        if self._follower.task is not None and not loading:
            self._end_following(status)

    async def close(self) -> None:
        """End every task and client; the engine stays as it is."""
        tasks = [*self._jobs.values(), *self._loose, *self._watchers, *self._probes]
        tasks += [task for task in (self._canary, self._follower.task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.aclose()
        for runtime in {
            id(runtime): runtime for runtime in (self.runtime, *self._runtimes.values())
        }.values():
            await runtime.close()

    # Jobs.

    def _job(self, number: int, work: Coroutine[Any, Any, Result], otherwise: Result) -> None:
        task = asyncio.create_task(self._run_job(number, work, otherwise), name=f"job {number}")
        self._jobs[number] = task
        task.add_done_callback(lambda _task: self._jobs.pop(number, None))

    async def _run_job(self, number: int, work: Coroutine[Any, Any, Result], otherwise: Result) -> None:
        result = otherwise
        try:
            result = await work
        except RigdError as error:
            result = _with_text(otherwise, explain(error))
        except Exception as error:  # noqa: BLE001  (a job's bug must come back as a result, or the loop waits)
            self._log.exception("job failed", job=number)
            result = _with_text(otherwise, f"{type(error).__name__}: {error}")
        self._report(Observation(finished=Finished(job=number, result=result)))

    def _begin_stop(self, action: StopEngine) -> None:
        runtime = self._runtime_of(action.ref)
        self._job(action.job, self._stop(action, runtime), StopFailed(message="cannot stop the engine"))

    def _begin_warm(self, action: WarmPrefixes) -> None:
        self._job(action.job, self._warm(), WarmDone(results=(), complete=False, detail="failed"))

    def _begin_check(self, action: CheckConfiguration) -> None:
        unasked = CheckDone(accepted=None, message="could not be asked")
        self._job(action.job, self._check(action), unasked)

    def _begin_look(self, action: LookAt) -> None:
        otherwise = Looked(holds=False, detail="could not look")
        self._job(action.job, looking.look(action.condition, self._surface()), otherwise)

    def _begin_trial_look(self, action: LookBeforeTrial) -> None:
        self._job(action.job, self._look_before_trial(action), TrialLook(load=None))

    async def _look_before_trial(self, action: LookBeforeTrial) -> TrialLook:
        condition = Looked(holds=True)
        if action.condition:
            condition = await looking.look(action.condition, self._surface())
        # The counters come last: what they say is as fresh as it can be when the engine is stopped.
        counters = await self.client.counters(self.plan.rig.supervision.probe_timeout_s)
        load = None if counters is None else load_of(counters)
        return TrialLook(load=load, holds=condition.holds, detail=condition.detail)

    def _surface(self) -> looking.Surface:
        return looking.Surface(plan=self.plan, runtime=self.runtime, hold=lambda: self._board.hold)

    def _begin_move(self, action: MoveAside) -> None:
        otherwise = MovedAside(moved=False, detail="could not be moved")
        work = looking.move(action.cache, action.stamp, self.plan, show=self._checking())
        self._job(action.job, work, otherwise)
        self._jobs[action.job].add_done_callback(lambda _task: self._board.show(None))

    def _checking(self) -> Callable[[str, float], None]:
        """Return what shows that a download is being checked; it may be called from any thread."""
        loop, began_s = asyncio.get_running_loop(), self._now()

        def show(name: str, share: float) -> None:
            live = Live(phase="checking the download", detail=name, fraction=share, since_s=began_s)
            loop.call_soon_threadsafe(self._board.show, live)

        return show

    def _use_specification(self, action: UseSpecification) -> None:
        self.wish = self._plans[action.digest]
        self._use(self.wish)

    def _begin_launch(self, action: Launch) -> None:
        launch = LaunchJob(
            plan=self.plan,
            runtime=self.runtime,
            store=self._store,
            state_dir=self._state_dir,
            board=self._board,
            now=self._now,
        )
        self._launches[action.job] = launch
        failure = Failure(
            kind="launch_failed", sentence="The engine could not be launched.", at_s=self._now()
        )
        self._job(action.job, launch.run(), LaunchFailed(failure=failure))
        self._jobs[action.job].add_done_callback(lambda _task: self._launches.pop(action.job, None))

    def _cancel(self, number: int) -> None:
        launch = self._launches.get(number)
        if launch is not None:
            launch.cancel()  # It ends by itself, and takes back what it created; a stop waits for that.
        elif (task := self._jobs.get(number)) is not None:
            task.cancel()

    async def _stop(self, action: StopEngine, runtime: Runtime) -> Result:
        launching = [self._jobs[number] for number in self._launches if number in self._jobs]
        limits = self.plan.rig.supervision.deadlines
        if launching:
            await asyncio.wait(launching, timeout=limits.create_s)
        return await end_engine(
            action,
            runtime,
            stop_s=limits.stop_s,
            state_dir=self._state_dir,
            store=self._store,
            now=self._now,
            before_stop=self.before_stop,
            after_stop=self.after_stop,
            host_says=self.host_says,
            room=self._with_room,
        )

    async def _with_room(self, failure: Failure) -> Failure:
        return (
            failure if self.read_cards is None else await with_room(failure, self.plan.spec, self.read_cards)
        )

    async def _warm(self) -> WarmDone:
        client = self._client(self.plan)
        done = await self._warmer.run(client)
        start = self._engine.start if self._engine is not None else 0
        for result in done.results:
            text = TypeAdapter(type(result)).dump_json(result).decode()
            await self._store.record_warm(start, result.prefix, result.at_s, text)
        return done

    async def check(self, plan: Plan) -> CheckReport:
        """Ask the engine's own parser about a plan, without touching a running engine."""
        limit_s = plan.rig.supervision.deadlines.check_s
        return await self._make_runtime(plan).check(plan.spec, deadline_s=limit_s)

    async def _check(self, action: CheckConfiguration) -> CheckDone:
        report = await self.check(self._plans[action.digest])
        return CheckDone(accepted=report.accepted, message=report.message)

    def _begin_canary(self, action: SendCanary) -> None:
        if self._canary is not None:
            self._canary.cancel()
        self._canary = asyncio.create_task(self._send_canary(action), name="canary")

    async def _send_canary(self, action: SendCanary) -> None:
        result = await send_canary(
            self._client(self.plan),
            action.engine,
            self.plan.rig.supervision,
            timeout_s=action.timeout_s,
            now=self._now,
        )
        self._report(Observation(canary=result))

    async def _end_extra(self, ref: EngineRef) -> None:
        rules = self.plan.rig.supervision
        try:
            await self.runtime.stop(ref, grace_s=rules.stop_grace_s, deadline_s=rules.deadlines.stop_s)
        except RigdError as error:
            self._log.warning("cannot end an extra engine", engine=ref.id, error=explain(error))

    def _with_overlay(self, action: UseOverlay) -> Plan:
        below = known_good.recall(self.wish, self._state_dir) if action.on_good else self.wish
        try:
            return below.with_overlay(action.steps)
        except (RigdError, UnknownKnobError) as error:
            # A change that this version of rigd or vLLM no longer knows: better the wish than nothing.
            self._log.error("the overlay cannot be used; doing without it", error=explain(error))
            return below

    def _use(self, plan: Plan) -> None:
        self._plans[plan.spec.digest] = plan
        self.plan = plan
        self.runtime = self._make_runtime(plan)
        self._warmer = Warmer(plan.rig, plan.path.resolve().parent, now=self._now, board=self._board)

    def _use_rules(self, action: UseRules) -> None:
        """Go by the rig file as it was offered; the engine in hand is probed by its rules from now on."""
        self.wish = self._plans[self.wish.spec.digest]
        self._use(self._with_overlay(UseOverlay(steps=action.steps, on_good=action.on_good)))
        if self._engine is not None:
            for task in self._probes:
                task.cancel()
            self._probes = self._begin_probes(self._engine)

    # The engine in hand.

    def _runtime_of(self, ref: EngineRef | None) -> Runtime:
        return self.runtime if ref is None else self._runtimes.get(ref.id, self.runtime)

    def _take_up(self, ref: EngineRef) -> None:
        self._runtimes = {ref.id: self._runtime_of(ref)}
        self._watchers = [asyncio.create_task(self._watch(ref), name="watch")]
        self._probes = self._begin_probes(ref)
        self._follower.begin(ref)

    def _begin_probes(self, ref: EngineRef) -> list[asyncio.Task[None]]:
        rules = self.plan.rig.supervision

        def sampled(sample: Any) -> None:
            self._report(Observation(sample=sample))

        container = self.plan.spec.container
        memory = watch_memory(
            ref,
            every_s=rules.trends.memory_interval_s,
            limit_bytes=None if container is None else container.memory,
            now=self._now,
            report=lambda sample: self._report(Observation(memory=sample)),
        )
        return [
            asyncio.create_task(
                watch_health(self._client(self.plan), ref.id, rules, now=self._now, report=sampled),
                name="probe",
            ),
            asyncio.create_task(memory, name="memory"),
        ]

    def _end_following(self, status: Status) -> None:
        if status.healthy_s is None or status.engine is None:
            self._follower.leave()
        elif phases := self._follower.finish(status.engine, status.healthy_s):
            text = json.dumps(phases)
            self._spawn(
                self._store.update_start(status.engine.start, ready_s=status.healthy_s, phases_json=text)
            )

    def _leave(self) -> None:
        for task in (*self._watchers, *self._probes):
            task.cancel()
        if self._canary is not None:
            self._canary.cancel()
        self._follower.leave()
        self._watchers, self._probes, self._canary = [], [], None

    async def _watch(self, ref: EngineRef) -> None:
        """Report the engine's end, by event; survive a runtime that goes away and comes back."""
        runtime = self._runtime_of(ref)
        folder = startlog.folder_of(self._state_dir, ref.start)
        followed = False
        while True:
            try:
                if not followed:
                    await runtime.follow(ref, folder)
                    followed = True
                gone = await runtime.wait_exit(ref)
            except RuntimeUnavailableError:
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            except RigdError as error:
                self._log.warning("cannot watch the engine", engine=ref.id, error=explain(error))
                await asyncio.sleep(LOOK_AGAIN_S)
                seen = await runtime.look(ref)
                if seen.presence is Presence.RUNNING:
                    continue
                self._report(Observation(seen=seen))
                return
            self._report(Observation(exited=Exited(engine=ref.id, exit=gone)))
            return

    @property
    def client(self) -> VllmClient:
        """Client of the engine in hand."""
        return self._client(self.plan)

    def _client(self, plan: Plan) -> VllmClient:
        known = self._clients.get(plan.spec.digest)
        if known is None:
            known = VllmClient(plan.spec.base_url, model=plan.spec.served_model_name, api_key=self._key(plan))
            self._clients[plan.spec.digest] = known
        return known

    def _key(self, plan: Plan) -> str | None:
        """Return the key that the engine asks for; without it the canary is refused, and says so."""
        try:
            return resolve_api_key(plan.spec)
        except RigdError as error:
            self._log.warning("the engine's key cannot be read", error=explain(error), hint=hint_of(error))
            return None

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._loose.add(task)
        task.add_done_callback(self._loose.discard)


def _with_text(result: Result, text: str) -> Result:
    """Return the fallback result of a job that failed, with what went wrong in it."""
    if isinstance(result, LaunchFailed):
        failure = result.failure
        sentence = f"The engine could not be launched: {text}."
        return LaunchFailed(failure=Failure(kind=failure.kind, sentence=sentence, at_s=failure.at_s))
    if isinstance(result, StopFailed):
        return StopFailed(message=f"cannot stop the engine: {text}")
    if isinstance(result, CheckDone):
        return CheckDone(accepted=None, message=text)
    if isinstance(result, Looked):
        return replace(result, detail=text)
    if isinstance(result, MovedAside | TrialLook):
        return replace(result, detail=text)
    return WarmDone(results=(), complete=False, detail=text)
