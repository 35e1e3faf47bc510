"""Where two request bodies first differ, and why: a changed date, another order of tools, a rewritten history."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rigd.prefix.differences import Cause, Difference, explained
from rigd.prefix.hits import shared_length
from rigd.prefix.moving import moving_at
from rigd.prefix.pieces import Piece, as_json, pieces, tool_names

EXCERPT = 40
"""Characters on each side of a difference that are shown."""
LONGEST_INSERT = 200
"""Characters of what one text has and the other lacks in which a moving part is looked for."""
LEAST_SAID = 8
"""Characters of a text from which on two do not come to be the same by chance."""
_WORD = re.compile(r"\S")


def difference(earlier: dict[str, Any], later: dict[str, Any], *, tools_first: bool = False) -> Difference:
    """Return where `later` first differs from `earlier`, and why; `tools_first` as the template has it."""
    for key, cause in (
        ("cache_salt", Cause.SALT),
        ("chat_template_kwargs", Cause.SETTINGS),
        ("documents", Cause.SETTINGS),
    ):
        if earlier.get(key) != later.get(key):
            texts = as_json(earlier.get(key)), as_json(later.get(key))
            return explained(cause, key, texts, again=sum(len(piece.text) for piece in pieces(later)))
    first, second = (pieces(body, tools_first=tools_first) for body in (earlier, later))
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if (one.role, one.text) != (other.role, other.text):
            return _of_pieces(earlier, later, first[index:], second[index:])
    if len(first) == len(second):
        return no_difference()
    if len(second) > len(first):
        return explained(Cause.CONTINUES, second[len(first)].path, ("", _excerpt(second[len(first)].text, 0)))
    return explained(Cause.TAIL, first[len(second)].path, (_excerpt(first[len(second)].text, 0), ""))


def no_difference() -> Difference:
    """Return what stands for two prompts of which one is, or begins, the other."""
    return explained(Cause.SAME, "", ("", ""))


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
        return explained(_structural(earlier, later, first, second), other.path, texts, again=again)
    at = shared_length(one.text, other.text)
    line = other.text.count("\n", 0, at) + 1
    cause, kind = _cause(one, other, at)
    excerpt = _excerpt if cause is not Cause.WHITE_SPACE else _spaced_excerpt
    texts = (excerpt(one.text, at), excerpt(other.text, at))
    if cause is Cause.OTHER:
        cause = _structural(earlier, later, first, second)
    return explained(cause, other.path, texts, kind=kind, line=line, again=again)


def _of_tools(
    earlier: dict[str, Any], later: dict[str, Any], one: Piece, other: Piece, again: int
) -> Difference | None:
    names, new = tool_names(earlier), tool_names(later)
    path = other.path if other.role == "tools" else one.path
    if sorted(names) != sorted(new):
        gone = ", ".join(sorted(set(names) - set(new))) or "-"
        come = ", ".join(sorted(set(new) - set(names))) or "-"
        return explained(Cause.TOOLS, path, (f"only here: {gone}", f"only here: {come}"), again=again)
    if names != new:
        at = shared_length(names, new)
        texts = (", ".join(names[at : at + 3]), ", ".join(new[at : at + 3]))
        return explained(Cause.TOOL_ORDER, f"tools[{at}]", texts, again=again)
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
    alike = _ending(one.text, other.text, at)
    for text in (other.text, one.text):
        end = min(len(text) - alike, at + LONGEST_INSERT)
        if (moving := moving_at(text, _word_start(text, at), max(at + 1, end))) is not None:
            return Cause.MOVING, moving.part.kind
    return Cause.OTHER, ""


def _structural(
    earlier: dict[str, Any], later: dict[str, Any], first: Sequence[Piece], second: Sequence[Piece]
) -> Cause:
    """Return what a difference means by where it stands in the conversation."""
    one, other = first[0], second[0]
    if other.static:
        return Cause.SYSTEM
    if one.message is None or other.message is None:
        return Cause.TAIL
    if min(one.message, other.message) < min(_last_user(earlier), _last_user(later)):
        return Cause.HISTORY
    # Turns of an agent that answer one question: what stands behind the difference in both was said before.
    return Cause.HISTORY if one.role != "user" and _said_in_both(first[1:], second[1:]) else Cause.TAIL


def _said_in_both(first: Sequence[Piece], second: Sequence[Piece]) -> bool:
    said = {(piece.role, piece.text) for piece in first if len(piece.text) >= LEAST_SAID}
    return any((piece.role, piece.text) in said for piece in second)


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
    lines = Counter(one[at:].splitlines()) & Counter(other[at:].splitlines())
    return same + max(_ending(one, other, at), sum((len(line) + 1) * count for line, count in lines.items()))


def _ending(one: str, other: str, at: int) -> int:
    """Return how many characters two texts that differ at `at` end alike with."""
    most = min(len(one), len(other)) - at
    return min(most, shared_length(one[: -most - 1 : -1], other[: -most - 1 : -1])) if most else 0


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


def _spaced_excerpt(text: str, at: int) -> str:
    """Return the text around a place with its white space as escapes: it is what differs."""
    start, end = max(0, at - EXCERPT // 2), at + EXCERPT // 2
    return ("..." if start else "") + repr(text[start:end])[1:-1] + ("..." if end < len(text) else "")
