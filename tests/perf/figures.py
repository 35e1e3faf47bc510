"""Print rigd's performance figures on this machine: `python tests/perf/figures.py [--json] [--seconds 60]`.

Not a test: nothing fails here when a figure is bad. A real daemon runs over the engine double; supervisord, for
comparison, comes from the package index into a temporary environment (or use `--supervisor FOLDER` with its
programs). Probing every 2 s, as rig files do by default.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from rigd.demo import Stage

RUNS = 20
PROBE_INTERVAL_S = 2.0
SETTLE_S = 3.0
MIB = 2**20
SUPERVISOR = "supervisor"
CONFIGURATION = """\
[unix_http_server]
file={folder}/supervisor.sock
[supervisord]
nodaemon=true
logfile={folder}/supervisord.log
pidfile={folder}/supervisord.pid
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/supervisor.sock
[program:sleeper]
command=sleep 100000
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the daemon's CPU is watched")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each command")
    parser.add_argument("--supervisor", type=Path, help="folder with supervisord and supervisorctl")
    asked = parser.parse_args()
    with ExitStack() as stack:
        figures = measure(stack, asked)
    if asked.json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    for group, values in figures.items():
        sys.stdout.write(f"{group}\n")
        for name, value in values.items():
            sys.stdout.write(f"  {name.ljust(44)} {value}\n")


def measure(stack: ExitStack, asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return all figures in groups."""
    folder = Path(tempfile.mkdtemp(prefix="rigd-figures-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stage = Stage(folder)
    stack.callback(stage.clear)
    stage.prepare()
    stage.change_rig(lambda rig: rig["supervision"].update(probe_interval_s=PROBE_INTERVAL_S))
    stage.start_daemon()
    stage.ready()
    supervisord, supervisorctl = _supervisor(stack, folder, asked.supervisor)
    time.sleep(SETTLE_S)
    return {
        "commands, wall time, median of " + f"{asked.runs} runs": _commands(stage, supervisorctl, asked.runs),
        "memory": {**_memory("rigd daemon", stage.daemon.pid), **_memory("supervisord", supervisord)},
        f"CPU while ready, over {asked.seconds:g} s": _cpu(stage, supervisord, asked.seconds),
        "from a death to its being noticed": _noticed(stage),
    }


def _commands(stage: Stage, supervisorctl: list[str], runs: int) -> dict[str, Any]:
    script = Path(sys.executable).with_name("rigd")
    rigd = [str(script)] if script.exists() else [sys.executable, "-m", "rigd.cli"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "rigd status": [*rigd, "status", "--socket", stage.client.socket],
        "rigd status --json": [*rigd, "status", "--json", "--socket", stage.client.socket],
        "supervisorctl status": supervisorctl,
    }
    took_ms: dict[str, list[float]] = {name: [] for name in commands}
    for name, command in commands.items():  # Once to warm the file cache and the byte code.
        _run(command)
        del name
    for _ in range(runs):  # In turns, so that a busy moment of the machine meets all of them.
        for name, command in commands.items():
            took_ms[name].append(_run(command))
    medians = {name: statistics.median(values) for name, values in took_ms.items()}
    figures: dict[str, Any] = {f"{name} [ms]": round(value, 1) for name, value in medians.items()}
    figures["rigd status / supervisorctl status"] = round(
        medians["rigd status"] / medians["supervisorctl status"], 2
    )
    figures["rigd status / python -c pass"] = round(medians["rigd status"] / medians["python -c pass"], 2)
    return figures


def _run(command: list[str]) -> float:
    began_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return (time.perf_counter() - began_s) * 1000


def _memory(name: str, pid: int) -> dict[str, Any]:
    found = psutil.Process(pid).memory_full_info()
    return {
        f"{name}, resident [MiB]": round(found.rss / MIB, 1),
        f"{name}, proportional (PSS) [MiB]": round(found.pss / MIB, 1),
    }


def _cpu(stage: Stage, supervisord: int, seconds: float) -> dict[str, Any]:
    processes = {"rigd daemon": psutil.Process(stage.daemon.pid), "supervisord": psutil.Process(supervisord)}
    before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
    began_s = time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    state = stage.status()["state"]
    shares = {
        f"{name} [% of a core]": round(100 * (sum(process.cpu_times()[:2]) - before[name]) / took_s, 2)
        for name, process in processes.items()
    }
    return {**shares, "rigd daemon, threads": processes["rigd daemon"].num_threads(), "state": state}


def _noticed(stage: Stage) -> dict[str, Any]:
    def member(prefix: str) -> Callable[[], int]:
        def find() -> int:
            children = psutil.Process(stage.status()["engine"]["pid"]).children(recursive=True)
            return next(child.pid for child in children if child.name().startswith(prefix))

        return find

    victims: dict[str, Callable[[], int]] = {
        "API server": lambda: int(stage.status()["engine"]["pid"]),
        "engine core": member("VLLM::EngineCor"),
        "worker": member("VLLM::Worker"),
    }
    figures: dict[str, Any] = {}
    for name, find in victims.items():
        before = stage.status()["engine"]["start"]
        pid = find()
        since_s = time.time()
        os.kill(pid, signal.SIGKILL)
        failure = stage.noticed(since_s)
        figures[f"{name} killed, noticed after [s]"] = round(failure["at_s"] - since_s, 2)
        stage.ready(start_after=before)
        figures[f"{name} killed, ready and warm after [s]"] = round(time.time() - since_s, 2)
        time.sleep(SETTLE_S)
    return figures


def _supervisor(stack: ExitStack, folder: Path, programs: Path | None) -> tuple[int, list[str]]:
    """Start a supervisord with one program; return its pid and the command that asks it for its status."""
    if programs is None:
        environment = folder / "supervisor"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, SUPERVISOR, "setuptools<81"], check=True, stdout=sys.stderr)
        programs = environment / "bin"
    configuration = folder / "supervisord.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder))
    daemon = subprocess.Popen(
        [str(programs / "supervisord"), "-c", str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(_end, daemon)
    command = [str(programs / "supervisorctl"), "-c", str(configuration), "status"]
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            return daemon.pid, command
        time.sleep(0.2)
    raise SystemExit("supervisord did not come up")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
