"""What the rig file says of the cards' settings, and where a reading differs from it. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rigd.adapters.gpu import GpuCard, bus_of
from rigd.adapters.gpu_settings import CardSettings
from rigd.rig.host import GpuSettings, HeatResponse, Host
from rigd.supervise.host import Around, HostAction, HostFinding, HostKind, KnownCard, Severity

TOLERANCE_W = 1.0
TOLERANCE_MHZ = 30
"""Clocks move in steps of 15 MHz; a locked one may lie a step above what was asked for."""


def wanted_of(rules: Host, *, uuid: str, bus: str, lowered: bool = False) -> CardSettings | None:
    """Return what a card shall be set to; None: nothing is said of it. Its own entry replaces the one for all."""
    entry = next((one for one in rules.gpus if _names(one, uuid, bus)), None)
    entry = entry or next((one for one in rules.gpus if one.card is None), None)
    if entry is None and not lowered:
        return None
    wanted = CardSettings(card=bus or uuid)
    if entry is not None:
        wanted = replace(
            wanted,
            power_limit_w=entry.power_limit_w,
            persistence_mode=entry.persistence_mode,
            graphics_clock_mhz=entry.graphics_clock_mhz,
            memory_clock_mhz=entry.memory_clock_mhz,
        )
    if lowered and rules.temperature.response is HeatResponse.LOWER_POWER:
        own_w = wanted.power_limit_w or float("inf")
        wanted = replace(wanted, power_limit_w=min(own_w, rules.temperature.lowered_power_w))
    return wanted


def _names(entry: GpuSettings, uuid: str, bus: str) -> bool:
    if entry.card is None:
        return False
    return entry.card == uuid if entry.card.startswith("GPU-") else bus_of(entry.card) == bus


def deviations(card: GpuCard, bus: str, around: Around, *, lowered: bool) -> Iterator[HostFinding]:
    """Yield each setting of a card that a reading contradicts, with the numbers."""
    wanted = wanted_of(around.rules, uuid=card.uuid, bus=bus, lowered=lowered)
    if wanted is None or card.problem is not None:
        return
    for subject, sentence in _differences(wanted, card):
        yield HostFinding(
            kind=HostKind.GPU_SETTINGS,
            severity=Severity.WARNING,
            action=HostAction.FIX,
            sentence=f"GPU {card.index} at {bus}: {sentence}.",
            hint=f"`sudo rigd host apply-gpu {around.rig_file}` sets it; "
            "`systemctl enable rigd-gpu-settings` does so at each boot",
            gpu=card.index,
            bus=bus,
            subject=subject,
        )


def _differences(wanted: CardSettings, card: GpuCard) -> Iterator[tuple[str, str]]:
    asked_w, is_w = wanted.power_limit_w, card.power_set_w
    if asked_w is not None and is_w is not None:
        least_w, most_w = card.power_range_w or (0.0, float("inf"))
        bounds = f" (the card allows {least_w:g} to {most_w:g} W)" if card.power_range_w else ""
        if abs(min(max(asked_w, least_w), most_w) - is_w) > TOLERANCE_W:
            yield "power limit", f"its power limit is {is_w:g} W, {asked_w:g} W is wanted{bounds}"
    mode = wanted.persistence_mode
    if mode is not None and card.persistence is not None and mode != card.persistence:
        yield "persistence mode", f"persistence mode is {_on(card.persistence)}, {_on(mode)} is wanted"
    for name, most, now in (
        ("graphics clock", wanted.graphics_clock_mhz, card.clock_mhz),
        ("memory clock", wanted.memory_clock_mhz, card.memory_clock_mhz),
    ):
        if most is not None and now is not None and now > most + TOLERANCE_MHZ:
            yield name, f"its {name} is {now} MHz, at most {most} MHz is wanted"


def strangers(rules: Host, cards: Iterable[KnownCard], around: Around) -> Iterator[HostFinding]:
    """Yield each entry of the rig file whose card has not been seen in this boot."""
    known = tuple(cards)
    for entry in rules.gpus:
        if entry.card is not None and not any(_names(entry, card.uuid, card.bus) for card in known):
            yield HostFinding(
                kind=HostKind.GPU_SETTINGS,
                severity=Severity.WARNING,
                action=HostAction.FIX,
                sentence=f"The rig file sets the card {entry.card}, and there is no such card.",
                hint=f"`nvidia-smi -L` lists the cards; correct host.gpus in {around.rig_file}",
                subject=entry.card,
            )


def _on(value: bool) -> str:  # noqa: FBT001  (a word for a value)
    return "on" if value else "off"
