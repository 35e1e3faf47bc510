"""The engine as a bare process: own session, output straight into a file, found again by its mark.

    rigd -> recorder (sh: writes the exit code) -> vllm serve -> VLLM::EngineCor -> VLLM::Worker_TP0 ...

Nothing of it hangs on the daemon: no pipe, no terminal, no parent needed.
"""

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rigd.adapters import proc
from rigd.adapters import process as programs
from rigd.adapters.blocking import run_blocking
from rigd.adapters.proc import Process, ProcessId
from rigd.engine.spec import MARKER_DIGEST, MARKER_RIG, MARKER_START, LaunchSpec
from rigd.log import get
from rigd.runtime import check, identity, startlog, tree
from rigd.runtime.base import (
    CheckReport,
    EngineExit,
    EngineRef,
    EngineSeen,
    LaunchError,
    Presence,
    Progress,
    RuntimeUnavailableError,
    StopReport,
)
from rigd.runtime.identity import Identity
from rigd.runtime.secrets import resolve_secrets
from rigd.runtime.tree import Mark, Scope, TreeWatch

log = get("runtime.process")

_LAUNCH_DEADLINE_S = 30.0
_RECORD_DEADLINE_S = 1.0
"""How long after the root's end its exit code may take to appear."""
_CANCEL_DEADLINE_S = 10.0
_LOG_CHECK_S = 5.0
_CHECK_SLACK_S = 5.0
_FILE_DEADLINE_S = 10.0


@dataclass(kw_only=True)
class _Kept:
    """What this daemon knows of an engine beside its reference."""

    scope: Scope
    folder: Path
    keeper: asyncio.Task[None]
    shared: frozenset[Path] = frozenset()


class ProcessRuntime:
    """Runs engines of one rig as processes. See `base.Runtime`."""

    def __init__(self, rig_name: str, *, runtime_dir: Path, state_dir: Path, log_max_mib: float) -> None:
        self.rig = rig_name
        self.runtime_dir = runtime_dir
        self.state_dir = state_dir
        self._log_max_bytes = int(log_max_mib * 1024 * 1024)
        self._kept: dict[str, _Kept] = {}
        self._checked: dict[tuple[str, str, int], CheckReport] = {}

    async def find(self) -> tuple[EngineRef, ...]:
        """Return the running engines of this rig, newest first."""
        marks = await self._marked()
        starts = {mark.start: mark.digest for mark in marks.values()}
        refs = (self._running(start, digest, marks) for start, digest in sorted(starts.items(), reverse=True))
        return tuple(ref for ref in refs if ref is not None)

    async def launch(self, spec: LaunchSpec, *, start: int, folder: Path, progress: Progress) -> EngineRef:
        """Start the engine; its output goes to `folder`/engine.log."""
        environment = self._environment(spec, start=start, secrets=resolve_secrets(spec))
        _refuse_missing(spec, environment)
        progress(f"starting {spec.argv[0]}", None)
        try:
            recorder, root = await self._spawned(spec, environment, folder, start=start)
        except TimeoutError as error:
            raise LaunchError(
                f"cannot start the program {spec.argv[0]!r}: it was not there after {_LAUNCH_DEADLINE_S:.0f} s",
                hint="see whether the disk that holds it answers",
                temporary=True,
            ) from error
        except (programs.SpawnError, OSError) as error:
            raise LaunchError(
                f"cannot start the program {spec.argv[0]!r}",
                hint="see whether the program and the state folder are there and may be used",
                detail=str(error.__cause__ or error),
            ) from error
        root = root or recorder  # It has ended already: the recorder's end is the engine's.
        ref = identity.ref_of(root, start=start, digest=spec.digest)
        with contextlib.suppress(
            OSError, TimeoutError
        ):  # A full disk costs a hint for the next daemon, no more.
            kept = Identity(root=root, recorder=recorder, digest=spec.digest)
            await run_blocking(lambda: identity.write(folder, kept), deadline_s=_FILE_DEADLINE_S)
        self._keep(ref, Scope(rig=self.rig, start=start, root=root, recorder=recorder), folder)
        log.info("engine process started", rig=self.rig, start=start, pid=root.pid, recorder=recorder.pid)
        return ref

    async def look(self, ref: EngineRef) -> EngineSeen:
        """Look afresh at the engine's first process and its exit record."""
        root = identity.root_of(ref)
        if root is None:
            return EngineSeen(presence=Presence.ABSENT)
        if proc.is_alive(root):
            return EngineSeen(presence=Presence.RUNNING, ref=ref)
        code = await self._exit_code(ref)
        if code is None and ref.id not in self._kept:
            return EngineSeen(presence=Presence.ABSENT)
        ended = EngineExit(code=code, at_s=time.time())
        return EngineSeen(presence=Presence.EXITED, ref=ref, exit=ended)

    async def follow(self, ref: EngineRef, folder: Path) -> None:
        """Take up an engine that an earlier daemon launched: it still writes to its own file."""
        if ref.id not in self._kept:
            self._keep(ref, self._scope(ref), folder)

    async def wait_exit(self, ref: EngineRef) -> EngineExit:
        """Return when the engine or a lasting process of it has ended."""
        watch = TreeWatch(scope=self._scope(ref))
        try:
            end = await watch.first_end()
        finally:
            watch.close()
            if (kept := self._kept.get(ref.id)) is not None:
                kept.shared |= watch.shared
        code = await self._exit_code(ref) if end.root_ended else None
        return EngineExit(code=code, member=end.member, at_s=time.time())

    async def stop(self, ref: EngineRef, *, grace_s: float, deadline_s: float) -> StopReport:
        """End the whole tree; what has ended already is no error."""
        scope = self._scope(ref)
        kept = self._kept.get(ref.id)
        shared = frozenset[Path]() if kept is None else kept.shared
        report = await tree.end_tree(scope, grace_s=grace_s, deadline_s=deadline_s, shared=shared)
        if scope.recorder is not None:
            programs.reap(scope.recorder)
        if not report.survivors and kept is not None:
            self._kept.pop(ref.id, None)
            kept.keeper.cancel()
        return report

    async def sweep(self) -> tuple[str, ...]:
        """End marked processes that belong to no running engine of this rig; name them."""
        try:
            ended = await tree.end_orphans(self.rig, self._belonging)
        except TimeoutError as error:
            raise _no_answer() from error
        for kept in self._kept.values():
            if kept.scope.recorder is not None:
                programs.reap(kept.scope.recorder)
        return ended

    async def check(self, spec: LaunchSpec, *, deadline_s: float) -> CheckReport:
        """Ask the parser of the installed engine."""
        began_s = time.monotonic()
        environment = self._environment(spec, start=None, secrets={})
        program = _program(spec, environment)
        if program is None:
            message = f"there is no program {spec.argv[0]!r}"
            return CheckReport(accepted=None, message=message, took_s=time.monotonic() - began_s)
        key = (spec.digest, str(program), program.stat().st_mtime_ns)
        if key not in self._checked:
            report = await self._ask(spec, environment, program, deadline_s=deadline_s)
            if report.accepted is None:
                return report
            self._checked = {key: report}
        return self._checked[key]

    async def close(self) -> None:
        """Stop keeping logs; the engine stays."""
        keepers = [kept.keeper for kept in self._kept.values()]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        self._kept.clear()

    # Internals.

    async def _marked(self) -> dict[Process, Mark]:
        try:
            return await run_blocking(
                functools.partial(tree.marked, self.rig), deadline_s=tree.LOOK_DEADLINE_S
            )
        except TimeoutError as error:
            raise _no_answer() from error

    async def _belonging(self) -> Callable[[Process], bool]:
        alive: set[ProcessId] = set()
        for ref in await self.find():
            alive |= {process.id for process in await tree.look_at(self._scope(ref))}
        return lambda process: process.id in alive

    def _running(self, start: int, digest: str, marks: Mapping[Process, Mark]) -> EngineRef | None:
        """Return the running engine of that start: what its folder says, else the child of its recorder."""
        kept = identity.read(startlog.folder_of(self.state_dir, start))
        if kept is not None and proc.is_alive(kept.root):
            return identity.ref_of(kept.root, start=start, digest=digest)
        ours = [process for process, mark in marks.items() if mark.start == start]
        recorders = {process.pid for process in ours if process.pid == process.session}
        children = [process for process in ours if process.parent in recorders]
        if not children:
            return None
        root = min(children, key=lambda process: process.ticks)
        return identity.ref_of(root.id, start=start, digest=digest)

    def _scope(self, ref: EngineRef) -> Scope:
        if (kept := self._kept.get(ref.id)) is not None:
            return kept.scope
        root = identity.root_of(ref) or ProcessId(pid=ref.pid, ticks=-1)  # Of another boot: matches nothing.
        recorder: ProcessId | None = None
        seen = proc.read(root.pid)
        noted = identity.read(startlog.folder_of(self.state_dir, ref.start))
        if noted is not None and noted.root == root:
            recorder = noted.recorder
        elif seen is not None and seen.id == root and (leader := proc.read(seen.session)) is not None:
            recorder = leader.id
        return Scope(rig=self.rig, start=ref.start, root=root, recorder=recorder)

    def _folder(self, ref: EngineRef) -> Path:
        kept = self._kept.get(ref.id)
        return startlog.folder_of(self.state_dir, ref.start) if kept is None else kept.folder

    async def _exit_code(self, ref: EngineRef) -> int | None:
        """Return the code that the recorder wrote, else the recorder's own when it is our child."""
        recorder = self._scope(ref).recorder
        if recorder is not None:
            await tree.wait_gone((recorder,), timeout_s=_RECORD_DEADLINE_S)
        own = None if recorder is None else programs.reap(recorder)
        try:
            folder = self._folder(ref)
            noted = await run_blocking(lambda: startlog.exit_code(folder), deadline_s=_FILE_DEADLINE_S)
        except TimeoutError:
            noted = None
        return own if noted is None else noted

    def _environment(
        self, spec: LaunchSpec, *, start: int | None, secrets: Mapping[str, str]
    ) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in spec.inherit_environment if name in os.environ}
        marks = {} if start is None else {
            MARKER_RIG: self.rig,
            MARKER_START: str(start),
            MARKER_DIGEST: spec.digest,
        }  # fmt: skip
        return inherited | dict(spec.environment) | dict(secrets) | marks

    async def _spawned(
        self, spec: LaunchSpec, environment: Mapping[str, str], folder: Path, *, start: int
    ) -> tuple[ProcessId, ProcessId | None]:
        """Start the engine; when the caller leaves meanwhile, end it again."""
        spawning = asyncio.create_task(
            run_blocking(lambda: self._spawn(spec, environment, folder), deadline_s=_LAUNCH_DEADLINE_S)
        )
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            recorder, root = await spawning
            scope = Scope(rig=self.rig, start=start, root=root or recorder, recorder=recorder)
            await tree.end_tree(scope, grace_s=0.0, deadline_s=_CANCEL_DEADLINE_S)
            programs.reap(recorder)
            raise

    def _spawn(
        self, spec: LaunchSpec, environment: Mapping[str, str], folder: Path
    ) -> tuple[ProcessId, ProcessId | None]:
        output = startlog.prepare(folder)
        startlog.write_spec(folder, spec)
        return programs.spawn(
            spec.argv,
            environment=environment,
            folder=folder.absolute(),
            output=output,
            working_directory=spec.working_directory,
        )

    def _keep(self, ref: EngineRef, scope: Scope, folder: Path) -> None:
        keeper = asyncio.create_task(self._limit_log(scope, folder), name=f"log of start {ref.start}")
        self._kept[ref.id] = _Kept(scope=scope, folder=folder, keeper=keeper)

    async def _limit_log(self, scope: Scope, folder: Path) -> None:
        """Cut the log whenever it has grown past its limit, while the engine lives."""
        path = folder / startlog.LOG_NAME
        while proc.is_alive(scope.root):
            with contextlib.suppress(TimeoutError):
                cut = await run_blocking(
                    lambda: startlog.limit(path, self._log_max_bytes), deadline_s=_FILE_DEADLINE_S
                )
                if cut:
                    log.info("engine log cut", rig=self.rig, path=str(path), limit_bytes=self._log_max_bytes)
            await asyncio.sleep(_LOG_CHECK_S)

    async def _ask(
        self, spec: LaunchSpec, environment: Mapping[str, str], program: Path, *, deadline_s: float
    ) -> CheckReport:
        began_s = time.monotonic()
        interpreter = check.interpreter_of(program)
        if not interpreter and not check.is_double(spec.argv):
            message = f"{program} is no Python script, so its parser cannot be asked"
            return CheckReport(accepted=None, message=message, took_s=time.monotonic() - began_s)
        command = check.probe_command(spec.argv, interpreter, model=spec.model)
        try:
            answer = await run_blocking(
                lambda: programs.ask(
                    command,
                    environment=environment,
                    working_directory=spec.working_directory,
                    deadline_s=deadline_s,
                ),
                deadline_s=deadline_s + _CHECK_SLACK_S,
            )
        except (TimeoutError, programs.SpawnError) as error:
            return CheckReport(accepted=None, message=str(error), took_s=time.monotonic() - began_s)
        accepted, message = check.verdict(answer)
        return CheckReport(accepted=accepted, message=message, took_s=time.monotonic() - began_s)


def _no_answer() -> RuntimeUnavailableError:
    return RuntimeUnavailableError(
        "cannot read the list of processes: /proc does not answer",
        hint="a process is stuck in the kernel; `ps -eo pid,stat,wchan,comm | grep ' D'` names it",
    )


def _program(spec: LaunchSpec, environment: Mapping[str, str]) -> Path | None:
    return programs.find_program(spec.argv[0], path=environment.get("PATH"), folder=spec.working_directory)


def _refuse_missing(spec: LaunchSpec, environment: Mapping[str, str]) -> None:
    folder = spec.working_directory
    if folder is not None and not Path(folder).is_dir():
        raise LaunchError(
            f"cannot start the engine in the folder {folder!r}: there is no such folder",
            hint="make it, or change engine.process.working_directory",
        )
    if _program(spec, environment) is None:
        raise LaunchError(
            f"cannot start the engine: there is no program {spec.argv[0]!r}",
            hint="install vLLM, or give the program's full path in engine.process.executable",
        )
