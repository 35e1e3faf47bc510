"""Does one task: probe, difference, apply, probe again. Whatever a module does, the answer is an event."""

import hashlib
import json
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rigd.provision.target import modules
from rigd.provision.target.box import Blobs, RealBox
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError
from rigd.provision.target.masking import Masker, masker_of
from rigd.provision.target.processes import Groups, TaskCancelled

Event = dict[str, Any]

DIFF_LIMIT = 256 * 1024
"""A longer text is told by its length: nobody reads it, and the journal keeps it."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


@dataclass(frozen=True, kw_only=True)
class Work:
    """A task as the controller sends it: templates filled in, arguments checked."""

    id: str
    module: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    check: bool = False
    diff: bool = False
    """Whether somebody will look at the texts before and after."""
    timeout_s: float = 0
    secret: bool = False
    """`no_log`: facts go to the controller, which registers them; nothing else does."""


def work_of(fields: Mapping[str, Any]) -> Work:
    """Return the task of a frame; fields that are not known are left aside."""
    return Work(**{name: value for name, value in fields.items() if name in Work.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True)
class Place:
    """What the helper lends to every task."""

    groups: Groups = field(default_factory=Groups)
    blobs: Blobs | None = None
    emit: Callable[[Event], None] = lambda _event: None
    """Takes `progress` and `debug` events while a task runs."""
    knock: Callable[[], bool | None] = lambda: None
    """Has the controller try a new connection to the box."""


def probe(work: Work, place: Place) -> Event:
    """Return a `probed` event (what differs, what holds), or a `failed` one. Reads only."""
    return _guarded(work, place, _probe)


def apply(work: Work, place: Place) -> Event:
    """Return an `applied` event, or a `failed` one; afterwards nothing differs, or the task has failed."""
    return _guarded(work, place, _apply)


def _probe(task: "_Task") -> Event:
    state, changes = task.look()
    facts = task.facts(state)
    # Some modules know only from their arguments whether they can foretell (a command without `creates`).
    unforetold = facts.get("skipped") or task.module.skipped_in_check
    if changes and task.work.check and unforetold:
        text = "skipped: what it would do cannot be foretold in check mode"
        return task.event("probed", state=_digest(state), changed=False, changes=[], skipped=True,
                          facts={"msg": text, **facts, "skipped": True})  # fmt: skip
    return task.event("probed", state=_digest(state), changed=_counts(changes), changes=task.told(changes),
                      facts=facts)  # fmt: skip


def _apply(task: "_Task") -> Event:
    state, changes = task.look()
    if not changes or task.work.check:
        return task.event(
            "applied", changed=_counts(changes), changes=task.told(changes), facts=task.facts(state)
        )
    task.begun = True
    extra = dict(task.module.apply(task.arguments, state, changes, task.box) or {})
    if task.module.converges:
        state, left = task.look()
        if wrong := [change for change in left if not change.once]:
            raise ModuleError(
                "it was done, yet it still differs: " + "; ".join(change.what for change in wrong[:5])
                + ". Does something else on the box set it back?"
            )  # fmt: skip
    facts = {**task.facts(state), **extra}
    if task.box.backups:
        facts.setdefault("backup_file", task.box.backups[0])
    changed = bool(facts.pop("changed", _counts(changes)))
    return task.event("applied", changed=changed, changes=task.told(changes), facts=facts)


class _Task:
    """A task with its module, its arguments as they hold on this box, and what masks its secrets."""

    def __init__(self, work: Work, place: Place, module: Module, mask: Masker) -> None:
        self.work = work
        self.module = module
        self.mask = mask
        self.begun = False
        """Whether something on the box may have been changed."""
        self.box = RealBox(
            check=work.check, diff=work.diff, environment=work.environment, timeout_s=work.timeout_s,
            groups=place.groups, blobs=place.blobs, knock=place.knock,
            tell=lambda text: None if work.secret else place.emit(self.event("progress", text=text)),
        )  # fmt: skip
        self.arguments = _complete(module.arguments, work.arguments, self.box.environment())

    def look(self) -> tuple[Any, list[Change]]:
        box: Box = self.box
        state = self.module.probe(self.arguments, box)
        return state, self.module.difference(self.arguments, state)

    def facts(self, state: Any) -> dict[str, Any]:
        return dict(self.module.result(self.arguments, state)) if self.module.result else {}

    def told(self, changes: Sequence[Change]) -> list[Event]:
        if self.work.secret:
            return [{"what": "changed; what exactly is not told (no_log)", "subject": ""} for _ in changes]
        return [_told(change, diff=self.work.diff) for change in changes]

    def event(self, kind: str, **fields: Any) -> Event:
        masked: Event = self.mask(fields)
        return {"event": kind, "task": self.work.id, **masked}


def _guarded(work: Work, place: Place, act: Callable[[_Task], Event]) -> Event:
    """Return the event of `act`, or what went wrong in a sentence."""
    try:
        module = modules.module_of(work.module)
    except Exception as error:  # noqa: BLE001  (a module that cannot be imported is a failed task, no dead helper)
        return {"event": "failed", "task": work.id, "msg": f"cannot load the module '{work.module}': {error}",
                "facts": {}, "begun": False}  # fmt: skip
    if module is None:
        return {"event": "failed", "task": work.id, "msg": f"there is no module '{work.module}'", "facts": {},
                "begun": False}  # fmt: skip
    task = _Task(work, place, module, masker_of(module.arguments, work.arguments))
    try:
        return act(task)
    except ModuleError as error:
        return task.event("failed", msg=str(error), facts=error.facts, begun=task.begun)
    except TaskCancelled:
        return task.event("failed", msg="called off", facts={}, begun=task.begun, cancelled=True)
    except Exception as error:  # noqa: BLE001  (the boundary: a fault of a module is told, and the helper lives)
        if not work.secret:
            place.emit(task.event("debug", text=traceback.format_exc(limit=20)))
        return task.event("failed", msg=_unexpected(work, error), facts={}, begun=task.begun)


def _unexpected(work: Work, error: Exception) -> str:
    if isinstance(error, PermissionError):
        where = f" on {error.filename}" if error.filename else ""
        hint = "" if os.geteuid() == 0 else "; does the task need `become: true`?"
        return f"{work.module}: permission denied{where}{hint}"
    if isinstance(error, OSError) and error.filename:
        return f"{work.module}: {(error.strerror or str(error)).lower()}: {error.filename}"
    said = "" if work.secret else f": {error}"
    return f"{work.module} broke off with {type(error).__name__}{said}; this is a fault of the module"


def _complete(
    table: Mapping[str, Argument], given: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments with the defaults of those left out, and paths as they are on this box."""
    filled = {name: known.default for name, known in table.items() if name not in given} | dict(given)
    return {name: _expanded(table.get(name), value, environment) for name, value in filled.items()}


def _expanded(known: Argument | None, value: Any, environment: Mapping[str, str]) -> Any:
    if known is None or value is None:
        return value
    if known.kind is Kind.PATH and isinstance(value, str):
        return expand(value, environment)
    if known.kind is Kind.LIST and known.elements is Kind.PATH and isinstance(value, (list, tuple)):
        return [expand(item, environment) if isinstance(item, str) else item for item in value]
    return value


def expand(path: str, environment: Mapping[str, str]) -> str:
    """Return a path with `$NAME` of the task's environment and a leading `~` filled in; unknown names stay."""
    path = _VARIABLE.sub(lambda found: environment.get(found[1] or found[2], found[0]), path)
    if path == "~" or path.startswith("~/"):
        home = environment.get("HOME") or os.path.expanduser("~")
        return home.rstrip("/") + path[1:] if path != "~" else home
    return os.path.expanduser(path)


def _counts(changes: Sequence[Change]) -> bool:
    """Return whether the task is `changed` with them: work that leaves nothing behind does not count."""
    return any(change.counts for change in changes)


def _told(change: Change, *, diff: bool) -> Event:
    event: Event = {"what": change.what, "subject": change.subject}
    if diff:
        event["before"] = _short(change.before)
        event["after"] = _short(change.after)
    return event


def _short(text: str | None) -> str | None:
    return (
        text if text is None or len(text) <= DIFF_LIMIT else f"[{len(text)} characters, too many to show]\n"
    )


def _digest(state: Any) -> str:
    """Return a fingerprint of what was seen: two equal ones mean that nothing moved in between."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()[:16]
