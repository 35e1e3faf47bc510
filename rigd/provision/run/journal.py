"""The run journal: one file a run, a line before and after everything that changes a box.

    started -> (apply) -> done        for each task that changes something, with the handlers it notifies
    notified -> handler               handlers that still have to run
    wanted -> asked -> over           a reboot, with the boot id before it

A run that was broken off at any point is read again by `broken_run`: what it had begun, which handlers it owed, and
whether it had asked for a reboot. No values of variables stand here, and files are private.
"""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEPT_RUNS = 50
MAX_LINE_BYTES = 64 * 1024
FOLDER = "runs"

Fault = Callable[[str], None]
"""Called after each written line with its kind; tests break the run there."""


def _no_fault(_kind: str) -> None:
    return


def digest_of(**what: Any) -> str:
    """Return what a run is recognised by: playbook, inventory, limit, tags and variables."""
    text = json.dumps(what, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Reboot:
    """A reboot that a broken run wanted."""

    boot_id: str
    """Of the box before it."""
    asked: bool
    over: bool


@dataclass(kw_only=True)
class HostPast:
    """What a broken run left on one host."""

    changed: set[str] = field(default_factory=set)
    """Tasks (play and key) that it changed, or had begun to change."""
    pending: dict[str, list[str]] = field(default_factory=dict)
    """Play -> handlers that still have to run, in the order of their notification."""
    reboots: dict[str, Reboot] = field(default_factory=dict)
    begun: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """Task that was broken off in the middle -> its play, and the handlers that it would have notified."""


@dataclass(frozen=True, kw_only=True)
class Past:
    """A broken run of the same command."""

    id: str
    at_s: float
    hosts: Mapping[str, HostPast] = field(default_factory=dict)

    def of(self, host: str) -> HostPast:
        """Return what it left on a host."""
        return self.hosts.get(host, HostPast())


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One run, for lists."""

    id: str
    playbook: str
    digest: str
    hosts: tuple[str, ...]
    at_s: float
    ended_s: float | None
    state: str
    """done, failed, stopped, rebooting, partial (begun at a later task), or broken."""
    changed: int
    pending: Mapping[str, tuple[str, ...]]
    """Host -> handlers that still have to run."""
    past: Past


class Journal:
    """Writes one run. Every method returns only when its line is on the disk."""

    def __init__(self, path: Path, *, fault: Fault = _no_fault) -> None:
        self.path = path
        self._fault = fault
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @property
    def id(self) -> str:
        """The run's number."""
        return self.path.stem

    def write(self, kind: str, *, sync: bool = True, **what: Any) -> None:
        """Add a line; with `sync` it survives a power cut."""
        line = json.dumps({"kind": kind, "at_s": round(time.time(), 3), **what}, default=str) + "\n"
        with self._lock:
            os.write(self._file, line.encode())
            if sync:
                os.fsync(self._file)
        self._fault(kind)

    def started(self, host: str, play: str, task: str, *, name: str, handlers: Sequence[str]) -> None:
        """Note that a task is about to change something; until it is done its handlers count as notified."""
        self.write("started", host=host, play=play, task=task, name=name, handlers=list(handlers))

    def done(self, host: str, play: str, task: str, *, changed: bool, handlers: Sequence[str] = ()) -> None:
        """Note that a task has ended, and which handlers are owed for it."""
        self.write("done", host=host, play=play, task=task, changed=changed, handlers=list(handlers))

    def notified(self, host: str, play: str, handlers: Sequence[str]) -> None:
        """Note that these handlers have to run."""
        self.write("notified", host=host, play=play, handlers=list(handlers))

    def handled(self, host: str, play: str, handlers: Sequence[str]) -> None:
        """Note that these handlers have run."""
        self.write("handled", host=host, play=play, handlers=list(handlers))

    def reboot(self, host: str, task: str, *, boot_id: str, state: str) -> None:
        """Note that a reboot is wanted, asked or over."""
        self.write("reboot", host=host, task=task, boot_id=boot_id, state=state)

    def end(self, state: str, recap: Mapping[str, Mapping[str, int]]) -> None:
        """Close the run."""
        self.write("end", state=state, recap={host: dict(counts) for host, counts in recap.items()})

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            os.close(self._file)


class NoJournal(Journal):
    """Of a run that changes nothing: nothing is written."""

    def __init__(self) -> None:
        self.path = Path("check")

    def write(self, kind: str, *, sync: bool = True, **what: Any) -> None:
        """Write nothing."""

    def close(self) -> None:
        """Close nothing."""


class Runs:
    """The folder of all runs' journals."""

    def __init__(self, state_dir: Path, *, fault: Fault = _no_fault) -> None:
        self.folder = state_dir / FOLDER
        self._fault = fault

    def begin(self, *, playbook: str, digest: str, hosts: Sequence[str], past: Past | None) -> Journal:
        """Open a new run. What the broken one before it left is written down again, so that one file tells all."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._prune()
        journal = Journal(self._free_path(), fault=self._fault)
        journal.write(
            "run", sync=past is not None, playbook=playbook, digest=digest, hosts=list(hosts),
            continues=past.id if past else None, pid=os.getpid(),
        )  # fmt: skip
        for host, left in past.hosts.items() if past else ():
            journal.write(
                "inherited",
                host=host,
                changed=sorted(left.changed),
                pending=left.pending,
                reboots={
                    task: [reboot.boot_id, reboot.asked, reboot.over] for task, reboot in left.reboots.items()
                },
            )
        return journal

    def broken_run(self, digest: str) -> Past | None:
        """Return the last run of the same command if it did not come to its end."""
        for info in self.all():
            if info.digest == digest:
                return None if info.state == "done" else info.past
        return None

    def all(self) -> Iterator[RunInfo]:
        """Return the runs, newest first."""
        for path in self._paths():
            info = _read(path)
            if info is not None:
                yield info

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"), reverse=True) if self.folder.is_dir() else []

    def _free_path(self) -> Path:
        stem = time.strftime("%Y%m%d-%H%M%S")
        number = 0
        while (path := self.folder / f"{stem}-{number:02d}.jsonl").exists():
            number += 1
        return path

    def _prune(self) -> None:
        for path in self._paths()[KEPT_RUNS - 1 :]:
            path.unlink(missing_ok=True)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Return the whole lines of a journal; a last one that a power cut tore is left out."""
    try:
        text = path.read_bytes()
    except OSError:
        return
    for line in text.split(b"\n"):
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry


def _read(path: Path) -> RunInfo | None:
    head: dict[str, Any] | None = None
    state, ended_s = "broken", None
    hosts: dict[str, HostPast] = {}
    for entry in _lines(path):
        kind = entry.get("kind")
        if kind == "run":
            head = entry
        elif kind == "end":
            state, ended_s = entry["state"], entry["at_s"]
        elif "host" in entry:
            reader = _READERS.get(str(kind))
            if reader:
                reader(hosts.setdefault(entry["host"], HostPast()), entry)
    if head is None:
        return None
    for left in hosts.values():
        for play, handlers in left.begun.values():
            _owe(left, play, handlers)
    return RunInfo(
        id=path.stem,
        playbook=head["playbook"],
        digest=head["digest"],
        hosts=tuple(head["hosts"]),
        at_s=head["at_s"],
        ended_s=ended_s,
        state=state,
        changed=sum(len(left.changed) for left in hosts.values()),
        pending={
            host: tuple(name for names in left.pending.values() for name in names)
            for host, left in hosts.items()
            if any(left.pending.values())
        },
        past=Past(id=path.stem, at_s=head["at_s"], hosts=hosts),
    )


def task_in_play(play: str, task: str) -> str:
    """Return the name under which a task of a play is remembered."""
    return f"{play}|{task}"


def _inherited(left: HostPast, entry: Mapping[str, Any]) -> None:
    left.changed.update(entry["changed"])
    left.pending.update({play: list(names) for play, names in entry["pending"].items()})
    for task, (boot_id, asked, over) in entry["reboots"].items():
        left.reboots[task] = Reboot(boot_id=boot_id, asked=asked, over=over)


def _notified(left: HostPast, entry: Mapping[str, Any]) -> None:
    _owe(left, entry["play"], entry["handlers"])


def _owe(left: HostPast, play: str, handlers: Sequence[str]) -> None:
    pending = left.pending.setdefault(play, [])
    pending.extend(name for name in handlers if name not in pending)


def _started(left: HostPast, entry: Mapping[str, Any]) -> None:
    key = task_in_play(entry["play"], entry["task"])
    left.changed.add(key)
    left.begun[key] = (entry["play"], entry["handlers"])


def _done(left: HostPast, entry: Mapping[str, Any]) -> None:
    key = task_in_play(entry["play"], entry["task"])
    left.begun.pop(key, None)
    if entry["changed"]:
        left.changed.add(key)
    else:
        left.changed.discard(key)
    _notified(left, entry)


def _handled(left: HostPast, entry: Mapping[str, Any]) -> None:
    pending = left.pending.get(entry["play"], [])
    left.pending[entry["play"]] = [name for name in pending if name not in entry["handlers"]]


def _reboot(left: HostPast, entry: Mapping[str, Any]) -> None:
    state = entry["state"]
    left.reboots[entry["task"]] = Reboot(
        boot_id=entry["boot_id"], asked=state in {"asked", "over"}, over=state == "over"
    )


_READERS: Mapping[str, Callable[[HostPast, Mapping[str, Any]], None]] = {
    "inherited": _inherited,
    "started": _started,
    "done": _done,
    "notified": _notified,
    "handled": _handled,
    "reboot": _reboot,
}
