"""A request body as the pieces of text that its prompt is made of, in the order in which templates put them.

The real order is the chat template's; this one (system, tools, conversation) is how most write it, and serves
where no engine is there to ask.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from rigd.prefix.anthropic import BILLING

CHARACTERS_PER_TOKEN = 4
"""Of English and code, about; used where no tokenizer can be asked."""
_DATA = re.compile(r"(?<=[\",])[A-Za-z0-9+/]{200,}={0,2}(?=\")")
"""Pictures and sounds in base64."""
SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One text of a prompt and where it stands in the body."""

    path: str
    role: str
    """`system`, `tools`, `user`, `assistant`, `tool`, ..."""
    message: int | None
    """Index of its message; None for what stands outside the messages."""
    text: str

    @property
    def static(self) -> bool:
        """Whether it should be the same in every request of its kind."""
        return self.role in ("tools", *SYSTEM_ROLES)


def pieces(body: dict[str, Any], *, tools_first: bool = False) -> tuple[Piece, ...]:
    """Return the pieces of a body: OpenAI's chat, completions and responses, and Anthropic's messages.

    `tools_first`: the template puts the tools before the system text (Qwen3.5's), not behind it (Qwen3's).
    """
    outside = [
        piece for key in ("system", "instructions") for piece in _texts(body.get(key), key, "system", None)
    ]
    spoken = [piece for key in ("messages", "input") for piece in _messages(body.get(key), key)]
    leading = _leading_system(spoken)
    system, tools = (*outside, *spoken[:leading]), tuple(_tools(body.get("tools")))
    found = (
        *((*tools, *system) if tools_first else (*system, *tools)),
        *spoken[leading:],
        *_texts(body.get("prompt"), "prompt", "user", None),
    )
    return tuple(piece for piece in found if not (piece.static and piece.text.startswith(BILLING)))


def tool_name(tool: Any) -> str:
    """Return a tool's name in any of the formats, or its text."""
    if isinstance(tool, dict):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else tool.get("name") or tool.get("type")
        if isinstance(name, str):
            return name
    return as_json(tool)


def tool_names(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of a body's tools, in its order."""
    tools = body.get("tools")
    return tuple(tool_name(tool) for tool in tools) if isinstance(tools, list) else ()


def as_text(body: dict[str, Any], *, tools_first: bool = False) -> str:
    """Return the prompt as one text, for comparing where no engine can be asked."""
    return "".join(f"<{piece.role}>\n{piece.text}\n" for piece in pieces(body, tools_first=tools_first))


def about_tokens(characters: int) -> int:
    """Return about how many tokens so many characters are."""
    return characters // CHARACTERS_PER_TOKEN


def as_json(value: Any) -> str:
    """Return a value as templates print it: keys in the order in which the client sent them."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _part_text(part: Any) -> str:
    """Return a part that is no text; pictures and sounds as their digest: they are no characters of the prompt."""
    return _DATA.sub(lambda match: f"sha256:{sha256(match[0].encode()).hexdigest()}", as_json(part))


def _leading_system(spoken: list[Piece]) -> int:
    for index, piece in enumerate(spoken):
        if piece.role not in SYSTEM_ROLES:
            return index
    return len(spoken)


def _tools(tools: Any) -> Iterator[Piece]:
    if isinstance(tools, list):
        for index, tool in enumerate(tools):
            yield Piece(path=f"tools[{index}]", role="tools", message=None, text=as_json(tool))


def _messages(messages: Any, key: str) -> Iterator[Piece]:
    if isinstance(messages, str):
        yield Piece(path=key, role="user", message=0, text=messages)
        return
    if not isinstance(messages, list):
        return
    for index, message in enumerate(messages):
        path = f"{key}[{index}]"
        if not isinstance(message, dict):
            yield Piece(path=path, role="unknown", message=index, text=as_json(message))
            continue
        role = message.get("role") or message.get("type") or "unknown"
        role = role if isinstance(role, str) else "unknown"
        yield from _texts(message.get("content"), f"{path}.content", role, index)
        for name in ("reasoning_content", "reasoning", "tool_calls", "arguments", "output"):
            if message.get(name):
                value = message[name]
                text = value if isinstance(value, str) else as_json(value)
                yield Piece(path=f"{path}.{name}", role=role, message=index, text=text)


def _texts(content: Any, path: str, role: str, message: int | None) -> Iterator[Piece]:
    if isinstance(content, str):
        yield Piece(path=path, role=role, message=message, text=content)
    elif isinstance(content, list):
        for index, part in enumerate(content):
            inner = part.get("text") if isinstance(part, dict) else part
            if isinstance(inner, str):
                where = f"{path}[{index}].text" if isinstance(part, dict) else f"{path}[{index}]"
                yield Piece(path=where, role=role, message=message, text=inner)
            else:
                yield Piece(path=f"{path}[{index}]", role=role, message=message, text=_part_text(part))
    elif content is not None:
        yield Piece(path=path, role=role, message=message, text=as_json(content))
