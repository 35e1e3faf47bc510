"""HTTP from the box: standard library, deadlines, proxies of the environment, sentences for what goes wrong."""

import base64
import http.client
import os
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rigd.provision.target.contract import Argument, Kind, ModuleError

ARGUMENTS: dict[str, Argument] = {
    "url": Argument(required=True),
    "url_username": Argument(aliases=("user", "username")),
    "url_password": Argument(aliases=("password",), secret=True),
    "force_basic_auth": Argument(kind=Kind.BOOLEAN, default=False),
    "validate_certs": Argument(kind=Kind.BOOLEAN, default=True),
    "use_proxy": Argument(kind=Kind.BOOLEAN, default=True),
    "http_agent": Argument(default="rigd"),
    "ca_path": Argument(kind=Kind.PATH),
    "client_cert": Argument(kind=Kind.PATH),
    "client_key": Argument(kind=Kind.PATH),
    "use_gssapi": Argument(kind=Kind.BOOLEAN, left_out="Kerberos is not for a box at home"),
    "use_netrc": Argument(kind=Kind.BOOLEAN, default=True, left_out="give url_username and url_password"),
    "ciphers": Argument(kind=Kind.LIST, left_out="OpenSSL's own choice stands"),
    "decompress": Argument(kind=Kind.BOOLEAN, default=True),
    "unredirected_headers": Argument(kind=Kind.LIST, left_out="credentials are never sent to another host"),
}
FAILING = 400
"""HTTP statuses from here on are failures."""
CLOCK_HINT = "look at the box's clock: `timedatectl` (a wrong date makes every certificate invalid)"


@dataclass(frozen=True)
class Answer:
    """One answer: its status, headers (lower case), where it came from after redirects, and the open body."""

    status: int
    headers: Mapping[str, str]
    url: str
    body: Any
    reason: str

    def __enter__(self) -> "Answer":  # noqa: PYI034  (Self is younger than Python 3.10)
        return self

    def __exit__(self, *_error: object) -> None:
        self.body.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        return None


class _SafeRedirect(urllib.request.HTTPRedirectHandler):
    """Follows redirects; credentials stay with the host they were given for."""

    def redirect_request(self, req: Any, *answer: Any) -> Any:
        new = super().redirect_request(req, *answer)
        if new is not None and new.host != req.host:
            new.headers.pop("Authorization", None)
        return new


def ask(
    arguments: Mapping[str, Any], *, method: str = "GET", headers: Mapping[str, str] | None = None,
    body: bytes | None = None, timeout_s: float = 30.0, follow: bool = True,
) -> Answer:  # fmt: skip
    """Send one request; any HTTP status is an answer. No answer is a ModuleError that says why."""
    url = arguments["url"]
    request = urllib.request.Request(  # noqa: S310  (file: is wanted, and documented)
        url, data=body, method=method, headers={"User-Agent": arguments["http_agent"]}
    )
    for name, value in (headers or {}).items():
        request.add_header(name, str(value))
    if arguments["url_username"] is not None:
        pair = f"{arguments['url_username']}:{arguments['url_password'] or ''}".encode()
        request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    handlers: list[Any] = [
        urllib.request.HTTPSHandler(context=_context(arguments)),
        (_SafeRedirect if follow else _NoRedirect)(),
    ]
    if not arguments["use_proxy"]:
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        found = urllib.request.build_opener(*handlers).open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        found = error
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        raise ModuleError(f"cannot reach {shown(url)}: {reason(error)}", status=-1, url=shown(url)) from error
    names = {name.lower(): value for name, value in found.headers.items()}
    status = getattr(found, "status", None) or getattr(found, "code", None) or 200
    return Answer(int(status), names, found.geturl(), found, str(getattr(found, "reason", "")))


def _context(arguments: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=arguments["ca_path"])
        if not arguments["validate_certs"]:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if arguments["client_cert"] is not None:
            context.load_cert_chain(arguments["client_cert"], arguments["client_key"])
    except OSError as error:
        raise ModuleError(f"cannot use the certificate files: {error}") from error
    return context


def reason(error: BaseException) -> str:
    """Return why there was no answer, with what to look at."""
    inner = getattr(error, "reason", error)
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({inner.verify_message}); {CLOCK_HINT}"
    if isinstance(inner, socket.gaierror):
        return "its name does not resolve; look at the box's network and DNS: `resolvectl status`"
    if isinstance(inner, (TimeoutError, socket.timeout)):
        return "no answer in time"
    if isinstance(inner, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    return str(inner) or type(inner).__name__


def shown(url: str) -> str:
    """Return a URL without the credentials that may be in it."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else url


def fetch(answer: Answer, into: str, progress: Callable[[str], None]) -> int:
    """Write the body to a file; refuse what does not fit on the disk. Return the bytes written."""
    total = int(answer.headers.get("content-length") or 0)
    free = shutil.disk_usage(os.path.dirname(into) or ".").free
    if total > free:
        raise ModuleError(
            f"{shown(answer.url)} is {total / 1e6:.0f} MB and only {free / 1e6:.0f} MB are free "
            f"at '{os.path.dirname(into)}'"
        )
    done = 0
    try:
        with open(into, "wb") as file:
            while piece := answer.body.read(1 << 18):
                file.write(piece)
                done += len(piece)
                progress(f"{done / 1e6:.1f} of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB")
            file.flush()
            os.fsync(file.fileno())
    except (OSError, http.client.HTTPException) as error:
        raise ModuleError(
            f"download of {shown(answer.url)} broke off after {done:,} bytes: {reason(error)}"
        ) from error
    if total and done != total and "content-encoding" not in answer.headers:
        raise ModuleError(
            f"download of {shown(answer.url)} ended after {done:,} of {total:,} bytes; run it again"
        )
    return done
