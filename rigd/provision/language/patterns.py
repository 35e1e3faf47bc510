"""Patterns of hosts: `all`, `a:b`, `!c`, `&d`, globs, `~regex`, `group[0]`. Pure."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from rigd.errors import UsageError
from rigd.provision.language.faults import nearest
from rigd.provision.language.inventory import LOCAL, implicit
from rigd.provision.language.model import Host, Inventory

_SUBSCRIPT = re.compile(r"(.+)\[(-?\d+)(?:[:-](-?\d*))?\]")
_SPLIT = re.compile(r",|:(?![^\[\]]*\])")
_GLOB = frozenset("*?")


def matching(inventory: Inventory, pattern: str, *, limit: str | None = None) -> tuple[Host, ...]:
    """Return the hosts that a play's pattern means, in the inventory's order, fewer if a limit is given.

    Raises `UsageError` for a name that is neither a host nor a group.
    """
    found = _chosen(inventory, pattern, "hosts")
    if limit is None:
        return found
    allowed = {host.name for host in _chosen(inventory, limit, "--limit")}
    return tuple(host for host in found if host.name in allowed)


def _chosen(inventory: Inventory, pattern: str, of: str) -> tuple[Host, ...]:
    parts = [part.strip() for part in _parts(pattern) if part.strip()]
    hosts = {host.name: host for host in inventory.hosts}
    found: dict[str, None] = {}
    plain = [part for part in parts if part[0] not in "!&"]
    for part in plain or ["all"]:
        found.update(dict.fromkeys(_names(inventory, part, of)))
    for part in parts:
        if part[0] == "&":
            wanted = set(_names(inventory, part[1:], of))
            found = {name: None for name in found if name in wanted}
    for part in parts:
        if part[0] == "!":
            for name in _names(inventory, part[1:], of, strict=False):
                found.pop(name, None)
    ordered = [hosts[name] for name in hosts if name in found]
    return (*ordered, *(implicit(name) for name in found if name not in hosts))


def _parts(pattern: str) -> Iterable[str]:
    if pattern in LOCAL or (pattern.count(":") > 1 and re.fullmatch(r"[0-9a-fA-F:]+", pattern)):
        return [pattern]
    return _SPLIT.split(pattern)


def _names(inventory: Inventory, part: str, of: str, *, strict: bool = True) -> Iterator[str]:
    names = [host.name for host in inventory.hosts]
    if part in ("all", "*"):
        yield from names
    elif part in inventory.groups:
        yield from inventory.groups[part]
    elif part in names or part in LOCAL:
        yield part
    elif part.startswith("~"):
        yield from _by_regex(inventory, names, part[1:], of)
    elif _GLOB.intersection(part):
        yield from _by_glob(inventory, names, part)
    elif match := _SUBSCRIPT.fullmatch(part):
        yield from _subscript(list(_names(inventory, match[1], of)), match)
    elif strict:
        known = (*inventory.groups, *names)
        raise UsageError(f"{of}: there is no host or group '{part}'{nearest(part, known)}")


def _by_regex(inventory: Inventory, names: list[str], pattern: str, of: str) -> Iterator[str]:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{of}: '~{pattern}' is no regular expression: {error}") from None
    yield from (name for name in names if wanted.match(name))
    for group, members in inventory.groups.items():
        if wanted.match(group):
            yield from members


def _by_glob(inventory: Inventory, names: list[str], pattern: str) -> Iterator[str]:
    yield from (name for name in names if fnmatchcase(name, pattern))
    for group, members in inventory.groups.items():
        if fnmatchcase(group, pattern):
            yield from members


def _subscript(names: list[str], match: re.Match[str]) -> list[str]:
    start = int(match[2])
    if match[3] is None:
        return names[start : start + 1] if start >= 0 else names[start:][:1]
    end = int(match[3]) if match[3] else len(names)
    # Both ends belong to it, as in Ansible.
    return names[start : end + 1 if end >= 0 else len(names) + end + 1]
