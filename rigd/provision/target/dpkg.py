"""What dpkg knows: packages and their states, whether it was interrupted, who holds its lock."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rigd.provision.target.contract import Box

ADMIN = Path("/var/lib/dpkg")
LOCKS = (ADMIN / "lock-frontend", ADMIN / "lock", Path("/var/lib/apt/lists/lock"))
EXTENDED_STATES = Path("/var/lib/apt/extended_states")
"""apt's notes on packages that only others brought."""
FORMAT = "${Package}\t${Architecture}\t${db:Status-Abbrev}\t${Version}\n"
HALF_WAY = "UFHWt"
"""Second letters of dpkg's abbreviations: unpacked, half-configured, half-installed, triggers awaited, pending."""


def packages(box: Box, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what dpkg knows of these names (or patterns), by name and by `name:architecture`, in one question."""
    wanted = list(names)
    if not wanted:
        return {}
    answer = box.run(["dpkg-query", "-W", "-f", FORMAT, *wanted], ok=None)
    return _parse(answer.stdout)


def _parse(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        name, architecture, status, version = [*line.split("\t"), "", "", ""][:4]
        package = {
            "name": name,
            "architecture": architecture,
            "version": version,
            "installed": status[1:2] == "i",
            "half_way": status[1:2] in HALF_WAY and bool(status[1:2]),
            "configured_once": status[1:2] == "c",
            "held": status[:1] == "h",
        }
        found[f"{name}:{architecture}"] = package
        # Of several architectures the installed one counts.
        if name not in found or package["installed"]:
            found[name] = package
    return found


def provided(box: Box) -> dict[str, list[str]]:
    """Return which installed packages provide each virtual name."""
    answer = box.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Provides}\n"], ok=None)
    names: dict[str, list[str]] = {}
    for line in answer.stdout.splitlines():
        status, package, provides = [*line.split("\t"), "", ""][:3]
        if status[1:2] == "i":
            for name in filter(None, (part.split("(")[0].strip() for part in provides.split(","))):
                names.setdefault(name, []).append(package)
    return names


def installed(known: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    """Return whether the package stands installed and configured."""
    return bool(known.get(name, {}).get("installed"))


def automatic(known: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return which of these installed packages apt would remove once nothing else needs them."""
    try:
        text = EXTENDED_STATES.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    noted: set[tuple[str, str]] = set()
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
        if fields.get("Auto-Installed") == "1":
            # One for all architectures stands there under the box's own.
            noted |= {(fields["Package"], fields.get("Architecture", "")), (fields["Package"], "all")}
    return sorted(
        name for name in set(names)
        if installed(known, name) and (known[name]["name"], known[name]["architecture"]) in noted
    )  # fmt: skip


def interrupted() -> bool:
    """Return whether dpkg was broken off in the middle, so that `dpkg --configure -a` must come first."""
    try:
        return any(name.isdigit() for name in os.listdir(ADMIN / "updates"))
    except OSError:
        return False


def architecture(box: Box) -> str:
    """Return the box's own architecture in Debian's words."""
    return box.run(["dpkg", "--print-architecture"]).stdout.strip()


def newer(box: Box, version: str, than: str, *, relation: str = "gt") -> bool:
    """Return whether `version` stands in this relation (gt, ge, eq, ...) to the other, as dpkg compares."""
    return box.run(["dpkg", "--compare-versions", version, relation, than], ok=(0, 1)).rc == 0


def lock_holder() -> str:
    """Return who holds one of dpkg's or apt's locks ("apt.systemd.dai (pid 812)"), or "" when nobody does."""
    inodes = {inode for lock in LOCKS if (inode := _inode(lock))}
    try:
        with open("/proc/locks", encoding="utf-8") as table:
            rows = [line.split() for line in table]
    except OSError:
        return ""
    for row in rows:
        # "1: POSIX  ADVISORY  WRITE 812 08:01:131090 0 EOF"; one that waits has "->" in the second place.
        owner, file = row[4], row[5].rsplit(":", 1)[-1]
        holds = row[1] != "->" and file.isdigit() and int(file) in inodes
        if holds and int(owner) > 0 and int(owner) != os.getpid():
            return f"{_command(owner)} (pid {owner})"
    return ""


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _command(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words[:3]).decode(errors="replace").strip() or "a process"
    except OSError:
        return "a process"
