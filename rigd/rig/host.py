"""The rig file's `host:` section: what rigd may do to the host under the engine. By default: look, and tell."""

import enum
from typing import Annotated

from pydantic import Field

from rigd.rig.drift import Drift
from rigd.rig.model import Model

CARD = r"^(GPU-[0-9a-f-]+|([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.[0-7])?)$"
"""How a card is named: by its UUID or its PCI address."""


class GpuSettings(Model):
    """Settings of one card, or of all; a setting left out is not touched."""

    card: Annotated[str, Field(pattern=CARD)] | None = None
    """UUID (`GPU-...`, from `nvidia-smi -L`) or PCI address (`0000:0a:00.0`); none: every card without an
    entry of its own. Indices change over a reboot, so they are refused."""
    power_limit_w: Annotated[float, Field(gt=0)] | None = None
    """Power limit in watts, kept within what the card allows. It is lost with every reboot."""
    persistence_mode: bool | None = None
    """The driver stays loaded while nothing uses the card, so that what is set here stays."""
    graphics_clock_mhz: Annotated[int, Field(ge=1)] | None = None
    """Most that the clock of the processors may be, in MHz."""
    memory_clock_mhz: Annotated[int, Field(ge=1)] | None = None
    """Most that the clock of the memory may be, in MHz."""


class HeatResponse(enum.StrEnum):
    """What rigd does about a card that stays too hot."""

    TELL = "tell"
    LOWER_POWER = "lower-power"
    STOP = "stop"


class Temperature(Model):
    """When a card is hot, and what is done about it."""

    warn_c: Annotated[int, Field(ge=40, le=110)] = 87
    """From here on a card is called hot. Degrees Celsius."""
    act_c: Annotated[int, Field(ge=40, le=115)] = 91
    """From here on, for `act_after_s`, the response follows; a 3090 slows hard at 93. Degrees Celsius."""
    hysteresis_c: Annotated[int, Field(ge=1, le=40)] = 7
    """A hot card is cool again when it is this far below `warn_c`. Degrees."""
    act_after_s: Annotated[float, Field(ge=0)] = 30.0
    """How long a card must be that hot before the response."""
    response: HeatResponse = HeatResponse.TELL
    """`tell`; `lower-power`: its limit becomes `lowered_power_w` until it is cool; `stop`: the engine is ended, and
    starts again when the card is cool."""
    lowered_power_w: Annotated[float, Field(gt=0)] = 220.0
    """Power limit of a card that is too hot, for `lower-power`. Watts."""


class Host(Model):
    """What rigd may do to the host under the engine."""

    gpus: tuple[GpuSettings, ...] = ()
    """Settings of the cards: verified with every reading, and set by root (`rigd host apply-gpu`)."""
    temperature: Temperature = Temperature()
    """When a card is hot, and what is done about it."""
    allow_gpu_reset: bool = False
    """rigd may reset a card when the driver, or an Xid, asks for it and no engine runs."""
    allow_reboot: bool = False
    """rigd may reboot the host when nothing less helps and no engine runs."""
    most_per_day: Annotated[int, Field(ge=1)] = 2
    """Most resets and reboots together in 24 hours; what an earlier boot did counts."""
    act_after_s: Annotated[float, Field(ge=0)] = 60.0
    """How long the cause must hold before a reset or a reboot."""
    drift: Drift = Drift()
    """Whether the host is still as a playbook says."""
