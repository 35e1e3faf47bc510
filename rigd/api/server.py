"""Run the API inside the daemon's own event loop."""

import asyncio
import contextlib

from starlette.applications import Starlette

from rigd.api.connections import make_server
from rigd.api.sockets import Listening

SHUTDOWN_S = 3
"""How long answers under way may take once the daemon stops."""


async def serve(app: Starlette, listening: Listening) -> None:
    """Answer on the listeners until cancelled; then let streams say goodbye and close everything."""
    server = make_server(app, shutdown_s=SHUTDOWN_S)
    task = asyncio.ensure_future(server.serve(sockets=list(listening.sockets)))
    try:
        await asyncio.shield(task)
    finally:
        app.state.slots.closing.set()
        server.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listening.close()
