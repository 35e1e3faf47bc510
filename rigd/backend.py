"""The API's view of the running daemon: reads, and requests posted to the one loop that decides."""

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

import rigd
from rigd.adapters.gpu import GpuCard, GpuReader, GpuReadings
from rigd.adapters.store import Store
from rigd.errors import RigdError, explain, hint_of
from rigd.runtime import startlog
from rigd.runtime.base import EngineRef, RuntimeUnavailableError
from rigd.settings import Settings
from rigd.supervise import knobs
from rigd.supervise.decision import Entry, Reply
from rigd.supervise.effects import EngineEffects
from rigd.supervise.incidents import Incidents
from rigd.supervise.live import Board, Live
from rigd.supervise.loop import Supervisor
from rigd.supervise.observations import RequestKind
from rigd.supervise.overlay import OPERATOR, KnobStep
from rigd.supervise.plan import load_plan
from rigd.supervise.report import Surroundings, status_document
from rigd.supervise.state import State

SUBSCRIBER_LIMIT = 500
"""Items kept for a reader that is slow; older ones are dropped, and it is told."""
HEALTHY_BEAT_S = 15.0
"""A heartbeat of the loop older than this is no longer healthy, in seconds."""


class DaemonBackend:
    """What `api.backend.Backend` asks for, on the real supervisor."""

    def __init__(
        self,
        supervisor: Supervisor,
        effects: EngineEffects,
        store: Store,
        board: Board,
        gpus: GpuReader,
        *,
        incidents: Incidents,
        settings: Settings,
        now: Callable[[], float],
    ) -> None:
        self.trouble: str | None = None
        """What keeps the daemon from its work, in a sentence."""
        self.incidents = incidents
        """What was kept of each failure."""
        self.host: Callable[[], list[dict[str, Any]]] = list
        """Returns what is wrong with the host."""
        self.drift: Callable[[], Mapping[str, Any] | None] = lambda: None
        """Returns whether the host is as its playbook says."""
        self.look_at_drift: Callable[[], str | None] = lambda: "nobody looks"
        """Has the host held against its playbook now, or returns why not."""
        self.alerts: Callable[[], dict[str, Any]] = dict
        """Returns who is told of what, without any URL."""
        self.test_alerts: Callable[[], Awaitable[dict[str, Any]]] = _nobody
        """Sends a test message to everybody who is told, and returns what came of it."""
        self._supervisor = supervisor
        self._effects = effects
        self._store = store
        self._board = board
        self._gpus = gpus
        self._gpu_documents: list[dict[str, Any]] = []
        self._settings = settings
        self._now = now
        self._started_s = now()
        self._subscribers: set[_Subscriber] = set()
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        board.on_change(self._live_changed)
        effects.on_journal(self._journalled)

    @property
    def healthy(self) -> bool:
        """Whether the loop's own heartbeat is fresh."""
        return self._now() - self._supervisor.beat_s < HEALTHY_BEAT_S

    def status(self) -> dict[str, Any]:
        """Return the status document."""
        around = Surroundings(
            pid=os.getpid(),
            version=rigd.__version__,
            started_s=self._started_s,
            store_problem=self._store.problem,
            gpus=self._gpu_documents,
            host=self.host(),
            drift=self.drift(),
            trouble=self.trouble,
        )
        return status_document(
            self._supervisor.status, self._effects.plan, self._board.live, around, now_s=self._now()
        )

    async def act(self, kind: RequestKind, *, reload: bool) -> Reply:
        """Post a request; `reload` reads the rig file again first, and an invalid one changes nothing."""
        digest = None
        sections: tuple[str, ...] = ()
        if reload:
            try:
                plan = await asyncio.to_thread(load_plan, self._effects.plan.path)
            except RigdError as error:
                message = f"the rig file is not valid, nothing was changed: {explain(error)}"
                return Reply(request=0, ok=False, message=message, hint=hint_of(error))
            if plan.rig.name != self._effects.plan.rig.name:
                message = "the rig file has another name: an engine under the old name would be forgotten"
                hint = "rigd stop, then start the daemon again"
                return Reply(request=0, ok=False, message=message, hint=hint)
            wish = self._effects.wish
            if plan.spec.digest != wish.spec.digest:  # The same engine keeps what is changed on top.
                self._effects.offer(plan)
                digest = plan.spec.digest
            elif sections := wish.changes(plan):
                self._effects.offer(plan)
        found: tuple[EngineRef, ...] = ()
        if kind is RequestKind.MAINTENANCE_OFF:
            try:
                found = await self._effects.runtime.find()
            except RuntimeUnavailableError as error:
                return Reply(request=0, ok=False, message=explain(error), hint=hint_of(error))
        return await self._supervisor.request(kind, digest=digest, found=found, sections=sections)

    async def set_knob(self, knob: str, value: str) -> Reply:
        """Turn a knob for an operator; what the schema or the engine's parser refuses changes nothing."""
        effects, overlay = self._effects, self._supervisor.status.overlay
        try:
            new = _scalar(value)
            old = knobs.read(effects.plan.rig.engine, knob)
            step = KnobStep(
                knob=knob,
                old=old if isinstance(old, str | int | float | bool) else None,
                new=new,
                kind=OPERATOR,
                sentence="set by the operator",
                at_s=self._now(),
            )
            plan = effects.wish.with_overlay((*overlay, step))
        except (knobs.UnknownKnobError, RigdError) as error:
            return Reply(request=0, ok=False, message=explain(error), hint="rigd rig schema")
        report = await effects.check(plan)
        if report.accepted is False:
            message = f"the engine's parser refuses {step}: {report.message}"
            return Reply(request=0, ok=False, message=message, hint="nothing was changed")
        return await self._supervisor.request(RequestKind.SET, step=step)

    async def wait(self, states: frozenset[State], timeout_s: float) -> bool:
        """Return True as soon as the state is one of `states`."""
        return await self._supervisor.wait(states, timeout_s)

    async def events(self, after_id: int | None, limit: int) -> list[dict[str, Any]]:
        """Return journal entries, oldest first."""
        rows = await self._store.events(after_id or 0, limit, newest=after_id is None)
        return [
            {
                "id": row.id,
                "at_s": row.at_s,
                "kind": row.kind,
                "message": row.message,
                "data": json.loads(row.data_json) if row.data_json else {},
            }
            for row in rows
        ]

    async def starts(self, limit: int) -> list[dict[str, Any]]:
        """Return the last starts, newest first; `log` says whether its output is still there."""
        kept = set(startlog.starts(self._settings.state_dir))
        return [{**asdict(row), "log": row.number in kept} for row in await self._store.starts(limit)]

    def log_path(self, start: int | None) -> Path | None:
        """Return the engine's log of a start (None: of the last one)."""
        kept = startlog.starts(self._settings.state_dir)
        number = start if start is not None else (kept[0] if kept else None)
        if number is None or number not in kept:
            return None
        return startlog.folder_of(self._settings.state_dir, number) / startlog.LOG_NAME

    def metrics(self) -> str:
        """Return the daemon's own metrics as Prometheus text."""
        status, registry = self._supervisor.status, CollectorRegistry()
        states = Gauge("rigd_state", "1 for the present state of the engine", ["state"], registry=registry)
        for state in State:
            states.labels(state).set(status.state is state)
        values = {
            "rigd_failures_in_window": ("Failures within the attempts window", len(status.failures)),
            "rigd_ready_seconds": (
                "Seconds since the engine became ready",
                0.0 if status.ready_s is None else self._now() - status.ready_s,
            ),
            "rigd_store_ok": ("1 while the store can be written", self._store.problem is None),
            "rigd_prefixes_warm": ("Prefixes proved warm", sum(item.proved for item in status.warm)),
        }
        for name, (text, value) in values.items():
            Gauge(name, text, registry=registry).set(float(value))
        return generate_latest(registry).decode()

    def subscribe(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what happens from now on."""
        subscriber = _Subscriber(self._subscribers.discard)
        self._subscribers.add(subscriber)
        return subscriber.items()

    def listen(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call `listener` with every item from now on (a foreground command in this process)."""
        self._listeners.append(listener)

    async def read_gpus(self) -> GpuReadings:
        """Read the cards once; a card or driver in trouble is data, not an error."""
        readings = await self._gpus.read()
        self._gpu_documents = [_gpu(card) for card in readings.cards]
        if readings.problem is not None and not readings.absent:
            self._gpu_documents.append({"index": None, "problem": readings.problem.message})
        return readings

    def _live_changed(self, live: Live | None) -> None:
        self._tell({"type": "live", "status": self.status(), "live": None if live is None else asdict(live)})

    def _journalled(self, at_s: float, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            event = {"at_s": at_s, "kind": entry.kind, "message": entry.message, "data": dict(entry.data)}
            self._tell({"type": "event", "event": event, "status": self.status()})

    def _tell(self, item: dict[str, Any]) -> None:
        for listener in self._listeners:
            listener(item)
        for subscriber in tuple(self._subscribers):
            subscriber.put(item)


async def _nobody() -> dict[str, Any]:
    return {"results": []}


class _Subscriber:
    """A bounded queue that drops its oldest items and says how many."""

    def __init__(self, gone: Callable[["_Subscriber"], None]) -> None:
        self._queue: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._filled = asyncio.Event()
        self._gone = gone

    def put(self, item: dict[str, Any]) -> None:
        if len(self._queue) >= SUBSCRIBER_LIMIT:
            self._queue.popleft()
            self._dropped += 1
        self._queue.append(item)
        self._filled.set()

    async def items(self) -> AsyncIterator[dict[str, Any]]:
        try:
            while True:
                await self._filled.wait()
                self._filled.clear()
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    yield {"type": "dropped", "count": dropped}
                while self._queue:
                    yield self._queue.popleft()
        finally:
            self._gone(self)


def _scalar(text: str) -> knobs.Scalar:
    """Return a value as typed: a number, true or false, `default` for None, else the text itself."""
    if text == "default":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool) else text


def _gpu(card: GpuCard) -> dict[str, Any]:
    return {
        "index": card.index,
        "name": card.name,
        "memory_used_mib": card.memory_used_mib,
        "memory_total_mib": card.memory_total_mib,
        "temperature_c": card.temperature_c,
        "utilization": card.utilization,
        "power_w": card.power_w,
        "problem": None if card.problem is None else card.problem.message,
    }
