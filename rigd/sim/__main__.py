"""`python -m rigd.sim MODEL --port N ...`: the double as a program, with the arguments of `vllm serve`."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from rigd.sim import arguments
from rigd.sim.arguments import ArgumentError, Settings
from rigd.sim.core import run_core
from rigd.sim.faults import Faults
from rigd.sim.lines import Log
from rigd.sim.processes import fork, ignore_term, set_name
from rigd.sim.signatures import SIGNATURES, traceback_text

_GRACE_S = 1.0
_ENDING_S = 0.1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the double until it ends; returns its exit code."""
    try:
        settings = arguments.parse(sys.argv[1:] if argv is None else argv, dict(os.environ))
    except ArgumentError as error:
        return arguments.print_usage(error)
    if settings.check_only:
        return 0
    faults = Faults(settings.faults, settings.faults_file)
    if (share := faults.now().number("pool-share")) is not None:
        settings = replace(settings, pool_tokens=int(settings.pool_tokens * share))
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
    else:
        # Until the event loop takes over, TERM must still pass by the end of the core.
        signal.signal(signal.SIGTERM, _terminate)
    return _serve(settings, faults, out, listener)


def _announce(settings: Settings, out: Log) -> None:
    out.info("api_utils.py:347", f"  vLLM {settings.version}  model   {settings.model}")
    given = ", ".join(f"'{name}': {value}" for name, value in settings.given)
    out.info("api_utils.py:286", f"non-default args: {{{given}}}")
    out.info("model.py:2152", f"Using max model len {settings.max_model_len}")
    budget = settings.max_num_batched_tokens
    out.info("scheduler.py:307", f"Chunked prefill is enabled with max_num_batched_tokens={budget}.")


def _bind(settings: Settings) -> socket.socket:
    """Take the port before anything is loaded, without listening: clients are refused until ready."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((settings.host, settings.port))
    return listener


def _bind_traceback(error: OSError) -> str:
    where = "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/launchers/launcher.py"
    return (
        "Traceback (most recent call last):\n"
        f'  File "{where}", line 348, in create_server_socket\n'
        "    sock.bind(addr)\n"
        f"OSError: [Errno {error.errno}] {os.strerror(error.errno or 0)}\n"
    )


def _terminate(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def _serve(settings: Settings, faults: Faults, out: Log, listener: socket.socket) -> int:
    ours, theirs = socket.socketpair()

    def core() -> int:
        ours.close()
        listener.close()
        return run_core(settings, faults, theirs)

    core_pid = fork(core)
    theirs.close()
    set_name("vllm")
    try:
        # The web stack comes after the fork: core and workers stay small, and load while it is imported.
        from rigd.sim.serving import serve  # noqa: PLC0415

        return serve(settings, faults, out, listener=listener, link=ours, core_pid=core_pid)
    finally:
        _end_core(core_pid)


def _end_core(pid: int) -> None:
    """Leave no core behind: a moment if it is ending, TERM, a moment, KILL."""
    if _gone(pid, _ENDING_S):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if _gone(pid, _GRACE_S):
            return


def _gone(pid: int, patience_s: float) -> bool:
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
