"""Roles: their folders, their dependencies first, their handlers, and which variables their tasks see."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rigd.provision.language import keywords, left_out
from rigd.provision.language.faults import nearest, shown
from rigd.provision.language.keywords import is_template
from rigd.provision.language.loader import MOST_DEPTH, Loader, as_mapping
from rigd.provision.language.model import Node, Place, Role, Scope, Task
from rigd.provision.language.scope import inside, known_before, merged
from rigd.provision.language.search import find_part, find_role, role_roots
from rigd.provision.language.source import YamlList, YamlMap
from rigd.provision.language.tasks import read_file, tasks_of

PARTS = ("tasks", "vars", "defaults", "handlers")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A role as an entry of `roles:`, a dependency or an include names it."""

    name: str
    place: Place
    keys: YamlMap
    """Keywords and, in an entry, parameters."""
    parts: Mapping[str, str]
    """File to take of `tasks`, `vars`, `defaults`, `handlers`, where it is not `main`."""
    again: bool = False
    """Runs even if the play has run it before; so does a role that says `allow_duplicates` of itself."""


@dataclass(frozen=True, kw_only=True)
class _Own:
    """What a role says itself, of the roles above or below another."""

    name: str
    defaults: YamlMap
    vars: YamlMap
    entry_vars: YamlMap
    parameters: YamlMap


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A role with what it depends on."""

    nodes: tuple[Node, ...] = ()
    handlers: tuple[Task, ...] = ()
    roles: tuple[Role, ...] = ()
    """Dependencies first."""
    below: tuple[_Own, ...] = ()


def entry(loader: Loader, item: Any, place: Place, scope: Scope) -> Loaded:
    """Return what an item of `roles:` or of `dependencies:` stands for."""
    wanted = _wanted(loader, item, place, scope)
    return read_role(loader, wanted, scope) if wanted else Loaded()


def imported(loader: Loader, task: Task, scope: Scope) -> tuple[Node, ...]:
    """Return the tasks of an `import_role`; its handlers and variables become the play's."""
    wanted = _of_task(loader, task, scope)
    if wanted is None:
        return ()
    found = read_role(loader, wanted, scope)
    loader.handlers.extend(found.handlers)
    loader.public_roles.extend(found.roles)
    return found.nodes


def foretell(loader: Loader, task: Task, scope: Scope) -> None:
    """Note what is wrong with the role of an `include_role`, if its name is known yet."""
    if any(
        is_template(task.arguments.get(key)) for key in ("name", "role", *(f"{part}_from" for part in PARTS))
    ):
        loader.surprises = True
        return
    wanted = _of_task(loader, task, scope)
    if wanted is None:
        return
    path = find_role(wanted.name, folder=scope.folder, role=scope.role, roles_path=loader.roles_path)
    mark = (path or Path(wanted.name)) / wanted.parts.get("tasks", "main")
    if mark in loader.foretold:
        return
    loader.foretold.add(mark)
    handlers, public = loader.handlers, loader.public_roles
    loader.handlers, loader.public_roles = [], []
    found = read_role(loader, wanted, scope)
    loader.foretold_handlers.extend((*found.handlers, *loader.handlers))
    loader.handlers, loader.public_roles = handlers, public


def read_role(loader: Loader, wanted: Wanted, scope: Scope, above: tuple[_Own, ...] = ()) -> Loaded:
    """Return a role's tasks and handlers, those of its dependencies first."""
    path = find_role(wanted.name, folder=scope.folder, role=scope.role, roles_path=loader.roles_path)
    if path is None:
        _not_found(loader, wanted, scope)
        return Loaded()
    if len(above) > MOST_DEPTH:
        loader.fault(
            wanted.place, f"roles depend on one another: {' -> '.join(own.name for own in above[-4:])}"
        )
        return Loaded()
    inner = inside(loader, scope, _keywords(wanted.keys))
    own = _own(loader, wanted, path)
    meta = _meta(loader, path)
    below: list[Loaded] = []
    dependencies = meta.get("dependencies") or []
    if isinstance(dependencies, YamlList):
        beside = replace(inner, role=Role(name=wanted.name, path=path))
        for index, item in enumerate(dependencies):
            needed = _wanted(loader, item, dependencies.place_of(index), inner)
            if needed is not None:
                below.append(read_role(loader, needed, beside, (*above, own)))
    role = _role(wanted, path, above, tuple(part for loaded in below for part in loaded.below), own)
    if not (wanted.again or meta.get("allow_duplicates") is True):
        role = replace(role, once=_use(wanted, path))
    inner = replace(inner, role=role)
    nodes = _part(loader, wanted, path, "tasks", inner)
    before = len(loader.handlers)
    found = _part(loader, wanted, path, "handlers", replace(inner, handlers=True, notify=()))
    handlers = (*tasks_of(found), *loader.handlers[before:])
    del loader.handlers[before:]
    return Loaded(
        nodes=(*(node for loaded in below for node in loaded.nodes), *nodes),
        handlers=(*(handler for loaded in below for handler in loaded.handlers), *handlers),
        roles=(*(used for loaded in below for used in loaded.roles), role),
        below=(*(part for loaded in below for part in loaded.below), own),
    )


def _role(wanted: Wanted, path: Path, above: tuple[_Own, ...], below: tuple[_Own, ...], own: _Own) -> Role:
    return Role(
        name=wanted.name,
        path=path,
        defaults=merged(path, [part.defaults for part in (*below, *above, own)]),
        vars=merged(
            path,
            [
                *(layer for part in above for layer in (part.vars, part.entry_vars)),
                *(part.vars for part in below),
                own.vars,
                own.entry_vars,
            ],
        ),
        exported=merged(path, [part.vars for part in (*below, own)]),
        parameters=merged(path, [part.parameters for part in (*above, own)]),
    )


def _own(loader: Loader, wanted: Wanted, path: Path) -> _Own:
    keys = wanted.keys
    parameters = YamlMap(keys.file)
    parameters.take(keys)
    for key in keywords.ROLE_ENTRY:
        parameters.pop(key, None)
    return _Own(
        name=wanted.name,
        defaults=_variables(loader, wanted, path, "defaults"),
        vars=_variables(loader, wanted, path, "vars"),
        entry_vars=as_mapping(keys.get("vars"), keys.file),
        parameters=parameters,
    )


def _keywords(keys: YamlMap) -> YamlMap:
    """Return an entry's keywords that its tasks inherit; its variables are the role's."""
    found = YamlMap(keys.file)
    found.take(keys)
    for key in keys:
        if key not in keywords.ROLE_ENTRY or key in ("vars", "role", "name"):
            found.pop(key)
    return found


def _variables(loader: Loader, wanted: Wanted, path: Path, part: str) -> YamlMap:
    name = wanted.parts.get(part, "main")
    file = find_part(path, part, name)
    if file is not None:
        return loader.read_vars(file)
    folder = path / part / name
    if folder.is_dir():
        files = sorted(file for file in folder.rglob("*") if file.suffix in (".yml", ".yaml", ".json"))
        return merged(folder, [loader.read_vars(file) for file in files])
    if name != "main":
        loader.fault(wanted.place, f"the role '{wanted.name}' has no file '{part}/{name}'")
    return YamlMap(path)


def _part(loader: Loader, wanted: Wanted, path: Path, part: str, scope: Scope) -> tuple[Node, ...]:
    name = wanted.parts.get(part, "main")
    file = find_part(path, part, name)
    if file is not None:
        return read_file(loader, file, scope)
    if name != "main":
        known = [entry.stem for entry in (path / part).glob("*.y*ml")]
        loader.fault(
            wanted.place, f"the role '{wanted.name}' has no file '{part}/{name}'{nearest(name, known)}"
        )
    return ()


def _meta(loader: Loader, path: Path) -> YamlMap:
    file = find_part(path, "meta")
    found = loader.read(file) if file else None
    if file and found is not None and not isinstance(found, YamlMap):
        loader.fault(
            Place(file=file, line=1, column=1), "the file must hold a mapping, such as `dependencies: []`"
        )
    keys = as_mapping(found, path)
    if not isinstance(keys.get("dependencies"), (YamlList, type(None))):
        loader.fault(keys.place_of("dependencies"), "'dependencies' takes a list of roles")
    return keys


def _use(wanted: Wanted, path: Path) -> str:
    """Return what makes two uses of a role the same: files, keywords and parameters."""
    keys = {str(key): value for key, value in wanted.keys.items() if key not in ("role", "name")}
    return repr((str(path), sorted(wanted.parts.items()), keys))


def _wanted(loader: Loader, item: Any, place: Place, scope: Scope) -> Wanted | None:
    if isinstance(item, str):
        keys = YamlMap(place.file, (place.line, place.column))
        keys.put("role", item, place.file, (place.line, place.column))
        item = keys
    if not isinstance(item, YamlMap):
        loader.fault(place, "a role is its name, or a mapping with `role` and its keywords")
        return None
    for key, takes in keywords.ROLE_ENTRY.items():
        if key in item:
            loader.check_keyword(item, key, takes)
    for key in item:
        if sentence := _left_out(key):
            loader.fault(item.place_of(key), sentence)
        elif key not in keywords.ROLE_ENTRY and (meant := nearest(str(key), keywords.ROLE_ENTRY)):
            loader.warn(item.place_of(key), f"'{key}' is taken for a parameter of the role{meant}")
    loader.check_templates(item)
    name = item.get("role", item.get("name"))
    if not isinstance(name, str):
        loader.fault(place, "the entry names no role: it needs the key `role`")
        return None
    text = loader.static(name, item.place_of("role"), known_before(scope))
    parts = {part: str(item[f"{part}_from"]) for part in PARTS if f"{part}_from" in item}
    return Wanted(name=text, place=place, keys=item, parts=parts) if text else None


def _left_out(key: Any) -> str | None:
    reason = left_out.KEYWORDS.get(key) or left_out.TASK_KEYWORDS.get(key)
    return f"the keyword '{key}' is left out: {reason}" if reason else None


def _of_task(loader: Loader, task: Task, scope: Scope) -> Wanted | None:
    arguments = task.arguments
    place = task.argument_places.get("name", task.place)
    name = loader.static(arguments.get("name", arguments.get("role")), place, known_before(scope))
    if name is None:
        return None
    parts = {part: str(arguments[f"{part}_from"]) for part in PARTS if arguments.get(f"{part}_from")}
    again = arguments.get("allow_duplicates", True) is not False
    return Wanted(name=name, place=place, keys=YamlMap(task.place.file), parts=parts, again=again)


def _not_found(loader: Loader, wanted: Wanted, scope: Scope) -> None:
    roots = role_roots(folder=scope.folder, role=scope.role, roles_path=loader.roles_path)
    known = [entry.name for root in roots[:-1] if root.is_dir() for entry in root.iterdir() if entry.is_dir()]
    sentence = f"there is no role '{wanted.name}' in {shown(roots[0])} or beside"
    loader.fault(wanted.place, f"{sentence}{nearest(wanted.name, known)}")
