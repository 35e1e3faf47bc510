"""A server that takes alerts as JSON, or refuses them, or keeps them waiting, as a test tells it."""

import http.server
import json
import threading
from typing import Any

OK, REFUSE = 200, 500


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    """Ending it waits for the requests in hand, and their connections are closed."""

    def handle_error(self, *_: object) -> None:
        """Say nothing of callers that did not wait for their answer."""


class Receiver:
    """Listens on a port of the loopback address; `down()` and `up()` end and begin that."""

    def __init__(self) -> None:
        self.answer = OK
        self.got: list[dict[str, Any]] = []
        """Messages that were taken."""
        self.asked = 0
        """Requests that came in, whatever became of them."""
        self.hold = threading.Event()
        """While it is cleared, requests get no answer."""
        self.hold.set()
        self._port = 0
        self._server: _Server | None = None
        self.up()

    @property
    def url(self) -> str:
        """Where Apprise sends to, with a password and a token in the path."""
        return f"json://rigd:password-in-url@127.0.0.1:{self._port}/token-in-path?rto=30&cto=10"

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.got]

    def up(self) -> None:
        """Listen, on the same port as before."""
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.asked += 1
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.hold.wait(60)
                if receiver.answer == OK:
                    receiver.got.append(message)
                self.send_response(receiver.answer)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def close(self) -> None:
        """End, and let go of whoever waits."""
        self.hold.set()
        self.down()
