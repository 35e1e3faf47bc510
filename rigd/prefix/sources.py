"""What a file holds: a prompt, a list of tools, one request body, or many. Text in, values out.

{"messages": [...], ...}   a body          [{...}, {...}]   a sequence of bodies, or a `tools` array
one body a line            a sequence      anything else    a prompt
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

BODY_KEYS = ("messages", "prompt", "input")
"""A JSON object with one of these is a request body."""
WRAPPERS = ("body", "request")
"""Keys under which recorders put the body."""
JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
BYTE_ORDER_MARK = "\ufeff"
NO_TEXT: Mapping[bytes, str] = {
    b"\x1f\x8b": "it is packed with gzip: unpack it first (`gunzip -k FILE`)",
    b"\xff\xfe": "it is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "it is UTF-16 text: save it as UTF-8",
    b"data: {": "it is a stream of an answer: the linter reads prompts and the bodies of requests",
    b"event: ": "it is a stream of an answer: the linter reads prompts and the bodies of requests",
}
"""How files begin that are no prompts and no bodies, and what is said of them."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt file's text."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A request body and where it came from."""

    name: str
    body: dict[str, Any]


def parse(name: str, content: bytes) -> tuple[Prompt, ...] | tuple[Recorded, ...]:
    """Return what a file holds. Raises `ValueError` with a sentence that names the place in it."""
    for start, what in NO_TEXT.items():
        if content.startswith(start):
            raise ValueError(what)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        # The place is said; the codec's own sentence would say it again.
        raise ValueError(f"line {line}: byte 0x{content[error.start]:02x} is not UTF-8 text") from None
    ending = PurePath(name).suffix.lower()
    if ending in (".jsonl", ".ndjson"):
        return _lines(name, text.removeprefix(BYTE_ORDER_MARK))
    if ending == ".json" or text.removeprefix(BYTE_ORDER_MARK).lstrip()[:1] in ("{", "["):
        found = _json(text.removeprefix(BYTE_ORDER_MARK), strict=ending == ".json")
        if found is not None:
            return _bodies(name, found)
    return (Prompt(name=name, text=text),)


def _json(text: str, *, strict: bool) -> Any:
    """Return the value, or None for a text that merely begins like JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if strict:
            raise ValueError(f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
        return None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply for a request body") from None


def _lines(name: str, text: str) -> tuple[Recorded, ...]:
    found: list[Recorded] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            message = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise ValueError(f"line {number} is not JSON: {message}") from None
        found.append(Recorded(name=f"{name}:{number}", body=_certain(value, f"line {number}")))
    if not found:
        raise ValueError("there is no request body in it")
    return tuple(found)


def _bodies(name: str, value: Any) -> tuple[Recorded, ...]:
    if isinstance(value, list) and value and all(_is_tool(item) for item in value):
        return (Recorded(name=name, body={"messages": [], "tools": value}),)
    if isinstance(value, list) and value:
        return tuple(
            Recorded(name=f"{name}[{index}]", body=_certain(item, f"[{index}]"))
            for index, item in enumerate(value)
        )
    return (Recorded(name=name, body=_certain(value, "the JSON")),)


def _certain(value: Any, place: str) -> dict[str, Any]:
    """Return the body in a value. Raises `ValueError` that names the place and what is amiss."""
    body = _body(value)
    if body is None:
        raise ValueError(f"{place} is no request body: it has none of {', '.join(BODY_KEYS)}")
    if "messages" in body and not isinstance(body["messages"], list):
        raise ValueError(f"{place} is no request body: its `messages` are no list")
    if not any(isinstance(body.get(key), str | list) for key in BODY_KEYS):
        raise ValueError(f"{place} is no request body: it has no text in {', '.join(BODY_KEYS)}")
    return body


def _body(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    if any(key in value for key in BODY_KEYS):
        return value
    return next((body for key in WRAPPERS if (body := _body(value.get(key))) is not None), None)


def _is_tool(value: Any) -> bool:
    return isinstance(value, dict) and ("function" in value or ("name" in value and "messages" not in value))
