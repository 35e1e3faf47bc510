"""A task with every value filled in, as values; and how raw flags and lists of playbooks are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigd.errors import UsageError
from rigd.provision.language.model import Task
from rigd.provision.run.calls import Call
from rigd.provision.run.results import Result
from rigd.provision.run.scope import Scope


@dataclass(frozen=True, kw_only=True)
class Item:
    """A task, or one item of its loop, ready to run."""

    scope: Scope
    value: Any = None
    label: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The loop's own: item, index, `ansible_loop`."""
    settled: Result | None = None
    """Its result, where nothing needs to run: skipped, or failed before it began."""
    call: Call | None = None
    """None: an action of the controller."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Checked arguments of an action of the controller."""
    user: str | None = None
    """Who to become."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A task with all its items."""

    task: Task
    id: str
    name: str
    items: tuple[Item, ...] = ()
    looped: bool = False
    settled: Result | None = None
    """The whole task's result, where its loop could not be made out, or it was skipped before it."""
    secret: bool = False
    diff: bool = False
    check: bool = False

    @property
    def calls(self) -> list[Call]:
        """Return the calls of all items that have one."""
        return [item.call for item in self.items if item.call is not None and item.settled is None]


@dataclass(frozen=True, kw_only=True)
class Filed:
    """An action with files of the controller, as the module that ends it."""

    module: str
    arguments: Mapping[str, Any]
    blobs: Mapping[str, bytes | Path] = field(default_factory=dict)
    """Digest -> content."""


def short(task: Task) -> str:
    """Return the last word of a task's action."""
    return task.action.rpartition(".")[2]


def truth(value: Any) -> bool:
    """Return a flag as Ansible reads one: true, "yes", 1, ..."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in {"y", "yes", "on", "1", "true", "t"}:
            return True
        if word in {"n", "no", "off", "0", "false", "f", "", "none"}:
            return False
        raise UsageError(f"'{value}' is neither true nor false")
    return bool(value)


def flat(values: Any) -> list[Any]:
    """Return a list without lists in it."""
    if not isinstance(values, (list, tuple)):
        return [values]
    return [inner for value in values for inner in flat(value)]
