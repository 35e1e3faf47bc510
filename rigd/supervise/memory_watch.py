"""Reads the memory of the engine's processes now and then. No judgement here; `memory_trend` judges."""

import asyncio
import contextlib
from collections.abc import Callable

from rigd.adapters import proc
from rigd.adapters.blocking import run_blocking
from rigd.runtime import tree
from rigd.runtime.base import EngineRef
from rigd.supervise.memory_trend import MemorySample

LOOK_DEADLINE_S = 5.0


async def watch_memory(
    ref: EngineRef,
    *,
    every_s: float,
    limit_bytes: int | None,
    now: Callable[[], float],
    report: Callable[[MemorySample], None],
) -> None:
    """Report readings of one engine until cancelled; `limit_bytes` is the container's own limit."""
    while True:
        await asyncio.sleep(every_s)
        with contextlib.suppress(TimeoutError, OSError):  # A stuck /proc says nothing about the engine.
            sample = await run_blocking(
                lambda: _read(ref, limit_bytes, at_s=now()), deadline_s=LOOK_DEADLINE_S
            )
            if sample is not None:
                report(sample)


def _read(ref: EngineRef, limit_bytes: int | None, *, at_s: float) -> MemorySample | None:
    own = sum(proc.private_memory(process.pid) for process in tree.descendants(ref.pid))
    left = proc.available_memory()
    if not own or left is None:
        return None
    if limit_bytes is not None:
        left = min(left, max(0, limit_bytes - own))
    return MemorySample(engine=ref.id, at_s=at_s, own_bytes=own, left_bytes=left)
