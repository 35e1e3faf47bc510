"""Variables of one task on one host: layers by precedence, each value filled in when it is first asked for.

Lowest first: defaults of roles, inventory, facts, the play, its `vars_files`, roles, blocks and the task,
`include_vars`, `set_fact` and registered results, parameters of roles, `vars` of dynamic includes, `--extra-vars`,
what rigd itself knows (`inventory_hostname`, ...), the item of a loop.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rigd.errors import RigdError
from rigd.provision.language.keywords import is_template
from rigd.provision.language.model import Host, Play, Task
from rigd.provision.language.source import Unsafe
from rigd.provision.templating import environment
from rigd.provision.templating.syntax import variables_used
from rigd.provision.templating.values import LazyDict, Missing, Plain

MOST_NESTED = 40
"""Most variables that may refer to one another in a row."""
EVERYTHING = frozenset({"vars", "hostvars"})
"""Names whose use may read any variable."""
Search = Callable[[str, str], Path | None]
"""Finds a file by name and kind (`files`, `templates`, `vars`)."""


class TemplateError(RigdError):
    """A template, condition or lookup cannot be computed; the text says which and why."""


class UndefinedVariableError(TemplateError):
    """It cannot, because a variable is not defined."""


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Where a task's variables come from, lowest precedence first. Values of `Plain` mappings are no templates."""

    defaults: tuple[Mapping[str, Any], ...] = ()
    inventory: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=Plain)
    play: Mapping[str, Any] = field(default_factory=dict)
    vars_files: tuple[Mapping[str, Any], ...] = ()
    roles: tuple[Mapping[str, Any], ...] = ()
    task: tuple[Mapping[str, Any], ...] = ()
    included: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=Plain)
    role_parameters: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    magic: Mapping[str, Any] = field(default_factory=Plain)
    local: Mapping[str, Any] = field(default_factory=Plain)

    def highest_first(self) -> tuple[Mapping[str, Any], ...]:
        """Return all layers in the order in which a name is looked for."""
        found = (
            self.local,
            self.magic,
            self.extra,
            *reversed(self.parameters),
            self.role_parameters,
            self.results,
            self.included,
            *reversed(self.task),
            *reversed(self.roles),
            *reversed(self.vars_files),
            self.play,
            self.facts,
            self.inventory,
            *reversed(self.defaults),
        )
        return tuple(layer for layer in found if layer)


def layers_for(
    *,
    play: Play,
    task: Task | None,
    host: Host | None,
    facts: Mapping[str, Any] | None = None,
    vars_files: Iterable[Mapping[str, Any]] = (),
    included: Mapping[str, Any] | None = None,
    results: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    magic: Mapping[str, Any] | None = None,
    local: Mapping[str, Any] | None = None,
) -> Layers:
    """Return the layers of a task. `facts` are those of the box, without `ansible_`."""
    role = task.role if task else None
    known: dict[str, Any] = {}
    if role:
        known = {"role_name": role.name, "ansible_role_name": role.name, "role_path": str(role.path)}
    return Layers(
        defaults=(*(used.defaults for used in play.public_roles), *((role.defaults,) if role else ())),
        inventory=host.vars if host else {},
        facts=fact_variables(facts or {}),
        play=play.vars,
        vars_files=tuple(vars_files),
        roles=(*(used.exported for used in play.public_roles), *((role.vars,) if role else ())),
        task=task.vars if task else (),
        included=included or {},
        results=Plain(results or {}),
        role_parameters=role.parameters if role else {},
        parameters=task.parameters if task else (),
        extra=extra or {},
        magic=Plain(known | dict(magic or {})),
        local=Plain(local or {}),
    )


def fact_variables(facts: Mapping[str, Any]) -> Plain:
    """Return facts under both spellings: `ansible_facts.kernel` and `ansible_kernel`."""
    if not facts:
        return Plain()
    both = Plain({f"ansible_{name}": value for name, value in facts.items()})
    both["ansible_facts"] = dict(facts)
    return both


class Variables(Mapping[str, Any]):
    """The variables of one task on one host. A value that depends on something undefined comes back as `Missing`."""

    def __init__(self, layers: Layers, search: Search | None = None) -> None:
        """`search` finds the files that lookups name."""
        self.layers = layers
        self.search: Search = search or (lambda _name, _kind: None)
        self._stack = layers.highest_first()
        self._known: dict[str, Any] = {}
        self._active: list[str] = []

    def fork(self, **changes: Any) -> "Variables":
        """Return these variables with some layers replaced: `fork(local=Plain(item=...))`."""
        return Variables(replace(self.layers, **changes), self.search)

    def __getitem__(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        if name == environment.OWNER:
            return self
        for layer in self._stack:
            if name in layer:
                value = layer[name]
                found = value if isinstance(layer, Plain) else self.resolve(value, name)
                self._known[name] = found
                return found
        if name == "vars":
            return VarsView(self)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(name in layer for layer in self._stack)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for layer in self._stack for name in layer))

    def __len__(self) -> int:
        return sum(1 for _name in self)

    def resolve(self, value: Any, name: str = "") -> Any:
        """Return a raw value with its templates filled in; mappings in it are filled in when they are read.

        `name` says whose value it is, for errors.
        """
        if isinstance(value, str):
            if isinstance(value, Unsafe) or not is_template(value):
                return value
            return self._filled(value, name)
        if isinstance(value, dict):
            return value if isinstance(value, (LazyDict, Plain)) else LazyDict(value, self.resolve, name)
        if isinstance(value, list):
            return [self.resolve(item, f"{name}[{index}]") for index, item in enumerate(value)]
        return value

    def _filled(self, text: str, name: str) -> Any:
        if name:
            if name in self._active or len(self._active) >= MOST_NESTED:
                chain = (
                    self._active[self._active.index(name) :] if name in self._active else self._active[-5:]
                )
                raise TemplateError(
                    f"variables refer to one another in a circle: {' -> '.join([*chain, name])}"
                )
            self._active.append(name)
        try:
            found = environment.run(environment.compiled(text), self)
        finally:
            if name:
                self._active.pop()
        if isinstance(found, Missing):
            if name:
                found.via = (name, *found.via)
            return found
        if isinstance(found, str) and text.endswith("\n"):
            return with_newlines(found, text)
        return found

    def raw(self, name: str) -> Any:
        """Return a variable's value as its file has it; None for what is no template, or not there."""
        for layer in self._stack:
            if name in layer:
                return None if isinstance(layer, Plain) else layer[name]
        return None

    def names_needed(self, value: Any) -> frozenset[str]:
        """Return the names of all variables that a value's templates read, also by way of other variables.

        If `vars` or `hostvars` is among them, any variable may be read.
        """
        found: set[str] = set()
        queue = list(_names_in(value))
        while queue:
            name = queue.pop()
            if name not in found:
                found.add(name)
                queue.extend(_names_in(self.raw(name)))
        return frozenset(found)


class VarsView(Mapping[str, Any]):
    """The variable `vars`: all variables by name."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Variables) -> None:
        self._variables = variables

    def __getitem__(self, name: str) -> Any:
        return self._variables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


class HostVars(Mapping[str, Any]):
    """The variable `hostvars`: another host's variables, made when they are asked for."""

    __slots__ = ("_make", "_names")

    def __init__(self, names: Iterable[str], make: Callable[[str], Variables]) -> None:
        self._names = tuple(names)
        self._make = make

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return VarsView(self._make(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def with_newlines(found: str, text: str) -> str:
    """Return a rendered text that ends in as many newlines as its template at least: Jinja drops one."""
    missing = (len(text) - len(text.rstrip("\n"))) - (len(found) - len(found.rstrip("\n")))
    return found + "\n" * max(missing, 0)


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if is_template(value) and not isinstance(value, Unsafe):
            yield from variables_used(value)
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _names_in(below)
    elif isinstance(value, (list, tuple)):
        for below in value:
            yield from _names_in(below)
