"""A number, and where it comes from."""

import enum
from dataclasses import dataclass


class Source(enum.StrEnum):
    """Where a number comes from."""

    COMPUTED = "computed"
    """By rigd, from the model's shape and the engine's settings."""
    READ = "read"
    """From the engine, its log, or the model's files."""
    STATED = "stated"
    """By a person, in the rig file or on the command line."""
    ASSUMED = "assumed"
    """By rigd, where nobody said anything; its error is given."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number with its origin; `error` is how far it may be off, in the same unit."""

    value: int
    source: Source
    note: str = ""
    error: int = 0

    def document(self) -> dict[str, object]:
        """Return it as JSON carries it."""
        return {"value": self.value, "source": self.source.value, "note": self.note, "error": self.error}
