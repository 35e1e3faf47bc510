"""What a journal tells of its run: how it ended, and what it left on each host. A line that is damaged is counted."""

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Entry = Mapping[str, Any]


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
    damaged: int = 0
    """Lines of its journal that cannot be read."""

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
    """done, failed, stopped, rebooting, partial (begun at a later task), running, broken, or unreadable."""
    changed: int
    pending: Mapping[str, tuple[str, ...]]
    """Host -> handlers that still have to run."""
    past: Past


def task_in_play(play: str, task: str) -> str:
    """Return the name under which a task of a play is remembered."""
    return f"{play}|{task}"


def read(path: Path) -> RunInfo | None:
    """Return the run of a journal; None where it had not begun."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    # The last line, without its end, is one that a kill or a power cut tore.
    lines = [_entry(line) for line in text.split(b"\n")[:-1]]
    known = [entry for entry in lines if entry is not None]
    hosts: dict[str, HostPast] = {}
    for entry in known:
        if reader := _READERS.get(entry["kind"]):
            reader(hosts.setdefault(entry["host"], HostPast()), entry)
    for left in hosts.values():
        for play, handlers in left.begun.values():
            _owe(left, play, handlers)
    head = next((entry for entry in known if entry["kind"] == "run"), None)
    if head is None:
        if not lines:
            return None
        head = {"playbook": "", "digest": "", "hosts": list(hosts), "at_s": path.stat().st_mtime}
    end = next((entry for entry in known if entry["kind"] == "end"), None)
    return RunInfo(
        id=path.stem,
        playbook=head["playbook"],
        digest=head["digest"],
        hosts=tuple(head["hosts"]),
        at_s=head["at_s"],
        ended_s=end["at_s"] if end else None,
        state=_state(path, head, end),
        changed=sum(len(left.changed) for left in hosts.values()),
        pending={
            host: tuple(name for names in left.pending.values() for name in names)
            for host, left in hosts.items()
            if any(left.pending.values())
        },
        past=Past(id=path.stem, at_s=head["at_s"], hosts=hosts, damaged=lines.count(None)),
    )


def _state(path: Path, head: Entry, end: Entry | None) -> str:
    if not head["digest"]:
        return "unreadable"
    if end is not None:
        return str(end["state"])
    return "running" if _is_held(path) else "broken"


def _is_held(path: Path) -> bool:
    """Return whether the process that writes a journal still lives: the kernel keeps its lock as long."""
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # A file system without locks.
    finally:
        os.close(file)
    return False


def _entry(line: bytes) -> Entry | None:
    """Return a line of a journal, None for one that is damaged."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        return None
    fields = _FIELDS.get(entry["kind"], {})
    return entry if all(isinstance(entry.get(name), kind) for name, kind in fields.items()) else None


def _inherited(left: HostPast, entry: Entry) -> None:
    left.changed.update(entry["changed"])
    left.pending.update({play: list(names) for play, names in entry["pending"].items()})
    for task, (boot_id, asked, over) in entry["reboots"].items():
        left.reboots[task] = Reboot(boot_id=boot_id, asked=asked, over=over)


def _notified(left: HostPast, entry: Entry) -> None:
    _owe(left, entry["play"], entry["handlers"])


def _owe(left: HostPast, play: str, handlers: Sequence[str]) -> None:
    pending = left.pending.setdefault(play, [])
    pending.extend(name for name in handlers if name not in pending)


def _started(left: HostPast, entry: Entry) -> None:
    key = task_in_play(entry["play"], entry["task"])
    left.changed.add(key)
    left.begun[key] = (entry["play"], entry["handlers"])


def _done(left: HostPast, entry: Entry) -> None:
    key = task_in_play(entry["play"], entry["task"])
    left.begun.pop(key, None)
    if entry["changed"]:
        left.changed.add(key)
    else:
        left.changed.discard(key)
    _notified(left, entry)


def _handled(left: HostPast, entry: Entry) -> None:
    pending = left.pending.get(entry["play"], [])
    left.pending[entry["play"]] = [name for name in pending if name not in entry["handlers"]]


def _reboot(left: HostPast, entry: Entry) -> None:
    state = entry["state"]
    left.reboots[entry["task"]] = Reboot(
        boot_id=entry["boot_id"], asked=state in {"asked", "over"}, over=state == "over"
    )


_READERS: Mapping[str, Callable[[HostPast, Entry], None]] = {
    "inherited": _inherited,
    "started": _started,
    "done": _done,
    "notified": _notified,
    "handled": _handled,
    "reboot": _reboot,
}
_TASK = {"host": str, "play": str, "task": str, "handlers": list}
_FIELDS: Mapping[str, Mapping[str, type]] = {
    "run": {"playbook": str, "digest": str, "hosts": list, "at_s": float},
    "inherited": {"host": str, "changed": list, "pending": dict, "reboots": dict},
    "started": _TASK,
    "done": {**_TASK, "changed": bool},
    "notified": {"host": str, "play": str, "handlers": list},
    "handled": {"host": str, "play": str, "handlers": list},
    "reboot": {"host": str, "task": str, "boot_id": str, "state": str},
    "end": {"state": str, "at_s": float},
}
"""Kind of a line -> what it must hold to be of use."""
