"""Where an incident's texts come from. Every source has a deadline, and failing it says so in a line.

before the stop   metrics, GPU readings, processes, stacks     (gone afterwards; within the time given)
after it          kernel lines, launch specification, engine log, versions
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import rigd
from rigd.adapters import kernel_tail, proc, stacks
from rigd.adapters.blocking import run_blocking
from rigd.adapters.gpu import GpuReader, GpuReadings
from rigd.adapters.vllm import VllmClient
from rigd.errors import RigdError, explain
from rigd.rig.schema import RuntimeKind
from rigd.runtime import startlog, tree
from rigd.runtime.base import EngineRef
from rigd.supervise.incident import PART, kernel_text

MARGIN_S = 0.05
FETCH_S = 1.0
"""Longest wait for a metrics page before the stop, in seconds."""
KERNEL_LINES = 400
KERNEL_S = 3.0
VERSION_S = 2.0
READ_S = 10.0
MOST_PROCESSES = 64
MOST_STACKS = 12
_DRIVER = Path("/proc/driver/nvidia/version")
_HALF_SECRET = 4096
"""Characters dropped where the kept part of a log begins in the middle of an endless line."""


@dataclass(kw_only=True)
class Evidence:
    """What was taken down before the stop."""

    texts: dict[str, str] = field(default_factory=dict)
    """Text of each part, by its file name."""
    gpus: GpuReadings | None = None
    missing: list[str] = field(default_factory=list)
    """What could not be had, and why."""
    took_s: float = 0.0


async def take_before_stop(
    rig: str,
    ref: EngineRef | None,
    client: VllmClient,
    gpus: GpuReader,
    *,
    budget_s: float,
    alive: bool,
    hung: bool,
) -> Evidence:
    """Return what would be gone after the stop; never raises, and never takes longer than `budget_s`."""
    began_s = time.monotonic()
    found = Evidence()
    tasks = {
        asyncio.create_task(_gpus(found, gpus, budget_s)): "GPU readings",
        asyncio.create_task(_processes(found, rig, ref, budget_s, hung=hung)): "processes",
    }
    if alive:
        tasks[asyncio.create_task(_fetch(client))] = "the metrics page"
    done, late = await asyncio.wait(tasks, timeout=max(0.0, budget_s - MARGIN_S))
    for task in late:
        task.cancel()
        found.missing.append(f"{tasks[task]}: not had within {budget_s:g} s")
    for task in done:
        if (error := task.exception()) is not None:
            found.missing.append(f"{tasks[task]}: {explain(error)}")
    _page(found, client)
    found.took_s = round(time.monotonic() - began_s, 3)
    return found


async def _gpus(found: Evidence, gpus: GpuReader, budget_s: float) -> None:
    found.gpus = await gpus.read(deadline_s=budget_s)


async def _fetch(client: VllmClient) -> None:
    await client.counters(FETCH_S)


def _page(found: Evidence, client: VllmClient) -> None:
    if client.last_metrics is None:
        found.missing.append("metrics: the engine never showed any to this daemon")
        return
    at_s, body = client.last_metrics
    head = f"# read {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at_s))}\n"
    found.texts["metrics.txt"] = head + body.decode("utf-8", "replace")


async def _processes(
    found: Evidence, rig: str, ref: EngineRef | None, budget_s: float, *, hung: bool
) -> None:
    members = await run_blocking(partial(_members, rig, ref), deadline_s=budget_s)
    lines = [f"{'PID':>8} {'PARENT':>8} STATE {'MEMORY':>10} THREADS NAME  (WAITS IN)"]
    lines += [
        await run_blocking(partial(_line, one), deadline_s=budget_s) for one in members[:MOST_PROCESSES]
    ]
    found.texts["processes.txt"] = "\n".join([*lines, ""])
    if hung:
        await _stacks(found, ref, members, budget_s - 0.3)


def _members(rig: str, ref: EngineRef | None) -> list[proc.Process]:
    below = tree.descendants(ref.pid) if ref is not None else ()
    found = {one.pid: one for one in (*below, *tree.marked(rig))}
    return sorted(found.values(), key=lambda one: (one.ticks, one.pid))


def _line(process: proc.Process) -> str:
    facts = _status(process.pid)
    waits = _read(f"/proc/{process.pid}/wchan") or "?"
    memory = facts.get("VmRSS", "?").replace(" kB", " KiB")
    return (
        f"{process.pid:>8} {process.parent:>8} {process.state:<5} {memory:>10} {facts.get('Threads', '?'):>7} "
        f"{process.name}  ({waits})"
    )


async def _stacks(
    found: Evidence, ref: EngineRef | None, members: list[proc.Process], budget_s: float
) -> None:
    if stacks.program() is None:
        found.missing.append("stacks: py-spy is not installed (pip install py-spy, beside rigd)")
        return
    root = ref.pid if ref is not None else 0
    targets = [one for one in members if one.pid == root or one.name.startswith(tree.LASTING_PREFIX)]
    targets = targets[:MOST_STACKS]
    dumps = await asyncio.gather(*(stacks.dump(one.pid, deadline_s=budget_s) for one in targets))
    parts = [
        f"=== {one.name} (pid {one.pid}, state {one.state})\n{text}\n"
        for one, text in zip(targets, dumps, strict=True)
    ]
    found.texts["stacks.txt"] = "\n".join(parts)


def _status(pid: int) -> dict[str, str]:
    lines = (_read(f"/proc/{pid}/status") or "").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  (/proc, as in `proc`)
            return file.read(8192).strip()
    except OSError:
        return None


# After the stop.


async def engine_log(folder: Path) -> str:
    """Return the end of a start's output, whole lines where it has any."""
    limit = PART["engine.log"].limit_bytes
    text = await run_blocking(partial(startlog.tail, folder, limit), deadline_s=READ_S)
    endless = len(text) > limit // 8 and "\n" not in text
    return text[_HALF_SECRET:] if endless else text


async def launch_spec(folder: Path) -> Any:
    """Return what was launched, or None where that is not known."""

    def read() -> Any:
        return json.loads((folder / startlog.SPEC_NAME).read_text(encoding="utf-8"))

    try:
        return await run_blocking(read, deadline_s=READ_S)
    except (OSError, ValueError, TimeoutError):
        return None


async def kernel(missing: list[str], heard: Sequence[str] = ()) -> str:
    """Return the kernel's lines: what the host's watch `heard`, then those of the log, what matters first."""
    try:
        lines, problem = await run_blocking(
            partial(kernel_tail.last_lines, KERNEL_LINES), deadline_s=KERNEL_S
        )
    except TimeoutError:
        lines, problem = [], f"kernel lines: not had within {KERNEL_S:g} s"
    if problem is not None:
        missing.append(problem)
    return kernel_text(lines, heard)


def gpu_text(before: GpuReadings | None, after: GpuReadings | None) -> str:
    """Return the readings before and after the stop."""
    readings = {
        name: None if one is None else asdict(one) for name, one in (("before", before), ("after", after))
    }
    return json.dumps(readings, indent=1, default=str) + "\n"


async def versions(runtime: RuntimeKind, engine: str, driver: str) -> dict[str, str]:
    """Return the versions of all that took part."""
    system = os.uname()
    found = {
        "rigd": rigd.__version__,
        "python": sys.version.split()[0],
        "vllm": engine,
        "kernel": f"{system.sysname} {system.release} {system.machine}",
        "driver": driver or (_read(str(_DRIVER)) or "none").partition("\n")[0],
    }
    if runtime is RuntimeKind.DOCKER:
        found["docker"] = await _docker_version()
    return found


async def _docker_version() -> str:
    def ask() -> str:
        from rigd.adapters import docker  # noqa: PLC0415  (25 MiB that a bare process does not need)

        client = docker.connect()
        try:
            return str(client.version().get("Version", "unknown"))
        finally:
            client.close()

    try:
        return await run_blocking(ask, deadline_s=VERSION_S)
    except (RigdError, OSError, TimeoutError) as error:
        return f"not known: {explain(error)}"
    except Exception as error:  # noqa: BLE001  (the SDK's own errors; a version is not worth an incident)
        return f"not known: {type(error).__name__}"
