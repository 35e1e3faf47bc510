"""What two prompts may differ in, why each costs, and what to do: the vocabulary of differences."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Cause(enum.StrEnum):
    """Why two prompts part ways."""

    CONTINUES = "continues"
    """The later one is the earlier one and more: nothing is lost."""
    TAIL = "another question"
    """They differ from their last user message on: as it should be."""
    KIND = "another kind of request"
    """Their system texts have little in common: an agent and its titles, a coordinator and its subagents."""
    MOVING = "moving part"
    WHITE_SPACE = "white space"
    KEY_ORDER = "order of JSON keys"
    TOOL_ORDER = "order of tools"
    TOOLS = "other tools"
    LINE_ORDER = "order of lines"
    HISTORY = "rewritten history"
    SYSTEM = "other system text"
    SETTINGS = "other settings of the template"
    SALT = "cache salt"
    OTHER = "other text"
    SAME = "nothing differs"


EXPECTED = (Cause.CONTINUES, Cause.TAIL, Cause.KIND, Cause.SAME)
"""Causes that are no fault of anybody."""

ADVICE: Mapping[Cause, tuple[str, str]] = {
    Cause.CONTINUES: ("it only grows at its end", "nothing to do"),
    Cause.TAIL: ("only the conversation differs", "nothing to do"),
    Cause.KIND: ("it has a system text of its own", "nothing to do"),
    Cause.SAME: ("they are the same", "nothing to do"),
    Cause.MOVING: (
        "a part of it is made anew each time",
        "move it behind everything that stays, into the last user message",
    ),
    Cause.WHITE_SPACE: ("white space alone differs", "let the client send the text as it is, byte for byte"),
    Cause.KEY_ORDER: (
        "the same JSON with its keys in another order is other text to the template",
        "serialise with sorted keys, or keep the order in which they were read",
    ),
    Cause.TOOL_ORDER: ("the same tools come in another order", "sort tools by name before they are sent"),
    Cause.TOOLS: (
        "tools come and go, and the list stands at the front",
        "send all of them always, or give those that come and go to an agent of their own",
    ),
    Cause.LINE_ORDER: ("the same lines come in another order", "sort them"),
    Cause.HISTORY: (
        "an earlier message was changed or left out (compaction, dropped reasoning, edited results)",
        "compact seldom and much, never a little each turn; keep earlier messages byte for byte",
    ),
    Cause.SYSTEM: ("the system text differs", "keep the shared text first and byte for byte the same"),
    Cause.SETTINGS: (
        "what the chat template is given differs",
        "send the same `chat_template_kwargs` and `tool_choice` in every request",
    ),
    Cause.SALT: ("another `cache_salt` shares no block", "leave `cache_salt` out"),
    Cause.OTHER: ("the text differs", "keep shared text first and byte for byte the same"),
}
"""Why each cause costs, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first place where a later body departs from an earlier one."""

    cause: Cause
    kind: str
    """The kind of moving part, or the cause's own words."""
    path: str
    line: int
    earlier: str
    later: str
    why: str
    advice: str
    again: int
    """Characters behind it that are the same in both, and are computed again all the same."""

    @property
    def expected(self) -> bool:
        """Whether nothing is to be done about it."""
        return self.cause in EXPECTED

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "cause": str(self.cause),
            "kind": self.kind,
            "path": self.path,
            "line": self.line,
            "earlier": self.earlier,
            "later": self.later,
            "why": self.why,
            "advice": self.advice,
            "expected": self.expected,
        }


def explained(
    cause: Cause, path: str, texts: tuple[str, str], *, kind: str = "", line: int = 1, again: int = 0
) -> Difference:
    """Return a difference with its cause's own words; an expected one costs nothing."""
    why, advice = ADVICE[cause]
    return Difference(
        cause=cause,
        kind=kind or str(cause),
        path=path,
        line=line,
        earlier=texts[0],
        later=texts[1],
        why=why,
        advice=advice,
        again=0 if cause in EXPECTED else again,
    )
