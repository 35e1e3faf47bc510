"""Whether a host that we are on already would let the next connection in: asked by one more, dropped when greeted."""

import socket

import paramiko
from fabric import Connection


def knock(connection: Connection, *, deadline_s: float) -> bool:
    """Return whether an ssh server greets a new connection that takes the same way as this one."""
    try:
        way = _way(connection, deadline_s)
    except (paramiko.SSHException, OSError, EOFError):
        return False
    try:
        way.settimeout(deadline_s)
        # Whoever accepts for a host that is shut (a relay, a gateway) has nothing to say.
        return bool(way.recv(1))
    except (paramiko.SSHException, OSError, EOFError):
        return False
    finally:
        way.close()


def _way(connection: Connection, deadline_s: float) -> "socket.socket | paramiko.Channel":
    """Open a connection to where this one has arrived, through the gateway if it has one."""
    if connection.gateway:
        through: paramiko.Channel = connection.open_gateway()
        return through
    transport = connection.client.get_transport()
    if transport is None:
        raise EOFError
    # The address that the name stood for: under another the host may be open still.
    address, port, *more = transport.getpeername()
    zone = f"%{more[1]}" if more and more[1] else ""
    return socket.create_connection((address + zone, port), timeout=deadline_s)
