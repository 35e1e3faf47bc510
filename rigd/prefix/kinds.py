"""Which requests belong together: the same model and tools, and nearly the same system text.

A conversation sends its whole history with every turn; only its opening says what is shared with others.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rigd.prefix.pieces import SYSTEM_ROLES, as_text, pieces, tool_names
from rigd.prefix.sources import Recorded

ALIKE = 0.5
"""Share of word triples, or of tools, that two requests of one kind have in common at least."""
KEPT_TEXTS = 64
"""System texts whose words are remembered: every turn of a conversation brings the same."""
_WORDS = re.compile(r"\w+")
_TRIPLE = 3


@dataclass(frozen=True, kw_only=True)
class RequestKind:
    """Requests that should share a beginning."""

    requests: tuple[Recorded, ...]

    @property
    def model(self) -> str:
        """The model that they name."""
        model = self.requests[0].body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def tools(self) -> int:
        """How many tools the first of them has."""
        return len(tool_names(self.requests[0].body))

    @property
    def openings(self) -> tuple[Recorded, ...]:
        """The first request of each conversation: those that continue no other."""
        return tuple(
            one
            for index, one in enumerate(self.requests)
            if not any(
                continues(other.body, one.body) for at, other in enumerate(self.requests) if at != index
            )
            and not any(_messages(other.body) == _messages(one.body) for other in self.requests[:index])
        )


def kinds(recorded: Sequence[Recorded]) -> tuple[RequestKind, ...]:
    """Return the requests by kind, the kind with most text first: what a client is there for, before its chores."""
    groups: list[tuple[_Signs, list[Recorded]]] = []
    for one in recorded:
        signs = _Signs.of(one.body)
        group = next((members for known, members in groups if known.alike(signs)), None)
        if group is None:
            groups.append((signs, [one]))
        else:
            group.append(one)
    ordered = sorted(groups, key=lambda group: -sum(len(as_text(one.body)) for one in group[1]))
    return tuple(RequestKind(requests=tuple(members)) for _, members in ordered)


def continues(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    """Return whether a request goes on from another: the same messages, and more."""
    first, second = _messages(earlier), _messages(later)
    return 0 < len(first) < len(second) and second[: len(first)] == first


def alike_systems(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two requests have nearly the same system text, or none of them has any."""
    return _overlap(_triples(_system(one)), _triples(_system(other))) >= ALIKE


@dataclass(frozen=True, kw_only=True)
class _Signs:
    """What tells kinds apart."""

    model: str
    tools: frozenset[str]
    words: frozenset[tuple[str, ...]]

    @staticmethod
    def of(body: dict[str, Any]) -> "_Signs":
        return _Signs(
            model=str(body.get("model")), tools=frozenset(tool_names(body)), words=_triples(_system(body))
        )

    def alike(self, other: "_Signs") -> bool:
        return (
            self.model == other.model
            and _overlap(self.tools, other.tools) >= ALIKE
            and _overlap(self.words, other.words) >= ALIKE
        )


def _system(body: dict[str, Any]) -> str:
    return "\n".join(piece.text for piece in pieces(body) if piece.role in SYSTEM_ROLES)


@functools.lru_cache(maxsize=KEPT_TEXTS)
def _triples(text: str) -> frozenset[tuple[str, ...]]:
    words = _WORDS.findall(text)
    return frozenset(zip(*(words[at:] for at in range(_TRIPLE)), strict=False))


def _overlap(one: frozenset[Any], other: frozenset[Any]) -> float:
    if not one and not other:
        return 1.0
    return len(one & other) / len(one | other)


def _messages(body: dict[str, Any]) -> list[Any]:
    messages = body.get("messages", body.get("input"))
    return messages if isinstance(messages, list) else []
