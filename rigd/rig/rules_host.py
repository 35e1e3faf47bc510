"""Rules about what rigd may do to the host. Pure."""

from collections import Counter
from collections.abc import Iterator

from rigd.rig.findings import Finding, error, warning
from rigd.rig.host import HeatResponse
from rigd.rig.schema import Rig


def cards_are_distinct(rig: Rig) -> Iterator[Finding]:
    """Tell of cards that have two entries, and of entries that set nothing."""
    names = Counter((one.card or "").lower() for one in rig.host.gpus)
    for number, one in enumerate(rig.host.gpus):
        if names[(one.card or "").lower()] > 1:
            what = repr(one.card) if one.card else "an entry for all cards"
            yield error(f"host.gpus[{number}]", f"{what} is there more than once", "make one entry of them")
        if not one.model_dump(exclude_none=True, exclude={"card"}):
            yield warning(f"host.gpus[{number}]", "sets nothing", "remove it, or give it a setting")


def drift_has_a_playbook(rig: Rig) -> Iterator[Finding]:
    """Tell of settings of a check that never happens, and of one that never comes."""
    drift = rig.host.drift
    if drift.playbook is None and (drift.apply or drift.variables):
        yield error("host.drift.playbook", "is missing, so nothing is checked or applied", "name a playbook")
    if drift.playbook is not None and drift.every_s is None and not drift.at_boot:
        yield warning("host.drift", "never looks", "give every_s, or at_boot: true")


def temperatures_are_ordered(rig: Rig) -> Iterator[Finding]:
    """Tell of temperatures that contradict one another, and of a response that cannot help."""
    heat = rig.host.temperature
    if heat.act_c < heat.warn_c:
        yield error("host.temperature.act_c", f"{heat.act_c} is less than warn_c ({heat.warn_c})")
    if heat.response is not HeatResponse.LOWER_POWER:
        return
    for number, one in enumerate(rig.host.gpus):
        if one.power_limit_w is not None and one.power_limit_w <= heat.lowered_power_w:
            yield warning(
                f"host.gpus[{number}].power_limit_w",
                f"is not above temperature.lowered_power_w ({heat.lowered_power_w:g}), so lowering does nothing",
                "give a lower lowered_power_w",
            )
