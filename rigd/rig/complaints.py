"""pydantic's errors as sentences about keys of a rig file. Pure."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue, ValidationError

from rigd.rig.document import KeyPath
from rigd.rig.places import advice_for, describe_at

_SHOWN = 60
_PATTERNS = {
    r"^[a-z0-9][a-z0-9._-]{0,62}$": "small letters, digits, dots and dashes, at most 63, a letter or digit first",
    r"^\d+\.\d+\.\d+": "a version with three numbers, in quotes, such as '0.32.0'",
    "^/": "an absolute path",
    r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$": "two times, in quotes, such as '22:30-07:00'",
}
_SECRET_PLACES = ("api_key", "environment", "urls")


def complaints(error: ValidationError, value: JsonValue) -> Iterator[tuple[KeyPath, str]]:
    """Yield one key path and sentence for each thing that is wrong, alternatives of a type told together."""
    found: dict[KeyPath, str] = {}
    alternatives: set[KeyPath] = set()
    for item in error.errors(include_url=False):
        path, is_alternative = _data_path(item, value)
        if is_alternative:
            alternatives.add(path)
        elif path not in found:
            found[path] = _sentence(item, path, value)
    for path in alternatives:
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in found)
        if not deeper and path not in found:
            found[path] = _wrong_kind(path, value)
    yield from found.items()


def _data_path(item: Any, value: JsonValue) -> tuple[KeyPath, bool]:
    """Return the place in the file that an error is about, and whether it names one alternative of several.

    pydantic puts names of types among the keys; what is not in the file is such a name, or the missing key.
    """
    path: KeyPath = ()
    at: Any = value
    skipped = False
    location = item["loc"]
    for number, part in enumerate(location):
        last = number == len(location) - 1
        if _has(at, part):
            at = at[part]
            path = (*path, part)
        elif last and item["type"] == "missing":
            path = (*path, part)
        else:
            skipped = True
    ends_in_type = skipped and bool(location) and location[-1] not in path
    return path, ends_in_type and item["type"] != "value_error"


def _has(at: Any, part: str | int) -> bool:
    if isinstance(at, dict):
        return part in at
    return isinstance(at, list) and isinstance(part, int) and part < len(at)


def _sentence(item: Any, path: KeyPath, value: JsonValue) -> str:
    kind = item["type"]
    if kind == "extra_forbidden":
        advice = advice_for(path)
        return f"unknown key; {advice}" if advice else "unknown key"
    if kind == "missing":
        return f"is missing; it must be {describe_at(path)}"
    if kind == "value_error":
        return str(item["msg"]).removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        words = _PATTERNS.get(item["ctx"]["pattern"], f"text like {item['ctx']['pattern']}")
        return f"must be {words}{_got(path, value)}"
    if kind == "too_short":
        return "must not be empty"
    return _wrong_kind(path, value)


def _wrong_kind(path: KeyPath, value: JsonValue) -> str:
    wanted = describe_at(path)
    quotes = "; write it in quotes" if _needs_quotes(path, value, wanted) else ""
    return f"must be {wanted}{_got(path, value)}{quotes}"


def _needs_quotes(path: KeyPath, value: JsonValue, wanted: str) -> bool:
    given = _at(path, value)
    return wanted.startswith("text") and isinstance(given, (int, float)) and not isinstance(given, list)


def _got(path: KeyPath, value: JsonValue) -> str:
    """Return what stands there, shortened; nothing where it might be a secret."""
    given = _at(path, value)
    if any(part in _SECRET_PLACES for part in path) and isinstance(given, str):
        return ", not a text written here" if "api_key" in path else ""
    match given:
        case None:
            return ", not nothing"
        case dict():
            return ", not a mapping"
        case list():
            return ", not a list"
        case str():
            shown = given if len(given) <= _SHOWN else given[:_SHOWN] + "..."
            return f", not {shown!r}"
        case _:
            return f", not {json.dumps(given)}"


def _at(path: KeyPath, value: JsonValue) -> JsonValue:
    at: Any = value
    for part in path:
        try:
            at = at[part]
        except (KeyError, IndexError, TypeError):
            return None
    return at  # type: ignore[no-any-return]
