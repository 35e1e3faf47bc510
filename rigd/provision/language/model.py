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
    extended: Any = False
    """Whether `ansible_loop` is defined."""
    extended_allitems: Any = True


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role at the place where it is used; two uses are two values.

    Its variables stand merged with those of the roles that it depends on, and that depend on it; its own come last.
    """

    name: str
    path: Path
    defaults: Mapping[str, Any] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    """Of `vars/` and of the entry's `vars:`."""
    exported: Mapping[str, Any] = field(default_factory=dict)
    """Of `vars/` alone: what other tasks of the play see, too, if the role is public."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the role's entry."""
    once: str = ""
    """Uses of the same text are one: after the first of them that did something a host leaves out the others."""


@dataclass(frozen=True, kw_only=True)
class VarsFile:
    """One entry of `vars_files`: the first of several files that is there."""

    names: tuple[Expression, ...]
    values: Mapping[str, Any] | None = None
    """What the file says; None while its name holds a template (then `load_vars_file` reads it during the run)."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a play, role, block or include hands down to the tasks in it."""

    folder: Path
    """Of the playbook."""
    file: Path
    """That the tasks stand in."""
    play_vars: Mapping[str, Any] = field(default_factory=dict)
    when: tuple[Expression, ...] = ()
    tags: frozenset[str] = frozenset()
    become: Become = Become()
    environment: tuple[Any, ...] = ()
    vars: tuple[Mapping[str, Any], ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    role: Role | None = None
    module_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notify: tuple[str, ...] = ()
    no_log: Any = False
    ignore_errors: Any = False
    ignore_unreachable: Any = False
    delegate_to: Any = None
    run_once: Any = False
    check_mode: Any = None
    diff: Any = None
    timeout_s: Any = 0
    guarded: bool = False
    """A condition of an include above decides whether the tasks are reached at all."""
    loops: frozenset[str] = frozenset()
    """Variables of the loops of includes above."""
    handlers: bool = False
    prefix: str = ""
    """Of the tasks' ids."""
    depth: int = 0
    """How many files deep."""


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
    parameters: tuple[Mapping[str, Any], ...] = ()
    """`vars` of the dynamic includes that the task came from, outermost first: they outrank registered results."""
    role: Role | None = None
    module_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By canonical name; those of the task's own action stand in `arguments` already."""
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
    left_out: str = ""
    """The module is left out, but a condition may keep the task from being reached: the reason if it is not."""
    scope: "Scope | None" = None
    """For include_tasks and include_role: what the included tasks inherit. Hand it to `load_tasks` or `load_role`."""


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
    """In Ansible's order: of `roles:`, of the play, of imported roles. (Those of a block are lifted out of it.)"""
    vars: Mapping[str, Any] = field(default_factory=dict)
    vars_files: tuple[VarsFile, ...] = ()
    public_roles: tuple[Role, ...] = ()
    """Roles of `roles:` and `import_role`, with those they need: all tasks of the play see their variables."""
    force_handlers: Any = None
    connection: str | None = None
    remote_user: str | None = None
    port: int | None = None
    tags: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path:
        """Return the folder of the playbook that the play stands in, which may have been imported."""
        return self.place.file.parent


@dataclass(frozen=True, kw_only=True)
class Playbook:
    """A whole playbook, imports followed."""

    path: Path
    plays: tuple[Play, ...]
    warnings: tuple[str, ...] = ()
    """What may not be meant, each with its place."""


@dataclass(frozen=True, kw_only=True)
class Included:
    """What a dynamic include brings."""

    nodes: tuple[Node, ...] = ()
    handlers: tuple[Task, ...] = ()
    roles: tuple[Role, ...] = ()
    """The roles of `nodes`, in case the include is public."""


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
