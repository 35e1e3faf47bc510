"""What a module is: arguments, probe, difference, apply. Standard library alone, since modules run on the box.

    arguments --probe--> state --difference (pure)--> changes --apply--> state --difference--> must be none

A module is one file of `target/modules/` that defines `MODULE = Module(...)`. How to add one: write that file; its
name is the module's short name, the table in `target/modules/__init__.py` finds it.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class ModuleError(Exception):
    """A task cannot be done; the text says what, where, and what to do next.

    `facts` become part of the task's result (rc, stdout, ...), as Ansible's `fail_json` would return them.
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class Kind(enum.Enum):
    """Types of arguments, after Ansible's `type`."""

    TEXT = "str"
    BOOLEAN = "bool"
    INTEGER = "int"
    FLOAT = "float"
    PATH = "path"
    """A text; `~` and variables of the environment are expanded on the box."""
    MODE = "mode"
    """File permissions: octal text ("0644", "u=rw,g=r,o=r") or a YAML integer that was written in octal."""
    LIST = "list"
    """A list of texts (or `elements`); a text with commas is split, as Ansible does."""
    MAPPING = "dict"
    ANY = "raw"


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a module."""

    kind: Kind = Kind.TEXT
    required: bool = False
    default: Any = None
    choices: tuple[Any, ...] = ()
    aliases: tuple[str, ...] = ()
    elements: Kind | None = None
    secret: bool = False
    """Masked in every output, difference and journal."""
    left_out: str = ""
    """Ansible has it and we do not: the reason, told when it is used."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that differs, fully spelled out."""

    what: str
    """A phrase for a person: "mode 0600 -> 0644", "install curl 8.5.0", "write 3 lines"."""
    before: str | None = None
    """For `--diff`: text before, None where there is none to show."""
    after: str | None = None
    subject: str = ""
    """File, package, unit, ... that the difference is about; heads the diff."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What `apply` needs to know of it; may hold secrets, is never shown."""
    counts: bool = True
    """False: work that leaves nothing to speak of (reading package lists); done and told, but not `changed`."""
    once: bool = False
    """An act, not a state (restart, run a command): the probe after apply shows it again, and that is no fault."""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """How a command ended. `rc` is negative for a signal, as in `subprocess`."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str


class Box(Protocol):
    """The machine under a module. The real one is `target/box.py`; tests may hand in another."""

    check: bool
    """True in check mode: `apply` is not called, and commands that change something must not run."""
    backups: list[str]
    """Backup files made by this task."""

    def run(
        self,
        argv: list[str] | tuple[str, ...],
        *,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        timeout_s: float = 600.0,
        ok: tuple[int, ...] | None = (0,),
    ) -> CommandResult:
        """Run a command in its own process group, stdin closed, LC_ALL=C.UTF-8, with a deadline that ends the group.

        `ok`: exit codes that are no failure; None: any. Otherwise raises ModuleError with argv, code and tail.
        """

    def blob(self, digest: str) -> bytes:
        """Return content that the controller holds (sha256 in hex); it is sent when first asked for."""

    def write(
        self, path: str, content: bytes, *, mode: int | None = None, backup: bool = False, follow: bool = True
    ) -> None:
        """Write a file in one step (temporary file beside it, fsync, rename); keep owner and mode of the old."""

    def progress(self, text: str) -> None:
        """Tell the person what is being done now; at most a few a second are shown."""

    def reached(self) -> bool | None:
        """Return whether a new connection of the controller's comes through; None where it is on the box."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the task (`environment:` keyword on top of the login's)."""


State = Any
"""What a probe saw; JSON-able."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module.

    `probe(arguments, box)` reads and changes nothing. `difference(arguments, state)` is pure. A module that only
    reads (stat, slurp, ...) has a probe and a result, and runs in check mode, too.
    `apply(arguments, state, changes, box)` makes the changes and may return facts for the result.
    `result(arguments, state)` adds facts of the last probe that hold with and without changes (`stat`, `path`, ...).
    """

    names: tuple[str, ...]
    """Fully qualified names, the first is the canonical one; the short name is the file's."""
    arguments: Mapping[str, Argument]
    probe: Callable[[Mapping[str, Any], Box], State]
    difference: Callable[[Mapping[str, Any], State], list[Change]] = lambda _arguments, _state: []
    apply: Callable[[Mapping[str, Any], State, list[Change], Box], Mapping[str, Any] | None] = (
        lambda _arguments, _state, _changes, _box: None
    )
    result: Callable[[Mapping[str, Any], State], Mapping[str, Any]] | None = None
    free_form: str = ""
    """Argument that takes a task's free text (`command: ls -l`), if the module has one."""
    exclusive: tuple[tuple[str, ...], ...] = ()
    """Groups of arguments of which at most one may be given."""
    one_of: tuple[tuple[str, ...], ...] = ()
    """Groups of arguments of which at least one must be given."""
    together: tuple[tuple[str, ...], ...] = ()
    """Groups of arguments given all or none."""
    converges: bool = True
    """Whether a second probe after apply must show no difference (changes that are `once` aside)."""
    skipped_in_check: bool = False
    """What it would do cannot be foretold (command without creates/removes): check mode skips it."""
    check_arguments: Callable[[Mapping[str, Any]], str | None] = lambda _arguments: None
    """Returns what is wrong with the arguments together, in a sentence; None when nothing is."""
    summary: str = ""
    """One line for the documentation's table."""
    differs: tuple[str, ...] = ()
    """Differences from Ansible's module on purpose, each with its reason; they end up in the documentation."""
