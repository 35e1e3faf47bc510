"""Cards that are hot: when it is said, and when it has lasted so long that the response follows. Pure.

Both temperatures have a way back of their own, so that a card near one of them is not told of again and again.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from rigd.adapters.gpu import GpuCard, GpuReadings, bus_of
from rigd.rig.host import HeatResponse, Temperature
from rigd.supervise.host import Around, HostAction, HostFinding, HostKind, HostState, HotCard, Severity

HELD_DOWN = frozenset({"hw_thermal", "hw_slowdown", "hw_power_brake"})
"""Reasons for low clocks that a healthy box never shows."""

DIP_C = 2
"""A card that is this little below the temperature of the response still counts as at it, in degrees."""

RESPONSES: Mapping[HeatResponse, str] = MappingProxyType(
    {
        HeatResponse.TELL: "rigd only tells of it (host.temperature.response)",
        HeatResponse.LOWER_POWER: "its power limit goes down to {lowered_w:g} W until it is below {cool_c} degrees",
        HeatResponse.STOP: "the engine is stopped until it is below {cool_c} degrees",
    }
)


def cool_c(rules: Temperature) -> int:
    """Return the temperature below which a hot card is cool again, in degrees Celsius."""
    return rules.warn_c - rules.hysteresis_c


def after_heat(hot: tuple[HotCard, ...], readings: GpuReadings, around: Around) -> tuple[HotCard, ...]:
    """Return the cards that are too hot, each since when; a card that does not tell stays as it was."""
    rules = around.rules.temperature
    since = {one.bus: one.since_s for one in hot}
    for card in readings.cards:
        bus = bus_of(card.bus_id)
        if card.temperature_c is None or not bus:
            continue
        lasting = bus in since and around.now_s - since[bus] >= rules.act_after_s
        if card.temperature_c >= rules.act_c:
            since.setdefault(bus, around.now_s)
        elif card.temperature_c < (cool_c(rules) if lasting else rules.act_c - DIP_C):
            since.pop(bus, None)  # A peak is over at once; what had its response, when it is cool.
    return tuple(HotCard(bus=bus, since_s=at_s) for bus, at_s in since.items())


def findings(card: GpuCard, bus: str, state: HostState, around: Around) -> Iterator[HostFinding]:
    """Yield what is to be said of a card's heat."""
    rules = around.rules.temperature
    told = any(one.finding.kind is HostKind.THERMAL and one.finding.bus == bus for one in state.active)
    limit_c = cool_c(rules) if told else rules.warn_c
    warm = card.temperature_c is not None and card.temperature_c >= limit_c
    if warm or HELD_DOWN & set(card.throttle):
        yield _thermal(card, bus)
    since_s = next((one.since_s for one in state.hot if one.bus == bus), None)
    if since_s is not None and around.now_s - since_s >= rules.act_after_s:
        yield _overheated(card, bus, rules)


def _thermal(card: GpuCard, bus: str) -> HostFinding:
    reasons = ", ".join(sorted(HELD_DOWN & set(card.throttle)))
    held = f", and its clocks are held down ({reasons})" if reasons else ""
    power = "" if card.power_w is None else f" at {card.power_w:.0f} W"
    heat = "its temperature is unknown" if card.temperature_c is None else f"{card.temperature_c} degrees"
    return HostFinding(
        kind=HostKind.THERMAL,
        severity=Severity.WARNING,
        action=HostAction.FIX,
        sentence=f"GPU {card.index} at {bus} runs hot: {heat}{power}{held}.",
        hint="fans, dust, the gap between the cards, the power supply; a lower limit helps too: "
        f"`nvidia-smi -i {card.index} -pl 290`, or host.gpus in the rig file",
        gpu=card.index,
        bus=bus,
    )


def _overheated(card: GpuCard, bus: str, rules: Temperature) -> HostFinding:
    heat = "unreadable" if card.temperature_c is None else f"{card.temperature_c} degrees"
    response = RESPONSES[rules.response].format(lowered_w=rules.lowered_power_w, cool_c=cool_c(rules))
    return HostFinding(
        kind=HostKind.OVERHEATED,
        severity=Severity.ERROR,
        action=HostAction.FIX,
        sentence=f"GPU {card.index} at {bus} was at {rules.act_c} degrees or more for {rules.act_after_s:.0f} s "
        f"(now {heat}): {response}.",
        hint="fans, dust, the gap between the cards, the power supply",
        gpu=card.index,
        bus=bus,
        blocks=rules.response is HeatResponse.STOP,
    )
