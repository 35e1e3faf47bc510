"""/etc/fstab and what is mounted."""

from collections.abc import Mapping
from typing import Any

FIELDS = ("src", "path", "fstype", "opts", "dump", "passno")


def escape(text: str) -> str:
    return text.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")


def unescape(text: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text


def entries(text: str) -> list[dict[str, str]]:
    """Return the entries of a fstab by field, comments left aside."""
    found = []
    for line in text.splitlines():
        words = line.split("#")[0].split() if not line.lstrip().startswith("#") else []
        if words[2:]:  # Source, place and type are what an entry needs.
            values = [unescape(word) for word in words] + ["defaults", "0", "0"][max(len(words) - 3, 0) :]
            found.append(dict(zip(FIELDS, values, strict=False)))
    return found


def line_of(entry: Mapping[str, Any]) -> str:
    """Return an entry as a line."""
    return " ".join(escape(str(entry[field])) for field in FIELDS)


def _is_entry(line: str, path: str) -> bool:
    return (
        any(entry["path"].rstrip("/") == path.rstrip("/") for entry in entries(line))
        if path != "none"
        else False
    )


def with_entry(text: str, entry: Mapping[str, Any]) -> str:
    """Return the text with this entry in place of the one for the same path, or at the end."""
    new, placed = [], False
    for line in text.splitlines():
        same = _is_entry(line, entry["path"]) or (
            entry["path"] == "none" and any(old["src"] == entry["src"] for old in entries(line))
        )
        if not same:
            new.append(line)
        elif not placed:
            placed = True
            new.append(line_of(entry))
    return "".join(f"{line}\n" for line in (new if placed else [*new, line_of(entry)]))


def without_entry(text: str, path: str) -> str:
    """Return the text without the entry for this path."""
    return "".join(f"{line}\n" for line in text.splitlines() if not _is_entry(line, path))


def mounted() -> list[dict[str, str]]:
    """Return what is mounted now, the latest last."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            left, _, right = line.rstrip("\n").partition(" - ")
            words, end = left.split(), right.split()
            found.append(
                {"path": unescape(words[4]), "fstype": end[0], "src": unescape(end[1]), "opts": words[5]}
            )
    return found
