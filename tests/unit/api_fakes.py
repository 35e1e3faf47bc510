"""A supervisor that does what a test tells it to, and a daemon process around it that serves the real API."""

import asyncio
import contextlib
import io
import sys
import tarfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from rigd.api import listen, make_app, serve
from rigd.settings import Settings
from rigd.supervise.decision import Reply
from rigd.supervise.incident import contents_text
from rigd.supervise.observations import RequestKind
from rigd.supervise.state import State

QUEUE_LIMIT = 50


def status_document(**changes: Any) -> dict[str, Any]:
    """Return a whole status document of an engine that is ready."""
    now_s = time.time()
    document: dict[str, Any] = {
        "rig": "box",
        "state": "ready",
        "since_s": now_s - 61,
        "reason": "every prefix proved",
        "desired": "running",
        "now_s": now_s,
        "engine": {
            "runtime": "process",
            "id": "4242:777",
            "pid": 4242,
            "start": 3,
            "digest": "0123456789ab",
            "url": "http://127.0.0.1:8000",
            "model": "tiny",
            "version": "0.32.0",
            "created_s": now_s - 120,
        },
        "live": None,
        "ready_s": now_s - 61,
        "retry_s": None,
        "attempts": {"failed": 0, "limit": 5, "window_s": 3600},
        "failure": None,
        "gave_up": None,
        "warm": [
            {
                "prefix": "agents",
                "proved": True,
                "sightings": 2,
                "prefix_tokens": 4000,
                "cached_tokens": 3968,
                "hit": 0.992,
                "cold_ttft_s": 0.62,
                "warm_ttft_s": 0.08,
                "at_s": now_s - 62,
                "detail": "",
            }
        ],
        "health": {
            "health": "passing",
            "detail": "",
            "running": 1,
            "waiting": 0,
            "kv_usage": 0.077,
            "generation_tokens": 512,
            "silent_s": 1.0,
            "canary": {"answer": "good", "took_s": 0.1, "at_s": now_s - 5, "detail": ""},
        },
        "gpus": [
            {
                "index": 0,
                "name": "NVIDIA GeForce RTX 3090",
                "memory_used_mib": 21504,
                "memory_total_mib": 24576,
                "temperature_c": 61,
                "utilization": 0.87,
                "power_w": 290.0,
                "problem": None,
            }
        ],
        "store": {"problem": None},
        "configuration": {
            "path": "/etc/rigd/rig.yaml",
            "digest": "0123456789ab",
            "running_digest": "0123456789ab",
            "changed": False,
        },
        "daemon": {"pid": 99, "version": "0.1.0", "started_s": now_s - 3700},
        "hint": None,
    }
    return document | changes


def incident_document(**changes: Any) -> dict[str, Any]:
    """Return the whole document of an incident whose engine came back."""
    now_s = time.time()
    event = {"id": 5, "at_s": now_s - 90, "kind": "failure", "message": "The engine ended.", "data": {}}
    document: dict[str, Any] = {
        "id": 7,
        "key": "3@1.000",
        "class": "worker_died",
        "sentence": "A worker of the engine was killed.",
        "hint": "rigd logs",
        "retry_helps": True,
        "evidence": ["12: Worker proc VllmWorker-1 died unexpectedly"],
        "at_s": now_s - 90,
        "start": 3,
        "exit": {
            "code": 137,
            "oom_killed": False,
            "member": "VLLM::Worker_TP",
            "detail": "",
            "at_s": now_s - 90,
        },
        "engine": None,
        "rig": {"name": "box", "file": "/etc/rigd/rig.yaml", "digest": "0123456789ab"},
        "overlay": [],
        "versions": {"rigd": "0.1.0", "vllm": "0.32.0"},
        "complete": True,
        "outcome": "recovered",
        "outcome_s": 31.0,
        "evidence_s": 0.1,
        "left_out": ["2 x bearer tokens, replaced"],
        "parts": [{"name": "engine.log", "bytes": 1234, "cut": True}],
        "redacted": {"bearer tokens": 2},
        "trail": [event, {**event, "kind": "ready", "message": "ready", "at_s": now_s - 59}],
        "log": ["first line", "Worker proc VllmWorker-1 died unexpectedly"],
        "next": ["rigd logs --start 3"],
        "folder": "/var/lib/rigd/incidents/000007",
    }
    return document | changes


class FakeIncidents:
    """One incident, number 7."""

    def __init__(self) -> None:
        self.documents = [incident_document()]

    async def newest(self, limit: int) -> list[dict[str, Any]]:
        return self.documents[:limit]

    async def show(self, number: int) -> dict[str, Any] | None:
        return next((one for one in self.documents if one["id"] == number), None)

    async def bundle(self, number: int) -> bytes | None:
        document = await self.show(number)
        if document is None:
            return None
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            note = contents_text(document).encode()
            entry = tarfile.TarInfo(f"incident-{number}/CONTENTS.txt")
            entry.size = len(note)
            archive.addfile(entry, io.BytesIO(note))
        return packed.getvalue()


class FakeBackend:
    """Keeps a journal, takes requests, moves between states when told to."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.healthy = True
        self.document = status_document(**changes)
        self.entries: list[dict[str, Any]] = []
        self.asked: list[tuple[RequestKind, bool]] = []
        self.reply = Reply(request=1, ok=True, message="already ready")
        self.after: list[tuple[float, dict[str, Any]]] = []
        """Changes of the status, each some seconds after a request."""
        self.folder = folder
        self.incidents = FakeIncidents()
        self.crash = False
        self._queues: list[deque[dict[str, Any]]] = []
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def subscribers(self) -> int:
        return len(self._queues)

    def status(self) -> dict[str, Any]:
        if self.crash:
            raise RuntimeError("secret inner words")
        return self.document | {"now_s": time.time()}

    def change(self, **changes: Any) -> None:
        self.document = self.document | changes
        self._tell({"type": "live", "status": self.document, "live": None})

    def journal(self, message: str, kind: str = "test") -> None:
        entry = {
            "id": len(self.entries) + 1,
            "at_s": time.time(),
            "kind": kind,
            "message": message,
            "data": {},
        }
        self.entries.append(entry)
        self._tell({"type": "event", "event": entry, "status": self.document})

    async def set_knob(self, knob, value):
        return Reply(request=0, ok=True, message=f"{knob} {value}")

    async def act(self, kind: RequestKind, *, reload: bool) -> Reply:
        self.asked.append((kind, reload))
        if self.after and self.after[0][0] == 0.0:
            self.change(**self.after.pop(0)[1])
        task = asyncio.create_task(self._play())
        self._tasks.add(task)
        return self.reply

    async def _play(self) -> None:
        for delay_s, changes in self.after:
            await asyncio.sleep(delay_s)
            self.change(**changes)

    async def wait(self, states: frozenset[State], timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.document["state"] not in states:
                    await self._news.wait()
        return self.document["state"] in states

    async def events(self, after_id: int | None, limit: int) -> list[dict[str, Any]]:
        if after_id is None:
            return self.entries[-limit:]
        return [entry for entry in self.entries if entry["id"] > after_id][:limit]

    async def subscribe(self):
        queue: deque[dict[str, Any]] = deque(maxlen=QUEUE_LIMIT)
        self._queues.append(queue)
        try:
            while True:
                news = self._news
                while queue:
                    yield queue.popleft()
                await news.wait()
        finally:
            self._queues = [other for other in self._queues if other is not queue]

    async def starts(self, limit: int) -> list[dict[str, Any]]:
        start = {
            "number": 3,
            "digest": "0123456789ab",
            "began_s": time.time() - 120,
            "ready_s": time.time() - 61,
            "ended_s": None,
            "outcome": None,
        }
        return [start][:limit]

    def log_path(self, start: int | None) -> Path | None:
        found = sorted(self.folder.glob("starts/*/engine.log"))
        if start is not None:
            found = [path for path in found if int(path.parent.name) == start]
        return found[-1] if found else None

    def metrics(self) -> str:
        return 'rigd_state{state="ready"} 1\n'

    def log_of(self, start: int) -> Path:
        path = self.folder / "starts" / f"{start:06d}" / "engine.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _tell(self, item: dict[str, Any]) -> None:
        for queue in self._queues:
            queue.append(item)
        news, self._news = self._news, asyncio.Event()
        news.set()


@contextlib.asynccontextmanager
async def serving(backend: FakeBackend, settings: Settings):
    """Serve the real API over `backend`; yields what is listened on."""
    listening = listen(settings)
    task = asyncio.create_task(serve(make_app(backend, listening.policy), listening))
    try:
        yield listening
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listening.close()


async def _main(socket: str, folder: str) -> None:
    backend = FakeBackend(Path(folder))
    async with serving(backend, Settings(socket=Path(socket))):
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        while True:
            await asyncio.sleep(0.2)
            backend.journal("tick")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2]))
