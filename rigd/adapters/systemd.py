"""What the daemon tells systemd: ready, status, watchdog, stopping. Silent where there is no systemd to tell.

The protocol is one datagram of `NAME=value` lines to the socket named by `NOTIFY_SOCKET` (sd_notify(3)).
"""

import os
import socket
from collections.abc import Mapping

USEC = 1_000_000
STATUS_LIMIT = 1_000
"""Characters of a status line; a datagram has an end."""


def notify(*lines: str, environ: Mapping[str, str] | None = None) -> bool:
    """Send `NAME=value` lines to systemd; return whether it took them. Never raises, never waits."""
    where = (os.environ if environ is None else environ).get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return False
    address = "\0" + where[1:] if where.startswith("@") else where  # "@": Linux's abstract namespace.
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(0)
            sender.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True


def runs_this() -> bool:
    """Return whether this process is the main one of a service."""
    return bool(os.environ.get("NOTIFY_SOCKET"))


def ready(status: str) -> bool:
    """Say that the daemon is up: its journal recovered and its socket listening, whatever the engine does."""
    return notify("READY=1", _status(status), f"MAINPID={os.getpid()}")


def status(text: str) -> bool:
    """Set the line that `systemctl status rigd` shows."""
    return notify(_status(text))


def watchdog() -> bool:
    """Say that the loop still turns."""
    return notify("WATCHDOG=1")


def stopping(text: str = "stopping; the engine goes on serving") -> bool:
    """Say that the daemon ends because it was asked to."""
    return notify("STOPPING=1", _status(text))


def watchdog_interval_s(environ: Mapping[str, str] | None = None) -> float | None:
    """Return how often to call `watchdog()`: a third of the deadline. None: nobody watches this process."""
    given = os.environ if environ is None else environ
    try:
        deadline_usec = int(given.get("WATCHDOG_USEC", "0"))
        watched_pid = int(given.get("WATCHDOG_PID") or os.getpid())
    except ValueError:
        return None
    return deadline_usec / USEC / 3 if deadline_usec > 0 and watched_pid == os.getpid() else None


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:STATUS_LIMIT]
