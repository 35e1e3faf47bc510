"""Gates: what must hold before a start. Each says whether it is open, what holds it, and what to do.

    look(spec, ...) -> Readings (frozen)  ->  evaluate(spec, gates, readings) -> GateReport (pure)

`check_gates` is one look; the caller comes back until all are open or its deadline is over.
"""

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

from rigd.adapters import host
from rigd.adapters.blocking import run_blocking
from rigd.adapters.gpu import GpuCard, GpuReader, GpuReadings
from rigd.adapters.host import PortSeen, Space
from rigd.engine.card_memory import utilization_that_fits
from rigd.engine.spec import LaunchSpec
from rigd.rig.schema import Gates, RuntimeKind
from rigd.runtime import tree
from rigd.runtime.base import EngineRef, GateReport, Runtime

T = TypeVar("T")

_LOOK_DEADLINE_S = 10.0
SETTLE_GAP_S = 5.0
"""Longest time between two looks over which memory counts as having stayed low."""
_MIB_A_GIB = 1024
_CACHES = ("HF_HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME")
"""Variables that name folders which a bare process fills."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A process, in words."""

    pid: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Everything the gates are judged by, read at one time. None: that could not be read in time."""

    engines: tuple[EngineRef, ...]
    left_over: tuple[Holder, ...]
    port: PortSeen | None
    publisher: str | None
    """Container that publishes the port, where Docker's proxy holds it."""
    gpus: GpuReadings
    names: dict[int, str]
    """Names of the processes that hold GPU memory."""
    disks: tuple[Space, ...] | None
    shared_memory: Space | None
    low_for_s: float
    """How long each card's memory has been below its baseline."""


@dataclass(kw_only=True)
class GpuSettle:
    """Remembers from one look to the next since when the cards' memory is low."""

    reader: GpuReader = field(default_factory=GpuReader)
    _low_since_s: float | None = None
    _looked_s: float = float("-inf")

    def low_for_s(self, readings: GpuReadings, spec: LaunchSpec, gates: Gates, *, now_s: float) -> float:
        """Return for how long the cards have been below the baseline, as far as they were looked at."""
        unseen_s, self._looked_s = now_s - self._looked_s, now_s
        if any(_is_busy(card, gates) for card in _wanted(readings.cards, spec)):
            self._low_since_s = None
            return 0.0
        if unseen_s > SETTLE_GAP_S:  # Another start may have come and gone.
            self._low_since_s = None
        if self._low_since_s is None:
            self._low_since_s = now_s
        return now_s - self._low_since_s


async def check_gates(
    spec: LaunchSpec, gates: Gates, runtime: Runtime, *, settle: GpuSettle | None = None
) -> tuple[GateReport, ...]:
    """Look once and judge. Raises `RuntimeUnavailableError` when the runtime does not answer.

    How long GPU memory is low is remembered from look to look for each runtime, unless `settle` is given.
    """
    settle = _SETTLES.setdefault(runtime, GpuSettle()) if settle is None else settle
    return evaluate(spec, gates, await _read(spec, gates, runtime, settle=settle))


def evaluate(spec: LaunchSpec, gates: Gates, seen: Readings) -> tuple[GateReport, ...]:
    """Return the report of every gate. Pure."""
    return tuple(judge(spec, gates, seen) for judge in _GATES)


def uses_card(spec: LaunchSpec, *, index: int | None, uuid: str = "") -> bool:
    """Whether the engine will use this card (None: any)."""
    chosen = _chosen(spec)
    if not _uses_gpus(spec):
        return False
    named = index is None or str(index) in chosen or any(uuid.startswith(one) for one in chosen if uuid)
    return named or not chosen


def _tree(spec: LaunchSpec, gates: Gates, seen: Readings) -> GateReport:
    del gates
    if seen.engines:
        ref = seen.engines[0]
        return _shut(
            "tree",
            f"start {ref.start} of {spec.rig} still runs (pid {ref.pid})",
            "stop it first: `rigd stop`",
        )
    if seen.left_over:
        names = ", ".join(f"{one.name} (pid {one.pid})" for one in seen.left_over[:8])
        return _shut(
            "tree",
            f"processes of an earlier start of {spec.rig} are still there: {names}",
            "rigd ends them; one that will not go is stuck in the kernel, and only a reboot ends it",
        )
    return _open("tree", "no process of an earlier start")


def _port(spec: LaunchSpec, gates: Gates, seen: Readings) -> GateReport:
    del gates
    address = f"{spec.host}:{spec.port}"
    if seen.port is None:
        return _shut("port", f"cannot tell whether {address} is free: the host does not answer", None)
    if seen.port.error is None:
        return _open("port", f"{address} is free")
    if seen.port.error == errno.EADDRNOTAVAIL:
        return _shut(
            "port",
            f"{spec.host} is no address of this host now",
            "bring its interface up (`tailscale status`), or change engine.host",
        )
    if seen.port.error in (errno.EACCES, errno.EPERM) and spec.runtime is RuntimeKind.DOCKER:
        return _open("port", f"{address} needs root to bind, which Docker has")
    if seen.port.error != errno.EADDRINUSE:
        reason = errno.errorcode.get(seen.port.error, str(seen.port.error))
        return _shut(
            "port", f"cannot bind {address}: {reason}", "change engine.port, or run as who may bind it"
        )
    if seen.publisher is not None:
        return _shut(
            "port",
            f"{address} is published by the container {seen.publisher!r}",
            f"`docker stop {seen.publisher}` if it may go, or change engine.port",
        )
    if seen.port.holder is None:
        return _shut(
            "port",
            f"{address} is taken by a process that this user may not see",
            f"`sudo ss -ltnp 'sport = :{spec.port}'` names it; stop it or change engine.port",
        )
    holder = seen.port.holder
    return _shut(
        "port",
        f"{address} is taken by {holder.name} (pid {holder.pid}, user {holder.user}): {holder.command}",
        f"stop it (`kill {holder.pid}`) if it may go, or change engine.port",
    )


def _gpu(spec: LaunchSpec, gates: Gates, seen: Readings) -> GateReport:
    if not _uses_gpus(spec):
        return _open("gpu", "this engine uses no cards")
    if seen.gpus.absent:
        return _open("gpu", "this host has no NVIDIA driver")
    if seen.gpus.problem is not None:
        return _shut("gpu", f"the cards cannot be read: {seen.gpus.problem.message}", seen.gpus.problem.hint)
    cards = _wanted(seen.gpus.cards, spec)
    for card in cards:
        if card.problem is not None and card.memory_used_mib is None:
            return _shut("gpu", f"GPU {card.index} cannot be read: {card.problem.message}", card.problem.hint)
    busy = [card for card in cards if _is_busy(card, gates)]
    if busy:
        return _shut(
            "gpu",
            "; ".join(_held(card, seen.names, gates) for card in busy),
            "end what holds it (`nvidia-smi` lists the same), or raise gates.gpu_memory_used_mib",
        )
    if seen.low_for_s < gates.gpu_settle_s:
        return _shut(
            "gpu",
            f"memory is released since {seen.low_for_s:.1f} s; it has to stay so for {gates.gpu_settle_s:g} s",
            None,
        )
    return _open("gpu", f"{len(cards)} cards below {gates.gpu_memory_used_mib:g} MiB")


def _disk(spec: LaunchSpec, gates: Gates, seen: Readings) -> GateReport:
    del spec
    if seen.disks is None:
        return _shut(
            "disk", "a disk does not answer", "see `dmesg`, and whether a network disk is mounted and up"
        )
    wanted_mib = gates.disk_free_gib * _MIB_A_GIB
    for disk in seen.disks:
        if disk.free_mib is None:
            return _shut("disk", f"the disk of {disk.path} cannot be read", f"see `df {disk.path}`")
        if disk.free_mib < wanted_mib:
            return _shut(
                "disk",
                f"{disk.free_mib / _MIB_A_GIB:.1f} GiB are free at {disk.path}, "
                f"{gates.disk_free_gib:g} GiB are wanted",
                f"make room (`du -xh {disk.path} | sort -h | tail`), or lower gates.disk_free_gib",
            )
    return _open("disk", f"at least {gates.disk_free_gib:g} GiB free in {len(seen.disks)} places")


def _shm(spec: LaunchSpec, gates: Gates, seen: Readings) -> GateReport:
    if not _uses_host_shm(spec):
        return _open("shm", "the container has its own /dev/shm")
    free_mib = None if seen.shared_memory is None else seen.shared_memory.free_mib
    if free_mib is None:
        return _shut("shm", f"{host.SHARED_MEMORY} cannot be read", "see `df /dev/shm`: the engine needs it")
    if free_mib < gates.shm_free_mib:
        return _shut(
            "shm",
            f"{free_mib:.0f} MiB are free in /dev/shm, {gates.shm_free_mib:g} MiB are wanted",
            "`ls -lS /dev/shm` shows what fills it; files of ended programs may be removed",
        )
    return _open("shm", f"{free_mib:.0f} MiB free in /dev/shm")


_GATES: tuple[Callable[[LaunchSpec, Gates, Readings], GateReport], ...] = (
    _tree,
    _port,
    _gpu,
    _disk,
    _shm,
)


def _open(name: str, detail: str) -> GateReport:
    return GateReport(name=name, open=True, detail=detail)


def _shut(name: str, detail: str, hint: str | None) -> GateReport:
    return GateReport(name=name, open=False, detail=detail, hint=hint)


def _uses_gpus(spec: LaunchSpec) -> bool:
    return spec.container is None or spec.container.gpus != "none"


def _uses_host_shm(spec: LaunchSpec) -> bool:
    return spec.container is None or spec.container.ipc == "host"


def _wanted(cards: tuple[GpuCard, ...], spec: LaunchSpec) -> tuple[GpuCard, ...]:
    """Return the cards that the engine will use: all, unless the rig names some."""
    chosen = _chosen(spec)
    if not chosen:
        return cards
    named = tuple(
        card
        for card in cards
        if str(card.index) in chosen or any(card.uuid.startswith(one) for one in chosen)
    )
    return named or cards


def least_free_mib(readings: GpuReadings, spec: LaunchSpec) -> float | None:
    """Return the memory that is free on the fullest card of the engine; None where no card says."""
    if not _uses_gpus(spec):
        return None
    free = [
        card.memory_free_mib for card in _wanted(readings.cards, spec) if card.memory_free_mib is not None
    ]
    return float(min(free)) if free else None


def share_that_fits(readings: GpuReadings, spec: LaunchSpec) -> float | None:
    """Return the share of its cards that the engine may ask for now; None where a card does not say."""
    if not _uses_gpus(spec):
        return None
    shares = []
    for card in _wanted(readings.cards, spec):
        if card.memory_free_mib is None or card.memory_total_mib is None:
            return None
        free_gib, total_gib = card.memory_free_mib / _MIB_A_GIB, card.memory_total_mib / _MIB_A_GIB
        shares.append(utilization_that_fits(free_gib, total_gib) or 0.0)
    return min(shares, default=None)


def _chosen(spec: LaunchSpec) -> tuple[str, ...]:
    """Return the cards that the rig names, by index or by the beginning of their uuid."""
    if spec.container is not None:
        return () if isinstance(spec.container.gpus, str) else tuple(map(str, spec.container.gpus))
    visible = dict(spec.environment).get("CUDA_VISIBLE_DEVICES", "")
    return tuple(part.strip() for part in visible.split(",") if part.strip())


def _is_busy(card: GpuCard, gates: Gates) -> bool:
    return card.memory_used_mib is not None and card.memory_used_mib > gates.gpu_memory_used_mib


def _held(card: GpuCard, names: dict[int, str], gates: Gates) -> str:
    holders = ", ".join(
        f"{names.get(one.pid) or 'a process'} (pid {one.pid}"
        + (f", {one.memory_mib} MiB)" if one.memory_mib is not None else ")")
        for one in card.processes
    )
    return (
        f"GPU {card.index} ({card.name}) has {card.memory_used_mib} MiB in use, over the "
        f"{gates.gpu_memory_used_mib:g} MiB of gates.gpu_memory_used_mib; "
        + (f"held by {holders}" if holders else "the driver names no holder")
    )


# Reading.

_SETTLES: WeakKeyDictionary[Runtime, GpuSettle] = WeakKeyDictionary()


async def _read(spec: LaunchSpec, gates: Gates, runtime: Runtime, *, settle: GpuSettle) -> Readings:
    port = await _in_time(lambda: host.port(spec.host, spec.port))
    gpus = await settle.reader.read() if _uses_gpus(spec) else GpuReadings(at_s=time.time())
    return Readings(
        engines=await runtime.find(),
        left_over=await _left_over(spec.rig),
        port=port,
        publisher=await _publisher(port),
        gpus=gpus,
        names={one.pid: host.process_name(one.pid) for card in gpus.cards for one in card.processes},
        disks=await _in_time(lambda: tuple(map(host.space, places(spec, runtime.state_dir)))),
        shared_memory=await _in_time(lambda: host.space(host.SHARED_MEMORY)),
        low_for_s=settle.low_for_s(gpus, spec, gates, now_s=time.monotonic()),
    )


def places(spec: LaunchSpec, state_dir: Path) -> tuple[Path, ...]:
    """Return the folders that this engine's start may fill: rigd's own, writable mounts, caches."""
    if spec.container is not None:
        own = [Path(mount.source) for mount in spec.container.mounts if not mount.read_only]
    else:
        values = dict(spec.environment)
        own = [Path(values[name]) for name in _CACHES if name in values]
    return tuple(dict.fromkeys((state_dir, *own)))


async def _left_over(rig: str) -> tuple[Holder, ...]:
    found = await _in_time(lambda: tree.marked(rig))
    return tuple(Holder(pid=one.pid, name=one.name) for one in found or ())


async def _publisher(port: PortSeen | None) -> str | None:
    """Ask Docker whose port it is, where its proxy (or nobody that may be seen) holds it."""
    if port is None or port.error != errno.EADDRINUSE:
        return None
    if port.holder is not None and port.holder.name != "docker-proxy":
        return None

    def ask() -> str | None:
        from rigd.adapters import docker  # noqa: PLC0415  (20 MiB, only for a port that Docker may hold)

        try:
            client = docker.connect()
        except docker.DockerError:
            return None
        try:
            return docker.publisher(client, port.port)
        except docker.DockerError:
            return None
        finally:
            client.close()

    return await _in_time(ask)


async def _in_time(look: Callable[[], T]) -> T | None:
    try:
        return await run_blocking(look, deadline_s=_LOOK_DEADLINE_S)
    except TimeoutError:
        return None
