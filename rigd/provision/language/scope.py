"""How keywords are handed down: what a level says itself wins, and conditions, tags and variables add up. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigd.provision.language.actions import canonical
from rigd.provision.language.loader import Loader, as_mapping, comma_texts, texts
from rigd.provision.language.model import Become, Scope
from rigd.provision.language.source import YamlList, YamlMap

_NEAREST = {
    "no_log": "no_log",
    "ignore_errors": "ignore_errors",
    "ignore_unreachable": "ignore_unreachable",
    "delegate_to": "delegate_to",
    "run_once": "run_once",
    "check_mode": "check_mode",
    "diff": "diff",
    "timeout": "timeout_s",
}
"""Keyword -> field: the innermost level that says it wins."""


def inside(loader: Loader, scope: Scope, keys: YamlMap) -> Scope:
    """Return the scope of what stands inside a play, role, block or task with these keywords."""
    changes: dict[str, Any] = {field: keys[key] for key, field in _NEAREST.items() if key in keys}
    if "when" in keys:
        changes["when"] = (*scope.when, *loader.conditions(keys, "when"))
    if "tags" in keys:
        changes["tags"] = scope.tags | set(comma_texts(keys["tags"]))
    if keys.get("vars"):
        changes["vars"] = (*scope.vars, as_mapping(keys["vars"], keys.file))
    if keys.get("environment"):
        changes["environment"] = (*scope.environment, *_environments(keys["environment"]))
    if "notify" in keys:
        changes["notify"] = tuple(dict.fromkeys((*texts(keys["notify"]), *scope.notify)))
    if keys.get("module_defaults"):
        defaults = as_mapping(keys["module_defaults"], keys.file)
        changes["module_defaults"] = _with_defaults(loader, scope.module_defaults, defaults)
    if not {"become", "become_user", "become_method"}.isdisjoint(keys):
        changes["become"] = _become(loader, scope.become, keys)
    return replace(scope, **changes) if changes else scope


def known_before(scope: Scope) -> dict[str, Any]:
    """Return the variables that are known before the run: of the play and its blocks, as they are written."""
    return {**scope.play_vars, **{key: value for layer in scope.vars for key, value in layer.items()}}


def in_file(scope: Scope, file: Path) -> Scope:
    """Return the scope of tasks in another file."""
    return replace(scope, file=file, depth=scope.depth + 1)


def merged(file: Path, mappings: Iterable[Mapping[str, Any]]) -> YamlMap:
    """Return mappings as one; what later ones say wins, and keeps its place."""
    found = YamlMap(file)
    for mapping in mappings:
        if isinstance(mapping, YamlMap):
            found.take(mapping)
        else:
            found.update(mapping)
    return found


def _environments(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, YamlList) else (value,)


def _become(loader: Loader, outer: Become, keys: YamlMap) -> Become:
    method = keys.get("become_method", outer.method)
    if method not in (None, "sudo", "ansible.builtin.sudo"):
        sentence = f"become_method '{method}' is left out: rights are gained with sudo"
        loader.fault(keys.place_of("become_method"), sentence)
    user = keys.get("become_user", outer.user)
    return Become(
        wanted=keys.get("become", outer.wanted), user=None if user is None else str(user), method=method
    )


def _with_defaults(
    loader: Loader, outer: Mapping[str, Mapping[str, Any]], keys: YamlMap
) -> Mapping[str, Mapping[str, Any]]:
    found = dict(outer)
    for name, defaults in keys.items():
        full = canonical(str(name))
        if str(name).startswith("group/"):
            loader.fault(keys.place_of(name), "groups of modules are left out; name each module")
        elif full is None:
            loader.fault(keys.place_of(name), f"module_defaults: there is no module '{name}'")
        elif not isinstance(defaults, YamlMap):
            loader.fault(keys.place_of(name), "module_defaults: a mapping of arguments belongs here")
        else:
            # As in Ansible, what a level says of a module is all that holds: arguments of outer ones are not added.
            found[full] = dict(defaults)
    return found
