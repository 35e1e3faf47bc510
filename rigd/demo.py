"""The tour on a machine without a GPU: a real daemon over the engine double, broken on purpose, step by step.

    Stage  a temporary folder, a rig file in it, a daemon as a child process, the double's fault file
    STEPS  what is shown, in order: each breaks something, waits for what rigd makes of it, and tells

Everything is removed at the end, whatever happens; the folder is kept when a step fails.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
from ruamel.yaml import YAML

import rigd
from rigd.client import Client, RefusedError
from rigd.engine.spec import MARKER_RIG
from rigd.errors import RigdError, UnreachableError

POLL_S = 0.03
STEP_DEADLINE_S = 40.0
DAEMON_DEADLINE_S = 15.0
CORE = "VLLM::EngineCor"
PAUSE_S = 1.5
"""Between two steps the engine serves for a moment, as it would."""
NEXT_S = 0.001
ATTEMPTS = 20
"""More than the tour breaks: it shows recovery, not giving up."""
HTTP_OK = 200

Document = dict[str, Any]
Say = Callable[[str], None]


class DemoError(RigdError):
    """The tour did not go as it should; the hint names the folder with the logs."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What one step came to. Times in seconds; None where there is nothing to notice or to recover from."""

    name: str
    result: str
    noticed_s: float | None = None
    recovered_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tour:
    """The whole tour."""

    steps: tuple[Shown, ...]
    took_s: float


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stop of the tour: what is about to happen, and what makes it happen."""

    name: str
    about: str
    show: Callable[["Stage", Say], Shown]


class Stage:
    """A daemon of its own, its engine, and hands to break things with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"demo-{os.getpid()}"
        self.rig = folder / "rig.yaml"
        self.faults = folder / "faults.json"
        self.log = folder / "daemon.log"
        self.client = Client(socket=str(folder / "rigd.sock"))
        self.daemon: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Write the rig file: `configs/demo.yaml` with a free port, this Python and the fault file."""
        configs = configs_folder()
        shutil.copytree(configs / "prompts", self.folder / "prompts")
        self.break_with({})
        self._rewrite(configs / "demo.yaml", self._adapt)

    def start_daemon(self) -> None:
        """Start the daemon as a process of its own and wait until it answers."""
        environ = {
            **os.environ,
            "RIGD_STATE_DIR": str(self.folder / "state"),
            "RIGD_RUNTIME_DIR": str(self.folder / "run"),
            "RIGD_SOCKET": str(self.folder / "rigd.sock"),
            "RIGD_LOG_JSON": "true",
        }
        environ.pop("RIGD_BIND", None)
        with self.log.open("ab") as output:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "rigd.cli", "daemon", str(self.rig)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, start_new_session=True,
            )  # fmt: skip
        self.until("the daemon answers", self._answers, deadline_s=DAEMON_DEADLINE_S)

    def status(self) -> Document:
        """Return the daemon's status."""
        return self.client.get("/v1/status")

    def until(
        self, what: str, found: Callable[[], Document | None], *, deadline_s: float = STEP_DEADLINE_S
    ) -> Document:
        """Return what `found` returns once it is not None; raise `DemoError` when that takes too long."""
        until_s = time.monotonic() + deadline_s
        while True:
            value = found()
            if value is not None:
                return value
            if time.monotonic() > until_s:
                raise DemoError(f"waited {deadline_s:g} s in vain: {what}")
            time.sleep(POLL_S)

    def ready(self, *, start_after: int = 0) -> Document:
        """Wait until an engine of a later start than `start_after` is ready."""

        def found() -> Document | None:
            status = self.status()
            if status["state"] == "failed":
                raise DemoError(f"gave up: {(status.get('failure') or {}).get('sentence')}")
            engine = status["engine"] or {}
            there = status["state"] == "ready" and engine.get("start", 0) > start_after
            return status if there and not status["live"] else None

        return self.until("the engine is ready", found)

    def noticed(self, since_s: float) -> Document:
        """Wait until a failure later than `since_s` is noticed and its log has been read, and return it."""

        def found() -> Document | None:
            status = self.status()
            failure: Document | None = status["failure"]
            new = failure is not None and failure["at_s"] >= since_s
            return failure if new and status["state"] != "stopping" else None

        return self.until("the failure is noticed", found)

    def break_with(self, faults: Document) -> None:
        """Tell the double what goes wrong from now on."""
        fresh = self.faults.with_suffix(".new")
        fresh.write_text(json.dumps(faults))
        fresh.replace(self.faults)

    def core(self) -> psutil.Process:
        """Return the engine core's process."""
        root = psutil.Process(self.status()["engine"]["pid"])
        for child in root.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.name().startswith(CORE):
                    return child
        raise DemoError("the engine has no core")

    def change_rig(self, change: Callable[[Any], None]) -> None:
        """Edit the rig file."""
        self._rewrite(self.rig, change)

    def clear(self) -> None:
        """Stop the engine and the daemon, and end whatever is left of them; a second Ctrl-C changes nothing."""
        with _signals(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._clear()

    def _clear(self) -> None:
        if self.daemon is not None and self.daemon.poll() is None:
            with contextlib.suppress(RigdError):
                self.client.post("/v1/actions/stop")
                self.until("stopped", lambda: _state(self.status(), "stopped"), deadline_s=DAEMON_DEADLINE_S)
            self.daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(DAEMON_DEADLINE_S)
            if self.daemon.poll() is None:
                self.daemon.kill()
        if self.daemon is not None:
            self.daemon.wait()
        for process in self._left():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _left(self) -> Iterator[psutil.Process]:
        """Yield processes that carry this tour's mark: nothing but the double ever does."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARKER_RIG) == self.name:
                    yield process

    def _answers(self) -> Document | None:
        if self.daemon is not None and self.daemon.poll() is not None:
            raise DemoError(f"the daemon ended with {self.daemon.returncode}: {_last_line(self.log)}")
        with contextlib.suppress(UnreachableError):
            return self.status()
        return None

    def _adapt(self, rig: Any) -> None:
        rig["name"] = self.name
        rig["engine"]["port"] = _free_port()
        rig["engine"]["arguments"]["extra"]["sim-faults"] = str(self.faults)
        rig["engine"]["process"]["executable"] = [sys.executable, "-m", "rigd.sim"]
        rig["supervision"]["attempts"] = ATTEMPTS

    def _rewrite(self, source: Path, change: Callable[[Any], None]) -> None:
        yaml = YAML()
        rig = yaml.load(source)
        change(rig)
        file: IO[str]
        with self.rig.open("w", encoding="utf-8") as file:
            yaml.dump(rig, file)


def run(say: Say) -> Tour:
    """Walk through all steps, telling each; leave nothing behind. Raises `DemoError` when a step goes wrong."""
    folder = Path(tempfile.mkdtemp(prefix="rigd-demo-"))
    stage = Stage(folder)
    began_s = time.monotonic()
    shown: list[Shown] = []
    try:
        with _signals(_interrupt, signal.SIGTERM, signal.SIGHUP):  # They end the tour as Ctrl-C does.
            stage.prepare()
            for number, step in enumerate(STEPS, start=1):
                say(f"{number}/{len(STEPS)}  {step.about}")
                if number > 1:
                    time.sleep(PAUSE_S)
                shown.append(step.show(stage, say))
                say(f"     {shown[-1].result}")
    except RigdError as error:
        stage.clear()
        raise DemoError("the tour broke off", hint=f"the logs are in {folder}") from error
    except BaseException:
        stage.clear()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    stage.clear()
    shutil.rmtree(folder, ignore_errors=True)
    return Tour(steps=tuple(shown), took_s=time.monotonic() - began_s)


def configs_folder() -> Path:
    """Return the folder of the rig files that come with rigd: beside the package, or in it when installed."""
    package = Path(rigd.__file__).parent
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "demo.yaml").is_file():
            return folder
    raise DemoError("the rig files that come with rigd are missing", hint="install rigd again")


FITTING_SEQS = 4
"""Largest `max_num_seqs` that still fits, in the step that shows self-repair."""


def _begin(stage: Stage, say: Say) -> Shown:
    began_s = time.time()
    stage.start_daemon()
    status = stage.ready()
    took_s = time.time() - began_s
    for prefix in status["warm"]:
        say(
            f"     prefix '{prefix['prefix']}': {prefix['hit']:.1%} of {prefix['prefix_tokens']:,} tokens cached,"
            f" first token {prefix['cold_ttft_s'] or 0:.3f} s cold, {prefix['warm_ttft_s'] or 0:.3f} s warm"
        )
    engine = status["engine"]
    return Shown(
        name="start and warm",
        result=f"ready: {engine['model']} at {engine['url']}, pid {engine['pid']}",
        recovered_s=took_s,
    )


def _kill_core(stage: Stage, say: Say) -> Shown:
    core = stage.core()
    return _hurt(stage, say, "engine core killed", lambda: os.kill(core.pid, signal.SIGKILL))


def _freeze_core(stage: Stage, say: Say) -> Shown:
    core = stage.core()

    def freeze() -> None:
        os.kill(core.pid, signal.SIGSTOP)
        if _health_code(stage.status()["engine"]["url"]) == HTTP_OK:
            say("     /health still answers 200; a canary completion finds out")

    return _hurt(stage, say, "engine core frozen", freeze)


def _memory_taken(stage: Stage, say: Say) -> Shown:
    before = stage.status()["engine"]
    since_s = time.time()
    stage.break_with({"fail-at-start": "gpu-busy"})
    os.kill(int(before["pid"]), signal.SIGKILL)
    first = stage.noticed(since_s)
    say(f"     noticed after {first['at_s'] - since_s:.1f} s: {first['sentence']}")
    failure = stage.noticed(first["at_s"] + NEXT_S)
    say(f"     next start: {failure['sentence']}")
    stage.break_with({})
    stage.ready(start_after=before["start"] + 1)
    took_s = time.time() - since_s
    return Shown(
        name="killed, and the next start out of memory",
        result=f"tried again until the memory was free: ready {took_s:.1f} s after it died",
        noticed_s=first["at_s"] - since_s,
        recovered_s=took_s,
    )


def _repair(stage: Stage, say: Say) -> Shown:
    before = stage.status()["engine"]
    stage.break_with({"oom-unless-max-num-seqs": FITTING_SEQS})
    since_s = time.time()
    os.kill(int(before["pid"]), signal.SIGKILL)
    status = stage.until("it serves with another setting", lambda: _changed(stage.status()))
    took_s = time.time() - since_s
    for step in status["overlay"]:
        say(f"     changed {step['text']}: {step['sentence']}")
    starts = status["engine"]["start"] - before["start"]
    say(
        f"     ready after {starts} starts; `rigd overlay show` remembers why, and `rigd overlay clear` goes back"
    )
    stage.break_with({})
    stage.client.post("/v1/overlay/clear", timeout_s=STEP_DEADLINE_S)
    stage.ready(start_after=status["engine"]["start"])
    return Shown(
        name="out of memory with the wished setting",
        result=f"serving with the nearest setting that works {took_s:.1f} s after it died",
        noticed_s=status["overlay"][0]["at_s"] - since_s,
        recovered_s=took_s,
    )


def _changed(status: Document) -> Document | None:
    """Return the status of an engine that serves with something changed."""
    return status if status["overlay"] and _state(status, "ready") else None


def _hopeless(stage: Stage, say: Say) -> Shown:
    before = stage.status()["engine"]
    stage.break_with({"fail-at-start": "model-missing"})
    since_s = time.time()
    os.kill(int(before["pid"]), signal.SIGKILL)
    status = stage.until("rigd gives up", lambda: _state(stage.status(), "failed"))
    noticed_s = status["since_s"] - since_s
    say(f"     gave up ({status['gave_up']}): {status['failure']['sentence']}")
    if status["failure"]["hint"]:
        say(f"     -> {status['failure']['hint']}")
    stage.break_with({})
    stage.client.post("/v1/actions/start", timeout_s=STEP_DEADLINE_S)
    stage.ready(start_after=before["start"])
    return Shown(
        name="a start that can never work",
        result="no restart storm; after the cause was removed, `rigd start` brought it back",
        noticed_s=noticed_s,
        recovered_s=time.time() - since_s,
    )


def _kill_daemon(stage: Stage, say: Say) -> Shown:
    before = stage.status()["engine"]
    daemon = stage.daemon
    if daemon is None:
        raise DemoError("the daemon is not there")
    since_s = time.time()
    daemon.kill()
    daemon.wait()
    say(f"     without rigd the engine goes on serving: /health says {_health_code(before['url'])}")
    stage.start_daemon()
    after = stage.ready()["engine"]
    if (after["pid"], after["id"]) != (before["pid"], before["id"]):
        raise DemoError(f"the engine was restarted: pid {before['pid']} became {after['pid']}")
    return Shown(
        name="daemon killed",
        result=f"a new daemon took the engine over as it is: still pid {after['pid']}, start {after['start']}",
        recovered_s=time.time() - since_s,
    )


def _bad_flag(stage: Stage, say: Say) -> Shown:
    before = stage.status()["engine"]
    since_s = time.time()
    stage.change_rig(lambda rig: rig["engine"]["arguments"]["extra"].update({"no-such-flag": 1}))
    try:
        reply = stage.client.post("/v1/actions/restart", timeout_s=STEP_DEADLINE_S)
    except RefusedError as error:
        say(f"     refused: {' '.join(str(error).split())}")
    else:
        raise DemoError(f"a bad flag was accepted: {reply.get('message')}")
    took_s = time.time() - since_s
    stage.change_rig(lambda rig: rig["engine"]["arguments"]["extra"].pop("no-such-flag"))
    after = stage.status()
    if after["state"] != "ready" or after["engine"]["id"] != before["id"]:
        raise DemoError("a bad flag cost the engine that was running")
    return Shown(
        name="bad flag in the rig file",
        result=f"the engine never noticed: still pid {after['engine']['pid']}, {after['state']}",
        noticed_s=took_s,
    )


STEPS = (
    Step(
        name="start",
        about="Start: launch the engine, prove that it answers, warm the prompts that agents share.",
        show=_begin,
    ),
    Step(
        name="kill",
        about="Kill the engine core. The API server would end with exit code 0, as if all were well.",
        show=_kill_core,
    ),
    Step(
        name="freeze",
        about="Freeze the engine core. No process ends, and Docker's restart policy would wait for ever.",
        show=_freeze_core,
    ),
    Step(
        name="memory",
        about="Kill the whole engine, and let something else hold the card's memory at the next start.",
        show=_memory_taken,
    ),
    Step(
        name="repair",
        about="Kill it again; from now on the wished batch of eight no longer fits the cards.",
        show=_repair,
    ),
    Step(
        name="hopeless",
        about="Kill it again, and take the model away: no start and no setting can mend that.",
        show=_hopeless,
    ),
    Step(name="daemon", about="Kill rigd itself with SIGKILL.", show=_kill_daemon),
    Step(
        name="flag",
        about="Put a flag into the rig file that the engine does not know, and ask for a restart.",
        show=_bad_flag,
    ),
)


def _hurt(stage: Stage, say: Say, name: str, harm: Callable[[], None]) -> Shown:
    """Do harm, wait until it is noticed and until the engine is ready and warm again."""
    before = stage.status()["engine"]["start"]
    since_s = time.time()
    harm()
    failure = stage.noticed(since_s)
    noticed_s = failure["at_s"] - since_s
    say(f"     noticed after {noticed_s:.1f} s: {failure['sentence']}")
    stage.ready(start_after=before)
    took_s = time.time() - since_s
    return Shown(
        name=name,
        result=f"ready and warm again {took_s:.1f} s after it happened",
        noticed_s=noticed_s,
        recovered_s=took_s,
    )


@contextlib.contextmanager
def _signals(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals in another way for a while; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _health_code(url: str) -> int | None:
    import httpx  # noqa: PLC0415  (two of the steps need it)

    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code
    return None


def _state(status: Document, state: str) -> Document | None:
    return status if status["state"] == state else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else "it said nothing"
