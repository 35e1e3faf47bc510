"""The tests (`x is failed`, `v is version(...)`) that playbooks use besides Jinja's own."""

import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rigd.provision.language.faults import kind_of
from rigd.provision.templating.filters_text import FilterError, text


def _result(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FilterError(f"the test '{name}' is about a registered result, and here is {kind_of(value)}")
    return value


def _flag(name: str, key: str, *, wanted: bool = True) -> Callable[[Any], bool]:
    return lambda value: bool(_result(name, value).get(key)) is wanted


def _changed(value: Any) -> bool:
    result = _result("changed", value)
    if "changed" in result or not isinstance(result.get("results"), list):
        return bool(result.get("changed"))
    return any(isinstance(item, Mapping) and item.get("changed") for item in result["results"])


def _pattern(kind: str) -> Callable[..., bool]:
    def test(
        value: Any,
        pattern: str = "",
        ignorecase: bool = False,  # noqa: FBT001, FBT002  (templates pass it by place)
        multiline: bool = False,  # noqa: FBT001, FBT002  (templates pass it by place)
        match_type: str = kind,
    ) -> bool:
        flags = (re.IGNORECASE if ignorecase else 0) | (re.MULTILINE if multiline else 0)
        return bool(getattr(re.compile(pattern, flags), match_type)(text(value)))

    return test


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("==", "=", "eq"), operator.eq),
    **dict.fromkeys(("!=", "<>", "ne"), operator.ne),
    **dict.fromkeys(("<", "lt"), operator.lt),
    **dict.fromkeys(("<=", "le"), operator.le),
    **dict.fromkeys((">", "gt"), operator.gt),
    **dict.fromkeys((">=", "ge"), operator.ge),
}
_LOOSE = re.compile(r"(\d+ | [a-z]+ | \.)", re.VERBOSE)
_STRICT = re.compile(r"(\d+)\.(\d+)(\.(\d+))?([ab](\d+))?")
_SEMANTIC = re.compile(
    r"(?P<numbers>\d+\.\d+\.\d+)(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)


def _loose(version: str) -> list[Any]:
    """Numbers by value, words by letters; comparing one with the other is an error, as it is in Ansible."""
    parts = [part for part in _LOOSE.split(version) if part and part != "."]
    return [int(part) if part.isdigit() else part for part in parts]


def _strict(version: str) -> Any:
    match = _STRICT.fullmatch(version)
    if match is None:
        raise ValueError(f"'{version}' is no strict version such as 1.2.3 or 1.2b1")
    early = (match[5][0], int(match[6])) if match[5] else ("z", 0)
    return (int(match[1]), int(match[2]), int(match[4] or 0)), early


def _semantic(version: str) -> Any:
    match = _SEMANTIC.fullmatch(version)
    if match is None:
        raise ValueError(f"'{version}' is no semantic version such as 1.2.3-rc.1")
    numbers = tuple(map(int, match["numbers"].split(".")))
    if match["pre"] is None:
        return numbers, (1,)
    parts = ((0, int(part), "") if part.isdigit() else (1, 0, part) for part in match["pre"].split("."))
    return numbers, (0, *parts)


_KINDS: Mapping[str, Callable[[str], Any]] = {
    "loose": _loose,
    "strict": _strict,
    "semver": _semantic,
    "semantic": _semantic,
}


def _version(
    value: Any,
    version: Any,
    operator: str = "eq",
    strict: Any = None,
    version_type: str | None = None,
) -> bool:
    if operator not in _OPERATORS:
        raise FilterError(f"'{operator}' compares no versions; write one of {', '.join(_OPERATORS)}")
    kind = version_type or ("strict" if strict else "loose")
    if kind not in _KINDS:
        raise FilterError(f"versions are {', '.join(_KINDS)}, not '{kind}'")
    one, two = text(value), text(version)
    if not one or not two:
        raise FilterError("an empty version cannot be compared")
    try:
        return bool(_OPERATORS[operator](_KINDS[kind](one), _KINDS[kind](two)))
    except (TypeError, ValueError) as error:
        raise FilterError(f"the versions '{one}' and '{two}' cannot be compared as {kind} ones") from error


_TRUE = frozenset({"y", "yes", "on", "1", "true", "t"})
_FALSE = frozenset({"n", "no", "off", "0", "false", "f"})


def _truthy(value: Any, convert_bool: bool = False) -> bool:  # noqa: FBT001, FBT002  (templates pass it by place)
    word = str(value).lower()
    if convert_bool and isinstance(value, (str, int)) and word in _TRUE | _FALSE:
        return word in _TRUE
    return bool(value)


def _subset(one: Iterable[Any], two: Any) -> bool:
    return all(item in two for item in one)


def _web(value: Any, schemes: list[str] | None = None) -> bool:
    try:
        found = urlsplit(text(value))
    except ValueError:
        return False
    return bool(found.scheme) and (not schemes or found.scheme in schemes)


def _same_file(one: Any, two: Any) -> bool:
    return Path(str(one)).samefile(str(two))


def _not_a_number(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124  (that is what nan means)


_TABLE: Mapping[tuple[str, ...], Callable[..., Any]] = {
    ("abs", "is_abs"): lambda value: Path(str(value)).is_absolute(),
    ("all",): all,
    ("any",): any,
    ("changed", "change"): _changed,
    ("contains",): lambda value, item: item in value,
    ("directory", "is_dir"): lambda value: Path(str(value)).is_dir(),
    ("exists",): lambda value: Path(str(value)).exists(),
    ("failed", "failure"): _flag("failed", "failed"),
    ("falsy",): lambda value, convert_bool=False: not _truthy(value, convert_bool),
    ("file", "is_file"): lambda value: Path(str(value)).is_file(),
    ("finished",): lambda value: bool(_result("finished", value).get("finished", True)),
    ("link", "is_link"): lambda value: Path(str(value)).is_symlink(),
    ("link_exists",): lambda value: os.path.lexists(str(value)),
    ("match",): _pattern("match"),
    ("mount", "is_mount"): lambda value: Path(str(value)).is_mount(),
    ("nan", "isnan"): _not_a_number,
    ("reachable",): _flag("reachable", "unreachable", wanted=False),
    ("regex",): _pattern("search"),
    ("same_file", "is_same_file"): _same_file,
    ("search",): _pattern("search"),
    ("skipped", "skip"): _flag("skipped", "skipped"),
    ("started",): lambda value: bool(_result("started", value).get("started", True)),
    ("subset", "issubset"): _subset,
    ("succeeded", "success", "successful"): _flag("succeeded", "failed", wanted=False),
    ("superset", "issuperset"): lambda one, two: _subset(two, one),
    ("timedout",): lambda value: bool((_result("timedout", value).get("timedout") or {}).get("period")),
    ("truthy",): _truthy,
    ("unreachable",): _flag("unreachable", "unreachable"),
    ("uri",): _web,
    ("url",): lambda value, schemes=None: _web(value, schemes) and bool(urlsplit(text(value)).netloc),
    ("urn",): lambda value: _web(value, ["urn"]),
    ("vault_encrypted",): lambda _value: False,
    ("version", "version_compare"): _version,
}
TESTS: Mapping[str, Callable[..., Any]] = {name: test for names, test in _TABLE.items() for name in names}
