"""JSON with comments, changed in place: what is not asked for keeps its every byte.

text -> parse() -> Node (values with their places) -> put(text, path, value) -> text

Comments (`//`, `/* */`) and trailing commas are allowed, as in the files of editors and agents. A value that is there
already is left as it is written; a new key goes behind the last one of its object, indented as its neighbours are.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEEPEST = 100
INDENT = "  "
_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
BYTE_ORDER_MARK = "\ufeff"


class JsoncError(ValueError):
    """A text that is no JSON, with the place (line and column from 1)."""

    def __init__(self, what: str, text: str, at: int) -> None:
        """Say what is wrong at an offset of the text."""
        self.what = what
        self.line = text.count("\n", 0, at) + 1
        self.column = at - (text.rfind("\n", 0, at) + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {what}")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One value and where it stands: `text[start:end]`."""

    start: int
    end: int
    value: Any
    members: Mapping[str, "Node"] | None = None
    """Of an object, the nodes of its keys; None: it is no object."""
    keys: Mapping[str, int]
    """Of an object, where each key begins."""


def parse(text: str) -> Node:
    """Return the value of a whole text. Raises `JsoncError`."""
    reader = _Reader(text)
    at = reader.space(_start(text))
    if at == len(text):
        raise JsoncError("there is nothing in it", text, at)
    node = reader.value(at, 0)
    end = reader.space(node.end)
    if end != len(text):
        raise JsoncError("more after the end of the value", text, end)
    return node


def is_empty(text: str) -> bool:
    """Return whether there is no value in a text: at most white space and comments. Raises `JsoncError`."""
    return _Reader(text).space(_start(text)) == len(text)


def _start(text: str) -> int:
    return 1 if text.startswith(BYTE_ORDER_MARK) else 0


def place(text: str, at: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset."""
    error = JsoncError("", text, at)
    return error.line, error.column


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with `value` at the path; objects on the way are made, all else stays as it is.

    Raises `JsoncError` for a text that is no JSON, or where something else than an object is in the way.
    """
    node = parse(text)
    for depth, key in enumerate(path):
        if node.members is None:
            way = ".".join(path[:depth]) or "the file"
            raise JsoncError(f"{way} is no object, so it cannot have '{key}'", text, node.start)
        inner = node.members.get(key)
        if inner is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _added(text, node, key, value)
        node = inner
    if _same(node.value, value):
        return text
    return text[: node.start] + _written(value, _indent(text, node.start), text) + text[node.end :]


def write(value: Any) -> str:
    """Return a value as a whole new file."""
    return json.dumps(value, indent=INDENT, ensure_ascii=False) + "\n"


def _same(first: Any, second: Any) -> bool:
    """Return whether two values are written alike: true is not 1, and the order of keys counts for nothing."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _added(text: str, node: Node, key: str, value: Any) -> str:
    """Return the text with a key more at the end of an object."""
    close = node.end - 1
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _indent(text, node.start)
    last = max((one.end for one in (node.members or {}).values()), default=None)
    first = min(node.keys.values(), default=None)
    in_lines = first is None or "\n" in text[node.start : first]
    inner = _indent(text, first) if first is not None and in_lines else outer + _step(text)
    member = f"{json.dumps(key, ensure_ascii=False)}: {_written(value, inner, text)}"
    if last is None:
        kept = text[node.start + 1 : close].rstrip()  # comments of an object that is empty
        return f"{text[: node.start + 1]}{kept}{newline}{inner}{member}{newline}{outer}{text[close:]}"
    comma = _Reader(text).space(last)
    trailing = text[comma] == ","
    behind = comma + 1 if trailing else last
    tail = text[behind:close]
    kept = tail.rstrip()
    sign = "" if trailing else ","
    if not in_lines and "//" not in kept:
        return f"{text[:behind]}{sign}{kept} {member}{tail[len(kept) :]}{text[close:]}"
    end = "," if trailing else ""
    return f"{text[:behind]}{sign}{kept}{newline}{inner}{member}{end}{newline}{outer}{text[close:]}"


def _written(value: Any, indent: str, text: str) -> str:
    """Return a value as text whose lines go on at an indent."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, indent=_step(text), ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)


def _indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line of an offset."""
    line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(BYTE_ORDER_MARK)
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    """Return what one level is indented by in this text."""
    found = re.search(r'\n([ \t]+)"', text)
    return found.group(1) if found else INDENT


class _Reader:
    """Reads values from a text, by offset."""

    def __init__(self, text: str) -> None:
        self.text = text

    def space(self, at: int) -> int:
        """Return where white space and comments end."""
        found = _SPACE.match(self.text, at)
        end = at if found is None else found.end()
        if self.text.startswith("/*", end):
            raise JsoncError("a comment that does not end", self.text, end)
        return end

    def value(self, at: int, depth: int) -> Node:
        if depth > DEEPEST:
            raise JsoncError("nested too deeply", self.text, at)
        sign = self.text[at : at + 1]
        if sign == "{":
            return self._object(at, depth)
        if sign == "[":
            return self._array(at, depth)
        if sign == '"':
            value, end = self.string(at)
            return Node(start=at, end=end, value=value, keys={})
        found = _WORD.match(self.text, at)
        if found is None:
            what = f"'{sign}' where a value was expected" if sign else "it ends where a value was expected"
            raise JsoncError(what, self.text, at)
        return Node(start=at, end=found.end(), value=json.loads(found.group()), keys={})

    def string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self.text, at)
        if found is None:
            raise JsoncError("a text in quotes that does not end on its line", self.text, at)
        try:
            return str(json.loads(found.group())), found.end()
        except ValueError:
            raise JsoncError("an unknown escape in this text", self.text, at) from None

    def _object(self, at: int, depth: int) -> Node:
        members: dict[str, Node] = {}
        keys: dict[str, int] = {}
        start, at = at, self.space(at + 1)
        while self._more(at, "}", "a key in quotes, or }"):
            if self.text[at] != '"':
                raise JsoncError(f"'{self.text[at]}' where a key in quotes was expected", self.text, at)
            key, end = self.string(at)
            if key in keys:
                raise JsoncError(f"the key '{key}' is there twice", self.text, at)
            keys[key] = at
            at = self.space(end)
            if self.text[at : at + 1] != ":":
                raise JsoncError(f"a colon is missing after '{key}'", self.text, at)
            members[key] = self.value(self.space(at + 1), depth + 1)
            at = self._next(members[key].end, "}", start)
        value = {key: node.value for key, node in members.items()}
        return Node(start=start, end=at + 1, value=value, members=members, keys=keys)

    def _array(self, at: int, depth: int) -> Node:
        found: list[Any] = []
        start, at = at, self.space(at + 1)
        while self._more(at, "]", "a value, or ]"):
            node = self.value(at, depth + 1)
            found.append(node.value)
            at = self._next(node.end, "]", start)
        return Node(start=start, end=at + 1, value=found, keys={})

    def _more(self, at: int, close: str, expected: str) -> bool:
        """Return whether another member begins here."""
        if at >= len(self.text):
            raise JsoncError(f"it ends where {expected} was expected", self.text, at)
        return self.text[at] != close

    def _next(self, at: int, close: str, opened: int) -> int:
        """Return where the next member or the end stands, past one comma."""
        at = self.space(at)
        sign = self.text[at : at + 1]
        if sign == ",":
            return self.space(at + 1)
        if sign != close:
            line, column = place(self.text, opened)
            what = f"a comma or {close} is missing (opened in line {line}, column {column})"
            raise JsoncError(what, self.text, at)
        return at
