"""The daemon's API: a unix socket, and TCP when asked for.

    sockets.listen(settings)            before anything else: another daemon there is an error
        -> make_app(backend, policy)    routes (a table), access (pure), handlers, streams
        -> serve(app, listening)        uvicorn as a guest in the daemon's loop; cancel it to stop

Handlers read the backend and post requests to the one loop; they never check and then act.
"""

from rigd.api.app import make_app
from rigd.api.backend import Backend
from rigd.api.server import serve
from rigd.api.sockets import Listening, listen

__all__ = ["Backend", "Listening", "listen", "make_app", "serve"]
