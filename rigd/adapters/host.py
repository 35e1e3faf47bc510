"""Disk, shared memory and ports of this host, as frozen readings."""

import contextlib
import errno
import os
import pwd
import socket
from dataclasses import dataclass
from pathlib import Path

from rigd.adapters import proc

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (the real one is meant)
_LISTEN = "LISTEN"
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Space:
    """Room in a file system; None where it cannot be asked."""

    path: Path
    """The nearest existing folder of what was asked for."""
    free_mib: float | None
    total_mib: float | None


@dataclass(frozen=True, kw_only=True)
class PortHolder:
    """The process that listens on a port."""

    pid: int
    name: str
    user: str
    command: str


@dataclass(frozen=True, kw_only=True)
class PortSeen:
    """Whether an address can be bound, and who has it if not."""

    host: str
    port: int
    error: int | None
    """errno of the attempt; None: free."""
    holder: PortHolder | None = None


def space(path: Path) -> Space:
    """Return the room where `path` is or would be (blocks on a dead network disk)."""
    nearest = path
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    try:
        seen = os.statvfs(nearest)
    except OSError:
        return Space(path=nearest, free_mib=None, total_mib=None)
    return Space(
        path=nearest,
        free_mib=seen.f_bavail * seen.f_frsize / _MIB,
        total_mib=seen.f_blocks * seen.f_frsize / _MIB,
    )


def port(host: str, number: int) -> PortSeen:
    """Try to bind the address as a server would, and let go at once; name who has it if it is taken."""
    plain = host.strip("[]")
    family = socket.AF_INET6 if ":" in plain else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # What lingers in TIME_WAIT is free.
            probe.bind((plain, number))
    except OSError as error:
        holder = _holder(number) if error.errno == errno.EADDRINUSE else None
        return PortSeen(host=host, port=number, error=error.errno or errno.EINVAL, holder=holder)
    return PortSeen(host=host, port=number, error=None)


def _holder(number: int) -> PortHolder | None:
    """Return who listens on the port; None where another user's sockets may not be seen."""
    import psutil  # noqa: PLC0415  (only when a port is taken)

    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections(kind="tcp"):
            if one.status == _LISTEN and one.laddr and one.laddr.port == number and one.pid:
                return PortHolder(
                    pid=one.pid,
                    name=process_name(one.pid),
                    user=user_of(one.pid),
                    command=" ".join(proc.command_line(one.pid))[:200],
                )
    return None


def process_name(pid: int) -> str:
    """Return the kernel's name of a process; empty where there is none."""
    seen = proc.read(pid)
    return "" if seen is None else seen.name


def user_of(pid: int) -> str:
    """Return the name of the user that a process runs as; empty where there is none."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116  (hot, and a plain path)
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
