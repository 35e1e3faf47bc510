"""What the command line says of a client, as its plan: address, key, rate, and channels of agents."""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from rigd.clients.plan import KeyKind, KeyRef, Plan, key_of, make_plan
from rigd.engine.spec import LaunchSpec
from rigd.errors import RigdError, UsageError
from rigd.gateway.target import ask, target_of
from rigd.prefix.hits import Rate
from rigd.rig.load import LoadedRig

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def plan_for(
    loaded: LoadedRig,
    spec: LaunchSpec,
    *,
    host: str | None,
    key: str | None,
    rate: float | None,
    agents: list[str] | None,
    offline: bool,
) -> tuple[Plan, list[str]]:
    """Return what a client of this rig is told, and what a person should know of it. Raises `UsageError`."""
    known = _rate(loaded, rate, offline=offline)
    plan = make_plan(
        loaded.rig,
        model=spec.served_model_name,
        root_url=spec.base_url if host is None else _address(host, spec.port),
        key=key_of(spec.api_key, loaded.rig.name, on_the_box=host is None) if key is None else _key(key),
        rate=None if known is None else known.tokens_per_s,
        rate_from="" if known is None else known.said_by,
        chosen=_agents(agents or []),
    )
    notes = list(plan.notes)
    if host is not None and spec.host in LOOPBACK and "://" not in host:
        notes.append(
            f"the engine listens on {spec.host} only: engine.host must be an address that {host} leads to"
        )
    return plan, notes


def _rate(loaded: LoadedRig, stated: float | None, *, offline: bool) -> Rate | None:
    """Return how fast prompts are read: as stated, else as the daemon or the engine measured it."""
    if stated is not None:
        return Rate(tokens_per_s=stated, said_by="stated")
    if offline:
        return None
    with contextlib.suppress(RigdError, OSError):
        return asyncio.run(ask(target_of(str(loaded.path)), rate=None)).rate
    return None


def _address(host: str, port: int) -> str:
    """Return scheme, host and port of a box."""
    given = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(given)
        own = parts.port
    except ValueError:
        parts, own = urlsplit(""), None
    plain = parts.scheme in ("http", "https") and parts.hostname and not parts.query and "@" not in given
    if not plain or parts.path.rstrip("/") not in ("", "/v1"):
        raise UsageError(
            f"'{host}' is no host and no address", hint="for example --host box or --host https://box"
        )
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    if own is None and "://" in host:
        return f"{parts.scheme}://{name}"
    return f"{parts.scheme}://{name}:{own or port}"


def _key(given: str) -> KeyRef | None:
    if given == "none":
        return None
    kind, _, where = given.partition(":")
    if kind == "env" and re.fullmatch(r"[A-Za-z_]\w*", where):
        return KeyRef(kind=KeyKind.ENV, where=where)
    if kind == "file" and where and not set(where) & set("'\"\n{}"):
        return KeyRef(kind=KeyKind.FILE, where=where)
    raise UsageError(
        "--key says where the key is, and never the key itself",
        hint="--key env:NAME, --key file:PATH, or --key none",
    )


def _agents(given: list[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for one in given:
        agent, sign, channel = one.partition("=")
        if not sign or not re.fullmatch(r"[\w.-]+", agent):
            raise UsageError(f"--agent {one}: not AGENT=CHANNEL", hint="for example --agent explore=utility")
        found[agent] = channel
    return found
