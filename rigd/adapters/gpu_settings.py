"""Sets cards through NVML, and reads back what came of it. Needs root; blocks.

A card is found by its UUID or PCI address, never by its index. What is asked for is kept within what the card
allows, and what is so already is not set again. Locked clocks cannot be read back: the reading that follows says
whether the clock keeps within them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rigd.adapters.gpu import bus_of

_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_NO_PERMISSION = 4
_TOLERANCE_W = 1.0


@dataclass(frozen=True, kw_only=True)
class CardSettings:
    """What one card shall be set to; None is not touched."""

    card: str
    """UUID or PCI address."""
    power_limit_w: float | None = None
    default_power: bool = False
    """Set the power limit to the card's own default, where `power_limit_w` is None."""
    persistence_mode: bool | None = None
    graphics_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None


@dataclass(frozen=True, kw_only=True)
class SettingDone:
    """What came of one setting of one card."""

    card: str
    setting: str
    wanted: str
    ok: bool
    changed: bool = False
    """Whether it had to be set."""
    detail: str = ""
    denied: bool = False
    """Whether root was needed."""


@dataclass(frozen=True, kw_only=True)
class CardFound:
    """A card that NVML counts."""

    uuid: str
    bus: str


class NvmlAbsentError(Exception):
    """NVML cannot be opened: no driver, or not the right one."""


def find_cards() -> tuple[CardFound, ...]:
    """Return the cards that answer. Raises `NvmlAbsentError`."""
    with _Nvml() as nvml:
        found = []
        for index in range(int(nvml.nvmlDeviceGetCount())):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                bus = bus_of(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
                found.append(CardFound(uuid=str(nvml.nvmlDeviceGetUUID(handle)), bus=bus))
            except nvml.NVMLError:
                continue  # A lost card: whoever looks for it says so.
        return tuple(found)


def apply(wanted: Iterable[CardSettings], *, only_look: bool = False) -> tuple[SettingDone, ...]:
    """Set what differs, and say what came of each setting; `only_look` sets nothing. Raises `NvmlAbsentError`."""
    with _Nvml() as nvml:
        return tuple(done for one in wanted for done in _card(nvml, one, only_look=only_look))


class _Nvml:
    """NVML, opened for as long as it is needed."""

    def __enter__(self) -> Any:
        try:
            import pynvml  # noqa: PLC0415  (only where someone sets cards)

            self._nvml: Any = pynvml
            pynvml.nvmlInit()
        except Exception as error:
            raise NvmlAbsentError(str(error) or type(error).__name__) from error
        return self._nvml

    def __exit__(self, *_error: object) -> None:
        self._nvml.nvmlShutdown()


def _card(nvml: Any, wanted: CardSettings, *, only_look: bool) -> list[SettingDone]:
    steps = [(name, words, step) for name, words, step in _steps(wanted) if words]
    handle = _handle(nvml, wanted.card)
    found = []
    for name, words, step in steps:
        failed = SettingDone(card=wanted.card, setting=name, wanted=words, ok=False)
        if handle is None:
            found.append(replace(failed, detail="no such card answers"))
            continue
        try:
            found.append(step(nvml, handle, replace(failed, ok=True), wanted, only_look=only_look))
        except nvml.NVMLError as error:
            denied = error.value == _NO_PERMISSION
            detail = "only root may set it" if denied else str(error)
            found.append(replace(failed, detail=detail, denied=denied))
    return found


def _steps(wanted: CardSettings) -> tuple[tuple[str, str, Callable[..., SettingDone]], ...]:
    """Return what is set, in words (none: not touched), and how."""
    mode, graphics, memory = wanted.persistence_mode, wanted.graphics_clock_mhz, wanted.memory_clock_mhz
    power = "its default" if wanted.default_power else ""
    return (
        ("persistence mode", "" if mode is None else _on(mode), _persistence),
        ("power limit", power if wanted.power_limit_w is None else f"{wanted.power_limit_w:g} W", _power),
        ("graphics clock", "" if graphics is None else f"at most {graphics} MHz", _graphics),
        ("memory clock", "" if memory is None else f"at most {memory} MHz", _memory),
    )


def _handle(nvml: Any, card: str) -> Any:
    """Return the card's handle, or None where no card that answers has this name."""
    for index in range(int(nvml.nvmlDeviceGetCount())):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            names = {
                str(nvml.nvmlDeviceGetUUID(handle)),
                bus_of(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
            }
        except nvml.NVMLError:
            continue  # Another card that is lost.
        if card in names or bus_of(card) in names:
            return handle
    return None


def _persistence(
    nvml: Any, handle: Any, done: SettingDone, wanted: CardSettings, *, only_look: bool
) -> SettingDone:
    before = bool(nvml.nvmlDeviceGetPersistenceMode(handle))
    if before != wanted.persistence_mode and not only_look:
        nvml.nvmlDeviceSetPersistenceMode(handle, int(bool(wanted.persistence_mode)))
    after = bool(nvml.nvmlDeviceGetPersistenceMode(handle))
    ok = after == wanted.persistence_mode
    return replace(done, ok=ok, changed=before != after, detail=f"is {_on(after)}")


def _power(
    nvml: Any, handle: Any, done: SettingDone, wanted: CardSettings, *, only_look: bool
) -> SettingDone:
    least_mw, most_mw = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    asked_mw = (
        nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)
        if wanted.power_limit_w is None
        else round(wanted.power_limit_w * 1000)
    )
    goal_mw = min(max(asked_mw, least_mw), most_mw)
    before_mw = nvml.nvmlDeviceGetPowerManagementLimit(handle)
    if not _near(before_mw, goal_mw) and not only_look:
        nvml.nvmlDeviceSetPowerManagementLimit(handle, goal_mw)
    after_mw = nvml.nvmlDeviceGetPowerManagementLimit(handle)
    bounds = "" if goal_mw == asked_mw else f"; the card allows {least_mw / 1000:g} to {most_mw / 1000:g} W"
    detail = f"is {after_mw / 1000:g} W{bounds}"
    return replace(done, ok=_near(after_mw, goal_mw), changed=before_mw != after_mw, detail=detail)


def _graphics(
    nvml: Any, handle: Any, done: SettingDone, wanted: CardSettings, *, only_look: bool
) -> SettingDone:
    asked, lock = wanted.graphics_clock_mhz or 0, nvml.nvmlDeviceSetGpuLockedClocks
    return _clock(nvml, handle, done, (_CLOCK_SM, asked, lock), only_look=only_look)


def _memory(
    nvml: Any, handle: Any, done: SettingDone, wanted: CardSettings, *, only_look: bool
) -> SettingDone:
    asked, lock = wanted.memory_clock_mhz or 0, nvml.nvmlDeviceSetMemoryLockedClocks
    return _clock(nvml, handle, done, (_CLOCK_MEMORY, asked, lock), only_look=only_look)


def _clock(
    nvml: Any, handle: Any, done: SettingDone, how: tuple[int, int, Any], *, only_look: bool
) -> SettingDone:
    which, asked, lock = how
    most = int(nvml.nvmlDeviceGetMaxClockInfo(handle, which))
    goal = min(asked, most)
    if not only_look:
        lock(handle, 0, goal)
    now = int(nvml.nvmlDeviceGetClockInfo(handle, which))
    bounds = "" if goal == asked else f"; the card reaches {most} MHz"
    # A clock may need a moment to come down, so the lock that was taken counts; whether it is kept, readings tell.
    ok = not only_look or now <= goal
    return replace(done, ok=ok, changed=not only_look, detail=f"runs at {now} MHz{bounds}")


def _near(left_mw: int, right_mw: int) -> bool:
    return abs(left_mw - right_mw) <= _TOLERANCE_W * 1000


def _on(value: bool | None) -> str:  # noqa: FBT001  (a word for a value)
    return "on" if value else "off"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
