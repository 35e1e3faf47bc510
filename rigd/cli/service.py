"""`rigd daemon RIG` without typer and rich: a service that runs for months does without what draws tables (4 MB)."""

import contextlib
import ctypes
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rigd import daemon, log
from rigd.errors import UsageError
from rigd.settings import Settings

M_ARENA_MAX = -8
"""glibc's number for the most heaps, see mallopt(3)."""


def is_plain(arguments: Sequence[str]) -> bool:
    """Return whether the arguments are `daemon RIG` and nothing else; typer sees to the rest."""
    return len(arguments) == 2 and arguments[0] == "daemon" and not arguments[1].startswith("-")  # noqa: PLR2004


def run(rig: Path, socket: Path | None = None) -> int:
    """Supervise a rig as a service: logs on stderr, and systemd told when it is ready."""
    _share_one_heap()
    settings = settings_of(socket)
    log.configure(json=settings.log_json, level=settings.log_level)
    return int(daemon.run(rig, settings=settings, foreground=False))


def _share_one_heap() -> None:
    """Keep glibc from giving each of the few threads a heap of its own: 2 MB less resident."""
    with contextlib.suppress(OSError, AttributeError):  # Another libc has no such setting.
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def settings_of(socket: Path | None) -> Settings:
    """Return the daemon's settings. Raises `UsageError` that names each wrong variable."""
    try:
        return Settings() if socket is None else Settings(socket=socket)
    except ValidationError as error:
        faults = "; ".join(
            f"RIGD_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}" for fault in error.errors()
        )
        hint = "see the environment's RIGD_*"
        raise UsageError(f"the settings are not valid: {faults}", hint=hint) from None
