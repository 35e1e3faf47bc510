"""uvicorn, with what it hides: who connected; and without what a daemon has no use for.

uvicorn's own server takes over signals, wakes ten times a second and configures logging; this one does not.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from rigd.adapters.quiet_server import QuietServer
from rigd.api.access import Caller

SO_PEERGROUPS = 59
"""Linux's number for the supplementary groups of the peer; Python has no name for it."""
GROUPS_LIMIT = 1024
"""Longest answer that Python takes from the kernel, in bytes; 256 groups fit."""
SILENCE_S = 10.0
"""A connection that has not sent a whole request head by then is cut."""
CONNECTIONS_LIMIT = 64
HEAD_LIMIT = 64 * 1024

logging.getLogger("uvicorn").addHandler(logging.NullHandler())
logging.getLogger("uvicorn").propagate = False


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What a handler may know of its connection."""

    caller: Caller
    abort: Callable[[], None] = field(repr=False)
    """Cut it at once, unsent bytes and all."""


def connection_of(request: Request) -> Connection:
    """Return the connection that a request came in on."""
    connection: Connection = request.state.connection
    return connection


class PeerProtocol(H11Protocol):
    """HTTP/1 that puts the `Connection` into each request's state."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = Connection(caller=peer(transport.get_extra_info("socket")), abort=transport.abort)
        self.app_state = {**self.app_state, "connection": connection}
        self._deadline = self.loop.call_later(SILENCE_S, self._cut_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _cut_if_silent(self) -> None:
        if self.scope is None:  # uvicorn types it as never None; it is, until the first head is whole.
            self.transport.abort()  # type: ignore[unreachable]


def make_server(app: Any, *, shutdown_s: int) -> QuietServer:
    """Return a server for `app` that closes every connection after one answer."""
    return QuietServer(
        uvicorn.Config(
            app,
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=CONNECTIONS_LIMIT,
            timeout_graceful_shutdown=shutdown_s,
            h11_max_incomplete_event_size=HEAD_LIMIT,
            headers=[("connection", "close")],
        )
    )


def peer(connection: socket.socket) -> Caller:
    """Return who is at the other end, from the kernel."""
    if connection.family != socket.AF_UNIX:
        return Caller()
    pid, uid, gid = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return Caller(pid=pid, uid=uid, gid=gid, groups=_groups(connection))


def _groups(connection: socket.socket) -> frozenset[int]:
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_LIMIT)
    except OSError:  # A kernel before 4.13, or more groups than fit: the primary one decides.
        return frozenset()
    return frozenset(struct.unpack(f"{len(packed) // 4}I", packed))
