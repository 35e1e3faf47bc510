"""`find`: files below folders, by name, age, size and kind."""

import fnmatch
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rigd.provision.target import attributes, digests, path_facts
from rigd.provision.target.contract import Argument, Box, Kind, Module, ModuleError

MOST_FOUND = 10_000
MOST_READ = 64 << 20
"""Characters of a file that `read_whole_file` looks at."""
_TYPES = {"file": "isreg", "directory": "isdir", "link": "islnk"}
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
            if len(found) == arguments["limit"]:
                break
            if len(found) > MOST_FOUND:
                raise ModuleError(f"more than {MOST_FOUND:,} files fit below '{top}': narrow the patterns")
    return {"files": found, "matched": len(found), "examined": examined, "skipped_paths": skipped}


def _walk(arguments: Mapping[str, Any], top: str) -> Iterator[str]:
    top = os.path.normpath(top)
    for folder, folders, files in os.walk(top, followlinks=arguments["follow"]):
        depth = 0 if folder == top else os.path.relpath(folder, top).count(os.sep) + 1
        names = [*folders, *files]
        if not arguments["recurse"] or (arguments["depth"] is not None and depth + 1 >= arguments["depth"]):
            folders.clear()
        yield from (os.path.join(folder, name) for name in sorted(names))


def _fits(arguments: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    name = os.path.basename(path)
    if name.startswith(".") and not arguments["hidden"]:
        return None
    try:
        found = os.lstat(path)
    except OSError:
        return None  # It went meanwhile.
    seen = path_facts.facts_of(path, found)
    if arguments["file_type"] != "any" and not seen[_TYPES[arguments["file_type"]]]:
        return None
    if not (_named(arguments, name) and _aged(arguments, seen) and _moded(arguments, found.st_mode)):
        return None
    if seen["isreg"] and not (_sized(arguments, seen) and _contains(arguments, path)):
        return None
    if seen["isreg"] and arguments["get_checksum"]:
        seen["checksum"] = digests.of_file(path, arguments["checksum_algorithm"])
    return seen


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
    age_s = time.time() - seen[arguments["age_stamp"]]
    return bool(age_s >= limit_s if limit_s >= 0 else age_s <= -limit_s)


def _moded(arguments: Mapping[str, Any], mode: int) -> bool:
    wish = arguments["mode"]
    if wish is None:
        return True
    wanted, now = attributes.wanted_mode(wish, 0, directory=False), stat.S_IMODE(mode)
    return now == wanted if arguments["exact_mode"] else bool(now & wanted)


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


def _contains(arguments: Mapping[str, Any], path: str) -> bool:
    pattern = arguments["contains"]
    if pattern is None or arguments["file_type"] != "file":
        return True
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            if arguments["read_whole_file"]:
                return re.search(pattern, file.read(MOST_READ)) is not None
            return any(re.match(pattern, line) for line in file)
    except re.error as error:
        raise ModuleError(f"'{pattern}' is no regular expression: {error}") from error
    except OSError:
        return False


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
        "mode": Argument(kind=Kind.MODE),
        "exact_mode": Argument(kind=Kind.BOOLEAN, default=True),
        "get_checksum": Argument(kind=Kind.BOOLEAN, default=False),
        "checksum_algorithm": path_facts.ALGORITHM,
        "read_whole_file": Argument(kind=Kind.BOOLEAN, default=False),
        "encoding": Argument(left_out="files are read as UTF-8, and what is none of it matches nothing"),
    },
    probe=probe,
    result=lambda _arguments, state: state,
)
