"""Arguments written as text: `copy: src=a dest=b`, and `command: ls -l creates=/x`. Pure."""

import re
from collections.abc import Iterator

_NAME = re.compile(r"([A-Za-z_]\w*)=")
_SPACE = " \t\n"


def key_values(text: str) -> tuple[dict[str, str], str]:
    """Return the `name=value` pairs of a text and what is left besides."""
    found: dict[str, str] = {}
    rest: list[str] = []
    for start, end in _words(text):
        word = text[start:end]
        if match := _NAME.match(word):
            found[match[1]] = unquoted(word[match.end() :])
        else:
            rest.append(word)
    return found, " ".join(rest)


def free_text(text: str, names: frozenset[str]) -> tuple[dict[str, str], str]:
    """Return the pairs whose names are arguments, and the text without them, otherwise just as written."""
    found: dict[str, str] = {}
    kept: list[str] = []
    at = 0
    for start, end in _words(text):
        match = _NAME.match(text[start:end])
        if match is None or match[1] not in names:
            continue
        found[match[1]] = unquoted(text[start + match.end() : end])
        kept.append(text[at:start])
        at = end
    kept.append(text[at:])
    return found, "".join(kept).strip()


def unquoted(text: str) -> str:
    """Return a text without the quotes around it, if it has some."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].replace("\\" + text[0], text[0])
    return text


def _words(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each word; spaces within quotes and templates part no words."""
    start: int | None = None
    quote = ""
    depth = 0
    at = 0
    while at < len(text):
        char = text[at]
        pair = text[at : at + 2]
        step = 1
        if pair in {"{{", "{%"}:
            depth += 1
            step = 2
        elif pair in {"}}", "%}"} and depth:
            depth -= 1
            step = 2
        elif depth == 0 and char == "\\" and quote != "'":
            step = 2
        elif depth == 0 and char in "\"'":
            quote = char if not quote else "" if quote == char else quote
        elif depth == 0 and not quote and char in _SPACE:
            if start is not None:
                yield start, at
                start = None
            at += 1
            continue
        if start is None:
            start = at
        at += step
    if start is not None:
        yield start, len(text)
