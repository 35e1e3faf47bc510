"""The composition root: reads the rig file, opens the store, takes the engine in hand, serves the API.

    run(rig file) -> Daemon: store, runtime, effects, supervisor, schedule, API, systemd

Everything blocking runs outside the event loop; the loop's own heartbeat feeds systemd's watchdog.
"""

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from rigd import log
from rigd.adapters import systemd
from rigd.adapters.clock import Clock, boot_id
from rigd.adapters.gpu import GpuReader
from rigd.adapters.kernel_log import KernelLog
from rigd.adapters.store import Store
from rigd.api.app import make_app
from rigd.api.server import serve
from rigd.api.sockets import Listening, listen
from rigd.backend import DaemonBackend
from rigd.errors import ExitCode, explain
from rigd.runtime import startlog
from rigd.runtime.base import EngineRef, Runtime, RuntimeUnavailableError
from rigd.runtime.factory import make_runtime
from rigd.runtime.gates import least_free_mib
from rigd.settings import Settings
from rigd.supervise import drift_watch
from rigd.supervise.alerting import Alerter, Around
from rigd.supervise.decision import Decision, Entry
from rigd.supervise.drift_hands import DriftHands
from rigd.supervise.drift_watch import DriftWatch
from rigd.supervise.effects import EngineEffects
from rigd.supervise.host_actor import HostActor
from rigd.supervise.host_hands import HostHands
from rigd.supervise.host_watch import HostWatch, Supervised
from rigd.supervise.incidents import Incidents
from rigd.supervise.live import Board
from rigd.supervise.loop import Supervisor
from rigd.supervise.observations import Observation, RequestKind
from rigd.supervise.plan import Plan, load_plan
from rigd.supervise.resume import resume
from rigd.supervise.state import STATUS, State, Status
from rigd.supervise.warming import prefix_files

RUNTIME_RETRY_S = 2.0
WATCH_FILES_S = 5.0
WARM_LOOK_S = 15.0
"""How often it is looked whether the last proof of the prefixes is too old."""
PRUNE_S = 3600.0
SHUTDOWN_S = 10.0
"""Longest wait for the daemon's own tasks when it ends, in seconds."""
STORE_FLUSH_S = 10.0
HEARTBEAT_LIMIT_S = 15.0
"""A loop that has not gone round for this long is stuck; systemd is then no longer told that all is well."""

Listener = Callable[[dict[str, Any]], None]


def run(
    rig_path: Path,
    *,
    settings: Settings,
    foreground: bool = False,
    on_event: Listener | None = None,
    until: State | None = None,
    stop_on_exit: bool = False,
) -> ExitCode:
    """Supervise the rig until asked to end; return the exit code.

    `until`: end as soon as this state is reached. `stop_on_exit`: end the engine too; otherwise it goes on serving.
    `foreground`: a person started it (`rigd up`), so the engine is wanted whatever an earlier daemon stored.
    """
    plan = load_plan(rig_path)
    daemon = Daemon(plan, settings=settings, insist=foreground, on_event=on_event)
    return asyncio.run(daemon.serve(until=until, stop_on_exit=stop_on_exit))


class Daemon:
    """One rig, supervised."""

    def __init__(
        self, plan: Plan, *, settings: Settings, insist: bool, on_event: Listener | None = None
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._insist = insist
        self._on_event = on_event
        self._clock = Clock()
        self._ending = asyncio.Event()
        self._log = log.get("daemon")
        self._marks: dict[Path, tuple[float, int]] = {}

    async def serve(self, *, until: State | None, stop_on_exit: bool) -> ExitCode:
        """Supervise until a signal, or until the state is `until`."""
        for folder in (self._settings.state_dir, self._settings.runtime_dir):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Listening holds the lock as well: a second daemon ends here, having touched nothing.
        listening = listen(self._settings)
        try:
            store = await Store.open(self._settings.state_dir / "rigd.db")
        except BaseException:
            listening.close()
            raise
        try:
            return await self._with_store(store, listening, until=until, stop_on_exit=stop_on_exit)
        finally:
            await store.close()
            listening.close()

    async def _with_store(
        self, store: Store, listening: Listening, *, until: State | None, stop_on_exit: bool
    ) -> ExitCode:
        gpus = GpuReader()
        board = Board()
        jitter = random.Random()  # noqa: S311  (spreads retries, guards nothing)
        effects = EngineEffects(
            self._plan,
            store,
            state_dir=self._settings.state_dir,
            make_runtime=self._make_runtime,
            now=self._clock.now_s,
            report=lambda observation: supervisor.observe(observation),  # noqa: PLW0108  (made below)
            board=board,
        )
        supervisor = Supervisor(
            effects.policy, effects, now=self._clock.now_s, jitter=lambda: jitter.uniform(-1.0, 1.0)
        )
        incidents = Incidents(
            effects,
            store,
            gpus,
            state_dir=self._settings.state_dir,
            status=lambda: supervisor.status,
            token_file=self._settings.token_file,
        )
        incidents.attach()
        backend = DaemonBackend(
            supervisor,
            effects,
            store,
            board,
            gpus,
            incidents=incidents,
            settings=self._settings,
            now=self._clock.now_s,
        )
        if self._on_event is not None:
            backend.listen(self._on_event)

        def look() -> Supervised:
            return Supervised(status=supervisor.status, plan=effects.plan, rules=effects.wish.rig.host)

        host = HostWatch(
            store,
            board,
            kernel=KernelLog(),
            journal=effects.journal,
            look=look,
            now=self._clock.now_s,
            boot=boot_id(),
        )
        backend.host = lambda: host.findings
        effects.host_says = host.fresh
        effects.read_cards = backend.read_gpus
        incidents.heard = host.heard
        actor = self._actor(store, board, host, supervisor, effects, look=look)
        drift = self._drift(store, effects, look=look)
        backend.drift, backend.look_at_drift = lambda: drift.document, drift.look_now
        around = Around(
            plan=lambda: effects.plan,
            status=lambda: supervisor.status,
            trouble=lambda: backend.trouble,
            journal=effects.journal,
            now=self._clock.now_s,
        )
        alerter = Alerter(around, store, state_dir=self._settings.state_dir)
        backend.alerts, backend.test_alerts = alerter.document, alerter.test
        effects.on_journal(alerter.heard)
        schedule = self._schedule(supervisor, effects, store, backend, host, actor=actor)
        schedule.add_job(drift.consider, "interval", seconds=drift_watch.LOOK_S)
        tasks = [
            asyncio.create_task(serve(make_app(backend, listening.policy), listening), name="api"),
            asyncio.create_task(self._supervise(supervisor, effects, store, backend), name="supervisor"),
            asyncio.create_task(self._feed_watchdog(supervisor), name="watchdog"),
            asyncio.create_task(host.run(), name="host"),
        ]
        restore = self._handle_signals(supervisor, backend)
        code = ExitCode.DONE
        try:
            schedule.start()
            alerter.start()
            systemd.ready(f"supervising {self._plan.rig.name}")
            code = await self._until_end(tasks, supervisor, until)
            systemd.stopping()
            if stop_on_exit:
                await self._stop_engine(supervisor, backend)
        finally:
            restore()
            schedule.shutdown(wait=False)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=SHUTDOWN_S)
            await actor.close()
            await drift.close()
            await alerter.close()
            await effects.close()
            await incidents.close()
            await gpus.close()
        return code

    async def _supervise(
        self, supervisor: Supervisor, effects: EngineEffects, store: Store, backend: DaemonBackend
    ) -> None:
        if store.recovered_from is not None:
            message = f"the store was damaged; it lies at {store.recovered_from}, and a new one was begun"
            await effects.journal(Entry(kind="store-recovered", message=message))
        stored = self._stored(await store.load_status())
        found = await self._find(effects.runtime, backend)
        first = self._first(stored, found)
        await supervisor.run(first)

    def _first(self, stored: Status | None, found: tuple[EngineRef, ...]) -> Decision:
        return resume(
            stored,
            found,
            self._plan.policy(self._plan),
            now_s=self._clock.now_s(),
            insist=self._insist,
            boot=boot_id(),
        )

    def _stored(self, text: str | None) -> Status | None:
        if text is None:
            return None
        try:
            return STATUS.validate_json(text)
        except ValueError as error:
            # Another version's status: what runs is looked at afresh anyway, so nothing is lost but the count.
            self._log.warning("stored status not understood; starting from what runs", error=str(error)[:300])
            return None

    async def _find(self, runtime: Runtime, backend: DaemonBackend) -> tuple[EngineRef, ...]:
        """Return the running engines of this rig, waiting for a runtime that is not up yet (Docker at boot)."""
        while True:
            try:
                found = await runtime.find()
            except RuntimeUnavailableError as error:
                backend.trouble = f"{explain(error)}; asking again"
                await asyncio.sleep(RUNTIME_RETRY_S)
                continue
            backend.trouble = None
            return found

    async def _until_end(
        self, tasks: list[asyncio.Task[None]], supervisor: Supervisor, until: State | None
    ) -> ExitCode:
        ending = asyncio.create_task(self._ending.wait())
        waits: set[asyncio.Task[Any]] = {ending, *tasks}
        if until is not None:
            goals = frozenset({until, State.FAILED})
            waits.add(asyncio.create_task(supervisor.wait(goals, float("inf"))))
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits - set(tasks) - done:
            task.cancel()
        for task in done & set(tasks):
            task.result()  # A part of the daemon ended by itself: its error is ours.
        if until is not None and supervisor.status.state is not until and ending not in done:
            return ExitCode.FAILED
        return ExitCode.DONE

    async def _stop_engine(self, supervisor: Supervisor, backend: DaemonBackend) -> None:
        rules = self._plan.rig.supervision
        await backend.act(RequestKind.MAINTENANCE_OFF, reload=False)
        await backend.act(RequestKind.STOP, reload=False)
        limit_s = rules.deadlines.stop_s + rules.deadlines.create_s
        if not await supervisor.wait(frozenset({State.STOPPED}), limit_s):
            self._log.error("the engine did not stop in time", waited_s=limit_s)

    def _make_runtime(self, plan: Plan) -> Runtime:
        return make_runtime(
            plan.rig.name,
            plan.spec,
            state_dir=self._settings.state_dir,
            runtime_dir=self._settings.runtime_dir,
            log_max_mib=plan.rig.logs.max_mib,
        )

    def _actor(
        self,
        store: Store,
        board: Board,
        host: HostWatch,
        supervisor: Supervisor,
        effects: EngineEffects,
        *,
        look: Callable[[], Supervised],
    ) -> HostActor:
        """Return who does to the host what the rig file lets rigd do."""
        hands = HostHands(
            rig=lambda: effects.wish.path,
            record=self._settings.state_dir / "host-acts.json",
            lowered_w=lambda: effects.wish.rig.host.temperature.lowered_power_w,
            path=self._settings.host_socket,
        )

        async def restart(why: str) -> None:
            await supervisor.request(RequestKind.RESTART, why=why)

        async def start(why: str) -> None:
            await supervisor.request(RequestKind.START, why=why)

        return HostActor(
            store,
            host,
            board,
            hands,
            journal=effects.journal,
            look=look,
            restart=restart,
            start=start,
            now=self._clock.now_s,
            boot=boot_id(),
        )

    def _drift(self, store: Store, effects: EngineEffects, *, look: Callable[[], Supervised]) -> DriftWatch:
        """Return who holds the host against the rig file's playbook."""
        hands = DriftHands(
            rules=lambda: effects.wish.rig.host.drift,
            rig=lambda: effects.wish.path,
            path=self._settings.provision_socket,
            state_dir=self._settings.state_dir,
            service=systemd.runs_this(),
        )
        return DriftWatch(
            store,
            hands,
            journal=effects.journal,
            look=look,
            now=self._clock.now_s,
            boot=boot_id(),
            settle_s=self._settings.drift_settle_s,
        )

    def _schedule(
        self,
        supervisor: Supervisor,
        effects: EngineEffects,
        store: Store,
        backend: DaemonBackend,
        host: HostWatch,
        *,
        actor: HostActor,
    ) -> AsyncIOScheduler:
        """Everything periodic: re-warm, watched files, retention, GPU readings, store recovery."""
        schedule = AsyncIOScheduler(timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1})

        async def rewarm(why: str) -> None:
            if supervisor.policy.prefixes and supervisor.status.state in {State.READY, State.DEGRADED}:
                await supervisor.request(RequestKind.WARM, why=why)

        async def warm_in_time() -> None:
            every_s, warmed_s = effects.plan.rig.warm.every_s, supervisor.status.warmed_s
            if every_s is not None and warmed_s is not None and self._clock.now_s() - warmed_s >= every_s:
                await rewarm("on schedule")

        async def watch_files() -> None:
            if effects.plan.rig.warm.watch_files and self._files_changed(effects.plan):
                await rewarm("because a file of a prefix changed")

        async def prune() -> None:
            logs = effects.plan.rig.logs
            await store.prune(logs.keep_events, logs.keep_starts)
            await asyncio.to_thread(startlog.prune, self._settings.state_dir, logs.keep_starts)
            await backend.incidents.prune()

        async def look_at_host() -> None:
            readings = await backend.read_gpus()
            await host.on_readings(readings)
            free_mib = least_free_mib(readings, effects.plan.spec)
            if free_mib is not None:
                supervisor.observe(Observation(gpu_free_mib=free_mib))
            await actor.consider()

        # Watched from here on: what changes before the first warm-up is warmed twice.
        self._files_changed(self._plan)
        schedule.add_job(warm_in_time, "interval", seconds=WARM_LOOK_S)
        schedule.add_job(watch_files, "interval", seconds=WATCH_FILES_S)
        schedule.add_job(prune, "interval", seconds=PRUNE_S)
        look_s = self._settings.host_look_s
        schedule.add_job(look_at_host, "interval", seconds=look_s, next_run_time=datetime.now(UTC))
        schedule.add_job(store.flush, "interval", seconds=STORE_FLUSH_S)
        return schedule

    def _files_changed(self, plan: Plan) -> bool:
        """Return whether a file of a prefix differs from the last look (the first look never does)."""
        marks = {}
        for path in prefix_files(plan.rig, plan.path.resolve().parent):
            with contextlib.suppress(OSError):
                seen = path.stat()
                marks[path] = (seen.st_mtime, seen.st_size)
        before, self._marks = self._marks, marks
        return bool(before) and before != marks

    async def _feed_watchdog(self, supervisor: Supervisor) -> None:
        """Tell systemd that all is well as long as the supervisor's own loop goes round."""
        interval_s = systemd.watchdog_interval_s() or 10.0
        said = ""
        while True:
            await asyncio.sleep(interval_s)
            beat_age_s = self._clock.now_s() - supervisor.beat_s
            waiting = supervisor.status.since_s == 0.0  # The runtime does not answer yet: no loop to beat.
            if waiting or beat_age_s < HEARTBEAT_LIMIT_S:
                systemd.watchdog()
            status = f"{supervisor.status.state}: {supervisor.status.reason}"
            if status != said:
                systemd.status(status)
                said = status

    def _handle_signals(self, supervisor: Supervisor, backend: DaemonBackend) -> Callable[[], None]:
        del supervisor
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[Any]] = set()

        def reload() -> None:
            task = asyncio.create_task(backend.act(RequestKind.RESTART, reload=True))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        loop.add_signal_handler(signal.SIGINT, self._ending.set)
        loop.add_signal_handler(signal.SIGHUP, reload)

        def restore() -> None:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

        return restore
