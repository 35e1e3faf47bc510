"""`find`: files below folders, by name, age, size and kind."""

import fnmatch
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rigd.provision.target import attributes
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

MOST_FOUND = 10_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Walk the folders and return what fits."""
    found: list[dict[str, Any]] = []
    examined = 0
    skipped: dict[str, str] = {}
    for top in arguments["paths"]:
        if not os.path.isdir(top):
            skipped[top] = f"'{top}' is not a directory"
            continue
        for path in _walk(arguments, top):
            examined += 1
            facts = _fits(arguments, path)
            if facts is not None:
                found.append(facts)
            if len(found) > MOST_FOUND:
                raise ModuleError(f"more than {MOST_FOUND:,} files fit below '{top}': narrow the patterns")
    limit = arguments["limit"]
    found = found if limit is None else found[:limit]
    return {"files": found, "matched": len(found), "examined": examined, "skipped_paths": skipped}


def _walk(arguments: Mapping[str, Any], top: str) -> Iterator[str]:
    for folder, folders, files in os.walk(top, followlinks=arguments["follow"]):
        depth = 0 if folder == top else os.path.relpath(folder, top).count(os.sep) + 1
        names = [*folders, *files]
        if not arguments["recurse"] or (arguments["depth"] is not None and depth + 1 >= arguments["depth"]):
            folders.clear()
        yield from (os.path.join(folder, name) for name in sorted(names))


def _fits(arguments: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    name = os.path.basename(path)
    seen = attributes.look(path, follow=arguments["follow"])
    if seen is None or (name.startswith(".") and not arguments["hidden"]):
        return None
    if arguments["file_type"] not in ("any", seen["kind"]):
        return None
    if not _named(arguments, name) or not _aged(arguments, seen) or not _sized(arguments, seen):
        return None
    if arguments["contains"] is not None and not _contains(arguments["contains"], path, seen):
        return None
    return {
        "path": path, "mode": f"{seen['mode']:04o}", "size": seen["size"], "uid": seen["uid"], "gid": seen["gid"],
        "mtime": seen["mtime_ns"] / 1e9, "atime": seen["atime_ns"] / 1e9, "isdir": seen["kind"] == "directory",
        "isreg": seen["kind"] == "file", "islnk": seen["kind"] == "link",
        "pw_name": attributes.user_name(seen["uid"]), "gr_name": attributes.group_name(seen["gid"]),
    }  # fmt: skip


def _named(arguments: Mapping[str, Any], name: str) -> bool:
    def hit(pattern: str) -> bool:
        if not arguments["use_regex"]:
            return fnmatch.fnmatchcase(name, pattern)
        try:
            return re.match(pattern, name) is not None
        except re.error as error:
            raise ModuleError(f"'{pattern}' is no regular expression: {error}") from error

    patterns = arguments["patterns"] or ([".*"] if arguments["use_regex"] else ["*"])
    return any(map(hit, patterns)) and not any(map(hit, arguments["excludes"] or []))


def _aged(arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    if arguments["age"] is None:
        return True
    limit_s = _number(str(arguments["age"]), _UNITS, "age")
    stamp = seen["atime_ns"] if arguments["age_stamp"] == "atime" else seen["mtime_ns"]
    age_s = time.time() - stamp / 1e9
    return bool(age_s >= limit_s if limit_s >= 0 else age_s <= -limit_s)


def _sized(arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    if arguments["size"] is None:
        return True
    limit = _number(str(arguments["size"]), _SIZES, "size")
    return bool(seen["size"] >= limit if limit >= 0 else seen["size"] <= -limit)


def _number(text: str, units: Mapping[str, int], name: str) -> int:
    found = re.fullmatch(r"(-?\d+)([a-z]?)[a-z]*", text.strip().lower())
    if found is None or found[2] not in ("", *units):
        raise ModuleError(f"{name} '{text}' is not a number with a unit of {', '.join(units)}")
    return int(found[1]) * units.get(found[2], 1)


def _contains(pattern: str, path: str, seen: Mapping[str, Any]) -> bool:
    if seen["kind"] != "file":
        return False
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return any(re.match(pattern, line) for line in file)
    except OSError:
        return False


def difference(_arguments: Mapping[str, Any], _state: Any) -> list[Change]:
    """Nothing: it only reads."""
    return []


def apply(_arguments: Mapping[str, Any], _state: Any, _changes: list[Change], _box: Box) -> None:
    """Nothing: it only reads."""


MODULE = Module(
    names=("ansible.builtin.find",),
    summary="files below folders, by name, age, size and kind",
    arguments={
        "paths": Argument(kind=Kind.LIST, elements=Kind.PATH, required=True, aliases=("name", "path")),
        "patterns": Argument(kind=Kind.LIST, aliases=("pattern",)),
        "excludes": Argument(kind=Kind.LIST, aliases=("exclude",)),
        "file_type": Argument(choices=("any", "directory", "file", "link"), default="file"),
        "recurse": Argument(kind=Kind.BOOLEAN, default=False),
        "depth": Argument(kind=Kind.INTEGER),
        "hidden": Argument(kind=Kind.BOOLEAN, default=False),
        "follow": Argument(kind=Kind.BOOLEAN, default=False),
        "use_regex": Argument(kind=Kind.BOOLEAN, default=False),
        "contains": Argument(),
        "age": Argument(),
        "age_stamp": Argument(choices=("atime", "ctime", "mtime"), default="mtime"),
        "size": Argument(),
        "limit": Argument(kind=Kind.INTEGER),
        "get_checksum": Argument(
            kind=Kind.BOOLEAN, default=False, left_out="use stat on the file that matters"
        ),
        "read_whole_file": Argument(kind=Kind.BOOLEAN, default=False, left_out="contains looks at lines"),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, state: state,
    reads_only=True,
)
