"""Where two request bodies first differ, and why: a changed date, another order of tools, a rewritten history."""

import enum
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigd.prefix.hits import shared_length
from rigd.prefix.moving import moving_at
from rigd.prefix.pieces import Piece, as_json, pieces, tool_names

EXCERPT = 40
"""Characters on each side of a difference that are shown."""
_WORD = re.compile(r"\S")


class Cause(enum.StrEnum):
    """Why two prompts part ways."""

    CONTINUES = "continues"
    """The later one is the earlier one and more: nothing is lost."""
    TAIL = "another question"
    """They differ from their last user message on: as it should be."""
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


EXPECTED = (Cause.CONTINUES, Cause.TAIL, Cause.SAME)
"""Causes that are no fault of anybody."""

ADVICE: Mapping[Cause, tuple[str, str]] = {
    Cause.CONTINUES: ("it only grows at its end", "nothing to do"),
    Cause.TAIL: ("only the conversation differs", "nothing to do"),
    Cause.SAME: ("they are the same", "nothing to do"),
    Cause.MOVING: ("a part that is made anew each time stands before shared text", "move it to the end"),
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


def difference(earlier: dict[str, Any], later: dict[str, Any], *, tools_first: bool = False) -> Difference:
    """Return where `later` first differs from `earlier`, and why; `tools_first` as the template has it."""
    for key, cause in (
        ("cache_salt", Cause.SALT),
        ("chat_template_kwargs", Cause.SETTINGS),
        ("documents", Cause.SETTINGS),
    ):
        if earlier.get(key) != later.get(key):
            texts = as_json(earlier.get(key)), as_json(later.get(key))
            return _difference(cause, key, texts, again=sum(len(piece.text) for piece in pieces(later)))
    first, second = (pieces(body, tools_first=tools_first) for body in (earlier, later))
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if (one.role, one.text) != (other.role, other.text):
            return _of_pieces(earlier, later, first[index:], second[index:])
    if len(first) == len(second):
        return no_difference()
    if len(second) > len(first):
        return _difference(
            Cause.CONTINUES, second[len(first)].path, ("", _excerpt(second[len(first)].text, 0))
        )
    return _difference(Cause.TAIL, first[len(second)].path, (_excerpt(first[len(second)].text, 0), ""))


def no_difference() -> Difference:
    """Return what stands for two prompts of which one is, or begins, the other."""
    return _difference(Cause.SAME, "", ("", ""))


def _of_pieces(
    earlier: dict[str, Any], later: dict[str, Any], first: Sequence[Piece], second: Sequence[Piece]
) -> Difference:
    one, other = first[0], second[0]
    again = _again(first, second)
    if "tools" in (one.role, other.role):
        if (found := _of_tools(earlier, later, one, other, again)) is not None:
            return found
    elif one.role != other.role:
        texts = (f"{one.role}: {_excerpt(one.text, 0)}", f"{other.role}: {_excerpt(other.text, 0)}")
        return _difference(_structural(earlier, later, other), other.path, texts, again=again)
    at = shared_length(one.text, other.text)
    texts = (_excerpt(one.text, at), _excerpt(other.text, at))
    line = other.text.count("\n", 0, at) + 1
    cause, kind = _cause(one, other, at)
    if cause is Cause.OTHER:
        cause = _structural(earlier, later, other)
    return _difference(cause, other.path, texts, kind=kind, line=line, again=again)


def _of_tools(
    earlier: dict[str, Any], later: dict[str, Any], one: Piece, other: Piece, again: int
) -> Difference | None:
    names, new = tool_names(earlier), tool_names(later)
    path = other.path if other.role == "tools" else one.path
    if sorted(names) != sorted(new):
        gone = ", ".join(sorted(set(names) - set(new))) or "-"
        come = ", ".join(sorted(set(new) - set(names))) or "-"
        return _difference(Cause.TOOLS, path, (f"only here: {gone}", f"only here: {come}"), again=again)
    if names != new:
        at = shared_length(names, new)
        texts = (", ".join(names[at : at + 3]), ", ".join(new[at : at + 3]))
        return _difference(Cause.TOOL_ORDER, f"tools[{at}]", texts, again=again)
    return None


def _cause(one: Piece, other: Piece, at: int) -> tuple[Cause, str]:
    """Return the cause that the two texts themselves show."""
    if _words(one.text) == _words(other.text):
        return Cause.WHITE_SPACE, ""
    if _same_json(one.text, other.text):
        return Cause.KEY_ORDER, ""
    lines = one.text.splitlines(), other.text.splitlines()
    if len(lines[0]) > 1 and sorted(lines[0]) == sorted(lines[1]):
        return Cause.LINE_ORDER, ""
    if _space_alone(one.text[at:], other.text[at:]):
        return Cause.WHITE_SPACE, ""
    for text in (other.text, one.text):
        start = _word_start(text, at)
        if (found := moving_at(text, start, at + 1)) is not None:
            return Cause.MOVING, found.part.kind
    return Cause.OTHER, ""


def _structural(earlier: dict[str, Any], later: dict[str, Any], other: Piece) -> Cause:
    """Return what a difference means by where it stands in the conversation."""
    if other.static:
        return Cause.SYSTEM
    if other.message is None:
        return Cause.TAIL
    asked = min(_last_user(earlier), _last_user(later))
    return Cause.TAIL if other.message >= asked else Cause.HISTORY


def _last_user(body: dict[str, Any]) -> int:
    messages = body.get("messages", body.get("input"))
    if not isinstance(messages, list):
        return 0
    users = [
        index
        for index, message in enumerate(messages)
        if isinstance(message, dict) and message.get("role") == "user"
    ]
    return users[-1] if users else len(messages)


def _again(first: Sequence[Piece], second: Sequence[Piece]) -> int:
    """Return how many characters behind the first difference are the same in both."""
    if first[0].role != second[0].role:
        old = {(piece.role, piece.text) for piece in first}
        return sum(len(piece.text) for piece in second if (piece.role, piece.text) in old)
    old = {(piece.role, piece.text) for piece in first[1:]}
    same = sum(len(piece.text) for piece in second[1:] if (piece.role, piece.text) in old)
    one, other = first[0].text, second[0].text
    at = shared_length(one, other)
    most = min(len(one), len(other)) - at
    ending = min(most, shared_length(one[::-1], other[::-1]))
    lines = Counter(one[at:].splitlines()) & Counter(other[at:].splitlines())
    return same + max(ending, sum((len(line) + 1) * count for line, count in lines.items()))


def _difference(
    cause: Cause, path: str, texts: tuple[str, str], *, kind: str = "", line: int = 1, again: int = 0
) -> Difference:
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


def _space_alone(one: str, other: str) -> bool:
    """Whether two texts go on alike once the white space that they begin with is left out."""
    rest = one.lstrip()[:EXCERPT], other.lstrip()[:EXCERPT]
    return (one[:1].isspace() or other[:1].isspace()) and rest[0] == rest[1] != ""


def _words(text: str) -> str:
    return "".join(text.split())


def _same_json(one: str, other: str) -> bool:
    if one[:1] not in "{[" or other[:1] not in "{[":
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _word_start(text: str, at: int) -> int:
    """Return where the run of non-space that holds or ends at `at` begins."""
    start = min(at, len(text))
    while start > 0 and _WORD.match(text[start - 1]) and at - start < EXCERPT:
        start -= 1
    return start


def _excerpt(text: str, at: int) -> str:
    """Return the text around a place, on one line."""
    start = max(0, at - EXCERPT // 2)
    piece = text[start : at + EXCERPT]
    return ("..." if start else "") + " ".join(piece.split()) + ("..." if at + EXCERPT < len(text) else "")
