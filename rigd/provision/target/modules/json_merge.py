"""`json_merge`: a JSON file has these keys, and keeps all others. For files with several owners (daemon.json)."""

import json
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import edited
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Read the file; one that is no JSON object is never overwritten."""
    state = edited.look({**arguments, "encoding": "utf-8"})
    state["value"] = _parsed(arguments["path"], state["text"] or "")
    return state


def _parsed(path: str, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ModuleError(
                f"'{path}' has the key '{twice}' twice: remove one of them by hand, then run this again"
            )
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=once)
    except ValueError as error:
        place = str(error)
        if isinstance(error, json.JSONDecodeError):
            place = f"line {error.lineno}, column {error.colno}: {error.msg}"
        comment = " (JSON has no comments)" if "//" in text or "/*" in text else ""
        raise ModuleError(
            f"'{path}' is not valid JSON, {place}{comment}: nothing was changed; mend it, or move it away, "
            "and run this again"
        ) from error
    if not isinstance(value, dict):
        raise ModuleError(
            f"'{path}' holds a {type(value).__name__}, not an object with keys: nothing was changed"
        )
    return value


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the change to the file, with the keys that it touches."""
    new = merged(state["value"], arguments["value"], unions=frozenset(arguments["union"] or ()))
    for path in arguments["remove"] or []:
        new = _without(new, path.split("."))
    if new == state["value"]:
        return edited.changes(arguments, state, None, "")
    text = json.dumps(new, indent=arguments["indent"], ensure_ascii=False) + "\n"
    touched = ", ".join(
        name for name in {**state["value"], **new} if state["value"].get(name) != new.get(name)
    )
    return edited.changes(arguments, state, text, f"keys changed: {touched}")


def merged(old: Any, new: Any, *, unions: frozenset[str] = frozenset(), path: str = "") -> Any:
    """Return `old` with `new` laid over it: objects key by key, lists replaced (united where named), order kept."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = dict(old)
        for key, value in new.items():
            inner = f"{path}.{key}" if path else key
            both[key] = merged(old[key], value, unions=unions, path=inner) if key in old else value
        return both
    if isinstance(old, list) and isinstance(new, list) and path in unions:
        return [*old, *(item for item in new if item not in old)]
    return new


def _without(value: Any, path: list[str]) -> Any:
    if not isinstance(value, dict) or path[0] not in value:
        return value
    if len(path) == 1:
        return {key: inner for key, inner in value.items() if key != path[0]}
    return {key: _without(inner, path[1:]) if key == path[0] else inner for key, inner in value.items()}


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the file, validated, in one step."""
    edited.apply({**arguments, "encoding": "utf-8"}, state, changes, box)


MODULE = Module(
    names=("rigd.box.json_merge",),
    summary="a JSON file has these keys, and keeps all others",
    arguments={
        **{name: argument for name, argument in edited.ARGUMENTS.items() if name != "encoding"},
        "value": Argument(kind=Kind.MAPPING, required=True),
        "remove": Argument(kind=Kind.LIST),
        "union": Argument(kind=Kind.LIST),
        "indent": Argument(kind=Kind.INTEGER, default=2),
    },
    probe=probe,
    difference=difference,
    apply=apply,
)
