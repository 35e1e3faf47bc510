"""Facts about interfaces and addresses, from `ip`'s own JSON."""

import ipaddress
import json
import os
import shutil
import subprocess
from typing import Any

from rigd.provision.target.facts_files import text_of

Facts = dict[str, Any]

IP_DEADLINE_S = 10.0
_FOREIGN = {"4": "8.8.8.8", "6": "2404:6800:400a:800::1012"}
"""An address far away: the way to it is the default route. Nothing is sent."""
_TYPES = {"1": "ether", "32": "infiniband", "512": "ppp", "772": "loopback", "65534": "tunnel"}


def network() -> Facts:
    """Return every interface, the addresses of all, and the default route's."""
    links = _ip("address", "show")
    interfaces = {link["ifname"]: _interface(link) for link in links if "ifname" in link}
    names = list(interfaces) or sorted(os.listdir("/sys/class/net"))
    infos = [info for link in links for info in link.get("addr_info", ())]
    return {
        "interfaces": names,
        "all_ipv4_addresses": _addresses(infos, "inet"),
        "all_ipv6_addresses": _addresses(infos, "inet6"),
        "default_ipv4": _default("4", links),
        "default_ipv6": _default("6", links),
        **{_fact_name(name): facts for name, facts in interfaces.items()},
    }


def _fact_name(interface: str) -> str:
    return interface.replace("-", "_").replace(":", "_").replace(".", "_")


def _interface(link: Facts) -> Facts:
    name = link["ifname"]
    folder = f"/sys/class/net/{name}"
    facts: Facts = {
        "device": name,
        "mtu": link.get("mtu"),
        "active": text_of(f"{folder}/operstate") != "down",
        "promisc": "PROMISC" in link.get("flags", ()),
        "type": "bridge"
        if os.path.isdir(f"{folder}/bridge")
        else _TYPES.get(text_of(f"{folder}/type"), "unknown"),
    }
    if facts["type"] != "loopback" and link.get("address"):
        facts["macaddress"] = link["address"]
    infos = link.get("addr_info", ())
    four = [_four(info) for info in infos if info["family"] == "inet"]
    six = [
        {"address": info["local"], "prefix": str(info["prefixlen"]), "scope": info.get("scope", "")}
        for info in infos
        if info["family"] == "inet6"
    ]
    facts |= {"ipv4": four[0]} if four else {}
    facts |= {"ipv4_secondaries": four[1:]} if four[1:] else {}
    return facts | ({"ipv6": six} if six else {})


def _four(info: Facts) -> Facts:
    net = ipaddress.ip_interface(f"{info['local']}/{info['prefixlen']}").network
    return {
        "address": info["local"],
        "broadcast": info.get("broadcast", ""),
        "netmask": str(net.netmask),
        "network": str(net.network_address),
        "prefix": str(info["prefixlen"]),
    }


def _addresses(infos: "list[Facts]", family: str) -> "list[str]":
    found = [info["local"] for info in infos if info.get("family") == family]
    return [address for address in found if not ipaddress.ip_address(address).is_loopback]


def _default(version: str, links: "list[Facts]") -> Facts:
    """Return the interface, gateway and address that leave for the world; nothing where no way does."""
    routes = _ip(f"-{version}", "route", "get", _FOREIGN[version])
    if not routes or "gateway" not in routes[0]:
        return {}
    route = routes[0]
    address = route.get("prefsrc")
    facts: Facts = {"gateway": route["gateway"], "interface": route["dev"], "address": address}
    for link in links:
        if link.get("ifname") != route["dev"]:
            continue
        facts |= {
            name: value for name, value in _interface(link).items() if name in ("mtu", "type", "macaddress")
        }
        for info in link.get("addr_info", ()):
            if info["local"] == address and version == "4":
                facts |= {**_four(info), "alias": info.get("label", route["dev"])}
            elif info["local"] == address:
                facts |= {"prefix": str(info["prefixlen"]), "scope": info.get("scope", "")}
    return facts


def _ip(*words: str) -> "list[Facts]":
    """Return what `ip` says; nothing where it is missing or fails."""
    program = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "-j", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=IP_DEADLINE_S,
            check=True,
        )
        found = json.loads(done.stdout or b"[]")
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    return [entry for entry in found if isinstance(entry, dict)]


TABLE = (
    (
        frozenset({"interfaces", "all_ipv4_addresses", "all_ipv6_addresses", "default_ipv4", "default_ipv6"}),
        network,
    ),
)
