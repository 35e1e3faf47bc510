"""Keeps secret values out of everything that a task says."""

from collections.abc import Iterator, Mapping
from typing import Any

from rigd.provision.target.contract import Argument

MASK = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
"""Ansible's own word for it, which people grep for."""
SHORTEST = 4
"""A shorter secret is masked where it stands alone; within other words it would garble them all."""


class Masker:
    """Replaces known secret values in texts and structures."""

    def __init__(self, values: "Iterator[str] | tuple[str, ...]" = ()) -> None:
        # Longest first: one secret may hold another.
        self._values = tuple(sorted({value for value in values if value}, key=len, reverse=True))

    def __call__(self, value: Any) -> Any:
        """Return the value with every secret in it replaced."""
        if not self._values:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self(key): self(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        for secret in self._values:
            if text == secret:
                return MASK
            if len(secret) >= SHORTEST:
                text = text.replace(secret, MASK)
        return text


def masker_of(table: Mapping[str, Argument], arguments: Mapping[str, Any]) -> Masker:
    """Return what masks the values of all secret arguments."""
    return Masker(tuple(_texts([arguments.get(name) for name, known in table.items() if known.secret])))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        # A message may hold one line of it.
        yield from (line for line in value.splitlines() if len(line) >= SHORTEST)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
