"""`python -m rigd.sim MODEL --port N ...`: the double as a program, with the arguments of `vllm serve`."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

from rigd.sim import arguments
from rigd.sim.arguments import ArgumentError, Settings
from rigd.sim.core import run_core
from rigd.sim.faults import Faults
from rigd.sim.lines import Log, write
from rigd.sim.processes import end, fork, ignore_term, set_title
from rigd.sim.signatures import SIGNATURES, traceback_text

DEATH_TO_EXIT_S = 3.2
"""From the core's death to the end of the API server, as measured on the real one (0 to 5 s there)."""

_TERM_GRACE_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the double until it ends; returns its exit code."""
    try:
        settings = arguments.parse(sys.argv[1:] if argv is None else argv, dict(os.environ))
    except ArgumentError as error:
        return arguments.print_usage(error)
    if settings.check_only:
        return 0
    faults = Faults(settings.faults, settings.faults_file)
    out = Log("APIServer")
    _announce(settings, out)
    if faults.now().text("fail-at-start") == "model-missing":
        sys.stderr.write(traceback_text(SIGNATURES["model-missing"], model=settings.model) + "\n")
        return 1
    try:
        listener = _bind(settings)
    except OSError as error:
        sys.stderr.write(_bind_traceback(error))
        return 1
    if faults.now().on("refuse-term"):
        ignore_term()
    return _serve(settings, faults, out, listener)


def _announce(settings: Settings, out: Log) -> None:
    out.info("api_utils.py:347", f"  vLLM {settings.version}  model   {settings.model}")
    given = ", ".join(f"'{name}': {value}" for name, value in settings.given)
    out.info("api_utils.py:286", f"non-default args: {{{given}}}")
    out.info("model.py:2152", f"Using max model len {settings.max_model_len}")
    out.info(
        "scheduler.py:307",
        f"Chunked prefill is enabled with max_num_batched_tokens={settings.max_num_batched_tokens}.",
    )


def _bind(settings: Settings) -> socket.socket:
    """Take the port before anything is loaded, without listening: clients are refused until the engine is ready."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((settings.host, settings.port))
    return listener


def _bind_traceback(error: OSError) -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/launchers/launcher.py", line 348, in '
        "create_server_socket\n"
        "    sock.bind(addr)\n"
        f"OSError: [Errno {error.errno}] {os.strerror(error.errno or 0)}\n"
    )


def _serve(settings: Settings, faults: Faults, out: Log, listener: socket.socket) -> int:
    ours, theirs = socket.socketpair()

    def core() -> int:
        ours.close()
        listener.close()
        return run_core(settings, faults, theirs)

    core_pid = fork(core)
    theirs.close()
    set_title("vllm")
    code = 1
    try:
        with contextlib.suppress(KeyboardInterrupt):
            code = asyncio.run(_run(settings, faults, out, listener, ours, core_pid))
    finally:
        _end_core(core_pid)
    return code


async def _run(
    settings: Settings, faults: Faults, out: Log, listener: socket.socket, link: socket.socket, core_pid: int
) -> int:
    # The web stack is imported after the fork: core and workers stay small, and they load while this does.
    import uvicorn  # noqa: PLC0415

    from rigd.sim.link import EngineLink  # noqa: PLC0415
    from rigd.sim.metrics import STATS_EVERY_S, Metrics  # noqa: PLC0415
    from rigd.sim.server import Server  # noqa: PLC0415
    from rigd.sim.tokenizer import Tokenizer  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    if not faults.now().on("refuse-term"):
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    metrics = Metrics(settings, out)
    engine = EngineLink(link, observe=metrics.observe)
    reading = asyncio.create_task(engine.run())
    if (failed := await _started(engine, stop)) is not None:
        return _report_failed_start(failed, out)
    server = Server(
        settings=settings, faults=faults, engine=engine, metrics=metrics, tokenizer=Tokenizer(), out=out
    )
    app = server.app()
    where = f"[{settings.host}]" if ":" in settings.host else settings.host
    out.info("entry.py:140", f"Starting vLLM server on http://{where}:{listener.getsockname()[1]}")
    out.info("launcher.py:186", "Available routes are:")
    config = uvicorn.Config(
        app,
        access_log=settings.access_log,
        lifespan="on",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=5,
        log_level="info",
        use_colors=False,
        ws="none",
    )
    web = uvicorn.Server(config)
    web.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    watchers = [
        asyncio.create_task(_watch_death(engine, web, out)),
        asyncio.create_task(_watch_stop(stop, web, out, core_pid)),
        asyncio.create_task(_watch_exit(faults, core_pid)),
        asyncio.create_task(_statistics(metrics, STATS_EVERY_S)),
    ]
    await web.serve(sockets=[listener])
    for task in (*watchers, reading):
        task.cancel()
    await asyncio.gather(*watchers, reading, return_exceptions=True)
    return 0


async def _started(engine: "object", stop: asyncio.Event) -> int | None:
    """Return None once the engine is ready, its exit code if it failed, or 0 if TERM came first."""
    from rigd.sim.link import EngineLink  # noqa: PLC0415

    assert isinstance(engine, EngineLink)  # noqa: S101
    started = asyncio.ensure_future(engine.started())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    return started.result() if started.done() else 0


def _report_failed_start(code: int, out: Log) -> int:
    if code == 1:
        out.error(
            "core_client.py:640",
            "Traceback (most recent call last):\n"
            '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/utils.py", line 1190, in '
            "wait_for_engine_startup\n"
            "    raise RuntimeError(\n"
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        )
    return code


async def _watch_death(engine: "object", web: "object", out: Log) -> None:
    """End the server some seconds after its engine, with vLLM's exit code for that: 0."""
    await engine.dead.wait()  # type: ignore[attr-defined]
    out.error(
        "async_llm.py:906",
        "AsyncLLM output_handler failed.\n"
        "Traceback (most recent call last):\n"
        '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/async_llm.py", line 849, in output_handler\n'
        "    outputs = await engine_core.get_output_async()\n"
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
        "root cause.",
    )
    await asyncio.sleep(DEATH_TO_EXIT_S)
    web.should_exit = True  # type: ignore[attr-defined]


async def _watch_stop(stop: asyncio.Event, web: "object", out: Log, core_pid: int) -> None:
    """At TERM end the core first and the server after it, as vLLM does."""
    await stop.wait()
    out.info("utils.py:628", "[shutdown] Process manager: send sigterm to process EngineCore")
    with contextlib.suppress(ProcessLookupError):
        os.kill(core_pid, signal.SIGTERM)
    out.info("launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")
    web.should_exit = True  # type: ignore[attr-defined]


async def _watch_exit(faults: Faults, core_pid: int) -> None:
    """Carry out `exit-after`."""
    ready_s = asyncio.get_running_loop().time()
    while True:
        switches = faults.now()
        after_s = switches.number("exit-after")
        if after_s is not None and asyncio.get_running_loop().time() - ready_s >= after_s:
            with contextlib.suppress(ProcessLookupError):
                os.kill(core_pid, signal.SIGKILL)
            end(int(switches.number("exit-code") or 0))
        await asyncio.sleep(0.1 if switches.values else 1.0)


async def _statistics(metrics: "object", every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        metrics.write_statistics()  # type: ignore[attr-defined]


def _end_core(core_pid: int) -> None:
    """Leave no core behind: TERM, a moment, KILL."""
    for number, patience_s in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _TERM_GRACE_S)):
        try:
            os.kill(core_pid, number)
        except ProcessLookupError:
            return
        if _gone(core_pid, patience_s):
            return
    write("")


def _gone(pid: int, patience_s: float) -> bool:
    import time  # noqa: PLC0415

    limit_s = time.monotonic() + patience_s
    while time.monotonic() < limit_s:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            return True
        time.sleep(0.01)
    return False


if __name__ == "__main__":
    sys.exit(main())
