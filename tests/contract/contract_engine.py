"""One engine under contract: how it is started, asked and ended."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from box import free_port
from turns import LAST, take_turn

KEY = "contract-key"
MODEL = "tinymimo"
CONTEXT = 8192
SLOTS = 4
READY_DEADLINE_S = {"double": 15.0, "real": 300.0}
POLL_S = 0.02
ARGUMENTS = (
    "--tensor-parallel-size", "2", "--enforce-eager", "--host", "127.0.0.1", "--served-model-name", MODEL,
    "--trust-remote-code", "--enable-prefix-caching", "--enable-prompt-tokens-details", "--max-num-seqs", str(SLOTS),
    "--max-model-len", str(CONTEXT), "--speculative-config", '{"method":"mtp","num_speculative_tokens":1}',
)  # fmt: skip


@dataclass(kw_only=True)
class Engine:
    """One running engine."""

    kind: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    before_ready: list[str] = field(default_factory=list)
    """What asking `/health` came to before it was first answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Return all processes that descend from the server."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def named(self, beginning: str) -> list[psutil.Process]:
        """Return those whose name in the kernel (15 characters of it) begins like this, oldest first."""
        return [process for process in self.tree() if _name(process).startswith(beginning)]

    @property
    def core(self) -> psutil.Process:
        return self.named("VLLM::EngineCor")[0]

    @property
    def workers(self) -> list[psutil.Process]:
        return self.named("VLLM::Worker")

    def ask(self, method: str, path: str, **more: object) -> httpx.Response:
        """Send one request, with the key unless `headers` says otherwise."""
        headers = more.pop("headers", {"Authorization": f"Bearer {KEY}"})
        return httpx.request(method, self.url + path, headers=headers, timeout=60, **more)  # type: ignore[arg-type]

    def end(self) -> None:
        """Kill whatever is left of it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    return "gone"


@dataclass(kw_only=True)
class Engines:
    """Starts engines of one kind."""

    kind: str
    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path
    current: Engine | None = None
    starts: int = 0

    def get(self) -> Engine:
        """Return an engine that serves."""
        if self.current is None or not self.current.alive:
            if self.current is not None:
                self.current.end()
            self.current = self.start()
        return self.current

    def run(self, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a process with these arguments and its log."""
        self.starts += 1
        log = self.folder / f"{self.kind}-{self.starts}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.command, *arguments],
                env=os.environ | self.environment | {"VLLM_API_KEY": KEY},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if self.kind == "real":
            take_turn(process.pid, LAST)
        return process, log

    def start(self) -> Engine:
        """Start an engine and wait until it is healthy."""
        port = free_port()
        process, log = self.run(*ARGUMENTS, "--port", str(port))
        engine = Engine(kind=self.kind, process=process, port=port, log=log)
        deadline_s = time.monotonic() + READY_DEADLINE_S[self.kind]
        while (seen := _health(engine)) != "200":
            engine.before_ready.append(seen)
            if not engine.alive or time.monotonic() > deadline_s:
                tail = log.read_text(errors="replace")[-3000:]
                engine.end()
                raise RuntimeError(f"the {self.kind} engine did not start:\n{tail}")
            time.sleep(POLL_S if self.kind == "double" else 0.25)
        return engine


def _health(engine: Engine) -> str:
    try:
        return str(httpx.get(f"{engine.url}/health", timeout=5).status_code)
    except httpx.ConnectError:
        return "refused"
    except httpx.HTTPError as error:
        return type(error).__name__
