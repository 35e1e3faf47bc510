"""What a box is: Ansible's facts under Ansible's names (without `ansible_`), with the values that its `setup` gives.

How to add one: a function in the file of its kind that returns it, and its name in that file's table.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rigd.provision.target import facts_hardware, facts_login, facts_network, facts_system

Facts = dict[str, Any]

GROUPS: Mapping[str, "tuple[tuple[frozenset[str], Callable[[], Facts]], ...]"] = {
    "min": (*facts_system.TABLE, *facts_login.TABLE),
    "hardware": facts_hardware.TABLE,
    "virtual": facts_system.VIRTUAL_TABLE,
    "network": facts_network.TABLE,
}
"""Ansible's names of subsets -> the names of facts that a function brings, and the function."""
OPEN_GROUP = "network"
"""Brings a fact for each interface, too, whose name nobody knows beforehand."""


def known() -> frozenset[str]:
    """Return the names of all facts but those of single interfaces."""
    return frozenset().union(*(names for group in GROUPS.values() for names, _ in group))


def gather(wanted: "frozenset[str] | None" = None) -> Facts:
    """Return the facts: all, or at least those named (by their own names, or by a group's)."""
    unknown = frozenset() if wanted is None else wanted - known() - frozenset(GROUPS) - {"all"}
    everything = wanted is None or "all" in wanted
    facts: Facts = {}
    for group, sources in GROUPS.items():
        whole = everything or group in (wanted or ()) or (bool(unknown) and group == OPEN_GROUP)
        for names, source in sources:
            if whole or (wanted is not None and names & wanted):
                facts |= source()
    return facts
