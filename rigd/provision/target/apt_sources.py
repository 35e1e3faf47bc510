"""apt's sources: both file formats read into entries, one written, two that would contradict each other found."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

APT = Path("/etc/apt")
KINDS = ("deb", "deb-src")


def parts() -> Path:
    return APT / "sources.list.d"


def keyrings() -> Path:
    return APT / "keyrings"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One source: a kind of packages of one address and suite."""

    file: str
    kind: str
    uri: str
    suite: str
    components: tuple[str, ...] = ()
    signed_by: str = ""
    enabled: bool = True

    @property
    def place(self) -> tuple[str, str, str]:
        """What apt takes for one source, and for which it wants one Signed-By."""
        return self.kind, self.uri.rstrip("/"), self.suite


def parse_line(line: str, file: str = "") -> Entry | None:
    """Return the entry of a line in the one-line format, also of one that is commented out; None for other lines."""
    text = line.strip()
    enabled = not text.startswith("#")
    text = text.lstrip("# ").split(" #")[0]
    match = re.match(r"(deb|deb-src)\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)(.*)$", text)
    if not match:
        return None
    kind, options, uri, suite, rest = match.groups()
    known = dict(re.findall(r"([a-zA-Z-]+)=(\S+)", options or ""))
    return Entry(file=file, kind=kind, uri=uri, suite=suite, components=tuple(rest.split()),
                 signed_by=known.get("signed-by", ""), enabled=enabled)  # fmt: skip


def stanzas(text: str) -> list[dict[str, str]]:
    """Return the stanzas of a deb822 text, field names in small letters, continued lines joined."""
    found: list[dict[str, str]] = [{}]
    field = ""
    for line in text.splitlines():
        if not line.strip():
            found.append({})
        elif line.startswith("#"):
            continue
        elif line[0] in " \t":
            if field:
                found[-1][field] += "\n" + line.strip()
        else:
            name, _, value = line.partition(":")
            field = name.strip().lower()
            found[-1][field] = value.strip()
    return [stanza for stanza in found if stanza]


def entries_of(file: str, text: str) -> list[Entry]:
    """Return the entries of a file in the format that its name says."""
    if not file.endswith(".sources"):
        return [entry for line in text.splitlines() if (entry := parse_line(line, file))]
    found = []
    for stanza in stanzas(text):
        enabled = stanza.get("enabled", "yes").lower() not in (
            "no",
            "false",
            "0",
            "off",
            "disable",
            "without",
        )
        for kind in stanza.get("types", "").split():
            for uri in stanza.get("uris", "").split():
                found += [
                    Entry(file=file, kind=kind, uri=uri, suite=suite, signed_by=stanza.get("signed-by", ""),
                          components=tuple(stanza.get("components", "").split()), enabled=enabled)
                    for suite in stanza.get("suites", "").split()
                ]  # fmt: skip
    return found


def read_all() -> dict[str, str]:
    """Return the text of every file that apt reads its sources from."""
    files = [APT / "sources.list"]
    if parts().is_dir():
        files += sorted(path for path in parts().iterdir() if path.suffix in (".list", ".sources"))
    found = {}
    for path in files:
        if path.is_file():
            found[str(path)] = path.read_text(encoding="utf-8", errors="replace")
    return found


def entries(texts: Mapping[str, str]) -> list[Entry]:
    return [entry for file, text in texts.items() for entry in entries_of(file, text)]


def rivals(wanted: Iterable[Entry], texts: Mapping[str, str], own_file: str) -> list[Entry]:
    """Return enabled entries of other files for the same sources: with another key apt reads no list at all."""
    places = {entry.place for entry in wanted if entry.enabled}
    return [
        entry
        for entry in entries(texts)
        if entry.enabled and entry.file != own_file and entry.place in places
    ]


def covered(entry: Entry, own: Iterable[Entry]) -> bool:
    """Return whether these entries bring all that another one for the same source does."""
    components = {name for mine in own if mine.place == entry.place for name in mine.components}
    return components.issuperset(entry.components)


def without_rivals(file: str, text: str, rivals_: Iterable[Entry]) -> str | None:
    """Return a file's text with these entries switched off; None where nothing else is left in it."""
    places = {entry.place for entry in rivals_}
    if file.endswith(".sources"):
        blocks = re.split(r"\n\s*\n", text.strip("\n"))
        kept = [block for block in blocks if not _lies_in(entries_of(file, block), places)]
        return "\n\n".join(kept) + "\n" if kept else None
    lines = []
    for line in text.splitlines():
        entry = parse_line(line, file)
        gone = entry is not None and entry.enabled and entry.place in places
        lines.append(f"# {line}" if gone else line)
    left = any((entry := parse_line(line, file)) and entry.enabled for line in lines)
    return "".join(f"{line}\n" for line in lines) if left else None


def _lies_in(found: Sequence[Entry], places: set[tuple[str, str, str]]) -> bool:
    return bool(found) and all(entry.place in places for entry in found)


def slug(name: str) -> str:
    """Return the file name of a named source, as Ansible makes it."""
    return re.sub(r"[^a-z0-9-]+", "", re.sub(r"[_\s]+", "-", name.lower()))


def render(fields: Mapping[str, Any]) -> str:
    """Return a deb822 stanza of these fields, as Ansible writes it: sorted by argument, lists with blanks."""
    lines = []
    for key, value in sorted(fields.items()):
        if value is None:
            continue
        name = {"name": "X-Repolib-Name", "uris": "URIs"}.get(key, key.replace("_", "-").title())
        if isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, (list, tuple)):
            text = " ".join(map(str, value))
        else:
            text = str(value)
        if "\n" in text.strip():
            body = "\n".join(f"    {line.strip() or '.'}" for line in text.strip().splitlines())
            lines.append(f"{name}:\n{body}")
        else:
            lines.append(f"{name}: {text}")
    return "\n".join(lines) + "\n"


def suggested_file(line: str) -> str:
    """Return the .list file that Ansible names after a line's address."""
    text = re.sub(r"\w+://", "", re.sub(r"\[[^\]]+\]", "", line))
    words = [word for word in text.split() if word not in KINDS]
    first = words[0].rpartition("@")[2] if words else "source"
    return "_".join(re.sub("[^a-zA-Z0-9]", " ", first).split()) + ".list"


def remove(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
