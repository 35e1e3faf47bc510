"""Calls that may block for ever (a wedged disk, Docker, a GPU driver in state D), each in a thread of its own.

The caller always gets an answer by its deadline. A call that never returns costs its thread, which dies with the
program; there is a limit to how many such threads may pile up.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MAX_STUCK = 64
_slots = threading.BoundedSemaphore(MAX_STUCK)


async def run_blocking(function: Callable[[], T], *, deadline_s: float) -> T:
    """Return what `function` returns, or raise what it raises; `TimeoutError` after `deadline_s`."""
    if not _slots.acquire(blocking=False):
        raise TimeoutError(f"{MAX_STUCK} earlier calls have not come back")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if answer.done():  # The caller left at its deadline.
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # None only where T allows it

    def work() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  (carried over to the caller's side)
            failure = error
        finally:
            _slots.release()
        try:
            loop.call_soon_threadsafe(deliver, result, failure)
        except RuntimeError:  # The loop has closed: nobody waits.
            return

    threading.Thread(target=work, name="rigd-blocking", daemon=True).start()
    async with asyncio.timeout(deadline_s):
        return await answer
