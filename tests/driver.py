"""Drives a real daemon over a real engine, or the double, as its user would: rig file, socket, signals."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from turns import FIRST, take_turn

from rigd.client import Client
from rigd.errors import RigdError

POLL_S = 0.05
CORE = "VLLM::EngineCore"
WORKER = "VLLM::Worker_TP1"


@dataclass(kw_only=True)
class RigUnderTest:
    """One rig file, its daemon (a child process) and what can be done to its engine."""

    folder: Path
    settings: dict[str, Any]
    """The rig file's content."""
    environ: dict[str, str]
    stall_s: float
    boot_s: float
    """Longest start of the engine that is no failure, in seconds."""
    faults: Path | None = None
    """The double's fault file."""
    daemon: subprocess.Popen[bytes] | None = None
    _phases: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "rig.yaml"

    @property
    def docker(self) -> bool:
        return self.settings["engine"]["runtime"] == "docker"

    @property
    def client(self) -> Client:
        return Client(socket=self.environ["RIGD_SOCKET"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings['engine']['port']}"

    def write(self, settings: dict[str, Any] | None = None) -> None:
        """Write the rig file; JSON is YAML too."""
        self.path.write_text(json.dumps(settings if settings is not None else self.settings, indent=1))

    def start_daemon(self) -> None:
        """Start a daemon as a child and wait until it answers."""
        if not self.path.exists():
            self.write()
        log = (self.folder / "daemon.log").open("ab")
        self.daemon = subprocess.Popen(
            [sys.executable, "-m", "rigd.cli.main", "daemon", str(self.path)],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        take_turn(self.daemon.pid, FIRST)
        self.until(lambda: self.status() is not None, 20, "the daemon answers")

    def kill_daemon(self, number: int = signal.SIGKILL) -> None:
        """End the daemon and wait for it."""
        assert self.daemon is not None
        self.daemon.send_signal(number)
        self.daemon.wait(30)
        self.daemon = None

    def close(self) -> None:
        """Stop the engine, end the daemon; leave nothing."""
        with contextlib.suppress(RigdError, OSError, AssertionError):
            if self.daemon is not None and self.daemon.poll() is None:
                self.act("maintenance", on=False)
                self.act("stop")
                self.wait("stopped", deadline_s=60)
        if self.daemon is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self.kill_daemon(signal.SIGTERM)

    # Reading.

    def status(self) -> dict[str, Any] | None:
        """Return the status document, or None while no daemon answers."""
        try:
            return self.client.get("/v1/status")
        except (RigdError, OSError):
            return None

    def events(self) -> list[dict[str, Any]]:
        """Return the whole journal, oldest first."""
        return self.client.get("/v1/events", {"after": 0, "limit": 1000})["events"]

    def event(self, kind: str, after_s: float, deadline_s: float = 10) -> dict[str, Any]:
        """Return the first event of a kind after a time, as soon as there is one."""

        def found() -> dict[str, Any] | None:
            events = (event for event in self.events() if event["kind"] == kind and event["at_s"] >= after_s)
            return next(events, None)

        return self.until(found, deadline_s, f"an event '{kind}'")

    def launches(self) -> int:
        """Return how many engines were launched so far."""
        return sum(event["kind"] == "launched" for event in self.events())

    def until(self, condition: Callable[[], Any], deadline_s: float, what: str) -> Any:
        """Return the first true value of `condition`; fail with the daemon's own words after the deadline."""
        until_s = time.monotonic() + deadline_s
        while not (value := condition()):
            if time.monotonic() > until_s:
                raise AssertionError(f"not within {deadline_s:.0f} s: {what}\n{self.story()}")
            time.sleep(POLL_S)
        return value

    def wait(self, *states: str, deadline_s: float | None = None) -> dict[str, Any]:
        """Return the status as soon as it is in one of `states`."""
        limit_s = deadline_s if deadline_s is not None else self.boot_s
        return self.until(lambda: self._in(states), limit_s, f"state is {' or '.join(states)}")

    def _in(self, states: tuple[str, ...]) -> dict[str, Any] | None:
        status = self.status()
        if status is None:
            return None
        if status["live"] is not None and status["live"]["phase"] not in self._phases:
            self._phases.append(status["live"]["phase"])
        if status["state"] == "failed" and "failed" not in states:
            raise AssertionError(f"failed: {status['reason']}\n{self.story()}")
        return status if status["state"] in states else None

    def phases(self) -> list[str]:
        """Return the phases that were shown while waiting, in order."""
        return self._phases

    def story(self) -> str:
        """Return what a person would want to read after a failed test."""
        lines = ["", json.dumps(self.status(), indent=1, default=str)[:3000]]
        with contextlib.suppress(RigdError, OSError):
            lines += [
                f"{event['at_s']:.1f} {event['kind']}: {event['message']}" for event in self.events()[-30:]
            ]
        log = self.folder / "daemon.log"
        if log.exists():
            lines.append(log.read_text(errors="replace")[-2500:])
        return "\n".join(lines)

    # Acting.

    def act(self, action: str, **body: Any) -> dict[str, Any]:
        """Post a request as the command line does."""
        path = "/v1/maintenance" if action == "maintenance" else f"/v1/actions/{action}"
        return self.client.post(path, body, timeout_s=300)

    def ready(self) -> dict[str, Any]:
        """Bring the rig to ready, whatever an earlier test left."""
        if self.faults is not None:
            self.fault()
        if self.daemon is None or self.daemon.poll() is not None:
            self.start_daemon()
        status = self.status()
        assert status is not None
        if status["state"] in {"stopped", "failed"}:
            self.act("start", reload=True)
        return self.wait("ready")

    def fault(self, **faults: Any) -> None:
        """Set the double's faults, and take away all others."""
        assert self.faults is not None
        fresh = self.faults.with_suffix(".new")
        fresh.write_text(json.dumps({name.replace("_", "-"): value for name, value in faults.items()}))
        fresh.replace(self.faults)

    # The engine's processes.

    def members(self) -> dict[str, psutil.Process]:
        """Return the engine's lasting processes by name; `api` is the API server."""
        status = self.status()
        assert status is not None
        assert status["engine"] is not None
        root = psutil.Process(status["engine"]["pid"])
        tree = [root, *root.children(recursive=True)]
        found = {process.name(): process for process in tree if process.name().startswith("VLLM::")}
        core = found[CORE]
        return {**found, "api": core.parent() or root}  # In a container the root may be an init.

    def all_pids(self) -> list[psutil.Process]:
        """Return every process of the present engine."""
        status = self.status()
        assert status is not None
        root = psutil.Process(status["engine"]["pid"])
        return [root, *root.children(recursive=True)]

    # The engine's service.

    def chat(
        self, messages: list[dict[str, str]], *, max_tokens: int = 4, timeout_s: float = 120
    ) -> dict[str, Any]:
        """Send a chat completion as a client would."""
        body = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=timeout_s)
        answer.raise_for_status()
        return answer.json()

    @property
    def model(self) -> str:
        engine = self.settings["engine"]
        return engine.get("served_model_name") or engine["model"]

    @contextlib.contextmanager
    def request_in_flight(self) -> Iterator[None]:
        """Keep one long request running, and make sure that the engine works on it."""

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError):
                self.chat([{"role": "user", "content": "count to a thousand"}], max_tokens=12000)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        self.until(self._running, 20, "the engine runs a request")
        yield

    def _running(self) -> bool:
        text = httpx.get(f"{self.url}/metrics", timeout=10).text
        values = [
            line.rsplit(" ", 1)[1]
            for line in text.splitlines()
            if line.startswith("vllm:num_requests_running")
        ]
        return sum(map(float, values)) > 0


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether all of these processes have ended (zombies have)."""
    return not any(_alive(process) for process in processes)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a daemon with folders of its own; short, for the socket's path."""
    return {
        **os.environ,
        "RIGD_STATE_DIR": str(folder / "state"),
        "RIGD_RUNTIME_DIR": str(folder / "run"),
        "RIGD_SOCKET": str(folder / "run/rigd.sock"),
        "PYTHONUNBUFFERED": "1",
    }
