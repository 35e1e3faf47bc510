"""Watches the host for as long as the daemon runs: kernel lines as they come, cards with every reading.

    KernelLog, GpuReadings -> host.HostState (pure) -> store and journal (one write), status, the launch's gate

It never acts on the host (`host_actor` does, where it may), and nothing that a driver or a log does ends it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rigd import log
from rigd.adapters import host as host_adapter
from rigd.adapters.blocking import run_blocking
from rigd.adapters.gpu import GpuReadings
from rigd.adapters.gpu_driver import DriverVersions, installed_versions
from rigd.adapters.kernel_log import FROM_BOOT, FROM_NOW, KernelLog
from rigd.adapters.store import Store
from rigd.errors import RigdError
from rigd.rig.host import Host
from rigd.runtime import tree
from rigd.runtime.base import GateReport
from rigd.runtime.gates import uses_card
from rigd.supervise.host import (
    HOST_STATE,
    WATCHES,
    Around,
    HostAction,
    HostFinding,
    HostKind,
    HostState,
    Severity,
    documents,
    entries,
    expired,
    held,
    noted,
)
from rigd.supervise.host_cards import after_reading
from rigd.supervise.host_kernel import after_kernel
from rigd.supervise.launching import HOST_GATE
from rigd.supervise.live import Board
from rigd.supervise.plan import Plan
from rigd.supervise.state import State, Status

FACT = "host"
"""Name under which the state is kept in the store."""
LOOK_DEADLINE_S = 5.0
RESTART_S = 10.0
"""Pause after an error of our own, in seconds."""
IDLE = frozenset({State.STOPPED, State.FAILED})
"""States in which nobody but rigd should have a use for the cards. In maintenance they are the operator's."""


@dataclass(frozen=True, kw_only=True)
class Supervised:
    """What the daemon runs and how, at the moment."""

    status: Status
    plan: Plan
    rules: Host = Host()  # noqa: RUF009  (frozen)
    """What the rig file says of the host, whatever settings of the engine are in effect."""


class HostWatch:
    """The host under one daemon."""

    def __init__(
        self,
        store: Store,
        board: Board,
        *,
        kernel: KernelLog,
        journal: Callable[..., Awaitable[None]],
        look: Callable[[], Supervised],
        now: Callable[[], float],
        boot: str,
        versions: Callable[[], DriverVersions] = installed_versions,
    ) -> None:
        self.kernel = kernel
        self.state = HostState(boot=boot)
        self.will_act: Callable[[HostFinding], bool] = lambda _finding: False
        """Whether a finding that holds no start by itself is about to be acted on, so that none should begin."""
        self._kept = HostState()
        self._store = store
        self._board = board
        self._journal = journal
        self._look = look
        self._now = now
        self._boot = boot
        self._versions = versions
        self._cards_here = False
        self._ours: tuple[frozenset[int], ...] = ()
        self._loaded = asyncio.Event()
        self._changing = asyncio.Lock()
        self._log = log.get("host")

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What is wrong now, for the status document."""
        return documents(self.state)

    async def run(self) -> None:
        """Follow the kernel's log until cancelled."""
        try:
            await self._load()
        finally:
            self._loaded.set()
        while True:
            try:
                await self._follow()
            except Exception:  # noqa: BLE001  (a bug of the watch must not end the daemon)
                self._log.exception("the kernel's log is not followed; beginning again")
            await asyncio.sleep(RESTART_S)

    async def on_readings(self, readings: GpuReadings) -> None:
        """Take up a reading of the cards; never raises."""
        await self._loaded.wait()
        try:
            self._cards_here = not readings.absent
            around = await self._around(readings)
            async with self._changing:
                state = after_reading(self.state, readings, around)
                await self._become(self._with_kernel(state, around.now_s))
        except Exception:  # noqa: BLE001  (whatever a driver says, the engine goes on being supervised)
            self._log.exception("a reading of the cards was not understood")

    async def _load(self) -> None:
        stored = self._stored(await self._store.fact(FACT))
        if stored.boot == self._boot:
            self.state = stored
        elif stored.boot:
            # After a reboot all findings are over, and everything that the kernel said since is news.
            self.state = HostState(boot=self._boot, position=FROM_BOOT if stored.position else FROM_NOW)
            await self._tell(stored, self.state)
        self._hold()

    def _stored(self, text: str | None) -> HostState:
        if text is None:
            return HostState()
        try:
            return HOST_STATE.validate_json(text)
        except ValueError as error:  # Another version's; the host is looked at afresh.
            self._log.warning("stored state of the host not understood", error=str(error)[:300])
            return HostState()

    async def _follow(self) -> None:
        batches = self.kernel.batches(self.state.position)
        async with contextlib.aclosing(batches):
            async for lines in batches:
                async with self._changing:
                    state = replace(self.state, position=self.kernel.position)
                    around = Around(now_s=self._now(), ours=frozenset().union(*self._ours))
                    # Where the log was read to is worth a write of its own only once: other lines are no news.
                    news = bool(lines) or not self._kept.position
                    await self._become(after_kernel(state, lines, around), keep=news)

    def _with_kernel(self, state: HostState, now_s: float) -> HostState:
        kept = tuple(one for one in state.active if one.finding.kind is not HostKind.KERNEL_LOG_UNREADABLE)
        if self.kernel.problem is None:
            return replace(state, active=kept)
        finding = HostFinding(
            kind=HostKind.KERNEL_LOG_UNREADABLE,
            severity=Severity.INFO,
            action=HostAction.FIX,
            sentence=f"Nobody hears the kernel: {self.kernel.problem}.",
            hint="add the daemon's user to the group systemd-journal, or run it as one who may read /dev/kmsg",
        )
        return replace(state, active=noted(state, finding, at_s=now_s))

    async def _around(self, readings: GpuReadings) -> Around:
        seen = self._look()
        status = seen.status
        root = None if status.engine is None else status.engine.pid
        pids = {one.pid for card in readings.cards for one in card.processes}

        def ask() -> tuple[frozenset[int], dict[int, str], DriverVersions]:
            tree_pids = () if root is None else (root, *(one.pid for one in tree.descendants(root)))
            names = {pid: host_adapter.process_name(pid) for pid in pids}
            return frozenset(tree_pids), names, self._versions()

        try:
            ours, names, versions = await run_blocking(ask, deadline_s=LOOK_DEADLINE_S)
        except (TimeoutError, OSError, RigdError):
            ours, names, versions = frozenset(), {}, DriverVersions()
        self._ours = (*self._ours[-1:], ours)  # A killed process is gone when its line is read.
        return Around(
            now_s=self._now(),
            ours=frozenset().union(*self._ours),
            idle=status.state in IDLE and status.engine is None and status.job is None,
            ready_s=status.ready_s,
            memory_used_mib=seen.plan.rig.gates.gpu_memory_used_mib,
            names=names,
            versions=versions,
            rules=seen.rules,
            rig_file=str(seen.plan.path),
        )

    async def _become(self, state: HostState, *, keep: bool = True) -> None:
        """Take the new state: stored and journalled in one write, then shown."""
        before, self.state = self.state, state
        if keep and state != self._kept:
            self._kept = state
            self._store.keep_fact(FACT, HOST_STATE.dump_json(state).decode())
        self._hold()
        await self._tell(before, state)

    async def _tell(self, before: HostState, after: HostState) -> None:
        told = entries(before, after)
        for entry in told:
            say = self._log.warning if entry.kind == "host-finding" else self._log.info
            say(entry.message, event_kind=entry.kind, **dict(entry.data))
        if told:
            await self._journal(*told)

    def concerns(self, index: int | None) -> bool:
        """Return whether the engine of the rig uses a card; None: any card."""
        uuids = {card.index: card.uuid for card in self.state.cards}
        uuid = "" if index is None else uuids.get(index, "")
        return self._cards_here and uses_card(self._look().plan.spec, index=index, uuid=uuid)

    async def amend(self, change: Callable[[HostState], HostState]) -> None:
        """Change what is known, after something was done about it."""
        async with self._changing:
            await self._become(change(self.state))

    def fresh(self, since_s: float) -> tuple[HostFinding, ...]:
        """Return the certain findings about this rig that were seen since a time, the newest last.

        What an engine that became ready has disproved is not among them, nor what happened to an earlier engine.
        """
        status = self._look().status
        active = expired(self.state.active, Around(now_s=self._now(), ready_s=status.ready_s))
        launched_s = status.launched_s or 0.0
        found = []
        for one in sorted(active, key=lambda one: one.last_s):
            event = WATCHES[one.finding.kind].quiet_s is not None
            recent = one.last_s >= (max(since_s, launched_s) if event else since_s)
            concerns = one.finding.gpu is None or self.concerns(one.finding.gpu)
            if one.certain and recent and concerns:
                found.append(one.finding)
        return tuple(found)

    def heard(self) -> list[str]:
        """Return the kernel lines that matter, as far as they are remembered, each with its time."""
        return [
            f"{datetime.fromtimestamp(line.at_s, UTC):%Y-%m-%d %H:%M:%SZ} {line.text}"
            for line in self.kernel.lines
        ]

    def _hold(self) -> None:
        """Shut or open the gate of the next launch."""
        finding = held(self.state, self.concerns, self.will_act)
        self._board.hold = (
            None
            if finding is None
            else GateReport(
                name=f"{HOST_GATE}{finding.kind}", open=False, detail=finding.sentence, hint=finding.hint
            )
        )
