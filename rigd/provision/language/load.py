"""Playbooks, and what their tasks include while they run: loaded whole, or refused with every fault and its place."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigd.provision.language.faults import Fault, PlaybookError, shown
from rigd.provision.language.loader import Loader
from rigd.provision.language.model import Included, Place, Playbook, Scope, Task, VarsFile
from rigd.provision.language.plays import find_vars, read_plays
from rigd.provision.language.roles import PARTS, Wanted, read_role
from rigd.provision.language.search import find_tasks
from rigd.provision.language.source import YamlMap
from rigd.provision.language.tasks import read_file


def load_playbook(
    path: Path, *, extra_vars: Mapping[str, Any] | None = None, roles_path: tuple[Path, ...] = ()
) -> Playbook:
    """Return a playbook, imports followed and everything checked that needs no host.

    Raises `PlaybookError` with every fault. `extra_vars` may decide names of imported files; `roles_path` holds
    folders to look for roles in, after the one beside the playbook.
    """
    path = path.absolute()
    if not path.is_file():
        raise _no_playbook(path)
    loader = Loader(path.parent, extra_vars=extra_vars, roles_path=roles_path)
    plays = read_plays(loader, path, Scope(folder=path.parent, file=path))
    if not plays and not loader.faults:
        loader.fault(Place(file=path, line=1, column=1), "there is no play in it")
    if loader.faults:
        raise PlaybookError(f"the playbook '{shown(path)}'", loader.faults)
    return Playbook(path=path, plays=plays, warnings=tuple(map(str, loader.warnings)))


def load_tasks(
    name: str,
    task: Task,
    *,
    variables: Mapping[str, Any] | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    roles_path: tuple[Path, ...] = (),
) -> Included:
    """Return what an `include_tasks` brings: `name` is its file, templated; `task` is the include itself.

    `variables` (a `Plain` mapping: the loop's variables, say) are seen by all included tasks. Raises `PlaybookError`.
    """
    scope = _scope_of(task, variables)
    path = find_tasks(name, scope)
    if path is None:
        fault = Fault(place=task.place, sentence=f"there is no file '{name}' of tasks")
        raise PlaybookError(f"the file '{name}'", [fault])
    loader = Loader(scope.folder, extra_vars=extra_vars, roles_path=roles_path)
    nodes = read_file(loader, path, scope)
    if loader.faults:
        raise PlaybookError(f"the tasks in '{shown(path)}'", loader.faults)
    return Included(
        nodes=nodes,
        handlers=tuple(loader.handlers),
        roles=tuple(loader.public_roles),
    )


def load_role(
    name: str,
    task: Task,
    *,
    parts: Mapping[str, str] | None = None,
    variables: Mapping[str, Any] | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    roles_path: tuple[Path, ...] = (),
) -> Included:
    """Return what an `include_role` brings. `parts`: its arguments `tasks_from`, `vars_from`, ... without `_from`.

    The rest as for `load_tasks`.
    """
    scope = _scope_of(task, variables)
    loader = Loader(scope.folder, extra_vars=extra_vars, roles_path=roles_path)
    chosen = {part: file for part, file in (parts or {}).items() if part in PARTS and file}
    wanted = Wanted(name=name, place=task.place, keys=YamlMap(task.place.file), parts=chosen, again=True)
    found = read_role(loader, wanted, scope)
    if loader.faults:
        raise PlaybookError(f"the role '{name}'", loader.faults)
    return Included(
        nodes=found.nodes,
        handlers=(*found.handlers, *loader.handlers),
        roles=(*found.roles, *loader.public_roles),
    )


def load_vars_file(entry: VarsFile, render: Callable[[Any], Any]) -> Mapping[str, Any]:
    """Return the variables of an entry of `vars_files`; `render` fills in the templates of its names."""
    if entry.values is not None:
        return entry.values
    tried: list[str] = []
    for name in entry.names:
        text = str(render(name.value))
        tried.append(f"'{text}'")
        if path := find_vars(text, name.place.file.parent):
            return load_vars(path)
    fault = Fault(place=entry.names[0].place, sentence=f"there is no file {' or '.join(tried)} of variables")
    raise PlaybookError("the files of variables", [fault])


def load_vars(path: Path) -> Mapping[str, Any]:
    """Return the variables of a YAML or JSON file (of `include_vars`, or `--extra-vars @FILE`). `PlaybookError`."""
    loader = Loader(path.absolute().parent)
    found = loader.read_vars(path.absolute())
    if loader.faults:
        raise PlaybookError(f"the variables in '{shown(path)}'", loader.faults)
    return found


def _scope_of(task: Task, variables: Mapping[str, Any] | None) -> Scope:
    scope = task.scope
    if scope is None:
        raise ValueError(f"{task.action} includes nothing")
    return replace(scope, parameters=(*scope.parameters, variables)) if variables else scope


def _no_playbook(path: Path) -> PlaybookError:
    beside = sorted(found.name for found in path.parent.glob("*.y*ml"))[:10] if path.parent.is_dir() else []
    hint = f"playbooks there: {', '.join(beside)}" if beside else None
    return PlaybookError(
        f"the playbook '{shown(path)}'",
        [Fault(place=Place(file=path, line=1, column=1), sentence="there is no such file")],
        hint=hint,
    )
