"""Checks of the cards: on the bus, bound, linked, their memory's window, peer access, power. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from rigd.doctor.finding import Facts, Finding, error, info, ok, playbook, unknown, warning
from rigd.doctor.wish import Wish

TAKERS = frozenset({"nouveau", "nova_core", "nova_drm", "nova-core", "nova-drm", "NovaCore"})
NARROW = 4
LARGE_BAR_MIB = 1024
"""Without a resizable window a card shows 256 MiB of its memory."""


def _address(card: Mapping[str, Any]) -> str:
    return str(card["address"])


def counted(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether there are as many cards as the engine spreads over."""
    if wish is not None and not wish.uses_cards:
        yield info("cards", "the rig's engine uses no card")
        return
    found = facts["cards"]
    wanted = 1 if wish is None else wish.ranks
    named = ", ".join(map(_address, found)) or "none"
    if len(found) >= wanted:
        yield ok("cards", f"{len(found)} NVIDIA card{'s' * (len(found) != 1)} on the bus: {named}")
    elif not found:
        yield error(
            "cards",
            "there is no NVIDIA card on the bus",
            "power, seating and riser; `lspci -d 10de:` must list it",
        )
    else:
        sentence = f"the engine spreads over {wanted} cards, and the bus has {len(found)}: {named}"
        mend = "power, seating, riser, and Above 4G decoding in the firmware; or lower tensor_parallel_size"
        yield error("cards", sentence, mend)
    chosen = () if wish is None or wish.spec.container is None else wish.spec.container.gpus
    if wish is not None and isinstance(chosen, tuple) and chosen and len(chosen) < wish.ranks:
        yield error(
            "cards",
            f"engine.docker.gpus names {len(chosen)} cards, and tensor_parallel_size is {wish.ranks}",
            "name as many, or `gpus: all`",
        )


def bound(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether NVIDIA's driver has the cards, and no other."""
    del wish
    taken = {_address(one): one["driver"] for one in facts["cards"] if one["driver"] in TAKERS}
    free = [_address(one) for one in facts["cards"] if not one["driver"]]
    other = [
        f"{_address(one)} ({one['driver']})"
        for one in facts["cards"]
        if one["driver"] and one["driver"] not in TAKERS and one["driver"] != "nvidia"
    ]
    if taken:
        said = ", ".join(f"{address} by {driver}" for address, driver in taken.items())
        mend = f"{playbook('blacklist')}, then reboot"
        yield error("bound", f"the kernel's own driver took a card: {said}", mend)
    if free:
        yield error(
            "bound",
            f"no driver has {', '.join(free)}",
            f"{playbook('driver')}, then reboot; if it is installed: `dmesg | grep -i nvrm`",
        )
    if other:
        yield error("bound", f"handed to another driver: {', '.join(other)}", "undo the pass-through (vfio)")
    if facts["cards"] and not (taken or free or other):
        yield ok("bound", "NVIDIA's driver has every card")
    leftovers = TAKERS.intersection(facts["driver"]["modules"] if unknown(facts, "driver") is None else ())
    if leftovers and not taken:
        names = ", ".join(sorted(leftovers))
        yield warning("bound", f"{names} is loaded beside NVIDIA's driver", playbook("blacklist"))


def linked(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the cards have all their lanes. The generation of an idle card says nothing: it rests low."""
    del wish
    under_load = {one["address"]: one for one in facts.get("load", {}).get("cards", ())}
    if why := facts.get("load", {}).get("error"):
        yield info("link", f"the links could not be looked at under load: {why}")
    for card in facts["cards"]:
        seen = under_load.get(card["address"], card)
        width, most = seen["width"], card["width_max"]
        if not width or not most:
            yield info("link", f"{_address(card)} does not tell its link (a virtual machine?)")
            continue
        lanes = f"{_address(card)}: x{width:g} of x{most:g}"
        speed = f"{seen['speed'] or 0:g} of {card['speed_max'] or 0:g} GT/s"
        if width < NARROW:
            mend = (
                "another slot, or a riser with all lanes: tensor parallelism waits for each step's exchange"
            )
            yield error("link", f"{lanes} lanes: a mining riser, or a slot that shares its lanes", mend)
        elif width < most:
            mend = "see whether an M.2 drive or the second slot takes the lanes; x8 is enough, x4 is felt"
            severity = info if width > NARROW else warning
            yield severity("link", f"{lanes} lanes", mend)
        elif under_load and seen["speed"] and card["speed_max"] and seen["speed"] < card["speed_max"]:
            mend = "the slot's generation in the firmware, a better riser; `dmesg | grep AER` shows errors"
            yield warning("link", f"{lanes} lanes, {speed} under load", mend)
        else:
            when = "under load" if under_load else "now; idle cards rest low, `--load` looks at them at work"
            yield ok("link", f"{lanes} lanes, {speed} {when}")


def window(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the window into a card's memory is large, as peer access over PCIe needs it."""
    small = [one for one in facts["cards"] if one["bar_mib"] is not None and one["bar_mib"] < LARGE_BAR_MIB]
    if facts["cards"] and not small:
        yield ok(
            "bar1", f"the window into the cards' memory is {facts['cards'][0]['bar_mib']} MiB (resizable BAR)"
        )
    elif small:
        said = ", ".join(f"{_address(one)} {one['bar_mib']} MiB" for one in small)
        sentence = f"the window into the cards' memory is small: {said}"
        mend = "Above 4G decoding and Resizable BAR in the firmware (and a card firmware that has it)"
        wants = wish is not None and wish.environment.get("NCCL_P2P_DISABLE") == "0"
        yield (warning if wants else info)("bar1", sentence, mend)


def peers(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether NCCL uses peer access where the driver grants it, and only there."""
    if len(facts["cards"]) < 2 or unknown(facts, "smi") is not None:  # noqa: PLR2004  (a pair)
        return
    granted, states = "OK" in facts["smi"]["p2p"], ", ".join(facts["smi"]["p2p"]) or "not told"
    if wish is None or wish.ranks < 2:  # noqa: PLR2004  (a pair)
        yield info("p2p", f"peer access between the cards: {states}")
        return
    given = wish.environment
    off = given.get("NCCL_P2P_DISABLE", "0") not in ("", "0")
    if off and given.get("NCCL_SHM_DISABLE", "0") not in ("", "0"):
        yield error(
            "p2p",
            "NCCL_P2P_DISABLE and NCCL_SHM_DISABLE together leave the cards the network alone",
            "remove NCCL_SHM_DISABLE from engine.environment",
        )
    if granted and not off:
        mend = 'prove it: rigd provision apply playbooks/smoke.yml -e smoke_image=IMAGE; or NCCL_P2P_DISABLE: "1"'
        sentence = (
            "the driver grants peer access and NCCL will use it; on some boards it hangs, or adds up wrong"
        )
        yield info("p2p", sentence, mend)
    elif granted:
        yield info(
            "p2p", "the driver grants peer access, and the rig file keeps NCCL from it (NCCL_P2P_DISABLE)"
        )
    elif off:
        yield ok("p2p", f"no peer access ({states}), and NCCL is told so (NCCL_P2P_DISABLE)")
    else:
        mend = 'engine.environment: {NCCL_P2P_DISABLE: "1"}; and disable_custom_all_reduce: true'
        yield warning(
            "p2p", f"the driver grants no peer access ({states}), and NCCL is left to find out", mend
        )


def awake(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the driver stays loaded between two programs."""
    del wish
    if unknown(facts, "smi") is not None:
        return
    asleep = [one["uuid"] for one in facts["smi"]["cards"] if one["persistence_mode"] == "Disabled"]
    if asleep:
        sentence = f"persistence mode is off on {len(asleep)} cards: settings are lost when nothing uses them"
        yield warning("persistence", sentence, playbook("persistence"))
    elif facts["smi"]["cards"]:
        yield ok("persistence", "persistence mode is on")


def power(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether power limits are as the rig file says."""
    if unknown(facts, "smi") is not None:
        return
    for card in facts["smi"]["cards"]:
        limit, least, most, name = (
            card[key] for key in ("power.limit", "power.min_limit", "power.max_limit", "uuid")
        )
        wanted = None if wish is None else _limit(wish, card)
        if limit is None:
            continue
        if wanted is None:
            yield info("power", f"{name}: {limit:g} W of at most {most or 0:g} W; the rig file sets none")
        elif most and not (least or 0) <= wanted <= most:
            sentence = f"{name} takes {least or 0:g} to {most:g} W, and the rig file says {wanted:g} W"
            yield warning("power", sentence, "host.gpus: a power_limit_w that the card takes")
        elif abs(limit - wanted) > 1:
            sentence = f"{name} may draw {limit:g} W, and the rig file says {wanted:g} W"
            yield warning(
                "power", sentence, "sudo rigd host apply-gpu RIG; at each boot: rigd-gpu-settings.service"
            )
        else:
            yield ok("power", f"{name}: {limit:g} W, as the rig file says")


def _limit(wish: Wish, card: Mapping[str, Any]) -> float | None:
    bus = str(card["pci.bus_id"] or "").lower()
    everyone = None
    for one in wish.rig.host.gpus:
        if one.card is None:
            everyone = one.power_limit_w
        elif one.card.lower() == str(card["uuid"]).lower() or bus.endswith(
            one.card.lower().removeprefix("0000:")
        ):
            return one.power_limit_w
    return everyone
