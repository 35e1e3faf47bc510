"""Who may do what. Pure: identity and headers in, refusal or None out.

Identity comes from the transport: peer credentials on the unix socket, a bearer token on TCP; never from a
header that names somebody. On the socket, whoever the file's mode lets connect may read; root, the daemon's
own user and the socket's group may change.
"""

import enum
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

CHANGE_HEADER = "x-rigd"
BROWSER_HEADERS = ("origin", "referer", "sec-fetch-site")
"""What browsers add of themselves: a page of somebody else's must not change anything here."""


class Access(enum.Enum):
    """What a route asks of its caller."""

    OPEN = "open"
    READ = "read"
    CHANGE = "change"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who is at the other end: a local process, or (all None) somebody on the network."""

    uid: int | None = None
    gid: int | None = None
    pid: int | None = None
    groups: frozenset[int] = frozenset()

    @property
    def local(self) -> bool:
        """Whether the caller came through the unix socket."""
        return self.uid is not None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The daemon's side of the decision."""

    uid: int
    """User that the daemon runs as."""
    group: int | None = None
    """Group of the socket, if one is set."""
    group_name: str | None = None
    token: str | None = None
    """Bearer token of the TCP listener."""
    hosts: frozenset[str] = frozenset()
    """Names by which clients may address the TCP listener, lower case, without port."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why not, as an HTTP status and a sentence with what to do."""

    status: int
    sentence: str
    hint: str | None = None


def refusal(access: Access, caller: Caller, headers: Mapping[str, str], policy: Policy) -> Refusal | None:
    """Return why `caller` may not use a route that asks for `access`, or None when it may."""
    if not caller.local and (refused := _from_network(access, headers, policy)) is not None:
        return refused
    if access is not Access.CHANGE:
        return None
    if caller.local and not _may_change(caller, policy):
        return Refusal(
            status=403, sentence=f"user {caller.uid} may look, not change", hint=_who_may_change(policy)
        )
    return _not_from_a_page(headers)


def _from_network(access: Access, headers: Mapping[str, str], policy: Policy) -> Refusal | None:
    host = host_name(headers.get("host", ""))
    if host not in policy.hosts:
        return Refusal(
            status=421, sentence=f"this daemon is not called '{host}'", hint="add the name to RIGD_HOSTS"
        )
    if access is Access.OPEN:
        return None
    scheme, _, given = headers.get("authorization", "").partition(" ")
    wanted = policy.token
    if (
        wanted is None
        or scheme.lower() != "bearer"
        or not hmac.compare_digest(given.strip().encode(), wanted.encode())
    ):
        return Refusal(
            status=401, sentence="the token is missing or wrong", hint="set RIGD_TOKEN_FILE on this side"
        )
    return None


def _may_change(caller: Caller, policy: Policy) -> bool:
    if caller.uid in (0, policy.uid):
        return True
    return policy.group is not None and (caller.gid == policy.group or policy.group in caller.groups)


def _who_may_change(policy: Policy) -> str:
    if policy.group_name is None:
        return f"root and user {policy.uid} may; RIGD_SOCKET_GROUP names a group that may as well"
    return f"members of group '{policy.group_name}' may: `sudo usermod -aG {policy.group_name} USER`"


def _not_from_a_page(headers: Mapping[str, str]) -> Refusal | None:
    for name in BROWSER_HEADERS:
        if name in headers:
            return Refusal(status=403, sentence=f"changes with the header '{name}' are refused")
    if headers.get(CHANGE_HEADER) != "1":
        return Refusal(
            status=403, sentence="changes need the header 'X-Rigd: 1'", hint="curl -H 'X-Rigd: 1' ..."
        )
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        return Refusal(status=415, sentence=f"a body of type '{kind}' is not understood", hint="send JSON")
    return None


def host_name(header: str) -> str:
    """Return the host of a Host header: lower case, no port, no trailing dot, no brackets."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0].rstrip(".") if text.count(":") == 1 else text.rstrip(".")
