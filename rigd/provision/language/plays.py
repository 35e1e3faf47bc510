"""Plays, and the playbooks that they import."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigd.provision.language import keywords
from rigd.provision.language.actions import BUILTIN
from rigd.provision.language.faults import nearest
from rigd.provision.language.keywords import is_template
from rigd.provision.language.loader import MOST_DEPTH, Loader, as_mapping
from rigd.provision.language.model import Expression, Place, Play, Role, Scope, Task, VarsFile
from rigd.provision.language.roles import Loaded, entry
from rigd.provision.language.scope import inside, merged
from rigd.provision.language.source import YamlList, YamlMap
from rigd.provision.language.tasks import read_nodes, tasks_of

_IMPORT = ("import_playbook", BUILTIN + "import_playbook")


def read_plays(loader: Loader, path: Path, scope: Scope) -> tuple[Play, ...]:
    """Return the plays of a playbook, imports followed."""
    if scope.depth > MOST_DEPTH:
        loader.fault(Place(file=path, line=1, column=1), "playbooks import one another without end")
        return ()
    items = loader.read_tasks(path)
    found: list[Play] = []
    for index, keys in enumerate(items):
        if not isinstance(keys, YamlMap):
            loader.fault(items.place_of(index), "a play must be a mapping with `hosts` and `tasks`")
        elif key := next((key for key in _IMPORT if key in keys), None):
            found.extend(_imported(loader, keys, key, scope))
        else:
            found.append(_play(loader, keys, scope))
    return tuple(found)


def _imported(loader: Loader, keys: YamlMap, key: str, scope: Scope) -> tuple[Play, ...]:
    loader.check_keywords(keys, {**keywords.PLAYBOOK_IMPORT, key: keywords.Takes.TEXT}, "import_playbook")
    place = keys.place_of(key)
    name = loader.static(keys[key], place, {})
    if name is None:
        return ()
    path = Path(os.path.normpath(keys.file.parent / name))
    if not path.is_file():
        known = [found.name for found in keys.file.parent.glob("*.y*ml")]
        loader.fault(place, f"there is no playbook '{name}'{nearest(name, known)}")
        return ()
    below = inside(loader, scope, keys)
    below = replace(below, file=path, folder=path.parent, depth=scope.depth + 1)
    outer, loader.playbook_dir = loader.playbook_dir, path.parent
    found = read_plays(loader, path, below)
    loader.playbook_dir = outer
    return found


def _play(loader: Loader, keys: YamlMap, scope: Scope) -> Play:
    if "hosts" not in keys:
        loader.fault(keys.place, "the play names no `hosts`" + _hint_of_task(keys))
    elif keys["hosts"] in (None, "", []):
        loader.fault(keys.place_of("hosts"), "`hosts` is empty")
    loader.check_keywords(keys, keywords.PLAY, "a play")
    for key in keys:
        if key not in ("tasks", "pre_tasks", "post_tasks", "handlers", "roles"):
            loader.check_templates(keys[key], keys.place_of(key))
    loader.handlers, loader.public_roles = [], []
    loader.notified, loader.foretold_handlers, loader.surprises = [], [], False
    # What an import of the playbook says wins over what the play itself says, as it does in Ansible.
    variables = merged(keys.file, [as_mapping(keys.get("vars"), keys.file), *scope.vars])
    own = YamlMap(keys.file)
    own.take(keys)
    own.pop("vars", None)
    inner = inside(loader, replace(scope, vars=(), play_vars=variables), own)
    roles = _roles(loader, keys, inner)
    sections = {key: read_nodes(loader, keys.get(key), inner) for key in ("pre_tasks", "tasks", "post_tasks")}
    handlers = tuple(
        tasks_of(read_nodes(loader, keys.get("handlers"), replace(inner, handlers=True, notify=())))
    )
    imported = tuple(loader.handlers)
    public: list[Role] = []
    for role in (*(role for loaded in roles for role in loaded.roles), *loader.public_roles):
        if role not in public:
            public.append(role)
    play = Play(
        place=keys.place,
        name=None if keys.get("name") is None else str(keys["name"]),
        hosts=_pattern(keys.get("hosts")),
        gather_facts=keys.get("gather_facts"),
        pre_tasks=sections["pre_tasks"],
        roles=tuple(node for loaded in roles for node in loaded.nodes),
        tasks=sections["tasks"],
        post_tasks=sections["post_tasks"],
        handlers=(*(handler for loaded in roles for handler in loaded.handlers), *handlers, *imported),
        vars=variables,
        vars_files=_vars_files(loader, keys),
        public_roles=tuple(public),
        force_handlers=keys.get("force_handlers"),
        connection=keys.get("connection"),
        remote_user=keys.get("remote_user"),
        port=_port(keys.get("port")),
        tags=inner.tags,
    )
    _check_notified(loader, play)
    return play


def _hint_of_task(keys: YamlMap) -> str:
    from rigd.provision.language.actions import find_signature  # noqa: PLC0415  (only for a file of the wrong kind)

    is_tasks = any(isinstance(key, str) and find_signature(key) for key in keys) or "block" in keys
    return "; this looks like a file of tasks: include it from a play" if is_tasks else ""


def _roles(loader: Loader, keys: YamlMap, scope: Scope) -> list[Loaded]:
    items = keys.get("roles")
    if not isinstance(items, YamlList):
        return []
    return [entry(loader, item, items.place_of(index), scope) for index, item in enumerate(items)]


def _pattern(hosts: Any) -> str:
    if isinstance(hosts, list):
        return ",".join(str(host) for host in hosts)
    return "" if hosts is None else str(hosts)


def _port(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None


def _vars_files(loader: Loader, keys: YamlMap) -> tuple[VarsFile, ...]:
    items = keys.get("vars_files")
    if items is None:
        return ()
    if not isinstance(items, YamlList):
        return (_vars_file(loader, [Expression(value=items, place=keys.place_of("vars_files"))]),)
    found: list[VarsFile] = []
    for index, item in enumerate(items):
        if isinstance(item, YamlList):
            choice = [Expression(value=name, place=item.place_of(at)) for at, name in enumerate(item)]
        else:
            choice = [Expression(value=item, place=items.place_of(index))]
        found.append(_vars_file(loader, choice))
    return tuple(found)


def _vars_file(loader: Loader, names: list[Expression]) -> VarsFile:
    for name in names:
        if not isinstance(name.value, str):
            loader.fault(name.place, "vars_files takes names of files")
            return VarsFile(names=tuple(names), values={})
    if any(is_template(name.value) for name in names):
        return VarsFile(names=tuple(names))
    for name in names:
        if path := find_vars(name.value, name.place.file.parent):
            return VarsFile(names=tuple(names), values=loader.read_vars(path))
    shown = " or ".join(f"'{name.value}'" for name in names)
    loader.fault(names[0].place, f"there is no file {shown} of variables")
    return VarsFile(names=tuple(names), values={})


def find_vars(name: str, folder: Path) -> Path | None:
    """Return the file that an entry of `vars_files` names, or None."""
    path = Path(name).expanduser()
    return next((place for place in (folder / "vars" / path, folder / path) if place.is_file()), None)


def _check_notified(loader: Loader, play: Play) -> None:
    """Note every notified name that no handler answers to, as far as all handlers are known."""
    if loader.surprises:
        return
    known: set[str] = set()
    for handler in (*play.handlers, *loader.foretold_handlers):
        if handler.name is not None:
            known.add(handler.name)
            if handler.role is not None:
                known.add(f"{handler.role.name} : {handler.name}")
        known.update(handler.listen)
        if _opens_names(handler):
            return
    for name in loader.notified:
        if not is_template(name.value) and name.value not in known:
            loader.fault(name.place, f"no handler is called '{name.value}'{nearest(name.value, known)}")


def _opens_names(handler: Task) -> bool:
    """Return whether a handler may stand for names that are not known yet."""
    return is_template(handler.name) or handler.scope is not None
