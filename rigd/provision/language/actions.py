"""Actions that the controller carries out itself, as signatures: what `run/` does for them is not known here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rigd.provision.target import modules
from rigd.provision.target.attributes import ARGUMENTS as ATTRIBUTES
from rigd.provision.target.contract import Argument, Kind

BUILTIN = "ansible.builtin."


class Signature(Protocol):
    """What the loader needs to know of a module or an action."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def arguments(self) -> Mapping[str, Argument]: ...
    @property
    def free_form(self) -> str: ...
    @property
    def exclusive(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def one_of(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def together(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def check_arguments(self) -> Callable[[Mapping[str, Any]], str | None]: ...


@dataclass(frozen=True, kw_only=True)
class Action:
    """An action of the controller. Its canonical name is `ansible.builtin.<name>`."""

    name: str
    arguments: Mapping[str, Argument]
    free_form: str = ""
    exclusive: tuple[tuple[str, ...], ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    check_arguments: Callable[[Mapping[str, Any]], str | None] = lambda _arguments: None
    any_arguments: bool = False
    """Takes arguments of any name: they are variables."""
    summary: str = ""
    differs: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Fully qualified names, the canonical one first."""
        return (BUILTIN + self.name,)


_TEXT = Argument()
_FLAG = Argument(kind=Kind.BOOLEAN)
_ANY = Argument(kind=Kind.ANY)
_NEEDED = Argument(required=True)
_WHOLE = Argument(kind=Kind.INTEGER)

META = ("flush_handlers", "end_play", "end_host", "end_role", "clear_facts", "reset_connection", "noop")
"""What `meta` does here; see `_META_LEFT_OUT` for the rest."""
_META_LEFT_OUT = {
    "clear_host_errors": "an unreachable host is tried again by the next run",
    "refresh_inventory": "the inventory is fixed before a run",
    "end_batch": "there are no batches of hosts; use end_play",
}


def _check_meta(arguments: Mapping[str, Any]) -> str | None:
    wanted = str(arguments.get("free", "")).strip()
    if wanted in META or "{{" in wanted:
        return None
    if reason := _META_LEFT_OUT.get(wanted):
        return f"'meta: {wanted}' is left out: {reason}"
    return f"'meta' does one of {', '.join(META)}, not '{wanted}'"


_TEMPLATE_ARGUMENTS = {
    "src": Argument(kind=Kind.PATH, required=True),
    "dest": Argument(kind=Kind.PATH, required=True),
    "backup": Argument(kind=Kind.BOOLEAN, default=False),
    "force": Argument(kind=Kind.BOOLEAN, default=True),
    "follow": Argument(kind=Kind.BOOLEAN, default=False),
    "validate": _TEXT,
    "newline_sequence": Argument(default="\n", choices=("\n", "\r", "\r\n")),
    "block_start_string": Argument(default="{%"),
    "block_end_string": Argument(default="%}"),
    "variable_start_string": Argument(default="{{"),
    "variable_end_string": Argument(default="}}"),
    "comment_start_string": Argument(default="{#"),
    "comment_end_string": Argument(default="#}"),
    "trim_blocks": Argument(kind=Kind.BOOLEAN, default=True),
    "lstrip_blocks": Argument(kind=Kind.BOOLEAN, default=False),
    "output_encoding": Argument(default="utf-8"),
    **ATTRIBUTES,
}
_ROLE_ARGUMENTS = {
    "name": Argument(required=True, aliases=("role",)),
    "tasks_from": Argument(default="main"),
    "vars_from": Argument(default="main"),
    "defaults_from": Argument(default="main"),
    "handlers_from": Argument(default="main"),
    "allow_duplicates": Argument(kind=Kind.BOOLEAN, default=True),
    "rolespec_validate": Argument(kind=Kind.BOOLEAN, default=True),
    "public": Argument(kind=Kind.BOOLEAN, default=False),
}
_LOOSE = "A condition that is not true or false is an error, not taken for true."

_TABLE = (
    Action(
        name="assert",
        arguments={
            "that": Argument(kind=Kind.LIST, elements=Kind.ANY, required=True),
            "fail_msg": Argument(kind=Kind.ANY, aliases=("msg",)),
            "success_msg": _ANY,
            "quiet": Argument(kind=Kind.BOOLEAN, default=False),
        },
        summary="fails unless every condition holds",
        differs=(_LOOSE,),
    ),
    Action(
        name="debug",
        arguments={
            "msg": Argument(kind=Kind.ANY, default="Hello world!"),
            "var": _TEXT,
            "verbosity": Argument(kind=Kind.INTEGER, default=0),
        },
        exclusive=(("msg", "var"),),
        summary="prints a text or a variable",
    ),
    Action(
        name="fail",
        arguments={"msg": Argument(kind=Kind.ANY, default="Failed as requested from task")},
        summary="fails with a message",
    ),
    Action(
        name="set_fact",
        arguments={"cacheable": Argument(kind=Kind.BOOLEAN, default=False)},
        any_arguments=True,
        summary="sets variables of the host",
    ),
    Action(
        name="meta",
        arguments={"free": Argument(required=True)},
        free_form="free",
        check_arguments=_check_meta,
        summary=f"one of {', '.join(META)}",
    ),
    Action(
        name="pause",
        arguments={
            "seconds": Argument(kind=Kind.FLOAT),
            "minutes": Argument(kind=Kind.FLOAT),
            "prompt": _TEXT,
            "echo": Argument(kind=Kind.BOOLEAN, default=True),
        },
        exclusive=(("seconds", "minutes"),),
        summary="waits for a time",
        differs=("A run asks nobody: without seconds or minutes it prints its prompt and goes on.",),
    ),
    Action(
        name="include_vars",
        arguments={
            "file": Argument(kind=Kind.PATH),
            "dir": Argument(kind=Kind.PATH),
            "name": _TEXT,
            "depth": Argument(kind=Kind.INTEGER, default=0),
            "files_matching": _TEXT,
            "ignore_files": Argument(kind=Kind.LIST),
            "ignore_unknown_extensions": Argument(kind=Kind.BOOLEAN, default=False),
            "extensions": Argument(kind=Kind.LIST, default=["yaml", "yml", "json"]),
            "hash_behaviour": Argument(left_out="merge with the filter `combine` instead"),
        },
        free_form="file",
        exclusive=(("file", "dir"),),
        one_of=(("file", "dir"),),
        summary="reads variables from files of the controller",
    ),
    Action(
        name="include_tasks",
        arguments={"file": _NEEDED, "apply": Argument(kind=Kind.MAPPING)},
        free_form="file",
        summary="runs the tasks of a file, found when it is reached",
    ),
    Action(
        name="import_tasks",
        arguments={"file": _NEEDED},
        free_form="file",
        summary="puts the tasks of a file in its place, before the run",
    ),
    Action(
        name="include_role",
        arguments={**_ROLE_ARGUMENTS, "apply": Argument(kind=Kind.MAPPING)},
        summary="runs a role, found when it is reached",
    ),
    Action(
        name="import_role",
        arguments=_ROLE_ARGUMENTS,
        summary="puts a role's tasks in its place, before the run",
    ),
    Action(
        name="import_playbook",
        arguments={"file": _NEEDED},
        free_form="file",
        summary="puts the plays of another playbook in its place",
    ),
    Action(
        name="template",
        arguments=_TEMPLATE_ARGUMENTS,
        summary="renders a file of the controller and copies it",
    ),
    Action(
        name="script",
        arguments={
            "cmd": _NEEDED,
            "chdir": Argument(kind=Kind.PATH),
            "creates": Argument(kind=Kind.PATH),
            "removes": Argument(kind=Kind.PATH),
            "executable": _TEXT,
            "decrypt": Argument(kind=Kind.BOOLEAN, default=True),
        },
        free_form="cmd",
        summary="runs a script of the controller on the box",
    ),
    Action(
        name="wait_for_connection",
        arguments={
            "connect_timeout": Argument(kind=Kind.INTEGER, default=5),
            "delay": Argument(kind=Kind.INTEGER, default=0),
            "sleep": Argument(kind=Kind.INTEGER, default=1),
            "timeout": Argument(kind=Kind.INTEGER, default=600),
        },
        summary="waits until the box can be reached",
    ),
    Action(
        name="reboot",
        arguments={
            "boot_time_command": Argument(left_out="the kernel's boot id tells one boot from the next"),
            "connect_timeout": _WHOLE,
            "msg": Argument(default="Reboot initiated by rigd"),
            "post_reboot_delay": Argument(kind=Kind.INTEGER, default=0),
            "pre_reboot_delay": Argument(kind=Kind.INTEGER, default=0),
            "reboot_command": _TEXT,
            "reboot_timeout": Argument(kind=Kind.INTEGER, default=600),
            "search_paths": Argument(kind=Kind.LIST, left_out="systemd reboots the box"),
            "test_command": Argument(default="whoami"),
        },
        summary="reboots the box and waits until it is back",
        differs=("Works on this machine, too: the run goes on after the boot.",),
    ),
    Action(
        name="setup",
        arguments={
            "gather_subset": Argument(kind=Kind.LIST, default=["all"]),
            "gather_timeout": Argument(kind=Kind.INTEGER, default=10),
            "filter": Argument(kind=Kind.LIST, default=[]),
            "fact_path": Argument(left_out="local facts are read from /etc/ansible/facts.d alone"),
        },
        summary="reads the facts again",
    ),
    Action(
        name="gather_facts",
        arguments={"parallel": _FLAG},
        summary="reads the facts again",
    ),
)
ACTIONS: Mapping[str, Action] = {action.name: action for action in _TABLE}
_PREFIXES = ("", BUILTIN, "ansible.legacy.")


def find_action(name: str) -> Action | None:
    """Return the controller's action of a short or fully qualified name, or None."""
    prefix, _, short = name.rpartition(".")
    found = ACTIONS.get(short)
    return found if found and (not prefix or f"{prefix}." in _PREFIXES) else None


def find_signature(name: str) -> Signature | None:
    """Return the action or module of a short or fully qualified name, or None."""
    return find_action(name) or modules.module_of(name)


def canonical(name: str) -> str | None:
    """Return the canonical fully qualified name of an action or module, or None if there is none."""
    found = find_signature(name)
    return found.names[0] if found else None


def known_names() -> Iterator[str]:
    """Yield the short names of all actions and modules."""
    yield from ACTIONS
    yield from modules.short_names()
