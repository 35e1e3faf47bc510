"""Does what `host_acts` decides: stored and journalled before it is done, and again when it is known what came of it.

    a reading of the cards -> consider() -> next_act() -> store -> HostHands -> store, journal, HostWatch.amend()

One act at a time. Nothing here raises into the daemon, and what cannot be stored is not done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from rigd import log
from rigd.adapters.store import Store
from rigd.supervise.decision import Entry
from rigd.supervise.host import HostFinding, HostKind, HostState, without
from rigd.supervise.host_acts import (
    COUNTED,
    HISTORY,
    Act,
    ActKind,
    ActState,
    Situation,
    next_act,
    settled,
    will_act,
    with_act,
)
from rigd.supervise.host_root import Answer
from rigd.supervise.host_watch import HostWatch, Supervised
from rigd.supervise.live import Board
from rigd.supervise.state import Desired, State, Status

FACT = "host-acts"
"""Name under which the history is kept in the store."""
RESTING = frozenset({State.BACKOFF, State.FAILED})
CURED = frozenset({HostKind.GPU_RESET_REQUIRED, HostKind.HOST_REBOOT_REQUIRED, HostKind.CLOCKS_STUCK})
"""Findings about a card that its reset ends; a card that is not well says so again."""
HOST_FAILURES = frozenset({"gpu_lost", "gpu_reset_required", "host_reboot_required", "driver_lib_mismatch"})
"""Classes of failures that an act on the host may cure."""
SAID = {
    ActKind.APPLY: "setting GPU {gpu} as the rig file says",
    ActKind.LOWER: "lowering the power limit of GPU {gpu}",
    ActKind.RESTORE: "giving GPU {gpu} its power limit back",
    ActKind.STOP_ENGINE: "stopping the engine until GPU {gpu} is cool",
    ActKind.RESET: "resetting GPU {gpu}",
    ActKind.REBOOT: "rebooting the host",
}


class Hands(Protocol):
    """Whoever carries out acts."""

    @property
    def here(self) -> bool:
        """Whether there is anybody who can."""
        ...

    async def carry_out(self, act: Act) -> Answer:
        """Return what came of an act; never raises."""
        ...


class HostActor:
    """The acts of one daemon on its host."""

    def __init__(
        self,
        store: Store,
        watch: HostWatch,
        board: Board,
        hands: Hands,
        *,
        journal: Callable[..., Awaitable[None]],
        look: Callable[[], Supervised],
        restart: Callable[[str], Awaitable[None]],
        start: Callable[[str], Awaitable[None]],
        now: Callable[[], float],
        boot: str,
    ) -> None:
        self.history: tuple[Act, ...] = ()
        self._store = store
        self._watch = watch
        self._board = board
        self._hands = hands
        self._journal = journal
        self._look = look
        self._restart = restart
        self._start = start
        self._now = now
        self._boot = boot
        self._loaded = False
        self._task: asyncio.Task[None] | None = None
        self._log = log.get("host")
        watch.will_act = self._will_act

    async def consider(self) -> None:
        """Look whether there is something to do, and begin it; returns soon, and never raises."""
        try:
            if not self._loaded:
                await self._load()
            if self._task is not None and not self._task.done():
                return
            await self._settle(fresh=False)
            seen = self._look()
            act = next_act(
                self._watch.state, self.history, seen.rules, self._watch.concerns, self._situation(seen)
            )
            if act is not None:
                self._task = asyncio.create_task(self._guarded(act), name="host act")
        except Exception:  # noqa: BLE001  (whatever the host is like, the engine goes on being supervised)
            self._log.exception("nothing was decided about the host")

    async def close(self) -> None:
        """Stop waiting for an act; the next daemon finds out what came of it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _load(self) -> None:
        text = await self._store.fact(FACT)
        if text is not None:
            try:
                self.history = HISTORY.validate_json(text)
            except ValueError as error:
                self._log.warning("stored acts on the host not understood", error=str(error)[:300])
        self._loaded = True
        await self._settle(fresh=True)

    async def _settle(self, *, fresh: bool) -> None:
        """Find out what came of what was only intended: the host was rebooted, or an earlier daemon ended."""
        for act in self.history:
            if act.state is not ActState.INTENDED:
                continue
            found = settled(act, boot=self._boot, now_s=self._now(), fresh=fresh)
            if found is not None:
                await self._note(replace(act, state=found[0], message=found[1]))

    def _will_act(self, finding: HostFinding) -> bool:
        return will_act(finding, self._watch.state, self.history, self._look().rules, now_s=self._now())

    def _situation(self, seen: Supervised) -> Situation:
        status = seen.status
        held = self._board.hold is not None
        waits = status.state is State.STARTING and self._board.waiting
        rests = status.state is State.BACKOFF or (status.state is State.FAILED and _by_host(status))
        return Situation(
            now_s=self._now(),
            boot=self._boot,
            wanted=status.desired is Desired.RUNNING and status.state is not State.MAINTENANCE,
            running=status.engine is not None and status.state is not State.STOPPING,
            # With the gate shut, a launch that waits at it, or begins later, goes no further.
            quiet=status.engine is None and held and (waits or rests),
            hands=self._hands.here,
        )

    async def _guarded(self, act: Act) -> None:
        try:
            await self._do(act)
        except Exception as error:  # noqa: BLE001  (an act that fails is a line of the journal)
            self._log.exception("an act on the host failed")
            message = f"{type(error).__name__}: {error}"
            await self._note(replace(act, state=ActState.FAILED, message=message))

    async def _do(self, act: Act) -> None:
        stored = await self._note(act)
        if act.state is ActState.REFUSED:
            return
        if not stored and act.kind in COUNTED:
            message = "it cannot be counted: the store cannot be written"
            await self._note(replace(act, state=ActState.FAILED, message=message))
            return
        if act.kind is ActKind.STOP_ENGINE:
            await self._restart(f"because a card is too hot: {act.why}")
            answer = Answer(ok=True, message="it starts again when the card is cool")
        else:
            answer = await self._hands.carry_out(act)
        if act.kind is ActKind.REBOOT and answer.ok:
            return  # Still only intended: whether it happened, the next boot says.
        state = ActState.DONE if answer.ok else ActState.FAILED
        hint = f"; {answer.hint}" if answer.hint else ""
        await self._note(replace(act, state=state, message=f"{answer.message}{hint}"))
        if answer.ok:
            await self._watch.amend(lambda known: after_act(known, act))
            if act.kind is ActKind.RESET and self._look().status.state is State.FAILED:
                await self._start("because the card was reset")

    async def _note(self, act: Act) -> bool:
        """Store and journal an act as it is now; return whether both are on disk."""
        self.history = with_act(self.history, act)
        self._store.keep_fact(FACT, HISTORY.dump_json(self.history).decode())
        entry = entry_of(act)
        say = self._log.info if act.state in {ActState.INTENDED, ActState.DONE} else self._log.warning
        say(entry.message, event_kind=entry.kind, **dict(entry.data))
        await self._journal(entry)
        return await self._store.flush()


def _by_host(status: Status) -> bool:
    return status.failure is not None and status.failure.kind in HOST_FAILURES


def after_act(state: HostState, act: Act) -> HostState:
    """Return what is known of the host after an act was done."""
    if act.kind is ActKind.LOWER:
        return replace(state, lowered=(*(bus for bus in state.lowered if bus != act.bus), act.bus))
    if act.kind is ActKind.RESTORE:
        return replace(state, lowered=tuple(bus for bus in state.lowered if bus != act.bus))
    if act.kind is ActKind.RESET:
        return replace(state, active=without(state.active, CURED, act.bus))
    return state


def entry_of(act: Act) -> Entry:
    """Return the journal's line about an act."""
    what = SAID[act.kind].format(gpu="" if act.gpu is None else act.gpu).replace("  ", " ")
    messages = {
        ActState.INTENDED: f"{what}: {act.why}",
        ActState.DONE: f"{what}: done, {act.message}",
        ActState.FAILED: f"{what}: failed, {act.message}",
        ActState.REFUSED: f"not {what}, although it is called for: {act.message}. {act.why}",
    }
    return Entry(
        kind="host-act",
        message=messages[act.state],
        data=(
            ("act", str(act.kind)),
            ("state", str(act.state)),
            ("gpu", act.gpu),
            ("bus", act.bus),
            ("finding", act.finding),
        ),
    )
