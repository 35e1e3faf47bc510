"""GPUs as NVML tells of them: frozen readings in which every error is data.

NVML calls may never return when a card is wedged, so one call at a time runs in a thread, and whoever asks gets
an answer by the deadline: that NVML is stuck, if need be.
"""

import asyncio
import contextlib
import enum
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rigd.adapters.blocking import run_blocking

READ_DEADLINE_S = 5.0
_NEVER_S = 1e9
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits between tries to open NVML again."""
_MIB = 1024 * 1024
_MEMORY_V2 = 0x02000028
_RECOVERY_FIELD = 230
_TEMPERATURE_GPU = 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2


class GpuFault(enum.StrEnum):
    """What is wrong with a card, or with all of NVML."""

    NO_LIBRARY = "no_library"
    """No driver is installed here: the host has no NVIDIA GPUs as far as anyone can use them."""
    NO_DRIVER = "no_driver"
    """The library is there, the kernel module is not loaded."""
    MISMATCH = "mismatch"
    """The driver was upgraded under a running kernel module."""
    LOST = "lost"
    """The card fell off the bus."""
    RESET_REQUIRED = "reset_required"
    STUCK = "stuck"
    """NVML does not come back."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class GpuProblem:
    """A fault, NVML's words for it, and what a person does about it."""

    fault: GpuFault
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a card."""

    pid: int
    memory_mib: int | None
    """None where the driver does not say."""
    graphics: bool = False


@dataclass(frozen=True, kw_only=True)
class GpuCard:
    """One card; what the driver does not tell is None."""

    index: int
    uuid: str = ""
    name: str = ""
    bus_id: str = ""
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    utilization: int | None = None
    """Percent of the last sample in which the card was busy."""
    clock_mhz: int | None = None
    """Clock of the processors now."""
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    """The limit that holds now; the driver's own reasons may keep it below the one that was set."""
    power_set_w: float | None = None
    """The limit that was set."""
    power_range_w: tuple[float, float] | None = None
    """Least and most that may be set."""
    persistence: bool | None = None
    throttle: tuple[str, ...] = ()
    """Why the clocks are held down, in NVML's own words (`sw_power_cap`, `hw_thermal`); idle is none."""
    processes: tuple[GpuProcess, ...] = ()
    recovery: str | None = None
    """What the driver says the card needs: `gpu_reset`, `node_reboot`, ...; None: nothing, or it does not say."""
    problem: GpuProblem | None = None


@dataclass(frozen=True, kw_only=True)
class GpuReadings:
    """All cards at one time; `problem` says why there are none."""

    at_s: float
    driver: str = ""
    cards: tuple[GpuCard, ...] = ()
    problem: GpuProblem | None = None

    @property
    def absent(self) -> bool:
        """Whether this host has no NVIDIA driver at all."""
        return self.problem is not None and self.problem.fault is GpuFault.NO_LIBRARY


# NVML's error codes, by number: names differ between versions of its bindings.
_UNINITIALIZED, _NOT_SUPPORTED, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND = 1, 3, 9, 12
_FUNCTION_NOT_FOUND, _LOST, _RESET_REQUIRED, _MISMATCH = 13, 15, 16, 18
_FAULTS: Mapping[int, tuple[GpuFault, str]] = {
    _LIBRARY_NOT_FOUND: (GpuFault.NO_LIBRARY, "install the NVIDIA driver, if this host has such cards"),
    _DRIVER_NOT_LOADED: (
        GpuFault.NO_DRIVER,
        "`modprobe nvidia`; after a kernel upgrade rebuild the module, or reboot",
    ),
    _MISMATCH: (
        GpuFault.MISMATCH,
        "the driver was upgraded: reboot the host (a running engine works until it ends)",
    ),
    _LOST: (
        GpuFault.LOST,
        "power the host off and on; look for Xid 79 in `dmesg`, check power and riser of the card",
    ),
    _RESET_REQUIRED: (
        GpuFault.RESET_REQUIRED,
        "end what uses the card, then `nvidia-smi --gpu-reset`, or reboot",
    ),
}
_ANYTHING = (GpuFault.UNKNOWN, "see `nvidia-smi` and `dmesg`; a reboot clears most of these")
_WHOLE = frozenset({_UNINITIALIZED, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _MISMATCH})
"""Errors that concern all of NVML: it has to be opened again."""
_SILENT = frozenset({_NOT_SUPPORTED, _FUNCTION_NOT_FOUND})
"""Errors that say that a consumer card or an older driver does not tell."""
_THROTTLE = (
    (0x0004, "sw_power_cap"),
    (0x0008, "hw_slowdown"),
    (0x0020, "sw_thermal"),
    (0x0040, "hw_thermal"),
    (0x0080, "hw_power_brake"),
)
_RECOVERY = (
    "",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "imex",
    "bus_reset",
    "system_reboot",
)


class GpuReader:
    """Reads all cards; opens NVML when first asked, and again after it was lost."""

    def __init__(self) -> None:
        self._flight: asyncio.Task[GpuReadings] | None = None
        self._flight_began_s = 0.0
        self._open = False
        self._failures = 0
        self._retry_at_s = 0.0
        self._problem: GpuProblem | None = None

    async def read(self, *, deadline_s: float = READ_DEADLINE_S) -> GpuReadings:
        """Return what the cards say now; never raises, never takes longer than the deadline."""
        if self._flight is None or self._flight.done():
            self._flight_began_s = time.monotonic()
            self._flight = asyncio.create_task(run_blocking(self.take, deadline_s=_NEVER_S), name="NVML")
        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.shield(self._flight)
        except TimeoutError:
            stuck_s = time.monotonic() - self._flight_began_s
            problem = GpuProblem(
                fault=GpuFault.STUCK,
                message=f"NVML has not answered for {stuck_s:.0f} s",
                hint="a card or its driver hangs: see `dmesg`; most often only a reboot helps",
            )
            return GpuReadings(at_s=time.time(), problem=problem)

    def take(self) -> GpuReadings:
        """Return the same from the calling thread (may block)."""
        now_s = time.monotonic()
        if not self._open and self._problem is not None and now_s < self._retry_at_s:
            return GpuReadings(at_s=time.time(), problem=self._problem)
        try:
            import pynvml  # noqa: PLC0415  (only where someone asks)

            if not self._open:
                pynvml.nvmlInit()
                self._open = True
            readings = self._all_cards(pynvml)
        except Exception as error:  # noqa: BLE001  (whatever NVML does, it is a reading)
            return self._lost(error)
        self._failures, self._problem = 0, None
        return readings

    async def close(self) -> None:
        """Let go of NVML; a stuck call is left to its thread."""
        flight, self._flight = self._flight, None
        if flight is not None and not flight.done():
            flight.cancel()
            await asyncio.gather(flight, return_exceptions=True)
        elif self._open:
            self._shut()

    def _all_cards(self, nvml: Any) -> GpuReadings:
        count = int(nvml.nvmlDeviceGetCount())
        driver = str(_told(nvml, nvml.nvmlSystemGetDriverVersion, [], default=""))
        cards = tuple(_card(nvml, index) for index in range(count))
        return GpuReadings(at_s=time.time(), driver=driver, cards=cards)

    def _lost(self, error: Exception) -> GpuReadings:
        self._shut()
        self._problem = problem_of(error)
        wait_s = _RETRY_S[min(self._failures, len(_RETRY_S) - 1)]
        self._failures += 1
        self._retry_at_s = time.monotonic() + wait_s
        return GpuReadings(at_s=time.time(), problem=self._problem)

    def _shut(self) -> None:
        if not self._open:
            return
        self._open = False
        with contextlib.suppress(Exception):  # It may be broken already; the next opening tells.
            import pynvml  # noqa: PLC0415  (loaded long since)

            pynvml.nvmlShutdown()


def bus_of(text: object) -> str:
    """Return a card's address as the kernel writes it, without the function: `0000:0a:00`."""
    parts = str(text).lower().removeprefix("pci:").partition(".")[0].split(":")
    if len(parts) == 2:  # noqa: PLR2004  (bus and device, of domain zero)
        parts = ["0", *parts]
    if len(parts) != 3:  # noqa: PLR2004  (domain, bus, device)
        return ""
    return f"{parts[0][-4:].zfill(4)}:{parts[1]}:{parts[2]}"


def problem_of(error: Exception) -> GpuProblem:
    """Return what an NVML error means."""
    code = getattr(error, "value", None)
    fault, hint = _FAULTS.get(code, _ANYTHING) if isinstance(code, int) else _ANYTHING
    return GpuProblem(fault=fault, message=str(error) or type(error).__name__, hint=hint)


def _card(nvml: Any, index: int) -> GpuCard:
    """Return one card. Errors of this card are its problem; errors of NVML itself are raised."""
    faults: list[Exception] = []
    handle = _told(nvml, lambda: nvml.nvmlDeviceGetHandleByIndex(index), faults)
    if handle is None:
        return GpuCard(index=index, problem=problem_of(faults[0]) if faults else None)

    def ask(question: Callable[[Any], Any], default: Any = None) -> Any:
        return _told(nvml, lambda: question(handle), faults, default=default)

    memory = ask(lambda card: nvml.nvmlDeviceGetMemoryInfo(card, _MEMORY_V2)) or ask(
        nvml.nvmlDeviceGetMemoryInfo
    )
    rates = ask(nvml.nvmlDeviceGetUtilizationRates)
    reasons = ask(nvml.nvmlDeviceGetCurrentClocksEventReasons)
    if reasons is None:
        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, default=0)
    power, limit = ask(nvml.nvmlDeviceGetPowerUsage), ask(nvml.nvmlDeviceGetEnforcedPowerLimit)
    limits = ask(nvml.nvmlDeviceGetPowerManagementLimitConstraints)
    limit_set, persistence = (
        ask(nvml.nvmlDeviceGetPowerManagementLimit),
        ask(nvml.nvmlDeviceGetPersistenceMode),
    )
    pci = ask(nvml.nvmlDeviceGetPciInfo)
    return GpuCard(
        index=index,
        uuid=_text(ask(nvml.nvmlDeviceGetUUID)),
        name=_text(ask(nvml.nvmlDeviceGetName)),
        bus_id="" if pci is None else _text(pci.busId),
        memory_total_mib=None if memory is None else int(memory.total) // _MIB,
        memory_used_mib=None if memory is None else int(memory.used) // _MIB,
        memory_free_mib=None if memory is None else int(memory.free) // _MIB,
        utilization=None if rates is None else int(rates.gpu),
        clock_mhz=ask(lambda card: int(nvml.nvmlDeviceGetClockInfo(card, _CLOCK_SM))),
        memory_clock_mhz=ask(lambda card: int(nvml.nvmlDeviceGetClockInfo(card, _CLOCK_MEMORY))),
        temperature_c=ask(lambda card: int(nvml.nvmlDeviceGetTemperature(card, _TEMPERATURE_GPU))),
        power_w=None if power is None else power / 1000,
        power_limit_w=None if limit is None else limit / 1000,
        power_set_w=None if limit_set is None else limit_set / 1000,
        power_range_w=None if limits is None else (limits[0] / 1000, limits[1] / 1000),
        persistence=None if persistence is None else bool(persistence),
        throttle=tuple(name for bit, name in _THROTTLE if reasons & bit),
        processes=(
            *_processes(ask(nvml.nvmlDeviceGetComputeRunningProcesses, default=()), graphics=False),
            *_processes(ask(nvml.nvmlDeviceGetGraphicsRunningProcesses, default=()), graphics=True),
        ),
        recovery=_recovery(ask(lambda card: nvml.nvmlDeviceGetFieldValues(card, [_RECOVERY_FIELD]))),
        problem=problem_of(faults[0]) if faults else None,
    )


def _told(nvml: Any, question: Callable[[], Any], faults: list[Exception], *, default: Any = None) -> Any:
    """Return the answer, or `default`; note what is worth telling in `faults`."""
    try:
        return question()
    except nvml.NVMLError as error:
        if error.value in _WHOLE:
            raise
        if error.value not in _SILENT:
            faults.append(error)
    except (
        AttributeError,
        UnicodeDecodeError,
        ValueError,
    ) as error:  # Another version of the bindings, or garbage.
        faults.append(error)
    return default


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _processes(found: Any, *, graphics: bool) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(
            pid=int(one.pid),
            memory_mib=None if one.usedGpuMemory is None else int(one.usedGpuMemory) // _MIB,
            graphics=graphics,
        )
        for one in found
    )


def _recovery(values: Any) -> str | None:
    if values is None or values[0].nvmlReturn != 0:
        return None
    number = int(values[0].value.uiVal)
    return (_RECOVERY[number] if number < len(_RECOVERY) else f"action {number}") or None
