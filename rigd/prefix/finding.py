"""One thing that is wrong with the beginning of a prompt: where, what, why it costs, what to do."""

import enum
from dataclasses import dataclass
from typing import Any


class Level(enum.StrEnum):
    """A warning costs prefill as soon as it moves; a note may."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found at one place."""

    level: Level
    kind: str
    source: str
    """File, or the name of a request in it."""
    line: int
    """Line of the file, or within the text at `path`; from 1."""
    path: str = ""
    """Place in a request body, such as `messages[0].content`; empty for a prompt file."""
    text: str
    """What stands there."""
    why: str
    advice: str
    tokens_behind: int = 0
    """About how many tokens behind it are read again when it moves."""

    @property
    def place(self) -> str:
        """Return where it is: `prompt.md:12`, or `body.json: messages[0].content, line 12`."""
        if not self.path:
            return f"{self.source}:{self.line}"
        return f"{self.source}: {self.path}" + (f", line {self.line}" if self.line > 1 else "")

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "level": str(self.level),
            "kind": self.kind,
            "place": self.place,
            "source": self.source,
            "line": self.line,
            "path": self.path or None,
            "text": self.text,
            "why": self.why,
            "advice": self.advice,
            "tokens_behind": self.tokens_behind,
        }
