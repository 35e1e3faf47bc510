"""Which headers go on to the other side, and which end here. Pure."""

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Headers of one connection (RFC 9110, 7.6.1), beside those that `Connection` itself names."""


def towards_engine(headers: Iterable[tuple[bytes, bytes]], host: bytes) -> Headers:
    """Return a request's headers as the engine gets them. `Expect` was answered here."""
    return [(b"host", host), *_without(headers, {b"host", b"expect"})]


def towards_client(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return an answer's headers as the client gets them."""
    return _without(headers, set())


def value_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the value of the first header of this name."""
    return next((value for key, value in headers if key.lower() == name), None)


def content_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return the stated length of a body; None where there is none, or nonsense."""
    value = value_of(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else None


def has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a request brings a body."""
    known = list(headers)
    return bool(content_length(known)) or value_of(known, b"transfer-encoding") is not None


def _without(headers: Iterable[tuple[bytes, bytes]], more: set[bytes]) -> Headers:
    known = [(name.lower(), value) for name, value in headers]
    named = {
        word.strip().lower() for name, value in known if name == b"connection" for word in value.split(b",")
    }
    return [(name, value) for name, value in known if name not in HOP_BY_HOP | named | more]
