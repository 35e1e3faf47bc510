"""Looks at what a start waits for, and moves caches aside: the effects behind `pending`. Makes no choice."""

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rigd.adapters import reach
from rigd.adapters.aside import move_aside
from rigd.adapters.blocking import run_blocking
from rigd.adapters.mounts import awaited
from rigd.engine.spec import LaunchSpec
from rigd.errors import RigdError, explain, hint_of
from rigd.rig.schema import RuntimeKind
from rigd.runtime.base import GateReport, Runtime
from rigd.runtime.gates import check_gates
from rigd.supervise import downloads
from rigd.supervise.caches import DOWNLOAD, NoPlace, place_of
from rigd.supervise.downloads import Show
from rigd.supervise.observations import Looked, MovedAside
from rigd.supervise.plan import Plan

GATE_POLL_S = 0.5
SETTLE_SLACK_S = 2.0
DISK_S = 10.0
"""Longest wait for a file system that may be wedged, in seconds."""
MOVE_S = 45.0
REGISTRY_S = 30.0
_MIB = 1 << 20
HUB = "https://huggingface.co"


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What a look needs: the plan, its runtime, and what the host's watch says against a start."""

    plan: Plan
    runtime: Runtime
    hold: Callable[[], GateReport | None]


async def look(condition: str, surface: Surface) -> Looked:
    """Return whether a condition holds. What cannot be asked does not hold, and says why."""
    try:
        return await LOOKS[condition](surface)
    except RigdError as error:
        return Looked(holds=False, detail=explain(error), hint=hint_of(error))
    except (OSError, TimeoutError) as error:
        return Looked(holds=False, detail=f"cannot look: {error or type(error).__name__}")


async def _gate(surface: Surface, *, name: str) -> Looked:
    """Look at one gate; memory of cards is watched until it has settled, or is still held."""
    gates = surface.plan.rig.gates
    until_s = time.monotonic() + (gates.gpu_settle_s + SETTLE_SLACK_S if name == "gpu" else 0.0)
    while True:
        reports = await check_gates(surface.plan.spec, gates, surface.runtime)
        report = next(one for one in reports if one.name == name)
        if name == "gpu":
            report = surface.hold() or report
        if report.open or time.monotonic() >= until_s:
            return Looked(holds=report.open, detail=report.detail, hint=report.hint)
        await asyncio.sleep(GATE_POLL_S)


async def _docker(surface: Surface) -> Looked:
    await surface.runtime.find()
    return Looked(holds=True)


async def _network(surface: Surface) -> Looked:
    variables = dict(surface.plan.spec.environment)
    wrong = await reach.problem_of(variables.get("HF_ENDPOINT") or HUB)
    try:
        lacks = await downloads.missing(surface.plan.rig.engine, surface.plan.spec)
    except (
        OSError,
        TimeoutError,
    ) as error:  # A folder of another user's, a disk that is away: it says nothing.
        lacks = f"the downloads cannot be looked at: {error or type(error).__name__}"
    detail = "" if wrong is None else wrong if lacks is None else f"{wrong} (needed, because {lacks})"
    return Looked(
        holds=wrong is None,
        detail=detail,
        hint="see whether this host reaches it: `curl -I URL`",
        whole=lacks is None,
    )


async def _registry(surface: Surface) -> Looked:
    container = surface.plan.spec.container
    if container is None:
        return Looked(holds=True)
    from rigd.adapters import docker  # noqa: PLC0415  (20 MiB, only for engines in Docker)

    def ask() -> None:
        client = docker.connect()
        try:
            docker.ask_registry(client, container.image)
        finally:
            client.close()

    try:
        await run_blocking(ask, deadline_s=REGISTRY_S)
    except docker.DockerError as error:
        return Looked(holds=False, detail=error.detail or str(error), hint=error.hint)
    return Looked(holds=True)


async def _model_mount(surface: Surface) -> Looked:
    missing = await run_blocking(lambda: _missing(surface.plan.spec), deadline_s=DISK_S)
    if missing is None:
        return Looked(holds=True)
    point = await run_blocking(lambda: awaited(missing), deadline_s=DISK_S)
    disk = "" if point is None else f", and its disk is not mounted at {point}"
    return Looked(
        holds=False,
        detail=f"{missing} is not there{disk}",
        hint="correct the path in the rig file, or mount its disk" if point is None else f"mount {point}",
        unexpected=point is None,
    )


def _missing(spec: LaunchSpec) -> Path | None:
    """Return the first of the host's folders and files that the engine needs and that is not there."""
    if spec.runtime is RuntimeKind.PROCESS or spec.container is None:
        needed = [Path(spec.model)] if spec.model.startswith("/") else []
    else:
        mounts = spec.container.mounts
        needed = [Path(mount.source) for mount in mounts if not mount.create]
        holding = [one for one in mounts if PurePosixPath(spec.model).is_relative_to(one.target)]
        if holding:
            mount = max(holding, key=lambda one: len(one.target))
            needed.append(Path(mount.source) / PurePosixPath(spec.model).relative_to(mount.target))
    return next((path for path in needed if not path.exists()), None)


LOOKS: dict[str, Callable[[Surface], Awaitable[Looked]]] = {
    "gpu_memory": functools.partial(_gate, name="gpu"),
    "port": functools.partial(_gate, name="port"),
    "disk": functools.partial(_gate, name="disk"),
    "shm": functools.partial(_gate, name="shm"),
    "network": _network,
    "registry": _registry,
    "docker": _docker,
    "model_mount": _model_mount,
}
"""How each of `conditions.CONDITIONS` is looked at."""


async def move(cache: str, stamp: int, plan: Plan, *, show: Show = lambda _name, _share: None) -> MovedAside:
    """Move a cache of the engine aside, and say where it is and how large; or why it stays.

    Of a download only the files that are proven to be damaged, where that can be known.
    """
    place = place_of(cache, plan.spec, inherited=os.environ)
    if isinstance(place, NoPlace):
        return MovedAside(moved=False, detail=f"nothing to move: {place.why}")
    where = f"{place.folder}/{place.pattern}"
    try:
        if cache == DOWNLOAD:
            with contextlib.suppress(PermissionError):  # What rigd may not read it may still rename.
                culprits = await downloads.move_damaged(place, stamp, plan.rig.engine, show=show)
                if culprits is not None:
                    return culprits
        moved = await run_blocking(
            lambda: move_aside(Path(place.folder), place.pattern, stamp, leave_empty=place.mount_root),
            deadline_s=MOVE_S,
        )
    except TimeoutError:
        return MovedAside(moved=False, detail=f"the disk of {where} does not answer")
    except OSError as error:
        return MovedAside(moved=False, detail=f"cannot move {where}: {error.strerror or error}")
    if not moved.paths:
        return MovedAside(moved=False, detail=f"nothing to move: there is no {where}")
    least = "" if moved.complete else "at least "
    named = f"{moved.paths[0]}" + (f" and {len(moved.paths) - 1} more" if len(moved.paths) > 1 else "")
    dropped = f"; {moved.dropped} older ones deleted" if moved.dropped else ""
    size = f"{least}{moved.size_bytes / _MIB:,.1f} MiB"
    return MovedAside(
        moved=True, detail=f"moved aside to {named} ({size}{dropped}); delete it when all is well"
    )
