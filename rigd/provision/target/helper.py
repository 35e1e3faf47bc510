"""The helper: one process a host and user, which answers the controller's requests until the controller is gone.

    requests: hello | lock | facts | doctor | batch | apply, and at any time beat | cancel | blob | knocked
    events:   hello | facts | doctor | probed | applied | failed | progress | debug | need | knock;
              `done` ends each request

A thread reads, so that a beat, a `cancel` or an answer is taken while a task runs; tasks run one after the other.
When the input ends, or nobody has been heard for too long, every process group that was started is ended.
"""

import contextlib
import itertools
import os
import pwd
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rigd.provision.target import engine, frames
from rigd.provision.target.box import Blobs
from rigd.provision.target.contract import ModuleError
from rigd.provision.target.processes import Groups, TaskCancelled
from rigd.provision.target.runlock import RunLock

START_LIMIT_S = 75.0
"""How long the first words of the controller are awaited."""
BLOB_DEADLINE_S = 120.0
KNOCK_DEADLINE_S = 20.0
"""How long the controller may try a new connection; it gives up sooner itself, if it hears of it."""
LAST_TASK_S = 5.0
"""How long the task that runs when the controller goes may take to clean up."""

Request = Mapping[str, Any]
Event = dict[str, Any]


class Helper:
    """Answers requests that come by `receive`, with events that go by `send`."""

    def __init__(self, receive: frames.Receive, send: Callable[[bytes], None]) -> None:
        self._reader = frames.Reader(receive)
        self._send = send
        self._sending = threading.Lock()
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._heard: queue.SimpleQueue[tuple[Request, bytes] | None] = queue.SimpleQueue()
        """What a task asked the controller for: content, or whether it comes in."""
        self._knocks = itertools.count()
        self._blobs = Blobs(self._fetch)
        self._groups = Groups()
        self._present: Any = None
        """Id of the request that is being answered."""
        self._over = False
        self.silence_limit_s = START_LIMIT_S
        """A controller that is silent for so long is cut off, or dead. It says itself how often it beats."""
        self._run_lock = RunLock()
        self._answers: Mapping[str, Callable[[Request], None]] = {
            "hello": self._hello, "facts": self._facts, "batch": self._batch, "apply": self._apply,
            "lock": self._lock, "doctor": self._doctor,
        }  # fmt: skip

    def serve(self) -> None:
        """Answer until the controller is gone."""
        self._send(frames.READY)
        if self._reader.skip_past(frames.SYNC, limit_bytes=65536) is None:
            return
        reading = threading.Thread(target=self._read, name="reader", daemon=True)
        reading.start()
        while (request := self._requests.get()) is not None and not self._over:
            self._answer(request)
        self._run_lock.release()
        reading.join(LAST_TASK_S)

    def _read(self) -> None:
        """Take frames until there are no more, then end everything."""
        try:
            while (frame := self._reader.read()) is not None:
                self._take(*frame)
        except (OSError, TimeoutError, frames.FrameError):
            pass  # The controller is gone, or silent, or not one of ours: all the same to this end.
        self._over = True
        self._groups.stop.set()
        self._heard.put(None)
        self._requests.put(None)
        self._groups.end_all()

    def _take(self, header: Request, payload: bytes) -> None:
        kind = header.get("request")
        if kind == "beat":
            self._emit({"event": "beat"})
        elif kind in ("blob", "knocked"):
            self._heard.put((header, payload))
        elif kind == "cancel":
            if header.get("of") == self._present:
                self._groups.stop.set()
                # Wakes a task that waits for an answer.
                self._heard.put(None)
                self._groups.end_all()
        else:
            self._requests.put(header)

    def _answer(self, request: Request) -> None:
        self._present = request.get("id")
        answer = self._answers.get(str(request.get("request")))
        if answer is None:
            self._emit({"event": "refused", "msg": f"there is no request '{request.get('request')}'"})
        else:
            with contextlib.suppress(TaskCancelled):
                answer(request)
        self._emit({"event": "done"})
        self._present = None
        if self._groups.stop.is_set() and not self._over:
            self._groups = Groups()

    def _emit(self, event: Event) -> None:
        frame = frames.pack({**event, "id": self._present})
        with self._sending:
            try:
                self._send(frame)
            except OSError:
                # Nobody listens any more; the reader sees the same and ends everything.
                self._groups.stop.set()

    def _fetch(self, digest: str) -> bytes:
        self._emit({"event": "need", "digest": digest})
        heard = self._hear("digest", digest, deadline_s=BLOB_DEADLINE_S)
        if heard is None:
            raise ModuleError(f"the controller did not send what it holds within {BLOB_DEADLINE_S:g} s")
        header, payload = heard
        if reason := header.get("missing"):
            raise ModuleError(f"the content that this task needs did not come: {reason}")
        return payload

    def _knock(self) -> bool | None:
        """Have the controller try a new connection; one that cannot be asked any more does not come in either."""
        number = next(self._knocks)
        self._emit({"event": "knock", "knock": number})
        heard = self._hear("knock", number, deadline_s=KNOCK_DEADLINE_S)
        return heard[0].get("open") if heard else False

    def _hear(self, name: str, value: Any, *, deadline_s: float) -> tuple[Request, bytes] | None:
        """Return the answer that names what was asked for; None at the deadline. Older answers are dropped."""
        until_s = time.monotonic() + deadline_s
        while True:
            try:
                came = self._heard.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                return None
            if self._groups.stop.is_set():
                raise TaskCancelled
            if came is not None and came[0].get(name) == value:
                return came

    def _hello(self, request: Request) -> None:
        self.silence_limit_s = float(request.get("silence_limit_s", self.silence_limit_s))
        self._emit({"event": "hello", **about()})

    def _lock(self, request: Request) -> None:
        self._emit(self._run_lock.take(str(request.get("holder", ""))))

    def _facts(self, request: Request) -> None:
        from rigd.provision.target import facts  # noqa: PLC0415  (a run whose tasks need none pays nothing)

        subset = request.get("subset")
        self._emit({"event": "facts", "facts": facts.gather(subset if subset is None else frozenset(subset))})

    def _doctor(self, request: Request) -> None:
        from rigd.provision.target import doctor_facts  # noqa: PLC0415  (as above)
        from rigd.provision.target.box import RealBox  # noqa: PLC0415

        facts = doctor_facts.gather(RealBox(groups=self._groups), request.get("questions") or {})
        self._emit({"event": "doctor", "facts": facts})

    def _batch(self, request: Request) -> None:
        self._probe_all(request.get("tasks", ()), stop_at_change=bool(request.get("stop_at_change")))

    def _apply(self, request: Request) -> None:
        event = engine.apply(engine.work_of(request["task"]), self._place())
        self._emit(event)
        if event["event"] == "applied":
            self._probe_all(request.get("then", ()), stop_at_change=bool(request.get("stop_at_change")))

    def _probe_all(self, tasks: Any, *, stop_at_change: bool) -> None:
        place = self._place()
        for fields in tasks:
            if self._groups.stop.is_set():
                return
            event = engine.probe(engine.work_of(fields), place)
            self._emit(event)
            if event["event"] == "failed" or (stop_at_change and event["changes"]):
                return

    def _place(self) -> engine.Place:
        return engine.Place(groups=self._groups, blobs=self._blobs, emit=self._emit, knock=self._knock)


def about() -> Event:
    """Return who answers: protocol, Python, user, boot, host."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {
        "protocol": frames.PROTOCOL,
        "python": ".".join(map(str, sys.version_info[:3])),
        "uid": uid,
        "user": user,
        "boot_id": boot_id(),
        "hostname": os.uname().nodename,
        "pid": os.getpid(),
    }


def boot_id() -> str:
    """Return what the kernel calls this boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as said:
            return said.read().strip()
    except OSError:
        return ""
