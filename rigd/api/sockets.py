"""Listening sockets: the unix socket with the right mode before anyone can connect, and TCP when asked for.

uvicorn opens a unix socket that it makes itself to everyone (0666), so it is handed ours.
"""

import contextlib
import fcntl
import grp
import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rigd.api.access import Policy, host_name
from rigd.errors import RigdError, UsageError
from rigd.settings import Settings

BACKLOG = 128
PATH_LIMIT = 107
"""Longest path that a unix socket's address holds, in bytes."""
CONNECT_TIMEOUT_S = 2.0
EVERYWHERE = frozenset({"", "*", "0.0.0.0", "::", "0"})  # noqa: S104  (refused below)
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
IP_FREEBIND = 15
"""Linux's number for binding an address that is not there yet; Python has no name for it."""
TOKEN_LENGTH = 16


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Open listeners and the policy that goes with them; `close` gives everything back."""

    sockets: tuple[socket.socket, ...]
    policy: Policy
    path: Path
    inode: int
    lock: IO[bytes]

    def close(self) -> None:
        """Close the listeners, remove the socket's file if it is still ours, and let go of the lock.

        Closing twice does no harm: `serve` closes, and so should whoever called `listen`.
        """
        if self.lock.closed:
            return
        for listener in self.sockets:
            listener.close()
        with contextlib.suppress(OSError):
            if self.path.lstat().st_ino == self.inode:
                self.path.unlink()
        self.lock.close()


def listen(settings: Settings) -> Listening:
    """Open what the settings ask for. Raises `RigdError` when another daemon has the socket."""
    path = settings.socket
    if len(os.fsencode(path)) > PATH_LIMIT:
        raise UsageError(
            f"cannot listen on '{path}': longer than {PATH_LIMIT} bytes",
            hint="set RIGD_SOCKET to a shorter path",
        )
    group = None if settings.socket_group is None else _group(settings.socket_group)
    token = _token(settings)
    with contextlib.ExitStack() as undo:
        try:
            _make_folder(path.parent, group)
            lock = _lock(path)
            undo.callback(lock.close)
            _clear(path)
            listeners = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)]
            undo.callback(listeners[0].close)
            _bind(listeners[0], path, group)
            undo.callback(path.unlink, missing_ok=True)
            if settings.bind is not None:
                listeners.append(_tcp(settings.bind))
        except OSError as error:
            raise RigdError(
                f"cannot listen on '{path}'", hint="check the folder's owner, or set RIGD_SOCKET"
            ) from error
        undo.pop_all()
        return Listening(
            sockets=tuple(listeners),
            policy=Policy(
                uid=os.geteuid(),
                group=group,
                group_name=settings.socket_group,
                token=token,
                hosts=_hosts(settings),
            ),
            path=path,
            inode=path.lstat().st_ino,
            lock=lock,
        )


def _token(settings: Settings) -> str | None:
    if settings.token_file is not None:
        return read_token(settings.token_file)
    if settings.bind is not None:
        raise UsageError(
            f"cannot listen on '{settings.bind}' without a token",
            hint="`openssl rand -hex 32 > FILE; chmod 600 FILE`, and set RIGD_TOKEN_FILE=FILE",
        )
    return None


def read_token(path: Path) -> str:
    """Return the first line of a token file that only its owner can read."""
    try:
        mode = path.stat().st_mode
        token = path.read_text("utf-8").splitlines()[:1]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the token file '{path}'", hint="check RIGD_TOKEN_FILE") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"others can read the token file '{path}'", hint=f"chmod 600 {path}")
    if not token or len(token[0].strip()) < TOKEN_LENGTH:
        raise UsageError(
            f"the token in '{path}' is shorter than {TOKEN_LENGTH} characters",
            hint=f"make one: `openssl rand -hex 32 > {path}`",
        )
    return token[0].strip()


def _make_folder(folder: Path, group: int | None) -> None:
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True)
    if group is not None:
        os.chown(folder, -1, group)
        folder.chmod(0o750)


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise UsageError(
            f"there is no group '{name}'", hint=f"`groupadd --system {name}`, or unset RIGD_SOCKET_GROUP"
        ) from error


def _lock(path: Path) -> IO[bytes]:
    """Hold a lock for the life of the daemon: of two that start at once, one gets it."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    lock = os.fdopen(os.open(path.with_name(path.name + ".lock"), flags, 0o600), "r+b", buffering=0)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = (lock.read(32) or b"").decode("ascii", "replace").strip()
        lock.close()
        raise _another(path, holder or "unknown") from error
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n".encode())
    return lock


def _another(path: Path, pid: int | str) -> RigdError:
    return RigdError(
        f"another rigd daemon is running at '{path}': pid {pid}",
        hint="`rigd status` shows it; RIGD_SOCKET and RIGD_STATE_DIR keep a second one apart",
    )


def _bind(listener: socket.socket, path: Path, group: int | None) -> None:
    """Bind and listen; the mode is right before anyone can connect."""
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    finally:
        os.umask(before)
    if group is not None:
        os.chown(path, -1, group)
        path.chmod(0o660)
    listener.listen(BACKLOG)
    listener.settimeout(0)


def _clear(path: Path) -> None:
    """Remove the socket of a dead daemon. Raises when it is alive, or no socket at all."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(
            f"cannot listen on '{path}': something else lies there", hint="remove it, or set RIGD_SOCKET"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        pid = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    raise _another(path, pid)


def _tcp(bind: str) -> socket.socket:
    host, port = split_bind(bind)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(f"cannot listen on '{bind}'", hint="RIGD_BIND is HOST:PORT") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)  # A tailnet address may come up after us.
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise RigdError(
            f"cannot listen on '{bind}'", hint=f"`ss -ltnp 'sport = :{port}'` shows who has the port"
        ) from error
    return listener


def split_bind(bind: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT. Refuses addresses that mean every interface."""
    host, _, port = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdigit() or not 0 < int(port) < 2**16:
        raise UsageError(f"'{bind}' is not HOST:PORT", hint="for example RIGD_BIND=100.64.0.7:7420")
    if host in EVERYWHERE:
        raise UsageError(
            f"'{bind}' would open the daemon to every network",
            hint="name one address of this host, for example its tailnet address",
        )
    return host, int(port)


def _hosts(settings: Settings) -> frozenset[str]:
    if settings.bind is None:
        return frozenset()
    host = host_name(split_bind(settings.bind)[0])
    named = {host_name(name) for name in settings.hosts}
    return frozenset({host, *named} | (LOOPBACK_NAMES if host in LOOPBACK_NAMES else set()))
