"""The run journal: one file a run, a line before and after everything that changes a box.

    started -> (apply) -> done        for each task that changes something, with the handlers it notifies
    notified -> handler               handlers that still have to run
    wanted -> asked -> over           a reboot, with the boot id before it

A run that was broken off at any point is read again by `broken_run`: what it had begun, which handlers it owed, and
whether it had asked for a reboot. No values of variables stand here, and files are private. The process that writes
a journal holds a lock on it, so that the same command does not run twice at a time.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigd.errors import RigdError
from rigd.provision.run import past as reading
from rigd.provision.run.past import Past, RunInfo

KEPT_RUNS = 50
FOLDER = "runs"
_STEM = re.compile(r"(\d{8}-\d{6})-(\d+)")
"""When the run began, and a number that tells it from others of that second."""

Fault = Callable[[str], None]
"""Called after each written line with its kind; tests break the run there."""


class JournalError(RigdError):
    """Nothing can be written down, so nothing may be changed."""


def _no_fault(_kind: str) -> None:
    return


def digest_of(**what: Any) -> str:
    """Return what a run is recognised by: playbook, inventory, limit, tags and variables."""
    text = json.dumps(what, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Journal:
    """Writes one run. Every method returns only when its line is on the disk, or raises `JournalError`."""

    def __init__(self, path: Path, *, fault: Fault = _no_fault) -> None:
        """Create the file. Raises `OSError`, `FileExistsError` where there is one."""
        self.path = path
        self._fault = fault
        self._lock = threading.Lock()
        self._broken: OSError | None = None
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def id(self) -> str:
        """The run's number."""
        return self.path.stem

    def write(self, kind: str, *, sync: bool = True, **what: Any) -> None:
        """Add a line; with `sync` it survives a power cut."""
        line = json.dumps({"kind": kind, "at_s": round(time.time(), 3), **what}, default=str) + "\n"
        with self._lock:
            self._add(line.encode(), sync=sync)
        self._fault(kind)

    def _add(self, line: bytes, *, sync: bool) -> None:
        try:
            if self._broken is not None:
                # What was torn by a full disk stays the last line, whatever room there is now.
                raise self._broken
            while line:
                line = line[os.write(self._file, line) :]
            if sync:
                os.fsync(self._file)
        except OSError as error:
            self._broken = error
            raise JournalError(
                f"cannot write the journal '{self.path}', without which nothing is changed",
                hint="mend that, then run the same command again: it goes on where it was",
            ) from error

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
        """Open a new run. What the broken one before it left is written down again, so that one file tells all.

        Raises `RigdError` while the same command is at work, `JournalError` where nothing can be written.
        """
        last = self._last(digest)
        if last is not None and last.state == "running":
            raise RigdError(
                f"the same command is at work already: run {last.id}", hint="wait until it has ended"
            )
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            journal = self._new()
            self._prune()
        except OSError as error:
            raise JournalError(
                f"cannot keep a journal in '{self.folder}', and without one nothing is changed",
                hint="mend that, or name another folder: RIGD_STATE_DIR=FOLDER before the command",
            ) from error
        try:
            _open_with(journal, past, playbook=playbook, digest=digest, hosts=list(hosts))
        except BaseException:
            journal.close()
            raise
        return journal

    def broken_run(self, digest: str) -> Past | None:
        """Return the last run of the same command if it did not come to its end."""
        last = self._last(digest)
        return None if last is None or last.state in ("done", "running") else last.past

    def _last(self, digest: str) -> RunInfo | None:
        return next((info for info in self.all() if info.digest == digest), None)

    def all(self) -> Iterator[RunInfo]:
        """Return the runs, newest first."""
        for path in self._paths():
            info = reading.read(path)
            if info is not None:
                yield info

    def _paths(self) -> list[Path]:
        named = [
            (found, path) for path in self.folder.glob("*.jsonl") if (found := _STEM.fullmatch(path.stem))
        ]
        return [
            path for _, _, path in sorted(((at[1], int(at[2]), path) for at, path in named), reverse=True)
        ]

    def _new(self) -> Journal:
        """Return a journal whose name comes after all others, even if the clock was set back meanwhile."""
        second, number = time.strftime("%Y%m%d-%H%M%S"), 0
        for newest in self._paths()[:1]:
            last, _, its_number = newest.stem.rpartition("-")
            if last >= second:
                second, number = last, int(its_number) + 1
        while True:
            try:
                return Journal(self.folder / f"{second}-{number:02d}.jsonl", fault=self._fault)
            except FileExistsError:
                number += 1

    def _prune(self) -> None:
        for path in self._paths()[KEPT_RUNS:]:
            path.unlink(missing_ok=True)


def _open_with(journal: Journal, past: Past | None, **head: Any) -> None:
    """Write the first line, and what a broken run left."""
    continues = past.id if past else None
    journal.write("run", sync=past is not None, **head, continues=continues, pid=os.getpid())
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
