"""Does what `drift` decides: one run at a time, stored and journalled; an apply is called off when the engine works.

    a look every second -> consider() -> next_act() -> DriftHands -> store, journal

Nothing here raises into the daemon.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from rigd import log
from rigd.adapters.store import Store
from rigd.rig.drift import Drift
from rigd.supervise import drift
from rigd.supervise.decision import Entry
from rigd.supervise.drift import DRIFT_STATE, Calm, DriftAct, DriftState, Situation
from rigd.supervise.drift_report import Report
from rigd.supervise.host_watch import Supervised
from rigd.supervise.state import State

FACT = "drift"
"""Name under which the state is kept in the store."""
LOOK_S = 1.0


class Hands(Protocol):
    """Whoever runs the playbook."""

    async def carry_out(self, act: DriftAct, stop: asyncio.Event) -> Report:
        """Return what came of an act; setting `stop` ends it after the task in hand."""
        ...


class DriftWatch:
    """The playbook of one daemon."""

    def __init__(
        self,
        store: Store,
        hands: Hands,
        *,
        journal: Callable[..., Awaitable[None]],
        look: Callable[[], Supervised],
        now: Callable[[], float],
        boot: str,
        settle_s: float,
    ) -> None:
        self.state = DriftState()
        self._store = store
        self._hands = hands
        self._journal = journal
        self._look = look
        self._now = now
        self._boot = boot
        self._began_s = now()
        self._settle_s = settle_s
        self._calm = Calm()
        self._loaded = False
        self._asked = False
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._log = log.get("drift")

    @property
    def document(self) -> Mapping[str, Any] | None:
        """What the status document says of it."""
        return drift.document(self.state, self._rules, self._situation())

    def look_now(self) -> str | None:
        """Look as soon as may be, whatever the schedule says; return why not, None where it will be."""
        if self._rules.playbook is None:
            return "the rig file names no playbook (host.drift.playbook)"
        if self._look().status.state is State.MAINTENANCE:
            return "maintenance is on: rigd keeps its hands off"
        self._asked = True
        return None

    async def consider(self) -> None:
        """Look whether there is something to do, or to call off; returns soon, and never raises."""
        try:
            if not self._loaded:
                await self._load()
            self._calm = drift.after_look(self._calm, self._look().status, now_s=self._now())
            at = self._situation()
            if self._task is not None and not self._task.done():
                if drift.must_stop(self.state, at):
                    self._stop.set()
                return
            if drift.forgotten(self.state, self._rules):
                await self._become(DriftState(), drift.entries(self.state, DriftState()))
            act = drift.next_act(self.state, self._rules, at)
            if self._asked and act is None and not at.hands_off and self._rules.playbook is not None:
                act = DriftAct.CHECK
            if act is not None:
                self._asked = self._asked and act is not DriftAct.CHECK
                self._stop = asyncio.Event()
                self._task = asyncio.create_task(self._guarded(act), name=f"drift {act}")
        except Exception:  # noqa: BLE001  (whatever a playbook does, the engine goes on being supervised)
            self._log.exception("nothing was decided about drift")

    async def close(self) -> None:
        """End a run in hand; the next daemon looks again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _rules(self) -> Drift:
        return self._look().rules.drift

    def _situation(self) -> Situation:
        seen, now_s = self._look(), self._now()
        rules = seen.plan.rig.supervision
        return Situation(
            now_s=now_s,
            boot=self._boot,
            began_s=self._began_s,
            calm=self._calm,
            settle_s=self._settle_s,
            hands_off=seen.status.state is State.MAINTENANCE,
            canary_s=rules.canary.every_s or rules.stall_deadline_s / 2,
        )

    async def _load(self) -> None:
        text = await self._store.fact(FACT)
        if text is not None:
            try:
                self.state = DRIFT_STATE.validate_json(text)
            except ValueError as error:  # Another version's; the host is looked at afresh.
                self._log.warning("stored drift not understood", error=str(error)[:300])
        self._loaded = True
        if self.state.running is not None:
            state, told = drift.interrupted(self.state, now_s=self._now())
            await self._become(state, told)

    async def _guarded(self, act: DriftAct) -> None:
        try:
            await self._do(act)
        except Exception as error:  # noqa: BLE001  (a run that fails is a line of the journal)
            self._log.exception("a run for drift failed")
            await self._take(act, Report(ok=False, message=f"{type(error).__name__}: {error}"))

    async def _do(self, act: DriftAct) -> None:
        state = drift.begun(self.state, act, self._rules, now_s=self._now())
        told = (drift.applying(state),) if act is DriftAct.APPLY else ()
        await self._become(state, told)
        if act is DriftAct.APPLY and not await self._store.flush():
            await self._take(act, Report(ok=False, message="it cannot be stored that it is done"))
            return
        await self._take(act, await self._hands.carry_out(act, self._stop))

    async def _take(self, act: DriftAct, report: Report) -> None:
        before, now_s = self.state, self._now()
        if act is DriftAct.APPLY:
            await self._become(
                drift.after_apply(before, report, now_s=now_s), (drift.applied(before, report),)
            )
            return
        after = drift.after_check(before, report, boot=self._boot, now_s=now_s)
        await self._become(after, drift.entries(before, after))

    async def _become(self, state: DriftState, told: tuple[Entry, ...]) -> None:
        self.state = state
        self._store.keep_fact(FACT, DRIFT_STATE.dump_json(state).decode())
        for entry in told:
            self._log.info(entry.message, event_kind=entry.kind, **dict(entry.data))
        if told:
            await self._journal(*told)
