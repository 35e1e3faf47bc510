"""What a person asked of a run, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigd.provision.run.selection import Selection

FORKS = 10


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The command line of `rigd provision apply` and `check`."""

    check: bool = False
    diff: bool = False
    selection: Selection = field(default_factory=Selection)
    start_at: str | None = None
    """Name of the first task to run; those before it are left out."""
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    forks: int = FORKS
    become: bool = False
    become_user: str | None = None
    fresh: bool = False
    """Start anew: a broken run of the same command is not gone on with."""
    roles_path: tuple[Path, ...] = ()
