"""The engine as a container: made by label, watched by Docker's events and by its processes' own ends.

    rigd -> Docker: create, start, kill, remove      (each in a thread with a deadline; Docker may hang)
         <- events, output                           (threads of their own, through restarts of Docker)
         <- pidfds of the container's processes      (they are processes of this host too)

No init process is put before the engine: the container's first process is the engine's root, so its exit code and
its signals are the engine's own. Whatever it leaves unreaped goes with it, as a container's processes always do.
"""

import asyncio
import contextlib
import functools
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rigd.adapters import docker, proc
from rigd.adapters.blocking import run_blocking
from rigd.adapters.docker import (
    Client,
    ContainerSeen,
    DockerConflictError,
    DockerError,
    DockerMissingError,
    DockerUnreachableError,
    PullStep,
)
from rigd.adapters.proc import Process, ProcessId
from rigd.adapters.process import Answer
from rigd.engine.spec import LABEL_DIGEST, LABEL_RIG, LABEL_START, ContainerSpec, LaunchSpec
from rigd.log import get
from rigd.rig.schema import RuntimeKind
from rigd.runtime import check, container, startlog, tree
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
from rigd.runtime.container_events import EventWatch
from rigd.runtime.container_log import LogCopy
from rigd.runtime.secrets import resolve_secrets
from rigd.runtime.tree import End, Scope, TreeWatch

log = get("runtime.docker")
T = TypeVar("T")

_ANSWER_S = 10.0
"""Longest wait for a call that only asks."""
_CREATE_S = 90.0
_PULL_S = 6 * 3600.0
"""Bound of a pull that nobody cancels; the rig file's own deadline comes first."""
_RELOOK_S = 30.0
"""How often a waiting engine is looked at without any event; a safety net."""
_AFTER_END_S = 2.0
"""How long Docker may take to say how a container ended whose first process is gone."""
_RETRY_S = 1.0
_DRAIN_S = 3.0
"""How long the last output may take to arrive before the container is removed."""
_POLL_S = 0.05
_LEFT_OVER_S = 2.0
_GIB = 1024**3
_HINTS = (
    (
        "could not select device driver",
        "install the NVIDIA Container Toolkit, then `systemctl restart docker`",
    ),
    ("CDI device", "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or another `gpu_injection`"),
    ("failed to discover GPU vendor", "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"),
    ("runtime specified nvidia", "`nvidia-ctk runtime configure --runtime=docker`, then restart Docker"),
    (
        "unknown or invalid runtime name",
        "`nvidia-ctk runtime configure --runtime=docker`, then restart Docker",
    ),
    ("nvidia-container-cli", "see whether `nvidia-smi` works on this host; a driver update needs a reboot"),
    (
        "port is already allocated",
        "another container publishes it: `docker ps` names it; or change engine.port",
    ),
    ("address already in use", "another program listens there; stop it or change engine.port"),
    ("cannot assign requested address", "engine.host is no address of this host now; is the tailnet up?"),
    ("executable file not found", "engine.docker.entrypoint names a program that the image does not have"),
    ("no such file or directory", "see whether engine.docker.entrypoint and the mounts are right"),
    ("no space left on device", "free room where Docker keeps its data: `docker system df`"),
)
"""What to do about words of Docker's, first match wins."""


class DockerRuntime:
    """Runs engines of one rig as containers. See `base.Runtime`."""

    def __init__(self, rig_name: str, *, runtime_dir: Path, state_dir: Path, log_max_mib: float) -> None:
        self.rig = rig_name
        self.runtime_dir = runtime_dir
        self.state_dir = state_dir
        self._log_max_bytes = int(log_max_mib * 1024 * 1024)
        self._client: Client | None = None
        self._connecting = threading.Lock()
        self._copies: dict[str, LogCopy] = {}
        self._shared: dict[str, frozenset[Path]] = {}
        self._events: EventWatch | None = None
        self._checked: dict[tuple[str, str], CheckReport] = {}

    async def find(self) -> tuple[EngineRef, ...]:
        """Return the running containers of this rig, newest first."""
        refs = [_ref(seen) for seen in await self._ours() if seen.running]
        return tuple(sorted(refs, key=lambda ref: (ref.start, ref.created_s), reverse=True))

    async def launch(self, spec: LaunchSpec, *, start: int, folder: Path, progress: Progress) -> EngineRef:
        """Pull the image if it is missing, make the container and start it."""
        described = _described(spec)
        self._watch_events()
        try:
            container.refuse_missing_sources(spec)
            await self._have_image(described, progress)
            await self._free_name(described)
            progress(f"creating container {described.name}", None)
            return await self._create_and_start(spec, start=start, folder=folder)
        except RuntimeUnavailableError as error:
            raise LaunchError(
                f"cannot start the container {described.name!r}: Docker does not answer",
                hint=error.hint,
                detail=str(error.__cause__ or ""),
                temporary=True,
            ) from error
        except DockerError as error:
            raise LaunchError(
                f"cannot start the container {described.name!r}",
                hint=_hint(error.detail),
                detail=error.detail,
            ) from error
        except OSError as error:
            raise LaunchError(
                f"cannot write what the container {described.name!r} needs",
                hint=f"see whether {self.state_dir} and {self.runtime_dir} may be written and have room",
                detail=str(error),
            ) from error

    async def look(self, ref: EngineRef) -> EngineSeen:
        """Look afresh at the container's state."""
        try:
            seen = await self._ask(functools.partial(docker.inspect, container=ref.id))
        except DockerMissingError:
            return EngineSeen(presence=Presence.ABSENT)
        if seen.running:
            return EngineSeen(presence=Presence.RUNNING, ref=_ref(seen))
        return EngineSeen(presence=Presence.EXITED, ref=ref, exit=self._ended(seen))

    async def follow(self, ref: EngineRef, folder: Path) -> None:
        """Go on copying the container's output where the earlier daemon stopped."""
        self._watch_events()
        self._copy_log(ref.id, folder)

    async def wait_exit(self, ref: EngineRef) -> EngineExit:
        """Return when the container or a lasting process in it has ended."""
        watch = TreeWatch(scope=_scope(self.rig, ref))
        visible = await run_blocking(lambda: _visible(ref), deadline_s=_ANSWER_S)
        ending: asyncio.Task[End] | None = asyncio.create_task(watch.first_end()) if visible else None
        try:
            with self._watch_events().waker() as woken:
                return await self._first_sign(ref, ending, woken)
        finally:
            if ending is not None:
                ending.cancel()
                await asyncio.gather(ending, return_exceptions=True)
            watch.close()
            self._shared[ref.id] = self._shared.get(ref.id, frozenset()) | watch.shared

    async def stop(self, ref: EngineRef, *, grace_s: float, deadline_s: float) -> StopReport:
        """TERM, grace, KILL the container; see that its processes are gone; keep its output; remove it."""
        began_s = time.monotonic()
        members: set[Process] = set()
        shared = self._shared.pop(ref.id, frozenset())
        killed = 0
        try:
            seen = await self._ask(functools.partial(docker.inspect, container=ref.id))
            if seen.running:
                members = set(await _members(ref))
                shared |= await tree.shared_memory(members)
                killed = await self._end(seen, members, grace_s=grace_s, deadline_s=deadline_s)
        except DockerMissingError:
            members = set(await _members(ref))
        left = await _end_left_over(members)
        await tree.release_shared_memory(shared)
        await self._remove(ref.id)
        await run_blocking(lambda: container.remove_secrets(self._secrets_folder), deadline_s=_ANSWER_S)
        return StopReport(
            processes=len(members),
            killed=killed,
            survivors=tuple(f"{one.name} (pid {one.pid}, state {one.state})" for one in left),
            took_s=time.monotonic() - began_s,
        )

    async def sweep(self) -> tuple[str, ...]:
        """Remove containers of this rig that do not run, and end marked processes outside those that do."""
        ours = await self._ours()
        running = [seen for seen in ours if seen.running]
        named: list[str] = []
        for seen in ours:
            if not seen.running:
                folder = startlog.folder_of(self.state_dir, _ref(seen).start)
                await self._save_output(seen.id, folder)
                await self._remove(seen.id)
                named.append(f"container {seen.name} ({seen.status}, start {_ref(seen).start})")
        for identity in await self._ask(
            functools.partial(docker.with_label, label=f"{container.LABEL_CHECK}={self.rig}")
        ):
            await self._ask(functools.partial(docker.remove, container=identity), deadline_s=_CREATE_S)

        async def belonging() -> Callable[[Process], bool]:
            return lambda process: _inside(process.pid, running)

        try:
            return (*named, *await tree.end_orphans(self.rig, belonging))
        except TimeoutError as error:
            raise RuntimeUnavailableError(
                "cannot read the list of processes: /proc does not answer",
                hint="a process is stuck in the kernel; `ps -eo pid,stat,wchan,comm | grep ' D'` names it",
            ) from error

    async def check(self, spec: LaunchSpec, *, deadline_s: float) -> CheckReport:
        """Ask the parser in a one-shot container of the same image, without GPUs or network."""
        began_s = time.monotonic()
        described = _described(spec)
        image = await self._ask(functools.partial(docker.image_id, image=described.image))
        if image is None:
            message = f"the image {described.image!r} is not here yet"
            return CheckReport(accepted=None, message=message, took_s=time.monotonic() - began_s)
        key = (spec.digest, image)
        if key in self._checked:
            return self._checked[key]
        try:
            answer = await self._run_probe(spec, described, deadline_s=deadline_s)
        except DockerError as error:
            return CheckReport(accepted=None, message=error.detail, took_s=time.monotonic() - began_s)
        accepted, message = check.verdict(answer)
        report = CheckReport(accepted=accepted, message=message, took_s=time.monotonic() - began_s)
        if accepted is not None:
            self._checked = {key: report}
        return report

    async def close(self) -> None:
        """Stop copying and watching; the container stays."""
        threads: list[LogCopy | EventWatch] = [*self._copies.values()]
        if self._events is not None:
            threads.append(self._events)
        for thread in threads:
            thread.stop()
        for thread in threads:
            with contextlib.suppress(TimeoutError):
                await run_blocking(functools.partial(thread.join, _DRAIN_S), deadline_s=_DRAIN_S + 1)
        self._copies.clear()
        self._events = None
        self._forget_client()

    # Asking Docker.

    def _connect(self) -> Client:
        with self._connecting:
            if self._client is None:
                self._client = docker.connect()
            else:
                docker.knock()
            return self._client

    def _forget_client(self) -> None:
        with self._connecting:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _ask(self, question: Callable[[Client], T], *, deadline_s: float = _ANSWER_S) -> T:
        """Return Docker's answer; `RuntimeUnavailableError` when there is none in time."""
        try:
            return await run_blocking(lambda: question(self._connect()), deadline_s=deadline_s)
        except (TimeoutError, DockerUnreachableError) as error:
            if isinstance(error, DockerUnreachableError):
                self._forget_client()
            raise RuntimeUnavailableError(
                "Docker does not answer",
                hint="see whether Docker runs: `systemctl status docker`; is this user in its group?",
            ) from error

    async def _ours(self) -> list[ContainerSeen]:
        found = await self._ask(functools.partial(docker.with_label, label=f"{LABEL_RIG}={self.rig}"))
        seen: list[ContainerSeen] = []
        for identity in found:
            with contextlib.suppress(DockerMissingError):
                seen.append(await self._ask(functools.partial(docker.inspect, container=identity)))
        return seen

    # Launching.

    async def _have_image(self, described: ContainerSpec, progress: Progress) -> None:
        image = described.image
        if await self._ask(functools.partial(docker.image_id, image=image)) is not None:
            return
        if described.pull == "never":
            raise LaunchError(
                f"cannot start a container: there is no image {image!r}, and the rig file says never to pull",
                hint=f"`docker pull {image}`, or set `pull: missing` in engine.docker",
            )
        progress(f"pulling {image}", None)
        cancelled = threading.Event()

        def report(step: PullStep) -> None:
            share = step.bytes_done / step.bytes_total if step.bytes_total else None
            size = f"{step.bytes_done / _GIB:.2f} of {step.bytes_total / _GIB:.2f} GiB"
            progress(f"pulling {image}: {step.layers_done} of {step.layers} layers, {size}", share)

        try:
            await self._ask(
                functools.partial(docker.pull, image=image, report=report, cancelled=cancelled),
                deadline_s=_PULL_S,
            )
        except DockerError as error:
            raise LaunchError(
                f"cannot pull the image {image!r}",
                hint="see whether name and tag are right, the registry can be reached, and the disk has room",
                detail=error.detail,
            ) from error
        finally:
            cancelled.set()

    async def _free_name(self, described: ContainerSpec) -> None:
        """Remove a dead container of ours that has the name; refuse when it is another's."""
        try:
            seen = await self._ask(functools.partial(docker.inspect, container=described.name))
        except DockerMissingError:
            return
        if seen.labels.get(LABEL_RIG) != self.rig:
            raise LaunchError(
                f"cannot create the container {described.name!r}: the name belongs to {_whose(seen)}",
                hint=f"`docker rm -f {described.name}` if it may go, or change engine.docker.container",
            )
        if seen.running:
            raise LaunchError(
                f"cannot create the container {described.name!r}: start {_ref(seen).start} still runs in it",
                hint="stop it first: `rigd stop`",
            )
        folder = startlog.folder_of(self.state_dir, _ref(seen).start)
        await self._save_output(seen.id, folder)
        await self._remove(seen.id)

    async def _create_and_start(self, spec: LaunchSpec, *, start: int, folder: Path) -> EngineRef:
        wanted = await run_blocking(lambda: self._prepare(spec, start, folder), deadline_s=_ANSWER_S)
        made = await self._ask(functools.partial(docker.create, wanted=wanted), deadline_s=_CREATE_S)
        try:
            await self._ask(functools.partial(docker.start, container=made), deadline_s=_CREATE_S)
            seen = await self._ask(functools.partial(docker.inspect, container=made))
        except BaseException:
            with contextlib.suppress(DockerError, RuntimeUnavailableError):
                await self._ask(functools.partial(docker.remove, container=made), deadline_s=_CREATE_S)
            raise
        ref = _ref(seen)
        self._copy_log(ref.id, folder)
        log.info("engine container started", rig=self.rig, start=start, container=seen.name, pid=seen.pid)
        return ref

    def _prepare(self, spec: LaunchSpec, start: int, folder: Path) -> docker.Creation:
        startlog.prepare(folder)
        startlog.write_spec(folder, spec)
        secrets = container.write_secrets(
            self._secrets_folder, resolve_secrets(spec), user=_described(spec).user
        )
        return container.creation(spec, start=start, secrets=secrets, log_max_bytes=self._log_max_bytes)

    @property
    def _secrets_folder(self) -> Path:
        return (self.runtime_dir / "secrets" / self.rig).absolute()

    # Watching.

    def _watch_events(self) -> EventWatch:
        if self._events is None:
            self._events = EventWatch(self._connect, f"{LABEL_RIG}={self.rig}")
            self._events.start()
        return self._events

    async def _first_sign(
        self, ref: EngineRef, ending: "asyncio.Task[End] | None", woken: asyncio.Event
    ) -> EngineExit:
        """Look whenever there is a reason to, until the engine has ended."""
        root_gone_s: float | None = None
        while True:
            woken.clear()
            end = ending.result() if ending is not None and ending.done() else None
            try:
                seen = await self.look(ref)
            except RuntimeUnavailableError:
                seen = None
            if seen is not None and seen.presence is not Presence.RUNNING:
                return self._told(ref, seen, end)
            if end is not None and not end.root_ended:
                return self._told(ref, None, end)
            if end is not None:
                root_gone_s = root_gone_s or time.monotonic()
                if time.monotonic() - root_gone_s > _AFTER_END_S:
                    return self._told(ref, None, end)
            await self._reason_to_look(ending, woken, answers=seen is not None)

    @staticmethod
    async def _reason_to_look(
        ending: "asyncio.Task[End] | None", woken: asyncio.Event, *, answers: bool
    ) -> None:
        """Return on an event, on the end of a process, or after a while."""
        ended = ending is not None and ending.done()
        timeout_s = _POLL_S if ended else _RELOOK_S if answers else _RETRY_S
        event = asyncio.create_task(woken.wait())
        waiting: set[asyncio.Task[object]] = {event}
        if ending is not None and not ended:
            waiting.add(ending)
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            event.cancel()

    def _told(self, ref: EngineRef, seen: EngineSeen | None, end: End | None) -> EngineExit:
        """Put together what Docker, its events and the processes say."""
        said = None if seen is None else seen.exit
        member = None if end is None else end.member
        if said is not None:
            return EngineExit(
                code=said.code,
                oom_killed=said.oom_killed,
                member=member,
                detail=said.detail,
                at_s=time.time(),
            )
        died = self._watch_events().last(ref.id, "die")
        absent = seen is not None and seen.presence is Presence.ABSENT
        silent = seen is None and end is not None and end.root_ended
        return EngineExit(
            code=None if died is None else died.exit_code,
            oom_killed=self._watch_events().last(ref.id, "oom") is not None,
            member=member,
            detail="the container was removed"
            if absent
            else "Docker does not say how it ended"
            if silent
            else "",
            at_s=time.time(),
        )

    def _ended(self, seen: ContainerSeen) -> EngineExit:
        oom = self._events is not None and self._events.last(seen.id, "oom") is not None
        return EngineExit(
            code=seen.exit_code, oom_killed=seen.oom_killed or oom, detail=seen.error, at_s=time.time()
        )

    # Output.

    def _copy_log(self, identity: str, folder: Path) -> None:
        if identity not in self._copies or not self._copies[identity].is_alive():
            copy = LogCopy(self._connect, identity, folder, max_bytes=self._log_max_bytes)
            self._copies[identity] = copy
            copy.start()

    async def _save_output(self, identity: str, folder: Path) -> None:
        """Copy what an ended container wrote, unless that is being done already."""
        if identity not in self._copies:
            copy = LogCopy(self._connect, identity, folder, max_bytes=self._log_max_bytes, follow=False)
            self._copies[identity] = copy
            copy.start()

    async def _remove(self, identity: str) -> None:
        """Remove the container once its last output has been copied."""
        copy = self._copies.pop(identity, None)
        if copy is not None:
            with contextlib.suppress(TimeoutError):
                await run_blocking(functools.partial(copy.join, _DRAIN_S), deadline_s=_DRAIN_S + 1)
            copy.stop()
        with contextlib.suppress(DockerConflictError):  # Its removal is under way already.
            await self._ask(functools.partial(docker.remove, container=identity), deadline_s=_CREATE_S)

    # Ending.

    async def _end(
        self, seen: ContainerSeen, members: set[Process], *, grace_s: float, deadline_s: float
    ) -> int:
        """End the container; return how many processes had to be killed."""
        began_s = time.monotonic()
        if seen.paused:
            await self._ask(functools.partial(docker.unpause, container=seen.id))
        await self._signal(seen.id, "SIGTERM")
        for process in members:  # The root's own children too: a frozen one would hold the orderly end.
            if proc.send(process.id, signal.SIGTERM):
                proc.send(process.id, signal.SIGCONT)
        if await self._gone(seen, timeout_s=min(grace_s, deadline_s)):
            return 0
        left = await _members(_ref(seen))
        members |= set(left)
        await self._signal(seen.id, "SIGKILL")
        await self._gone(seen, timeout_s=max(1.0, deadline_s - (time.monotonic() - began_s)))
        return max(1, len(left))

    async def _signal(self, identity: str, name: str) -> None:
        with contextlib.suppress(DockerMissingError, DockerConflictError):  # It has ended meanwhile.
            await self._ask(functools.partial(docker.kill, container=identity, signal=name))

    async def _gone(self, seen: ContainerSeen, *, timeout_s: float) -> bool:
        """Return whether Docker says within the time that the container has ended."""
        until_s = time.monotonic() + timeout_s
        root = proc.read(seen.pid)
        if root is not None and not root.gone and _inside(root.pid, [seen]):
            await tree.wait_gone((root.id,), timeout_s=timeout_s)
        while True:
            try:
                if not (await self._ask(functools.partial(docker.inspect, container=seen.id))).running:
                    return True
            except DockerMissingError:
                return True
            # Docker needs a moment to notice what the kernel told us.
            if time.monotonic() > until_s + (
                _AFTER_END_S if root is not None and not proc.is_alive(root.id) else 0
            ):
                return False
            await asyncio.sleep(_POLL_S)

    # The parser.

    async def _run_probe(self, spec: LaunchSpec, described: ContainerSpec, *, deadline_s: float) -> Answer:
        interpreter = ("python3",) if not described.entrypoint else _interpreter(described)
        full = (*described.entrypoint, *spec.argv)
        command = check.probe_command(full, interpreter, model=spec.model)
        wanted = container.probe_creation(spec, command)
        made = await self._ask(functools.partial(docker.create, wanted=wanted), deadline_s=_CREATE_S)
        try:
            await self._ask(functools.partial(docker.start, container=made), deadline_s=_CREATE_S)
            try:
                code: int | None = await self._ask(
                    functools.partial(docker.wait, container=made, timeout_s=math.ceil(deadline_s)),
                    deadline_s=deadline_s,
                )
            except RuntimeUnavailableError:
                code = None
            said = functools.partial(docker.output, container=made)
            return Answer(
                code=code,
                stdout=await self._ask(functools.partial(said, stdout=True, stderr=False)),
                stderr=await self._ask(functools.partial(said, stdout=False, stderr=True)),
            )
        finally:
            with contextlib.suppress(DockerError, RuntimeUnavailableError):
                await self._ask(functools.partial(docker.remove, container=made), deadline_s=_CREATE_S)


def _described(spec: LaunchSpec) -> ContainerSpec:
    if spec.container is None:
        raise LaunchError(f"cannot make a container for the rig {spec.rig!r}: it describes none")
    return spec.container


def _hint(detail: str) -> str:
    known = (hint for words, hint in _HINTS if words in detail)
    return next(known, "Docker's own words say what it needs")


def _interpreter(described: ContainerSpec) -> tuple[str, ...]:
    """Return the Python beside the engine's program, where the program has a full path; else the image's own."""
    program = Path(described.entrypoint[0])
    if program.name.startswith("python"):
        return (str(program),)
    return (str(program.with_name("python3")),) if program.is_absolute() else ("python3",)


def _ref(seen: ContainerSeen) -> EngineRef:
    start = seen.labels.get(LABEL_START, "")
    return EngineRef(
        runtime=RuntimeKind.DOCKER,
        id=seen.id,
        pid=seen.pid,
        start=int(start) if start.isdigit() else 0,
        digest=seen.labels.get(LABEL_DIGEST, ""),
        created_s=seen.created_s,
    )


def _scope(rig: str, ref: EngineRef) -> Scope:
    root = proc.read(ref.pid)
    return Scope(
        rig=rig, start=ref.start, root=root.id if root is not None else ProcessId(pid=ref.pid, ticks=-1)
    )


def _visible(ref: EngineRef) -> bool:
    """Whether the container's first process is a process of this host (not so with Docker in a virtual machine)."""
    return ref.pid > 0 and ref.id in proc.control_groups(ref.pid)


def _inside(pid: int, running: list[ContainerSeen]) -> bool:
    groups = proc.control_groups(pid)
    return any(seen.id in groups for seen in running)


async def _members(ref: EngineRef) -> tuple[Process, ...]:
    """Return the container's processes; none where they cannot be seen from here."""

    def look() -> tuple[Process, ...]:
        return tuple(
            process
            for process in proc.table().values()
            if not process.gone and ref.id in proc.control_groups(process.pid)
        )

    return await run_blocking(look, deadline_s=tree.LOOK_DEADLINE_S)


async def _end_left_over(members: set[Process]) -> tuple[Process, ...]:
    """Kill members that outlived their container (a process stuck in the kernel does)."""
    left = [process for process in members if proc.is_alive(process.id)]
    if not left:
        return ()
    return await tree.kill(left, grace_s=0.0, deadline_s=_LEFT_OVER_S)


def _whose(seen: ContainerSeen) -> str:
    if rig := seen.labels.get(LABEL_RIG):
        return f"the rig {rig!r}"
    if project := seen.labels.get("com.docker.compose.project"):
        return f"the compose project {project!r} (image {seen.image}, {seen.status})"
    return f"a container that is not rigd's (image {seen.image}, {seen.status})"
