"""uvicorn's server without its signal handlers and its clock, which wakes ten times a second."""

import asyncio
import contextlib
from collections.abc import Generator

import uvicorn
from uvicorn.server import Server


class QuietServer(Server):
    """uvicorn's server as a guest in somebody else's loop: only `stop` stops it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Close the listeners and end."""
        self.should_exit = True
        self._stop.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stop.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
