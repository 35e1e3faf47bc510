"""The longest beginning that all requests of a kind share, as a request body that can be warmed.

The rig file's `request: FILE` drops the last user message: it is the tail. So what is written here is the shared
messages, then a user message that stands for any question.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import PurePath
from typing import Any

from rigd.prefix.anthropic import as_chat
from rigd.prefix.hits import shared_length
from rigd.prefix.kinds import RequestKind

TAIL = "(any question)"
"""Stands for what each request asks; never sent."""
LEAST_TEXT = 64
"""Characters of a message's shared beginning that are worth keeping."""
SHARED_KEYS = ("tools", "tool_choice", "chat_template_kwargs", "documents")
"""What else of a body the template reads, as the warm-up sends it."""
OTHER_APIS = ("instructions", "input")
"""Keys of bodies that are and become no chat completions, which is what is sent to warm."""
WRAPPERS = (
    "python",
    "python3",
    "node",
    "npx",
    "npm",
    "bun",
    "bunx",
    "uv",
    "uvx",
    "sh",
    "bash",
    "env",
    "nice",
)
"""Commands that only start the client."""

Body = dict[str, Any]


def common_prefixes(kind: RequestKind) -> tuple[Body, ...]:
    """Return bodies of what all conversations of a kind begin with, the longest first; none if nothing is shared.

    The second, where there is one, leaves out the user message whose beginning alone is shared: some templates
    refuse two user messages in a row.
    """
    bodies = [as_chat(one.body) for one in kind.openings]
    messages = [body.get("messages") for body in bodies]
    if not bodies or any(not isinstance(found, list) for found in messages):
        return ()
    if any(key in body for body in bodies for key in OTHER_APIS):
        return ()
    shared = _shared_messages([list(found) for found in messages if isinstance(found, list)])
    if not shared:
        return ()
    head: Body = {"model": kind.model} if kind.model else {}
    head |= {
        key: deepcopy(bodies[0][key])
        for key in SHARED_KEYS
        if key in bodies[0] and all(body.get(key) == bodies[0][key] for body in bodies)
    }
    if "tools" not in head and any(body.get("tools") for body in bodies):
        head["tools"] = _most_frequent([body.get("tools") or [] for body in bodies])
    candidates = [shared]
    if shared[-1].get("role") == "user" and len(shared) > 1:
        candidates.append(shared[:-1])
    return tuple({**head, "messages": [*found, {"role": "user", "content": TAIL}]} for found in candidates)


def common_tokens(prompts: Sequence[tuple[int, ...]]) -> int:
    """Return how many tokens all of the prompts begin with."""
    return min((shared_length(prompts[0], other) for other in prompts[1:]), default=len(prompts[0]))


def prefix_names(count: int, command: Sequence[str]) -> tuple[str, ...]:
    """Return names for so many prefixes, after the client: `opencode`, `opencode-2`, ..."""
    base = client_name(command)
    return tuple(base if number == 1 else f"{base}-{number}" for number in range(1, count + 1))


def client_name(command: Sequence[str]) -> str:
    """Return a name for what a command runs, fit for a rig file."""
    for word in command:
        name = PurePath(word).name.lower()
        stem = re.sub(r"\.(py|js|mjs|ts|sh|exe)$", "", name)
        if (
            word.startswith("-")
            or "=" in word
            or re.fullmatch(r"(python|node)?[\d.]*", stem)
            or stem in WRAPPERS
        ):
            continue
        slug = re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:40]
        if slug:
            return slug
    return "client"


def yaml_lines(paths: Mapping[str, str]) -> tuple[str, ...]:
    """Return what to add to the rig file so that these prefixes (name to file) are warmed."""
    lines = ["prefixes:"]
    for name, path in paths.items():
        lines += [f"  - name: {name}", f"    request: {_quoted(path)}"]
    return tuple(lines)


def _quoted(path: str) -> str:
    plain = re.fullmatch(r"[\w./~+@-]+", path) is not None
    escaped = path.replace("'", "''")
    return path if plain else f"'{escaped}'"


def _shared_messages(conversations: list[list[Any]]) -> list[dict[str, Any]]:
    """Return the messages that all begin with, the last of them possibly cut where they part ways.

    A conversation that stands alone shares what stands before its first answer's question: nothing says what
    of the question others would ask, too.
    """
    if len(conversations) == 1:
        messages = conversations[0]
        first_user = next(
            (at for at, message in enumerate(messages) if _role(message) == "user"), len(messages)
        )
        return [deepcopy(message) for message in messages[:first_user] if isinstance(message, dict)]
    shared: list[dict[str, Any]] = []
    for column in zip(*conversations, strict=False):
        first = column[0]
        if not isinstance(first, dict):
            break
        if all(message == first for message in column[1:]):
            shared.append(deepcopy(first))
            continue
        cut = _cut(list(column))
        return [*shared, cut] if cut is not None else shared
    return _without_question(shared)


def _cut(column: list[Any]) -> dict[str, Any] | None:
    """Return a message with the beginning that all of these share, if it is worth keeping."""
    if len({_role(message) for message in column}) != 1 or _role(column[0]) not in (
        "system",
        "developer",
        "user",
    ):
        return None
    texts = [message.get("content") for message in column]
    if all(isinstance(text, str) for text in texts):
        text = _shared_text([str(text) for text in texts])
        return {"role": _role(column[0]), "content": text} if len(text) >= LEAST_TEXT else None
    if all(isinstance(text, list) for text in texts):
        parts = _shared_parts([list(text) for text in texts if isinstance(text, list)])
        return {"role": _role(column[0]), "content": parts} if parts else None
    return None


def _shared_parts(contents: list[list[Any]]) -> list[Any]:
    kept: list[Any] = []
    for column in zip(*contents, strict=False):
        if all(part == column[0] for part in column[1:]):
            kept.append(deepcopy(column[0]))
            continue
        texts = [
            part["text"] for part in column if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        if len(texts) == len(column) and len(text := _shared_text(texts)) >= LEAST_TEXT:
            kept.append({"type": "text", "text": text})
        break
    return kept


def _shared_text(texts: list[str]) -> str:
    length = min((shared_length(texts[0], other) for other in texts[1:]), default=len(texts[0]))
    return texts[0][:length]


def _without_question(shared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages up to the last question that all ask: equal conversations would be taken whole."""
    return shared[:-1] if shared and _role(shared[-1]) == "user" else shared


def _most_frequent(lists: list[list[Any]]) -> list[Any]:
    return deepcopy(max(lists, key=lambda tools: sum(other == tools for other in lists)))


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""
