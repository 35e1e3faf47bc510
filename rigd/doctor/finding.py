"""One thing that a check found: how much it matters, in a sentence with the evidence, and what mends it. Pure."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]


class Severity(enum.StrEnum):
    """How much it matters."""

    ERROR = "error"
    """The engine cannot start or serve, or soon will not."""
    WARNING = "warning"
    """It works, and will bite: after an update, a reboot, under load."""
    INFO = "info"
    """Worth knowing; nothing needs to be done."""
    OK = "ok"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence, and the playbook or command that mends it."""

    check: str
    severity: Severity
    sentence: str
    mend: str = ""


def ok(check: str, sentence: str) -> Finding:
    """Return that all is well."""
    return Finding(check=check, severity=Severity.OK, sentence=sentence)


def info(check: str, sentence: str, mend: str = "") -> Finding:
    """Return what is worth knowing."""
    return Finding(check=check, severity=Severity.INFO, sentence=sentence, mend=mend)


def warning(check: str, sentence: str, mend: str) -> Finding:
    """Return what will bite."""
    return Finding(check=check, severity=Severity.WARNING, sentence=sentence, mend=mend)


def error(check: str, sentence: str, mend: str) -> Finding:
    """Return what keeps the engine from serving."""
    return Finding(check=check, severity=Severity.ERROR, sentence=sentence, mend=mend)


def playbook(name: str, *, variables: str = "") -> str:
    """Return the command that applies one of rigd's playbooks."""
    return f"rigd provision apply playbooks/{name}.yml{f' -e {variables}' if variables else ''}"


def number(version: str) -> tuple[int, ...]:
    """Return a version for comparing: of `13.0` (13, 0); of what is none ()."""
    parts = []
    for part in version.split("."):
        digits = part[: next((place for place, letter in enumerate(part) if not letter.isdigit()), len(part))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


def unknown(facts: Facts, part: str) -> str | None:
    """Return why a part of the facts is not known; None where it is."""
    found = facts.get(part)
    if isinstance(found, Mapping) and set(found) == {"error"}:
        return str(found["error"])
    return None if found is not None else "was not looked at"
