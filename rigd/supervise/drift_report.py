"""What `rigd provision --json` told, line by line, as a report of a few sentences. Pure.

line -> Reading.take() ... -> Reading.report(exit code) -> Report
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from rigd.errors import ExitCode

DIFFERENCES_LIMIT = 50
"""Differences kept of a run; a host that differs in more has never been provisioned."""
TEXT_LIMIT = 300
ANOTHER = "another run is at work"
"""What `rigd provision` says where another run has the box."""
_CHANGED, _FAILED = "changed", frozenset({"failed", "unreachable"})


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One task that would change something."""

    task: str
    place: str
    """File and line of the task."""
    what: str = ""
    """What would change, as far as the task can tell."""
    allowed: bool = False
    """Whether the rig file lets it be applied unattended."""

    @property
    def key(self) -> str:
        """What makes two sightings the same difference; what exactly differs may vary."""
        return f"{self.place}:{self.task}"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a check or an apply."""

    ok: bool
    """Whether it went through to the end."""
    differences: tuple[Difference, ...] = ()
    """What would change; of an apply, what was changed."""
    more: int = 0
    """Differences beyond those that are kept."""
    message: str = ""
    """Why it did not go through, in a sentence."""
    hint: str = ""
    stopped: bool = False
    """Whether it was asked to stop, and did."""
    reboot: bool = False
    """Whether the playbook wants a reboot, which nobody does unattended."""
    busy: bool = False
    """Whether another run was under way, so that a later try may be the one."""


REPORT = TypeAdapter(Report)
"""Writes a report as JSON and reads it back."""


@dataclass(kw_only=True)
class Reading:
    """Takes the lines of a run as they come."""

    check: bool
    _handlers: set[tuple[str, str]] = field(default_factory=set)
    _items: list[str] = field(default_factory=list)
    _found: list[Difference] = field(default_factory=list)
    _failures: list[str] = field(default_factory=list)
    _bad: int = 0
    _ended: bool = False

    def take(self, line: str) -> None:
        """Take one line; what is no event is left."""
        try:
            event = json.loads(line)
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        kind = event.get("event")
        if kind == "task":
            self._items = []
            if event.get("handler"):
                self._handlers.add((str(event.get("name")), str(event.get("place"))))
        elif kind == "item" and event.get("outcome") == _CHANGED:
            self._items.append(str(event.get("label", "")))
        elif kind == "result":
            self._result(event)
        elif kind == "recap":
            hosts = event.get("hosts") or {}
            self._bad = sum(
                int(counts.get(word, 0)) for counts in hosts.values() for word in ("failed", "unreachable")
            )
            self._ended = True

    def _result(self, event: Mapping[str, Any]) -> None:
        name, place = str(event.get("name", "")), str(event.get("place", ""))
        result = event.get("result") or {}
        outcome = event.get("outcome")
        if outcome in _FAILED and not event.get("ignored"):
            said = result.get("msg") or result.get("censored") or "it failed, and said nothing"
            self._failures.append(_short(f"'{name}' ({place}): {said}" if name else str(said)))
        if outcome != _CHANGED or (self.check and (name, place) in self._handlers):
            return  # A handler would run because of what is listed already.
        changes = result.get("changes") or self._items
        what = _short("; ".join(map(str, changes)))
        self._found.append(Difference(task=_short(name), place=place, what=what))

    def report(self, code: int, *, stopped: bool = False, errors: str = "") -> Report:
        """Return what it came to, the run having ended with `code` and `errors` on its stderr."""
        found = tuple(self._found[:DIFFERENCES_LIMIT])
        report = Report(ok=False, differences=found, more=len(self._found) - len(found), stopped=stopped)
        if stopped:
            return replace(report, message="it was stopped before its end")
        if self._ended and not self._bad and code in {ExitCode.DONE, ExitCode.NOT_SO}:
            return replace(report, ok=True, reboot=not self.check and code == ExitCode.NOT_SO)
        said, hint = _words_of(errors)
        message = self._failures[-1] if self._failures and self._bad else said
        busy = ANOTHER in f"{message} {said}"
        return replace(report, message=message or f"it ended with exit code {code}", hint=hint, busy=busy)


def _words_of(errors: str) -> tuple[str, str]:
    """Return sentence and hint of what `rigd` said on stderr."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    begins = next((place for place, line in enumerate(lines) if line.startswith("rigd: ")), len(lines) - 1)
    said = [line.removeprefix("rigd: ") for line in lines[max(0, begins) :] if not line.startswith("-> ")]
    hint = next((line.removeprefix("-> ") for line in lines if line.startswith("-> ")), "")
    return _short(" ".join(said)), _short(hint)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_LIMIT else f"{flat[: TEXT_LIMIT - 3]}..."
