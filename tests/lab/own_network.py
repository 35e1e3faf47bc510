"""A network of a box's own: one cable to this machine, which lets the box out to the world as its router does."""

import contextlib
import ipaddress
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

POOL = ipaddress.ip_network("10.231.0.0/16")
MTU = 1400
"""Small enough for whatever carries this machine's own packets."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A cable with this machine at one end and a network namespace, the box's, at the other."""

    name: str
    near: str
    """Address of this machine on the cable."""
    far: str
    """Address of the box."""

    def plug_in(self) -> None:
        """Give the box a network as it is after power-on: what it had set up in the last one is gone."""
        with contextlib.suppress(subprocess.CalledProcessError):
            _do("ip", "netns", "del", self.name)
        # The kernel takes the cable away with the namespace, but in its own time; by name it would be in the way.
        with contextlib.suppress(subprocess.CalledProcessError):
            _do("ip", "link", "del", self.name)
        inside = ("ip", "-n", self.name)
        _do("ip", "netns", "add", self.name)
        _do("ip", "link", "add", self.name, "mtu", str(MTU), "type", "veth",
            "peer", "name", "host0", "mtu", str(MTU), "netns", self.name)  # fmt: skip
        _do("ip", "addr", "add", f"{self.near}/30", "dev", self.name)
        _do("ip", "link", "set", self.name, "up")
        _do(*inside, "addr", "add", f"{self.far}/30", "dev", "host0")
        _do(*inside, "link", "set", "lo", "up")
        _do(*inside, "link", "set", "host0", "up")
        _do(*inside, "route", "add", "default", "via", self.near)


@contextlib.contextmanager
def own_network(*, world: bool = True) -> Iterator[Network]:
    """Give a network that the world can be reached from, or this machine alone; it is gone afterwards.

    That this machine forwards at all is left to its Docker, which has switched it on.
    """
    number = secrets.randbelow(POOL.num_addresses // 4)
    near, far = (str(POOL[4 * number + place]) for place in (1, 2))
    made = Network(name=f"rigd-{number:x}", near=near, far=far)
    rules = (
        ("-t", "nat", "-A", "POSTROUTING", "-s", f"{far}/32", "!", "-o", made.name, "-j", "MASQUERADE"),
        ("-I", "FORWARD", "-i", made.name, "-j", "ACCEPT"),
        ("-I", "FORWARD", "-o", made.name, "-j", "ACCEPT"),
    )
    with contextlib.ExitStack() as undo:
        for rule in rules if world else ():
            _do("iptables", "-w", "10", *rule)
            gone = ["-D" if word in ("-A", "-I") else word for word in rule]
            undo.callback(_do, "iptables", "-w", "10", *gone)
        undo.callback(_do, "ip", "netns", "del", made.name)
        made.plug_in()
        yield made


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)
