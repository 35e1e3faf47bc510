"""All checks as a table, and what comes of them. Pure."""

from collections.abc import Callable, Iterator
from typing import Any

from rigd.doctor import cards, containers, driver, host, network, service
from rigd.doctor.finding import Facts, Finding, Severity, unknown
from rigd.doctor.wish import Wish

Check = Callable[[Facts, Wish | None], Iterator[Finding]]

CHECKS: tuple[tuple[Check, tuple[str, ...]], ...] = (
    (host.system, ("system",)),
    (cards.counted, ("cards",)),
    (cards.bound, ("cards",)),
    (driver.loaded, ("driver",)),
    (driver.cuda, ("driver",)),
    (driver.next_boot, ("cards", "driver", "kernel")),
    (driver.updates, ("updates",)),
    (driver.reboot, ("reboot",)),
    (cards.linked, ("cards",)),
    (cards.window, ("cards",)),
    (cards.peers, ("cards",)),
    (cards.awake, ()),
    (cards.power, ()),
    (containers.docker, ("docker", "service")),
    (containers.settings, ("docker",)),
    (containers.injection, ("docker", "toolkit", "cdi")),
    (containers.toolkit, ("toolkit",)),
    (containers.cdi, ("driver", "cdi")),
    (containers.store, ("docker", "disks")),
    (service.program, ()),
    (service.peer_notes, ()),
    (host.shared_memory, ("memory",)),
    (host.memory, ("memory",)),
    (host.limits, ("memory", "service")),
    (host.disks, ("system",)),
    (host.cache, ("disks", "system")),
    (host.mounts, ()),
    (host.clock, ("clock",)),
    (network.port, ("network", "docker", "service")),
    (network.reached, ("network",)),
    (network.exchange, ("network",)),
    (network.published, ("network", "docker")),
    (network.tailnet, ("tailscale", "network")),
    (service.unit, ("service",)),
)
"""Each check, and the parts of the facts that it cannot do without."""

ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO, Severity.OK)


def findings(facts: Facts, wish: Wish | None) -> tuple[Finding, ...]:
    """Return what all checks found, the gravest first; a part that is not known is a finding, once."""
    found: list[Finding] = []
    told: set[str] = set()
    for check, needs in CHECKS:
        missing = {part: why for part in needs if (why := unknown(facts, part)) is not None}
        for part, why in missing.items():
            if part not in told:
                told.add(part)
                sentence = f"'{part}' could not be looked at: {why}"
                found.append(Finding(check=part, severity=Severity.WARNING, sentence=sentence))
        if not missing:
            found += check(facts, wish)
    return tuple(sorted(found, key=lambda one: ORDER.index(one.severity)))


def document(found: tuple[Finding, ...], facts: Facts) -> dict[str, Any]:
    """Return the findings and what they rest on, as JSON."""
    counts = {str(severity): sum(one.severity is severity for one in found) for severity in ORDER}
    return {
        "fit": not counts[Severity.ERROR],
        "counts": counts,
        "findings": [
            {"id": one.check, "severity": str(one.severity), "sentence": one.sentence, "mend": one.mend}
            for one in found
        ],
        "facts": dict(facts),
    }
