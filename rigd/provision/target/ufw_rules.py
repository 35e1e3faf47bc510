"""What ufw's rules say of an ssh session: its own notation read, and judged as the kernel will. Pure.

    ### tuple ### allow_log tcp 22,80:90 0.0.0.0/0 any 10.0.0.0/8 OpenSSH - in_eth0 comment=6c616e
                  verb  protocol ports  to       port  from       (applications) direction

The first rule that fits decides, and where none does the policy.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rigd.provision.target.ssh_session import Session

MARK = "### tuple ### "
LETS_IN = ("allow", "limit")

Rules = Mapping[int, Sequence[str]]
"""Of each version of the protocol (4, 6) the rules in their order, without the mark."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What becomes of the next session like the present one."""

    lets_in: bool
    rule: str = ""
    """The rule that decides; "" where the policy does."""


def rules_in(text: str) -> dict[int, tuple[str, ...]]:
    """Return the rules of a text that ufw wrote: a file of its rules, or what a dry run prints of both files."""
    found: dict[int, tuple[str, ...]] = {}
    for table in text.split("*filter")[1:]:
        lines = [line.removeprefix(MARK) for line in table.splitlines() if line.startswith(MARK)]
        found[6 if ":ufw6-" in table else 4] = tuple(lines)
    return found


def verdict(rules: Rules, policy: str, session: Session) -> Verdict:
    """Return what these rules, and this policy for the rest, do with a session."""
    if session.interface == "lo":
        return Verdict(lets_in=True)
    for rule in rules.get(ipaddress.ip_address(session.address).version, ()):
        words = _without_comment(rule).split()
        if _fits(words, session):
            return Verdict(lets_in=words[0].split("_")[0] in LETS_IN, rule=shown(rule))
    return Verdict(lets_in=policy == "allow")


def shown(rule: str) -> str:
    """Return a rule as a person would say it."""
    verb, protocol, ports, to, _, source, *rest = _without_comment(rule).split()
    way = rest[-1].replace("_", " on ", 1)
    port = "" if ports == "any" else f" port {ports}"
    return f"{verb} {way} from {_place(source)} to {_place(to)}{port}" + (
        "" if protocol == "any" else f" proto {protocol}"
    )


def _place(address: str) -> str:
    return "any" if address in ("0.0.0.0/0", "::/0") else address


def _without_comment(rule: str) -> str:
    return rule.partition(" comment=")[0]


def _fits(words: Sequence[str], session: Session) -> bool:
    _, protocol, ports, to, from_port, source, *rest = words
    return (
        not words[0].startswith("route:")
        and protocol in ("any", "tcp")
        # The next session comes from another port, nobody knows which.
        and from_port == "any"
        and _holds(ports, session.port)
        and _within(session.own_address, to)
        and _within(session.address, source)
        and _comes_by(rest[-1], session.interface)
    )


def _holds(ports: str, port: int) -> bool:
    for part in ports.split(","):
        low, _, high = part.partition(":")
        if part == "any" or int(low) <= port <= int(high or low):
            return True
    return False


def _within(address: str, network: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)


def _comes_by(way: str, interface: str) -> bool:
    direction, _, name = way.partition("_")
    fits = interface.startswith(name[:-1]) if name.endswith("+") else interface == name
    return direction == "in" and (not name or fits)
