"""What one file of a client must say, before anybody asks what the file says already."""

import enum
from dataclasses import dataclass
from typing import Any


class Rule(enum.Enum):
    """What happens to a value that is there already."""

    OURS = "ours"
    """It follows the rig file."""
    CHOICE = "choice"
    """A person's own choice stays; one of ours is brought up to date."""
    LEAST = "least"
    """A number that is large enough stays, and so does `false` (no limit)."""


class Form(enum.Enum):
    """How a file is written."""

    JSONC = "jsonc"
    TOML = "toml"
    WHOLE = "whole"
    """It is ours alone, and written as a whole."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value at its place."""

    path: tuple[str, ...]
    value: Any
    rule: Rule = Rule.OURS
    least: float = 0
    """With `LEAST`: the smallest number that may stay."""
    ours: tuple[str, ...] = ()
    """With `CHOICE`: values that begin like this are ours."""


@dataclass(frozen=True, kw_only=True)
class ClientFile:
    """One file of a client."""

    names: tuple[str, ...]
    """Its name; where one of several is there, that one."""
    form: Form
    settings: tuple[Setting, ...] = ()
    text: str = ""
    """With `WHOLE`: all of it."""
    private: bool = False
