"""What a start may have to wait for: conditions outside the engine, as data. Pure.

    ladder: wait for NAME -> `pending` asks for a look, ever more rarely -> `looking` looks -> launch, or give up

How to add one: a row in `CONDITIONS`, a row in `looking.LOOKS`, and a road in `ladder.ROADS` that names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition, in words that complete "waiting for ..."."""

    words: str
    explains: bool = False
    """Whether it must be found wanting before a start is tried: that it holds says that something else failed."""
    brief: bool = False
    """Whether there is another road when it does not come true soon (`wait_memory_s`, not `wait_s`)."""


CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        "gpu_memory": Condition(words="the cards' memory to be released", brief=True),
        "port": Condition(words="the port to be free"),
        "disk": Condition(words="room on the disk", explains=True),
        "shm": Condition(words="room in /dev/shm", explains=True),
        "network": Condition(words="the network (Hugging Face)"),
        "registry": Condition(words="the image's registry"),
        "docker": Condition(words="Docker"),
        "model_mount": Condition(words="the model's folder and the mounts", explains=True),
    }
)
FIRST_LOOK_S = 2.0
LOOK_FACTOR = 1.6
LONGEST_LOOK_S = 60.0


def look_s(looks: int) -> float:
    """Return the time to the next look after this many of them, in seconds."""
    wait_s: float = min(LONGEST_LOOK_S, FIRST_LOOK_S * LOOK_FACTOR ** min(looks, 32))
    return wait_s
