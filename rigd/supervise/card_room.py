"""How much of the cards is free once an engine is gone: what a larger `gpu_memory_utilization` must fit in."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rigd.adapters.gpu import GpuReadings
from rigd.engine.spec import LaunchSpec
from rigd.runtime.gates import share_that_fits
from rigd.supervise.ladder import UTILIZATION, Remedy
from rigd.supervise.state import Failure

SETTLED_S = 1.0
"""Time over which two readings must say the same, in seconds: memory comes free a moment after its process ends."""
LONGEST_S = 10.0
ReadCards = Callable[[], Awaitable[GpuReadings]]


async def with_room(failure: Failure, spec: LaunchSpec, read: ReadCards) -> Failure:
    """Return the failure with what its cards have room for, where a larger share of them may be the answer."""
    if not any(_raises(remedy) for remedy in failure.remedies):
        return failure
    return replace(failure, fits=await _settled(spec, read))


def _raises(remedy: Remedy) -> bool:
    return (remedy.knob, remedy.change) == (UTILIZATION, "raise")


async def _settled(spec: LaunchSpec, read: ReadCards) -> float | None:
    until_s = time.monotonic() + LONGEST_S
    before = None
    while True:
        share = share_that_fits(await read(), spec)
        if share is None or share == before or time.monotonic() >= until_s:
            return share
        before = share
        await asyncio.sleep(SETTLED_S)
