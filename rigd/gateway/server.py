"""Listen on this box's loopback address and serve an application there, as a guest in somebody else's loop."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from rigd.adapters.quiet_server import QuietServer
from rigd.errors import UsageError

LOOPBACK = "127.0.0.1"
BACKLOG = 128
SHUTDOWN_S = 2
"""How long answers under way may take when serving ends."""
HEAD_LIMIT = 64 * 1024

logging.getLogger("uvicorn").addHandler(logging.NullHandler())
logging.getLogger("uvicorn").propagate = False


def listen(port: int) -> socket.socket:
    """Return a listener on the loopback address; port 0: any that is free. Raises `UsageError`."""
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it the first token waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {LOOPBACK}:{port}",
            hint=f"another port, or none for any that is free; `ss -ltnp 'sport = :{port}'` says who has it",
        ) from error
    listener.setblocking(False)  # noqa: FBT003  (the socket's own signature)
    return listener


@contextlib.asynccontextmanager
async def serving(app: Any, listener: socket.socket) -> AsyncIterator[str]:
    """Serve `app` while the block runs; gives the address, such as `http://127.0.0.1:8123`."""
    server = QuietServer(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=SHUTDOWN_S,
            h11_max_incomplete_event_size=HEAD_LIMIT,
        )
    )
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        server.stop()
        await task
        listener.close()
