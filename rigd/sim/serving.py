"""The API server's life: wait for the core, serve, and end the way vLLM's ends."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator

import uvicorn

from rigd.sim.arguments import Settings
from rigd.sim.faults import Faults
from rigd.sim.lines import Log
from rigd.sim.link import EngineLink
from rigd.sim.metrics import STATS_EVERY_S, Metrics
from rigd.sim.processes import end
from rigd.sim.server import Server
from rigd.sim.tokenizer import Tokenizer

DEATH_TO_EXIT_S = 3.2
"""From the core's death to the end of the API server, seconds; 0 to 5 on the real one, which looks every 5 s."""

_PACKAGES = "/usr/local/lib/python3.12/dist-packages/vllm"


class _Web(uvicorn.Server):
    """uvicorn without its signal handlers: TERM ends the core first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    settings: Settings,
    faults: Faults,
    out: Log,
    *,
    listener: socket.socket,
    link: socket.socket,
    core_pid: int,
) -> int:
    """Serve until told to stop or the core dies; returns the exit code."""
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(ApiServer(settings, faults, out, core_pid=core_pid).run(listener, link))
    return 0


class ApiServer:
    """One API server and what it watches."""

    def __init__(self, settings: Settings, faults: Faults, out: Log, *, core_pid: int) -> None:
        self._settings = settings
        self._faults = faults
        self._out = out
        self._core_pid = core_pid
        self._stop = asyncio.Event()

    async def run(self, listener: socket.socket, link: socket.socket) -> int:
        """Wait for the core and serve; returns the exit code."""
        loop = asyncio.get_running_loop()
        if not self._faults.now().on("refuse-term"):
            loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        metrics = Metrics(self._settings, self._out)
        engine = EngineLink(link, observe=metrics.observe)
        reading = asyncio.create_task(engine.run())
        code = await self._started(engine)
        if code is None:
            await self._serve(engine, metrics, listener)
            code = 0
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return code

    async def _started(self, engine: EngineLink) -> int | None:
        """Return None once the core is ready, its exit code if it failed, or 0 if TERM came first."""
        started = asyncio.ensure_future(engine.started())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not started.done():
            started.cancel()
            return 0
        code = started.result()
        if code == 1:
            self._out.error(
                "core_client.py:640",
                "Traceback (most recent call last):\n"
                f'  File "{_PACKAGES}/v1/engine/utils.py", line 1190, in wait_for_engine_startup\n'
                "    raise RuntimeError(\n"
                "RuntimeError: Engine core initialization failed. See root cause above. "
                "Failed core proc(s): {}",
            )
        return code

    async def _serve(self, engine: EngineLink, metrics: Metrics, listener: socket.socket) -> None:
        settings = self._settings
        server = Server(
            settings=settings,
            faults=self._faults,
            engine=engine,
            metrics=metrics,
            tokenizer=Tokenizer(),
            out=self._out,
        )
        app = server.app()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._out.info("entry.py:136", "Supported tasks: ['generate']")
        self._out.info("entry.py:140", f"Starting vLLM server on http://{host}:{listener.getsockname()[1]}")
        self._out.info("launcher.py:186", "Available routes are:")
        for path, methods in server.routes():
            self._out.info("launcher.py:195", f"Route: {path}, Methods: {methods}")
        web = _Web(
            uvicorn.Config(
                app,
                access_log=settings.access_log,
                timeout_graceful_shutdown=1,
                use_colors=False,
                ws="none",
            )
        )
        watchers = [
            asyncio.create_task(self._watch_death(engine, web)),
            asyncio.create_task(self._watch_stop(web)),
            asyncio.create_task(self._watch_exit()),
            asyncio.create_task(_statistics(metrics)),
        ]
        await web.serve(sockets=[listener])
        for task in watchers:
            task.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    async def _watch_death(self, engine: EngineLink, web: uvicorn.Server) -> None:
        """End the server some seconds after its core, with vLLM's exit code for that: 0."""
        await engine.dead.wait()
        self._out.error(
            "async_llm.py:906",
            "AsyncLLM output_handler failed.\n"
            "Traceback (most recent call last):\n"
            f'  File "{_PACKAGES}/v1/engine/async_llm.py", line 849, in output_handler\n'
            "    outputs = await engine_core.get_output_async()\n"
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace "
            "(above) for the root cause.",
        )
        await asyncio.sleep(DEATH_TO_EXIT_S)
        web.should_exit = True

    async def _watch_stop(self, web: uvicorn.Server) -> None:
        """At TERM end the core first and the server after it, as vLLM does."""
        await self._stop.wait()
        self._out.info("utils.py:628", "[shutdown] Process manager: send sigterm to process EngineCore")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._core_pid, signal.SIGTERM)
        self._out.info("launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")
        web.should_exit = True

    async def _watch_exit(self) -> None:
        """Carry out `exit-after`."""
        loop = asyncio.get_running_loop()
        ready_s = loop.time()
        while True:
            switches = self._faults.now()
            after_s = switches.number("exit-after")
            if after_s is not None and loop.time() - ready_s >= after_s:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._core_pid, signal.SIGKILL)
                end(int(switches.number("exit-code") or 0))
            await asyncio.sleep(0.1 if switches.values else 1.0)


async def _statistics(metrics: Metrics) -> None:
    while True:
        await asyncio.sleep(STATS_EVERY_S)
        metrics.write_statistics()
