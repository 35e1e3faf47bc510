"""Plays, blocks and tasks as they run: frozen values with their places. Nothing is templated yet.

Static inheritance is already done: what a play, role, block or static import hands down (`when`, tags, become, vars,
environment, no_log, ...) stands on each task, outermost first, so the runner reads a task and nothing above it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where something stands in a file, counted from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A raw value or condition of the playbook, with its place for errors."""

    value: Any
    place: Place


@dataclass(frozen=True, kw_only=True)
class Become:
    """Whose rights a task wants. None: not said at any level (then the inventory or command line decides)."""

    wanted: Any = None
    """True, False, a template, or None."""
    user: str | None = None
    method: str | None = None


@dataclass(frozen=True, kw_only=True)
class Loop:
    """`loop`, `with_items`, `with_dict`, ... and `loop_control`."""

    style: str
    """`loop`, or what follows `with_`."""
    items: Any
    variable: str = "item"
    index_variable: str | None = None
    label: Any = None
    pause_s: Any = 0
    break_when: tuple[Expression, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role at the place where it is used; two uses are two values."""

    name: str
    path: Path
    defaults: Mapping[str, Any] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task, or one handler."""

    id: str
    """Stable over runs of the same files: file relative to the playbook, line, name; made unique by a counter."""
    place: Place
    name: str | None
    """May hold templates."""
    action: str
    """Canonical name of the module or action, such as `ansible.builtin.copy`."""
    arguments: Mapping[str, Any]
    """As written (templates inside); free text stands under the module's free-form argument."""
    argument_places: Mapping[str, Place] = field(default_factory=dict)
    when: tuple[Expression, ...] = ()
    """All must hold; inherited ones first."""
    loop: Loop | None = None
    register: str | None = None
    until: tuple[Expression, ...] = ()
    retries: Any = None
    delay_s: Any = 5
    changed_when: tuple[Expression, ...] | None = None
    failed_when: tuple[Expression, ...] | None = None
    notify: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    become: Become = Become()
    environment: tuple[Any, ...] = ()
    """Mappings, outermost first."""
    vars: tuple[Mapping[str, Any], ...] = ()
    """Variables of blocks and of the task, outermost first."""
    role: Role | None = None
    module_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    no_log: Any = False
    ignore_errors: Any = False
    ignore_unreachable: Any = False
    delegate_to: Any = None
    run_once: Any = False
    check_mode: Any = None
    diff: Any = None
    async_s: Any = 0
    poll_s: Any = 15
    timeout_s: Any = 0
    """0: none of its own; the command's deadline stands."""
    first_of_role: bool = False


@dataclass(frozen=True, kw_only=True)
class Block:
    """Tasks with what to do when one fails, and what to do in any case."""

    place: Place
    name: str | None = None
    tasks: "tuple[Node, ...]" = ()
    rescue: "tuple[Node, ...]" = ()
    always: "tuple[Node, ...]" = ()
    tags: frozenset[str] = frozenset()


Node = Task | Block


@dataclass(frozen=True, kw_only=True)
class Play:
    """One play."""

    place: Place
    name: str | None
    hosts: str
    """Pattern; may hold templates of extra variables."""
    gather_facts: Any = None
    """True, False, a template, or None (not said: gathered when first used)."""
    pre_tasks: tuple[Node, ...] = ()
    roles: tuple[Node, ...] = ()
    """The roles' tasks, each role's with its own scope."""
    tasks: tuple[Node, ...] = ()
    post_tasks: tuple[Node, ...] = ()
    handlers: tuple[Task, ...] = ()
    """In the order of definition: the play's, then the roles'. (Those of a block are lifted out of it.)"""
    vars: Mapping[str, Any] = field(default_factory=dict)
    vars_files: tuple[Mapping[str, Any], ...] = ()
    connection: str | None = None
    remote_user: str | None = None
    port: int | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Playbook:
    """A whole playbook, imports followed."""

    path: Path
    plays: tuple[Play, ...]


@dataclass(frozen=True, kw_only=True)
class Host:
    """One host of the inventory."""

    name: str
    groups: tuple[str, ...] = ()
    """From the widest (`all`) to the narrowest."""
    vars: Mapping[str, Any] = field(default_factory=dict)
    """Group variables, group_vars, host_vars and its own, merged with Ansible's precedence."""


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Hosts and groups."""

    hosts: tuple[Host, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
