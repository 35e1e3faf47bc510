"""Which hosts there are, in which groups, with which variables: Ansible's inventories in INI or YAML.

file or folder --inventory_files--> groups and hosts as written
+ group_vars/, host_vars/ beside it and beside the playbook --> each host's variables, merged:
  what `all` says < wider group < narrower group < the host itself; a folder beats the file that it stands beside
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigd.errors import UsageError
from rigd.provision.language.faults import PlaybookError, shown
from rigd.provision.language.inventory_files import Entries, read_inventory_file
from rigd.provision.language.loader import Loader
from rigd.provision.language.model import Host, Inventory
from rigd.provision.language.scope import merged

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine; it is there even if no inventory names it."""
_HERE: Mapping[str, Any] = {"ansible_connection": "local"}
_SKIPPED = frozenset({".cfg", ".retry", ".pyc", ".swp", ".bak", ".orig", ".md"})
_EXTENSIONS = (".yml", ".yaml", ".json", "")
_WIDEST = frozenset({"all", "ungrouped"})
MOST_HOSTS = 10_000


def load_inventory(path: Path, *, playbook: Path | None = None) -> Inventory:
    """Return the hosts and groups of a file or folder. Raises `PlaybookError` with every fault.

    `group_vars` and `host_vars` beside it and beside the `playbook` are read, too.
    """
    path = path.absolute()
    if not path.exists():
        raise UsageError(f"there is no inventory '{shown(path)}'", hint="or name the host: --host user@box")
    folder = path if path.is_dir() else path.parent
    loader = Loader(folder)
    entries = Entries()
    for file in _files(path):
        read_inventory_file(file, entries, loader)
    if not entries.hosts and not loader.faults:
        raise UsageError(f"there are no hosts in the inventory '{shown(path)}'")
    return _finished(f"the inventory '{shown(path)}'", entries, loader, folder, playbook)


def hosts_named(names: Sequence[str], *, playbook: Path | None = None) -> Inventory:
    """Return the hosts of the command line: `host`, `user@host`, `user@host:port`, `localhost`.

    The playbook's `group_vars` and `host_vars` hold for them, too.
    """
    entries = Entries()
    loader = Loader((playbook or Path()).absolute().parent)
    for text in names:
        name, variables = _named(text)
        if name in entries.hosts and entries.hosts[name] != variables:
            name = text
        entries.hosts[name] = variables
    return _finished("the hosts of the command line", entries, loader, None, playbook)


def implicit(name: str) -> Host:
    """Return this machine as a host that no inventory names."""
    return Host(name=name, groups=("all", "ungrouped"), vars=dict(_HERE))


def _named(text: str) -> tuple[str, dict[str, Any]]:
    user, _, rest = text.rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if not host or (port and not port.isdigit()) or host.startswith("-"):
        raise UsageError(f"'{text}' names no host", hint="write HOST, USER@HOST or USER@HOST:PORT")
    if host in LOCAL and not user and not port:
        return host, dict(_HERE)
    variables: dict[str, Any] = {"ansible_host": host}
    if user:
        variables["ansible_user"] = user
    if port:
        variables["ansible_port"] = int(port)
    return host, variables


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.iterdir()):
        hidden = file.name.startswith(".") or file.name.endswith("~")
        if file.is_file() and not hidden and file.suffix not in _SKIPPED:
            yield file


def _finished(
    subject: str, entries: Entries, loader: Loader, folder: Path | None, playbook: Path | None
) -> Inventory:
    depths = _depths(entries, loader)
    if len(entries.hosts) > MOST_HOSTS:
        raise UsageError(f"{subject} names more than {MOST_HOSTS} hosts")
    roots = [folder] if folder else []
    if playbook is not None and playbook.absolute().parent not in roots:
        roots.append(playbook.absolute().parent)
    members = {group: tuple(_hosts_of(group, entries)) for group in entries.groups}
    grouped = {host for group, hosts in members.items() if group not in _WIDEST for host in hosts}
    members["all"] = tuple(entries.hosts)
    members["ungrouped"] = tuple(host for host in entries.hosts if host not in grouped)
    groups_of = _groups_of(entries, members, depths)
    read = _VarsFolders(loader, roots)
    group_vars = {group: read.of("group_vars", group) for group in members}
    hosts = []
    for name, own in entries.hosts.items():
        layers: list[Mapping[str, Any]] = [entries.vars.get("all", {}), group_vars["all"]]
        narrower = [group for group in groups_of[name] if group != "all"]
        layers.extend(entries.vars.get(group, {}) for group in narrower)
        layers.extend(group_vars[group] for group in narrower)
        layers.extend((own, read.of("host_vars", name)))
        hosts.append(Host(name=name, groups=groups_of[name], vars=merged(loader.folder, layers)))
    if loader.faults:
        raise PlaybookError(subject, loader.faults)
    return Inventory(hosts=tuple(hosts), groups=members)


def _hosts_of(group: str, entries: Entries) -> Iterator[str]:
    found = dict.fromkeys(entries.groups.get(group, ()))
    for child in entries.children.get(group, ()):
        if child != group:
            found.update(dict.fromkeys(_hosts_of(child, entries)))
    yield from (name for name in entries.hosts if name in found)


def _groups_of(
    entries: Entries, members: Mapping[str, tuple[str, ...]], depths: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {name: [] for name in entries.hosts}
    ordered = sorted(
        members, key=lambda group: (group != "all", depths.get(group, 1), _priority(group, entries), group)
    )
    for group in ordered:
        for name in members[group]:
            found[name].append(group)
    return {name: tuple(groups) for name, groups in found.items()}


def _priority(group: str, entries: Entries) -> int:
    value = entries.vars.get(group, {}).get("ansible_group_priority", 1)
    return int(value) if str(value).isdigit() else 1


def _depths(entries: Entries, loader: Loader) -> dict[str, int]:
    """Return how far below `all` each group is; a group within itself is a fault."""
    depths = dict.fromkeys(entries.groups, 1)
    for _round in range(len(depths) + 1):
        changed = False
        for parent, children in entries.children.items():
            for child in children:
                if parent != "all" and depths.get(child, 1) <= depths.get(parent, 1):
                    depths[child] = depths.get(parent, 1) + 1
                    changed = True
        if not changed:
            return depths
    for parent, place in entries.child_places.items():
        loader.fault(place, f"the group '{parent}' is, by way of its children, within itself")
    entries.children.clear()
    return depths


class _VarsFolders:
    """Reads `group_vars` and `host_vars` of some folders; each file once."""

    def __init__(self, loader: Loader, roots: Iterable[Path]) -> None:
        self._loader = loader
        self._roots = tuple(roots)

    def of(self, kind: str, name: str) -> Mapping[str, Any]:
        """Return the variables of a group or host."""
        layers = [
            self._loader.read_vars(file) for root in self._roots for file in self._files(root / kind, name)
        ]
        return merged(self._loader.folder, layers)

    def _files(self, folder: Path, name: str) -> Iterator[Path]:
        if "/" in name or not folder.is_dir():
            return
        for extension in _EXTENSIONS:
            path = folder / f"{name}{extension}"
            if path.is_file():
                yield path
        below = folder / name
        if below.is_dir():
            for path in sorted(below.rglob("*")):
                if path.is_file() and path.suffix in _EXTENSIONS and not path.name.startswith("."):
                    yield path
