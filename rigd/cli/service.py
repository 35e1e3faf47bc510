"""`rigd daemon RIG` without typer and rich: a service that runs for months does without what draws tables (4 MB)."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from rigd.errors import UsageError
from rigd.settings import Settings

TABLES = ("rich", "pygments")
"""What httpx's own command and structlog's console would load for looks: some MB that a service never shows."""
M_ARENA_MAX = -8
"""glibc's number for the most heaps, see mallopt(3)."""


def is_plain(arguments: Sequence[str]) -> bool:
    """Return whether the arguments are `daemon RIG` and nothing else; typer sees to the rest."""
    return len(arguments) == 2 and arguments[0] == "daemon" and not arguments[1].startswith("-")  # noqa: PLR2004


def run(rig: Path, socket: Path | None = None) -> int:
    """Supervise a rig as a service: logs on stderr, and systemd told when it is ready."""
    _share_one_heap()
    with _without(TABLES):
        from rigd import daemon, log  # noqa: PLC0415  (after the heap is set, and without what draws tables)
    settings = settings_of(socket)
    log.configure(json=settings.log_json, level=settings.log_level)
    return int(daemon.run(rig, settings=settings, foreground=False))


def _share_one_heap() -> None:
    """Keep glibc from giving each of the few threads a heap of its own: 2 MB less resident."""
    with contextlib.suppress(OSError, AttributeError):  # Another libc has no such setting.
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


@contextlib.contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Let imports go on without these packages, as if they were not installed, unless they are already there."""
    blocked = [name for name in names if name not in sys.modules]
    for name in blocked:
        sys.modules[name] = None  # type: ignore[assignment]  # An import then fails, which both are ready for.
    try:
        yield
    finally:
        for name in blocked:
            sys.modules.pop(name, None)


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
