"""Talk to a daemon: over its unix socket, or over HTTP where it listens on the network.

Standard library only, and of that only what is cheap to import: `rigd status` must start fast. So the unix
socket is spoken to in HTTP/1.0, whose answers need no framing (`http.client` costs as much to import as
Python itself); the network goes through `http.client`, imported when it is needed.
"""

from __future__ import annotations

import json
import os
import socket as sockets

from rigd import paths
from rigd.errors import RigdError, UnreachableError, UsageError

TYPE_CHECKING = False  # Type checkers take it for true; importing `typing` for it costs 3 ms.
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, BinaryIO, Self

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
BODY_LIMIT = 16 * 2**20
LINE_LIMIT = 2**20
SILENCE_LIMIT_S = 60.0
"""A stream of documents says something at least every 10 s; silence for this long means it is dead."""
SUCCESS = range(200, 300)
START_HINT = "start one: `rigd up RIG`, or `systemctl start rigd`"


class RefusedError(RigdError):
    """The daemon answered, and said no; `status` is the HTTP status."""

    def __init__(self, message: str, *, hint: str | None = None, status: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Client:
    """One daemon, named by its socket or its URL."""

    def __init__(
        self, *, socket: str | None = None, url: str | None = None, token: str | None = None
    ) -> None:
        """Exactly one of `socket` and `url`; `token` is the bearer token of a daemon on the network."""
        if (socket is None) == (url is None):
            raise UsageError("cannot tell which daemon is meant", hint="give either --socket or --url")
        self.socket = socket
        self.url = url
        self.token = token

    @property
    def where(self) -> str:
        """The daemon's socket or URL, for messages."""
        return self.socket or self.url or ""

    def get(
        self, path: str, query: Mapping[str, object] | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the document at `path`; what is None in `query` is left out."""
        return self._document("GET", path, query=query, timeout_s=timeout_s)

    def post(
        self, path: str, body: Mapping[str, object] | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[str, Any]:
        """Ask for a change and return the answer; raises `RefusedError` when the daemon says no."""
        return self._document("POST", path, body=body or {}, timeout_s=timeout_s)

    def text(
        self, path: str, query: Mapping[str, object] | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> str:
        """Return the text at `path`."""
        with _Exchange(self, "GET", path, query=query, timeout_s=timeout_s) as answer:
            return answer.body().decode("utf-8", "replace")

    def content(
        self, path: str, query: Mapping[str, object] | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> bytes:
        """Return what lies at `path`, as it is."""
        with _Exchange(self, "GET", path, query=query, timeout_s=timeout_s) as answer:
            return answer.body()

    def documents(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the documents of a stream as they come, until the daemon ends it.

        Raises `UnreachableError` when the daemon goes away in the middle.
        """
        with _Exchange(self, "GET", path, query=query, timeout_s=SILENCE_LIMIT_S) as answer:
            for line in answer.lines():
                document = answer.parse(line)
                kind = document.get("type")
                if kind == "end":
                    return
                if kind != "ping":
                    yield document
            raise self.gone()

    def lines(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[str]:
        """Yield the lines of a text stream as they come. It ends when the daemon goes away."""
        with _Exchange(self, "GET", path, query=query, timeout_s=None) as answer:
            for line in answer.lines():
                yield line.decode("utf-8", "replace").rstrip("\n")

    def _document(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        with _Exchange(self, method, path, body=body, query=query, timeout_s=timeout_s) as answer:
            return answer.parse(answer.body())

    def gone(self) -> UnreachableError:
        """Return the error that says the daemon went away in the middle."""
        return UnreachableError(
            f"the daemon at '{self.where}' went away in the middle of its answer", hint=START_HINT
        )


def connect(environ: Mapping[str, str], *, socket: str | None = None, url: str | None = None) -> Client:
    """Return the client that options and environment name: options first, then RIGD_URL, then the socket.

    The token of a daemon on the network comes from RIGD_TOKEN, or from the file that RIGD_TOKEN_FILE names.
    """
    if socket is not None and url is not None:
        raise UsageError("--socket and --url exclude each other", hint="give one of them")
    if socket is None and url is None:
        url = environ.get("RIGD_URL") or None
    if url is None:
        return Client(socket=socket or str(paths.socket_path(environ)))
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{url}' is no URL of a daemon", hint="for example --url https://rig.example.net")
    return Client(url=url.rstrip("/"), token=_token(environ))


def _token(environ: Mapping[str, str]) -> str | None:
    if token := environ.get("RIGD_TOKEN"):
        return token
    path = environ.get("RIGD_TOKEN_FILE")
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib is slow to import)
            return file.readline().strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the token file '{path}'", hint="RIGD_TOKEN_FILE names a file whose first line is it"
        ) from error


class _Exchange:
    """One request and its answer; closes the connection at the end, whatever happens."""

    def __init__(
        self,
        client: Client,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None,
        timeout_s: float | None,
        body: Mapping[str, object] | None = None,
    ) -> None:
        self._client = client
        self._method = method
        self._target = path + _query(query or {})
        self._body = b"" if body is None else json.dumps(body).encode()
        self._timeout_s = timeout_s
        self._closers: list[Any] = []
        self._file: BinaryIO | Any = None
        self._length: int | None = None

    def __enter__(self) -> Self:
        try:
            status = self._over_unix() if self._client.socket is not None else self._over_network()
            if status not in SUCCESS:
                raise self._refused(status)
        except RigdError:
            self.__exit__()
            raise
        except (OSError, ValueError) as error:
            self.__exit__()
            raise _unreachable(error, self._client, self._timeout_s) from error
        return self

    def __exit__(self, *_: object) -> None:
        for closer in reversed(self._closers):
            closer.close()

    def body(self) -> bytes:
        """Return the whole body. Raises `UnreachableError` when it breaks off."""
        try:
            content: bytes = self._file.read(BODY_LIMIT + 1 if self._length is None else self._length)
        except (OSError, ValueError) as error:
            raise _unreachable(error, self._client, self._timeout_s) from error
        if len(content) > BODY_LIMIT:
            raise self._strange()
        if self._length is not None and len(content) < self._length:
            raise self._client.gone()
        return content

    def lines(self) -> Iterator[bytes]:
        """Yield whole lines as they come."""
        while True:
            try:
                line: bytes = self._file.readline(LINE_LIMIT)
            except (OSError, ValueError) as error:
                raise _unreachable(error, self._client, self._timeout_s) from error
            if not line:
                return
            yield line

    def parse(self, content: bytes) -> dict[str, Any]:
        """Return the JSON object in `content`; anything else is not a daemon's answer."""
        try:
            document = json.loads(content)
        except ValueError as error:
            raise self._strange() from error
        if not isinstance(document, dict):
            raise self._strange()
        return document

    def _over_unix(self) -> int:
        path = self._client.socket or ""
        connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        self._closers.append(connection)
        connection.settimeout(CONNECT_TIMEOUT_S)
        connection.connect(path)
        connection.settimeout(self._timeout_s)
        connection.sendall(self._head("HTTP/1.0", "rigd.local") + self._body)
        self._file = connection.makefile("rb")
        self._closers.append(self._file)
        status = self._file.readline(LINE_LIMIT).split(maxsplit=2)
        if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or not status[1].isdigit():  # noqa: PLR2004  (version and code)
            raise self._strange()
        while (line := self._file.readline(LINE_LIMIT)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                self._length = int(value)
        return int(status[1])

    def _over_network(self) -> int:
        import http.client  # noqa: PLC0415  (slow to import, and seldom needed)

        scheme, _, rest = (self._client.url or "").partition("://")
        host, _, prefix = rest.partition("/")
        kinds = {"https": http.client.HTTPSConnection, "http": http.client.HTTPConnection}
        connection = kinds[scheme](host, timeout=CONNECT_TIMEOUT_S)
        self._closers.append(connection)
        try:
            connection.connect()
            wire: sockets.socket = connection.sock
            wire.settimeout(self._timeout_s)
            wire.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
            target = f"/{prefix.strip('/')}{self._target}" if prefix.strip("/") else self._target
            connection.request(self._method, target, self._body or None, dict(self._headers()))
            self._file = connection.getresponse()
        except http.client.HTTPException as error:
            raise self._strange() from error
        return int(self._file.status)

    def _head(self, version: str, host: str) -> bytes:
        lines = [f"{self._method} {self._target} {version}", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in self._headers()]
        return "\r\n".join([*lines, f"Content-Length: {len(self._body)}", "", ""]).encode()

    def _headers(self) -> Iterator[tuple[str, str]]:
        yield "X-Rigd", "1"
        if self._body:
            yield "Content-Type", "application/json"
        if self._client.token is not None:
            yield "Authorization", f"Bearer {self._client.token}"

    def _refused(self, status: int) -> RigdError:
        try:
            document = self.parse(self.body())
            message = document["error"]
        except (RigdError, KeyError):
            if status == 503:  # noqa: PLR2004  (the server's own answer when it has too many connections)
                return RefusedError(
                    f"the daemon at '{self._client.where}' is busy", hint="try again soon", status=status
                )
            return self._strange()
        hint = document.get("hint")
        return RefusedError(str(message), hint=hint if isinstance(hint, str) else None, status=status)

    def _strange(self) -> RigdError:
        return RigdError(
            f"what answers at '{self._client.where}' is not a rigd daemon of this version",
            hint="check --socket, --url, RIGD_SOCKET and RIGD_URL",
        )


def _query(query: Mapping[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return "?" + "&".join(f"{name}={_quoted(str(value))}" for name, value in given.items()) if given else ""


def _quoted(text: str) -> str:
    # urllib.parse is slow to import, and what we send is names and numbers.
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_.,") else _percent(letter)
        for letter in text
    )


def _percent(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())


def _unreachable(error: Exception, client: Client, timeout_s: float | None) -> RigdError:
    where = client.where
    if isinstance(error, TimeoutError):
        return UnreachableError(
            f"the daemon at '{where}' did not answer within {timeout_s or CONNECT_TIMEOUT_S:g} s",
            hint="see what it does: `journalctl -u rigd -n 50`, or the terminal of `rigd up`",
        )
    if isinstance(error, PermissionError):
        return UnreachableError(f"not allowed to talk to the daemon at '{where}'", hint=_who_may(where))
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return UnreachableError(f"no rigd daemon answers at '{where}'", hint=START_HINT)
    if isinstance(error, OSError) and "path too long" in str(error):
        return UsageError(
            f"the socket path '{where}' is too long for a unix socket", hint="give a shorter one"
        )
    return UnreachableError(f"cannot talk to the daemon at '{where}'", hint=START_HINT)


def _who_may(path: str) -> str:
    """Return who may use the socket, and how to become one of them."""
    import grp  # noqa: PLC0415  (only on this path)
    import pwd  # noqa: PLC0415

    for place in (path, os.path.dirname(path)):  # noqa: PTH120  (pathlib is slow to import)
        try:
            found = os.stat(place)  # noqa: PTH116  (as above)
        except OSError:
            continue
        try:
            if found.st_mode & 0o010 or (place == path and found.st_mode & 0o020):
                group = grp.getgrgid(found.st_gid).gr_name
                return f"members of group '{group}' may: `sudo usermod -aG {group} $USER`, then log in again"
            user = pwd.getpwuid(found.st_uid).pw_name
        except KeyError:
            user = str(found.st_uid)
        return (
            f"only user '{user}' and root may: use `sudo rigd ...`, or set RIGD_SOCKET_GROUP for the daemon"
        )
    return "use `sudo rigd ...`, or set RIGD_SOCKET_GROUP for the daemon"
