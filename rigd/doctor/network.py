"""Checks of what is reached from where: the engine's port, Docker's published ports, the tailnet. Pure."""

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime

from rigd.doctor.finding import Facts, Finding, error, info, ok, unknown, warning
from rigd.doctor.wish import Wish

EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  (named, not bound)
EXPIRES_DAYS = 21
DAY_S = 86400.0
TAILNET = (ipaddress.ip_network("100.64.0.0/10"), ipaddress.ip_network("fd7a:115c:a1e0::/48"))
TUNNELS = ("tailscale", "wg", "tun", "zt")
HOME = "the whole network of this box"


def port(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the engine's port is free, or the engine's own."""
    if wish is None or unknown(facts, "network") is not None:
        return
    number = wish.spec.port
    holders = [one for one in facts["network"]["listening"] if one["port"] == number]
    if not holders:
        yield ok("port", f"port {number} is free")
        return
    container = "" if wish.spec.container is None else wish.spec.container.name
    published = [one for one in facts["docker"].get("published", ()) if one["port"] == number]
    ours = any(one["container"] == container for one in published)
    where = ", ".join(sorted({str(one["address"]) for one in holders}))
    if ours or (not published and facts["service"].get("unit", {}).get("ActiveState") == "active"):
        yield ok("port", f"port {number} is the engine's, on {where}")
    elif published:
        name = published[0]["container"]
        yield error(
            "port",
            f"port {number} is published by the container {name!r}",
            f"docker stop {name}, or another engine.port",
        )
    else:
        sentence = f"somebody (user id {holders[0]['uid']}) listens on port {number}, on {where}"
        yield warning("port", f"{sentence}: rigd's engine, or it keeps it from starting",
                      f"sudo ss -ltnp 'sport = :{number}'; `rigd status`")  # fmt: skip


def reached(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say from where the engine can be reached, and whether a key guards it."""
    if wish is None:
        return
    host = wish.spec.host
    who = reached_from(host, facts)
    key = wish.rig.engine.api_key is not None or any(name == "VLLM_API_KEY" for name, _ in wish.spec.secrets)
    bypass = (
        facts["network"].get("ufw")
        and wish.docker
        and wish.rig.engine.docker
        and wish.rig.engine.docker.network == "bridge"
    )
    guard = "; a port that Docker publishes is not stopped by ufw" if bypass and who == HOME else ""
    if who is None:
        sentence = f"engine.host {host} is no address of this box now"
        yield error("reached", sentence, "tailscale status; or engine.host: 127.0.0.1")
    elif who == HOME:
        sentence = f"the engine can be reached from {HOME} ({host}:{wish.spec.port}){guard}"
        mend = "engine.host: 127.0.0.1 or the tailnet address" + ("" if key else ", or engine.api_key")
        yield (info if key and not guard else warning)("reached", sentence, mend)
    else:
        yield ok("reached", f"the engine can be reached from {who} ({host}:{wish.spec.port})")


def reached_from(host: str, facts: Facts) -> str | None:
    """Return from where an address is reached; None where this box does not have it."""
    if host in EVERYWHERE:
        return HOME
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return "this box" if host == "localhost" else HOME
    if address.is_loopback:
        return "this box alone"
    here = {one for each in facts["network"].get("addresses", {}).values() for one in each}
    if here and str(address) not in here:
        return None
    if any(address in network for network in TAILNET if network.version == address.version):
        return "the tailnet"
    return HOME


def exchange(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether ranks that share the host's network meet on this box, and not over the tailnet."""
    alone = (
        wish is not None
        and wish.docker
        and wish.rig.engine.docker
        and wish.rig.engine.docker.network == "bridge"
    )
    if wish is None or wish.ranks < 2 or alone:  # noqa: PLR2004  (a pair)
        return
    unset = [name for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if not wish.environment.get(name)]
    tunnels = sorted(name for name in facts["network"].get("addresses", {}) if name.startswith(TUNNELS))
    if unset and tunnels:
        sentence = (
            f"the ranks may look for one another on {', '.join(tunnels)}: {' and '.join(unset)} is not set"
        )
        mend = (
            f"engine.environment: {{{', '.join(f'{name}: lo' for name in unset)}, VLLM_HOST_IP: 127.0.0.1}}"
        )
        yield info("exchange", sentence, mend)


def published(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Tell of other containers' ports that a firewall does not guard."""
    if unknown(facts, "network") is not None or not facts["network"].get("ufw"):
        return
    own = None if wish is None else wish.spec.port
    found = [
        f"{one['container']} ({one['port']})"
        for one in facts["docker"].get("published", ())
        if one["address"] in EVERYWHERE and one["port"] != own
    ]
    if found:
        sentence = (
            f"ufw does not stop what Docker publishes: {', '.join(sorted(set(found)))} is open to {HOME}"
        )
        yield warning(
            "published", sentence, "publish on 127.0.0.1 (-p 127.0.0.1:PORT:PORT), or on the tailnet address"
        )


def tailnet(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the box is in its tailnet, and for how long."""
    seen = facts["tailscale"]
    if not seen.get("there"):
        if wish is not None and reached_from(wish.spec.host, facts) == "the tailnet":
            yield error(
                "tailscale",
                "the rig file serves on the tailnet, and Tailscale is not installed",
                "playbooks/tailscale.yml",
            )
        return
    if seen.get("state") != "Running":
        said = seen.get("state") or seen.get("problem") or "it does not answer"
        yield warning(
            "tailscale",
            f"Tailscale is not connected: {said}",
            "sudo tailscale up; systemctl status tailscaled",
        )
        return
    left = _days_left(seen.get("expires"), now_s=facts["at_s"])
    if left is not None and left < EXPIRES_DAYS:
        sentence = f"the box's key expires in {max(0, left):.0f} days, and the box is out of the tailnet then"
        severity = error if left <= 0 else warning
        yield severity("tailscale", sentence, "disable key expiry for it in the admin console, or tag it")
    elif left is not None and not seen["tags"]:
        yield info(
            "tailscale",
            f"{seen['name']}; the box's key expires in {left:.0f} days",
            "disable key expiry, or tag it",
        )
    else:
        yield ok("tailscale", f"{seen['name']}, its key does not expire")
    for text in seen["health"]:
        yield info("tailscale", f"Tailscale says: {text}")


def _days_left(expires: str | None, *, now_s: float) -> float | None:
    if not expires:
        return None
    try:
        at = datetime.fromisoformat(expires)
    except ValueError:
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC).timestamp() - now_s) / DAY_S
