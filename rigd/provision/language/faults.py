"""What is wrong with the files of a playbook: a place and a sentence each, all of them told at once."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rigd.errors import UsageError
from rigd.provision.language.model import Place

MOST_SHOWN = 50


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One mistake of a file: where, and a sentence that says what to write instead."""

    place: Place
    sentence: str

    def __str__(self) -> str:
        return f"{shown(self.place.file)}:{self.place.line}:{self.place.column}: {self.sentence}"


class PlaybookError(UsageError):
    """A playbook, role, inventory or file of variables cannot be used; `faults` holds every reason."""

    def __init__(self, subject: str, faults: Iterable[Fault], *, hint: str | None = None) -> None:
        """`subject` completes "cannot use": "the playbook 'site.yml'"."""
        self.faults = tuple(sorted(set(faults), key=_by_place))
        lines = [f"  {fault}" for fault in self.faults[:MOST_SHOWN]]
        if len(self.faults) > MOST_SHOWN:
            lines.append(f"  ... and {len(self.faults) - MOST_SHOWN} more")
        super().__init__("\n".join((f"cannot use {subject}:", *lines)), hint=hint)


def _by_place(fault: Fault) -> tuple[str, int, int, str]:
    return str(fault.place.file), fault.place.line, fault.place.column, fault.sentence


def shown(path: Path) -> str:
    """Return a path as people like to read it: relative where it lies below the present folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def kind_of(value: object) -> str:
    """Return what a value is, for a person: "a mapping", "text", ..."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), type(value).__name__)


_KINDS: tuple[tuple[type, str], ...] = (
    (type(None), "nothing (null)"),
    (bool, "a boolean"),
    (Mapping, "a mapping"),
    (list, "a list"),
    (str, "text"),
    (int, "a number"),
    (float, "a number"),
)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the name that looks most like this one, or nothing."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.65)
    return f"; did you mean '{found[0]}'?" if found else ""
