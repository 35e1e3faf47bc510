"""Process trees of engines: who belongs to one, whose end means that it is broken, and how all of it is ended.

A process belongs to an engine when it descends from the engine's root, is in its session, or carries our mark in
its environment (vLLM's children rename themselves and outlive their parents, but keep what they were started with).

*Lasting* members (`VLLM::EngineCor`, `VLLM::Worker_TP0`) live as long as the engine does; compile jobs and
resource trackers come and go.
"""

import asyncio
import contextlib
import functools
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rigd.adapters import proc
from rigd.adapters.blocking import run_blocking
from rigd.adapters.proc import Process, ProcessId
from rigd.engine.spec import MARKER_DIGEST, MARKER_RIG, MARKER_START
from rigd.runtime.base import StopReport

LASTING_PREFIX = "VLLM::"
EARLY_RESCAN_S = 0.25
EARLY_S = 60.0
"""How long an engine is young: its members appear, and one that ends at once must be known by then."""
RESCAN_S = 1.0
"""How often new members are looked for. Only processes not seen before are read: well under 1 ms a second."""
SETTLE_S = 0.3
"""After a member's end, how long to wait for the root's own end: it carries the exit code."""
_SHARED_LOOKS_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
_DYING_S = 1.5
"""How long a root that is going down may take to be gone."""
LOOK_DEADLINE_S = 5.0
_KILL_ROUND_S = 0.5
_ORPHAN_GRACE_S = 2.0
_ORPHAN_DEADLINE_S = 10.0
_SWEEP_ROUNDS = 5
_KTHREADD = 2
_TRACKER = "multiprocessing.resource_tracker"
SHARED_MEMORY = "/dev/shm/"  # noqa: S108  (the real one is meant)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a process of ours carries in its environment."""

    rig: str
    start: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What belongs to one engine."""

    rig: str
    start: int
    root: ProcessId
    recorder: ProcessId | None = None
    """The shell that waits for the root and writes down its exit code; its end alone is no alarm."""

    @property
    def session(self) -> int | None:
        """Return the engine's session, where it has one of its own."""
        return None if self.recorder is None else self.recorder.pid


def mark_of(pid: int) -> Mark | None:
    """Return our mark on the process, if it carries one that may be read."""
    found = proc.environment(pid, (MARKER_RIG, MARKER_START, MARKER_DIGEST))
    rig, start = found.get(MARKER_RIG), found.get(MARKER_START, "")
    if rig is None or not start.isdigit():
        return None
    return Mark(rig=rig, start=int(start), digest=found.get(MARKER_DIGEST, ""))


def marked(rig: str) -> dict[Process, Mark]:
    """Return the living processes that carry this rig's mark (about 0.1 ms a process; may block, see `proc`)."""
    found: dict[Process, Mark] = {}
    for process in proc.table().values():
        if process.gone:
            continue
        mark = mark_of(process.pid)
        if mark is not None and mark.rig == rig:
            found[process] = mark
    return found


def members(scope: Scope, *, marks: bool = True) -> tuple[Process, ...]:
    """Return the living members of an engine, oldest first. With `marks` it may block, see `proc`."""
    table = proc.table()
    inside = {pid for pid in table if marks and _carries(pid, scope)}
    anchors = {one.pid for one in (scope.root, scope.recorder) if one is not None and proc.is_alive(one)}
    inside |= anchors
    # A session's number is free for strangers once all of ours in it have ended.
    if scope.session is not None and any(
        table[pid].session == scope.session for pid in inside if pid in table
    ):
        inside |= {process.pid for process in table.values() if process.session == scope.session}
    inside |= _descendants(table, inside)
    alive = (table[pid] for pid in inside if pid in table and not table[pid].gone)
    return tuple(sorted(alive, key=lambda process: (process.ticks, process.pid)))


def descendants(root: int) -> tuple[Process, ...]:
    """Return the living processes below `root`, itself included, oldest first."""
    table = proc.table()
    inside = {root} | _descendants(table, {root})
    alive = (table[pid] for pid in inside if pid in table and not table[pid].gone)
    return tuple(sorted(alive, key=lambda process: (process.ticks, process.pid)))


def _carries(pid: int, scope: Scope) -> bool:
    mark = mark_of(pid)
    return mark is not None and mark.rig == scope.rig and mark.start == scope.start


def _descendants(table: dict[int, Process], roots: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found and child not in roots:
                found.add(child)
                pending.append(child)
    return found


@dataclass(frozen=True, kw_only=True)
class End:
    """What ended first. `member` None: the root itself."""

    member: str | None
    root_ended: bool


@dataclass(kw_only=True)
class TreeWatch:
    """Notices the end of the root or of any lasting member through pidfds. One use; close it."""

    scope: Scope
    shared: frozenset[Path] = frozenset()
    """Files of /dev/shm that members have had mapped: killed together, they would leave them behind."""
    _shared_looks: int = 0
    _shared_due_s: float = 0.0
    _seen: set[int] = field(default_factory=set)
    _known: dict[int, ProcessId] = field(default_factory=dict)
    """Members that are not followed, or not yet: they may still rename themselves."""
    _handles: dict[ProcessId, int] = field(default_factory=dict)
    _ended: list[Process] = field(default_factory=list)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def first_end(self) -> End:
        """Return when the root or a lasting member has ended; at once when the root is gone already."""
        root = proc.read(self.scope.root.pid)
        if root is None or root.id != self.scope.root or not self._follow(root):
            return End(member=None, root_ended=True)
        early_until_s = time.monotonic() + EARLY_S
        while not self._ended:
            await self._discover()
            await self._next(EARLY_RESCAN_S if time.monotonic() < early_until_s else RESCAN_S)
        await asyncio.sleep(
            0
        )  # What ended together is told together; then the root's end is the one that counts.
        if self._root_ended():
            return End(member=None, root_ended=True)
        first = self._ended[0].name
        # A container's first process takes the others along, and is told of last: it has its memory to return.
        dying = proc.read(self.scope.root.pid)
        if dying is None or dying.exiting or dying.gone:
            await self._root_ends_within(_DYING_S)
            return End(member=None, root_ended=True)
        return End(member=first, root_ended=await self._root_ends_within(SETTLE_S))

    def close(self) -> None:
        """Let go of all handles."""
        for handle in self._handles.values():
            _forget_reader(handle)
            os.close(handle)
        self._handles.clear()

    @property
    def followed(self) -> int:
        """Return how many processes would be noticed if they ended."""
        return len(self._handles)

    async def _root_ends_within(self, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while not self._root_ended() and (left_s := until_s - time.monotonic()) > 0:
            await self._next(left_s)
        return self._root_ended()

    def _root_ended(self) -> bool:
        return any(process.id == self.scope.root for process in self._ended)

    async def _next(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        self._woken.clear()

    async def _discover(self) -> None:
        now = set(proc.pids())
        new = now - self._seen
        self._seen = now
        if new:
            with contextlib.suppress(TimeoutError):  # A stuck /proc: those stay unknown, the rest is watched.
                self._known |= await run_blocking(
                    lambda: _newcomers(new, self._known, self.scope), deadline_s=LOOK_DEADLINE_S
                )
        for pid, identity in list(self._known.items()):
            process = proc.read(pid)
            if process is None or process.id != identity or identity in self._handles:
                del self._known[pid]
            elif process.name.startswith(LASTING_PREFIX) and self._follow(process):
                self._shared_looks = 0
                self._shared_due_s = time.monotonic() + _SHARED_LOOKS_S[0]
        if time.monotonic() >= self._shared_due_s:
            await self._note_shared()

    async def _note_shared(self) -> None:
        """Look often while the engine starts, seldom once it serves."""
        self._shared_looks += 1
        self._shared_due_s = (
            time.monotonic() + _SHARED_LOOKS_S[min(self._shared_looks, len(_SHARED_LOOKS_S) - 1)]
        )
        members = map(proc.read, [identity.pid for identity in self._handles])
        self.shared |= await shared_memory(process for process in members if process is not None)

    def _follow(self, process: Process) -> bool:
        handle = proc.open_handle(process.id)
        if handle is None:
            return False
        self._handles[process.id] = handle

        def ended() -> None:
            _forget_reader(handle)
            self._ended.append(process)
            self._woken.set()

        asyncio.get_running_loop().add_reader(handle, ended)
        return True


def _newcomers(new: Iterable[int], known: dict[int, ProcessId], scope: Scope) -> dict[int, ProcessId]:
    """Return those new processes that are members; generations come in as many passes as it takes."""
    fresh = {process.pid: process for process in map(proc.read, sorted(new)) if process is not None}
    inside: dict[int, ProcessId] = {}
    parents = {scope.root.pid, *known}
    added = True
    while added:
        added = False
        for pid, process in list(fresh.items()):
            if process.parent in parents or process.session == scope.session:
                inside[pid] = process.id
                parents.add(pid)
                del fresh[pid]
                added = True
    for pid, process in fresh.items():
        if process.parent != _KTHREADD and _carries(pid, scope):
            inside[pid] = process.id
    return inside


async def end_tree(
    scope: Scope, *, grace_s: float, deadline_s: float, shared: frozenset[Path] = frozenset()
) -> StopReport:
    """End every member: TERM, `grace_s`, KILL until none is left or `deadline_s` is over.

    What they have in /dev/shm is released, and what they are known to have had (`shared`).
    """
    began_s = time.monotonic()
    first = await look_at(scope)
    shared |= await shared_memory(first)
    seen = {process.id for process in first}
    for process in first:
        if proc.send(process.id, signal.SIGTERM):
            proc.send(process.id, signal.SIGCONT)  # A stopped process takes its TERM only once it goes on.
    await wait_gone((process.id for process in first), timeout_s=min(grace_s, deadline_s))
    killed: set[ProcessId] = set()
    left = await look_at(scope)
    while left and time.monotonic() - began_s < deadline_s:
        # Recorder and resource trackers end by themselves after the others, and do their work on the way.
        last = {process.id for process in left if _ends_last(process, scope)} if not killed else set()
        for process in [one for one in left if one.id not in last] or left:
            if proc.send(process.id, signal.SIGKILL):
                killed.add(process.id)
        seen |= {process.id for process in left}
        await wait_gone((process.id for process in left), timeout_s=_KILL_ROUND_S)
        left = await look_at(scope)
    await release_shared_memory(shared)
    return StopReport(
        processes=len(seen),
        killed=len(killed),
        survivors=tuple(f"{process.name} (pid {process.pid}, state {process.state})" for process in left),
        took_s=time.monotonic() - began_s,
    )


def _ends_last(process: Process, scope: Scope) -> bool:
    if process.id == scope.recorder:
        return True
    helper = not process.name.startswith(LASTING_PREFIX) and process.id != scope.root
    return helper and any(_TRACKER in part for part in proc.command_line(process.pid))


async def shared_memory(processes: Iterable[Process]) -> frozenset[Path]:
    """Return the files of /dev/shm that these processes have mapped; none where that cannot be read."""
    targets = tuple(processes)

    def look() -> frozenset[Path]:
        return frozenset(Path(name) for one in targets for name in proc.mapped_files(one.pid, SHARED_MEMORY))

    try:
        return await run_blocking(look, deadline_s=LOOK_DEADLINE_S)
    except TimeoutError:
        return frozenset()


async def release_shared_memory(files: frozenset[Path]) -> None:
    """Unlink what an ended engine left in /dev/shm and nobody has mapped: killed processes never do it."""
    if not files:
        return

    def release() -> None:
        names = {str(path) for path in files if path.exists()}
        if names:
            names -= {name for pid in proc.table() for name in proc.mapped_files(pid, SHARED_MEMORY)}
        for name in names:
            with contextlib.suppress(OSError):
                Path(name).unlink()

    with contextlib.suppress(TimeoutError):
        await run_blocking(release, deadline_s=LOOK_DEADLINE_S)


async def kill(processes: Iterable[Process], *, grace_s: float, deadline_s: float) -> tuple[Process, ...]:
    """TERM, then KILL exactly these processes; return those that are still there."""
    targets = tuple(processes)
    for number, timeout_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, deadline_s)):
        for process in targets:
            if proc.send(process.id, number) and number is signal.SIGTERM:
                proc.send(process.id, signal.SIGCONT)
        await wait_gone((process.id for process in targets), timeout_s=timeout_s)
    return tuple(process for process in targets if proc.is_alive(process.id))


async def end_orphans(
    rig: str, belonging: Callable[[], Awaitable[Callable[[Process], bool]]]
) -> tuple[str, ...]:
    """End the marked processes that belong to no running engine, and say which they were.

    `belonging` is asked after each look: what a running engine forks meanwhile is not among those looked at.
    """
    ended: dict[ProcessId, str] = {}
    for _ in range(_SWEEP_ROUNDS):  # What is being ended may fork once more.
        marks = await run_blocking(functools.partial(marked, rig), deadline_s=LOOK_DEADLINE_S)
        belongs = await belonging()
        orphans = [process for process in marks if not belongs(process)]
        if not orphans:
            break
        left = await kill(orphans, grace_s=_ORPHAN_GRACE_S, deadline_s=_ORPHAN_DEADLINE_S)
        stuck = {process.id for process in left}
        ended |= {
            process.id: f"{process.name} (pid {process.pid}, start {marks[process].start})"
            + (" could not be ended" if process.id in stuck else "")
            for process in orphans
        }
        if stuck:
            break
    return tuple(ended.values())


async def look_at(scope: Scope) -> tuple[Process, ...]:
    """Return the living members of an engine; by descent and session alone where /proc is stuck."""
    try:
        return await run_blocking(lambda: members(scope), deadline_s=LOOK_DEADLINE_S)
    except TimeoutError:
        return members(scope, marks=False)


async def wait_gone(processes: Iterable[ProcessId], *, timeout_s: float) -> None:
    """Return when all of these have ended, or after `timeout_s`."""
    loop = asyncio.get_running_loop()
    pending = {handle for handle in map(proc.open_handle, processes) if handle is not None}
    opened = tuple(pending)
    done = asyncio.Event()

    def ended(handle: int) -> None:
        _forget_reader(handle)
        pending.discard(handle)
        if not pending:
            done.set()

    try:
        for handle in opened:
            loop.add_reader(handle, ended, handle)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if pending:
                    await done.wait()
    finally:
        for handle in opened:
            _forget_reader(handle)
            os.close(handle)


def _forget_reader(handle: int) -> None:
    with contextlib.suppress(RuntimeError):  # No loop runs any more.
        asyncio.get_running_loop().remove_reader(handle)
