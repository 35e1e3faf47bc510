"""One thing that is wrong, or doubtful, about a rig: where, what, and what to do."""

import enum
import re
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """An error stops a launch; a warning is told and goes by."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence about one key of a rig file."""

    severity: Severity
    key: str
    """Path of the key, for example `engine.docker.mounts[0].target`."""
    sentence: str
    hint: str | None = None

    def __str__(self) -> str:
        """Return it on one line, without the place in the file."""
        tail = f"; {self.hint}" if self.hint else ""
        return f"{self.key}: {self.sentence}{tail}"


def key_text(path: tuple[str | int, ...]) -> str:
    """Return a key path as people write it: names with dots, places in lists in brackets."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def error(key: str, sentence: str, hint: str | None = None) -> Finding:
    """Return a finding that stops a launch."""
    return Finding(severity=Severity.ERROR, key=key, sentence=sentence, hint=hint)


def warning(key: str, sentence: str, hint: str | None = None) -> Finding:
    """Return a finding that is told and goes by."""
    return Finding(severity=Severity.WARNING, key=key, sentence=sentence, hint=hint)


def errors(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings that stop a launch."""
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


def key_path(text: str) -> tuple[str | int, ...]:
    """Return the key path that `key_text` made a text of."""
    parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", text)
    return tuple(int(number) if number else name for number, name in parts)
