"""The engine's side of the pass-through: connections that are kept, deadlines for each silence."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from rigd.gateway.headers import Headers


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one pass-through lets through, and how long it waits."""

    exchanges: int = 64
    """Requests at once; more are answered with 503."""
    body_bytes: int = 64 << 20
    """Largest request body."""
    connect_s: float = 5.0
    """Until the engine takes a connection."""
    silence_s: float = 1800.0
    """Longest silence of the engine, the first token's included: a cold prefill takes minutes, a queue more."""
    client_s: float = 300.0
    """Longest time in which a client takes nothing of what is sent to it, or sends nothing of its body."""


class Upstream:
    """Opens exchanges with one engine."""

    def __init__(
        self, base_url: str, limits: Limits, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """`base_url` is scheme, host and port; requests keep their own paths behind it."""
        self.url = httpx.URL(base_url)
        self._timeout = httpx.Timeout(
            limits.client_s, connect=limits.connect_s, read=limits.silence_s, pool=limits.connect_s
        ).as_dict()
        # A proxy of the environment is for the way out, never for this box or its tailnet. Connections are let
        # go before the engine's own server closes them (5 s): a request must not meet one that is closing.
        self._http = httpx.AsyncClient(
            transport=transport,
            trust_env=False,
            verify=self.url.scheme == "https",
            limits=httpx.Limits(
                max_connections=limits.exchanges + 8, max_keepalive_connections=16, keepalive_expiry=4.0
            ),
        )

    @property
    def host(self) -> bytes:
        """Return what the engine is addressed by in `Host`."""
        return self.url.netloc

    async def open(
        self, method: str, raw_path: bytes, headers: Headers, body: AsyncIterator[bytes] | None
    ) -> httpx.Response:
        """Send a request and return the answer with its body still to come. Raises `httpx.HTTPError`."""
        base = self.url.raw_path.rstrip(b"/")
        request = httpx.Request(
            method,
            self.url.copy_with(raw_path=base + raw_path),
            headers=headers,
            content=body,
            extensions={"timeout": self._timeout},
        )
        return await self._http.send(request, stream=True, follow_redirects=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()
