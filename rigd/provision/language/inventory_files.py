"""One file of an inventory, INI or YAML, as groups, hosts and variables."""

import ast
import re
import shlex
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from rigd.provision.language.faults import nearest
from rigd.provision.language.loader import Loader, as_mapping
from rigd.provision.language.model import Place
from rigd.provision.language.source import YamlMap

_RANGE = re.compile(r"\[([^\[\]]+)\]")
_SECTION = re.compile(r"\[([^\[\]:]+)(?::(\w+))?\]\s*(?:#.*)?")
_MOST_RANGE = 10_000
_KINDS = ("hosts", "children", "vars")


@dataclass(kw_only=True)
class Entries:
    """What the files of an inventory say, together."""

    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Host -> its own variables."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """Group -> hosts that stand in it themselves."""
    children: dict[str, list[str]] = field(default_factory=dict)
    child_places: dict[str, Place] = field(default_factory=dict)
    vars: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_host(self, group: str, name: str, variables: dict[str, Any]) -> None:
        """Put a host into a group."""
        self.hosts.setdefault(name, {}).update(variables)
        members = self.groups.setdefault(group, [])
        if name not in members:
            members.append(name)

    def add_child(self, group: str, child: str, place: Place) -> None:
        """Put a group into a group."""
        self.groups.setdefault(group, [])
        self.groups.setdefault(child, [])
        self.child_places.setdefault(group, place)
        below = self.children.setdefault(group, [])
        if child not in below:
            below.append(child)

    def add_vars(self, group: str, variables: dict[str, Any]) -> None:
        """Set variables of a group."""
        self.groups.setdefault(group, [])
        self.vars.setdefault(group, {}).update(variables)


def read_inventory_file(path: Path, entries: Entries, loader: Loader) -> None:
    """Add what a file says; what is wrong with it is noted."""
    if path.suffix in (".yml", ".yaml", ".json"):
        _read_yaml(path, entries, loader)
        return
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        loader.fault(Place(file=path, line=1, column=1), "is not text that can be read")
        return
    if text.startswith("#!"):
        loader.fault(
            Place(file=path, line=1, column=1),
            "programs that print an inventory are left out: write their output to a file",
        )
    elif text.lstrip().startswith(("---", "{")):
        _read_yaml(path, entries, loader)
    else:
        _read_ini(path, text, entries, loader)


# --- YAML ---


def _read_yaml(path: Path, entries: Entries, loader: Loader) -> None:
    found = loader.read(path)
    if found is None:
        return
    if not isinstance(found, YamlMap):
        loader.fault(Place(file=path, line=1, column=1), "an inventory is a mapping of groups, `all` first")
        return
    for group, keys in found.items():
        _yaml_group(str(group), keys, found.place_of(group), entries, loader)


def _yaml_group(group: str, keys: Any, place: Place, entries: Entries, loader: Loader) -> None:
    entries.groups.setdefault(group, [])
    if keys is None:
        return
    if not isinstance(keys, YamlMap):
        loader.fault(place, f"the group '{group}' must be a mapping with hosts, children and vars")
        return
    for key in keys:
        if key not in _KINDS:
            sentence = f"'{key}' is no part of a group: hosts, children, vars{nearest(str(key), _KINDS)}"
            loader.fault(keys.place_of(key), sentence)
        elif keys[key] is not None and not isinstance(keys[key], YamlMap):
            loader.fault(keys.place_of(key), f"'{key}' of a group takes a mapping: each name with a colon")
    hosts = as_mapping(keys.get("hosts"), keys.file)
    for pattern, variables in hosts.items():
        if variables is not None and not isinstance(variables, YamlMap):
            loader.fault(hosts.place_of(pattern), f"the host '{pattern}' must be a mapping of variables")
            continue
        loader.check_templates(variables)
        for name, more in _hosts(str(pattern), hosts.place_of(pattern), loader):
            entries.add_host(group, name, {**more, **(variables or {})})
    children = as_mapping(keys.get("children"), keys.file)
    for child, below in children.items():
        entries.add_child(group, str(child), children.place_of(child))
        _yaml_group(str(child), below, children.place_of(child), entries, loader)
    variables = as_mapping(keys.get("vars"), keys.file)
    loader.check_templates(variables)
    entries.add_vars(group, dict(variables))


# --- INI ---


def _read_ini(path: Path, text: str, entries: Entries, loader: Loader) -> None:
    group, kind = "ungrouped", "hosts"
    before = set(entries.groups)
    children: list[tuple[str, Place]] = []
    sections: set[str] = set()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        place = Place(file=path, line=number, column=len(raw) - len(raw.lstrip()) + 1)
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and (section := _SECTION.fullmatch(line)):
            group, kind = section[1].strip(), section[2] or "hosts"
            if kind not in _KINDS:
                loader.fault(place, f"a section is [group], [group:children] or [group:vars], not ':{kind}'")
                kind = "hosts"
            sections.add(group)
            entries.groups.setdefault(group, [])
        elif line.startswith("[") and "]" not in line:
            loader.fault(place, "the name of the section is not closed with ]")
        elif kind == "children":
            children.append((line.split("#")[0].strip(), place))
            entries.add_child(group, *children[-1])
        elif kind == "vars":
            _ini_variable(group, line, place, entries, loader)
        else:
            _ini_host(group, line, place, entries, loader)
    known = before | sections | {"all", "ungrouped"}
    for child, place in children:
        if child not in known:
            loader.fault(place, f"there is no group '{child}'{nearest(child, known)}")


def _ini_variable(group: str, line: str, place: Place, entries: Entries, loader: Loader) -> None:
    name, equals, value = (part.strip() for part in line.partition("="))
    if not equals:
        loader.fault(place, "a line of [group:vars] is name=value")
        return
    entries.add_vars(group, {name: _checked(value, place, loader)})


def _ini_host(group: str, line: str, place: Place, entries: Entries, loader: Loader) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        loader.fault(place, f"the line cannot be read: {error}")
        return
    if not words:
        return
    variables: dict[str, Any] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals:
            loader.fault(place, f"'{word}' is no name=value")
            continue
        variables[name] = _checked(value, place, loader)
    for name, more in _hosts(words[0], place, loader):
        entries.add_host(group, name, {**more, **variables})


def _checked(text: str, place: Place, loader: Loader) -> Any:
    value = _ini_value(text)
    loader.check_templates(value, place)
    return value


def _ini_value(text: str) -> Any:
    """Return a value of an INI file as Ansible reads it: as Python does, and else as text."""
    try:
        value = ast.literal_eval(text.split(" #", maxsplit=1)[0].strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, (str, int, float, bool, list, dict)) or value is None else text


# --- names of hosts ---


def _hosts(pattern: str, place: Place, loader: Loader) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each host that a pattern such as `box[01:12]:2222` names, with its port."""
    variables: dict[str, Any] = {}
    head, colon, port = pattern.rpartition(":")
    if colon and port.isdigit() and head.count(":") == head.count("["):
        host_part = re.sub(r"\[[^\]]*\]", "", head)
        if ":" not in host_part:
            pattern, variables = head, {"ansible_port": int(port)}
    parts = _RANGE.split(pattern)
    try:
        choices = [list(_range(part)) if index % 2 else [part] for index, part in enumerate(parts)]
    except ValueError as error:
        loader.fault(place, f"the range in '{pattern}' cannot be read: {error}")
        return
    for chosen in product(*choices):
        yield "".join(chosen), dict(variables)


def _range(text: str) -> Iterator[str]:
    begin, *rest = text.split(":")
    if not rest:
        raise ValueError("it needs a colon, as in [1:3]")
    end = rest[0]
    step = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 1
    if step == 0:
        raise ValueError("its step is 0")
    if (begin.isdigit() or not begin) and end.isdigit():
        width = len(begin) if begin.startswith("0") else 0
        numbers = range(int(begin or 0), int(end) + 1, step)
        if len(numbers) > _MOST_RANGE:
            raise ValueError(f"it names more than {_MOST_RANGE} hosts")
        if not numbers:
            raise ValueError("it ends before it begins")
        yield from (str(number).zfill(width) for number in numbers)
        return
    letters = string.ascii_letters
    if begin not in letters or end not in letters or len(begin) != 1 or len(end) != 1:
        raise ValueError("it takes numbers or single letters")
    yield from letters[letters.index(begin) : letters.index(end) + 1 : step]
