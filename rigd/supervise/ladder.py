"""What to try after a failure: a restart, one knob, or nothing more. Pure.

    failure (class, steps of its rule) -> road -> first rung that still leads anywhere

The classifier's rule names the first remedies, with the numbers of the message; `ROADS` says how a class goes on
after that. Knob directions are not obvious (docs of the failure catalogue, section 7): memory that runs out while
the KV pool is sized wants utilization *up*, any other out-of-memory wants it down.

How to add a road: a line in `ROADS`. How to add a rung: a member of `Change` and its row in `_NEW_VALUE`.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rigd.rig.schema import Engine, Ladder
from rigd.supervise import knobs
from rigd.supervise.knobs import Scalar


class Move(enum.StrEnum):
    """The kinds of rungs."""

    RESTART = "restart"
    TURN = "turn"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One thing that may help: a knob and what to do with it, in the classifier's words."""

    knob: str
    change: str
    value: Scalar = None


@dataclass(frozen=True, kw_only=True)
class Rung:
    """What to do next. `knob`, `old` and `new` for a turn."""

    move: Move
    knob: str = ""
    old: Scalar = None
    new: Scalar = None


def _halve(knob: str) -> Remedy:
    return Remedy(knob=knob, change="halve")


RESTART = Remedy(knob="engine", change="restart")
LESS_MEMORY = (
    _halve("max_num_seqs"),
    _halve("max_num_batched_tokens"),
    Remedy(knob="gpu_memory_utilization", change="lower", value=0.02),
    Remedy(knob="speculative.num_speculative_tokens", change="lower", value=1),
    Remedy(knob="speculative", change="remove"),
)
HANGING = (
    RESTART,
    Remedy(knob="environment.NCCL_P2P_DISABLE", change="set", value="1"),
    Remedy(knob="disable_custom_all_reduce", change="set", value=True),
    Remedy(knob="speculative", change="remove"),
)

ROADS: Mapping[str, tuple[Remedy, ...]] = {
    "oom_sampler_warmup": LESS_MEMORY,
    "oom_profile": (_halve("max_num_batched_tokens"), *LESS_MEMORY),
    "oom_cudagraph": (Remedy(knob="gpu_memory_utilization", change="lower", value=0.03), *LESS_MEMORY),
    "post_ready_oom": (RESTART, _halve("max_num_batched_tokens"), *LESS_MEMORY),
    "engine_stalled": HANGING,
    "garbage_output": (
        RESTART,
        Remedy(knob="disable_custom_all_reduce", change="set", value=True),
        Remedy(knob="environment.NCCL_P2P_DISABLE", change="set", value="1"),
        Remedy(knob="speculative", change="remove"),
    ),
}
"""Roads that replace the remedies of the rule; every other class goes by its rule alone."""

WAITING = frozenset({"restart", "recreate", "wait"})
"""Changes that leave the settings as they are: the next start is the same one, on a cleaner machine."""


def next_rung(
    kind: str,
    remedies: tuple[Remedy, ...],
    engine: Engine,
    wished: Engine,
    limits: Ladder,
    *,
    restarts: int,
) -> Rung:
    """Return the first rung that still leads anywhere, from the engine as it is now.

    `restarts`: how often this class was already answered by a restart since the last knob was turned.
    """
    for remedy in ROADS.get(kind, remedies):
        if remedy.change in WAITING:
            if restarts < limits.restarts:
                return Rung(move=Move.RESTART)
            continue
        if not limits.enabled or remedy.change not in _NEW_VALUE:
            continue
        rung = _turn(_instead(remedy, engine), engine, wished, limits)
        if rung is not None:
            return rung
    return Rung(move=Move.STOP)


def _instead(remedy: Remedy, engine: Engine) -> Remedy:
    """Return the remedy for the knob that counts: a pool given in bytes makes the share of memory irrelevant."""
    pinned = engine.arguments.kv_cache_memory_bytes is not None
    if remedy.knob == "gpu_memory_utilization" and pinned and remedy.change == "lower":
        return Remedy(knob="kv_cache_memory_bytes", change="scale", value=0.95)
    return remedy


def _turn(remedy: Remedy, engine: Engine, wished: Engine, limits: Ladder) -> Rung | None:
    """Return the turn of one knob, or None where it is at its end, or is no knob of this engine."""
    try:
        set_to = knobs.read(engine, remedy.knob)
        now = set_to if set_to is not None else knobs.default(engine, remedy.knob)
        if remedy.knob == "speculative":
            now = None if set_to is None else "on"
        new = _NEW_VALUE[remedy.change](remedy, now, limits)
        if new is _NOTHING or new == now or _below_floor(remedy, new, wished, limits):
            return None
        settled = new if isinstance(new, str | int | float | bool) else None
        knobs.write(engine, remedy.knob, settled)
    except knobs.UnknownKnobError:
        return None
    old = _old(remedy.knob, set_to, now)
    return Rung(move=Move.TURN, knob=remedy.knob, old=old, new=settled)


def _old(knob: str, set_to: object, now: object) -> Scalar:
    if knob == "speculative":
        return getattr(set_to, "method", None)
    return now if isinstance(now, str | int | float | bool) else None


class _Nothing(enum.Enum):
    NOTHING = enum.auto()


_NOTHING = _Nothing.NOTHING
_New = Scalar | _Nothing


def _halved(remedy: Remedy, now: object, limits: Ladder) -> _New:
    floor = _floor(remedy.knob, limits)
    if not isinstance(now, int) or isinstance(now, bool) or now <= floor:
        return _NOTHING
    stated = remedy.value if isinstance(remedy.value, int) and remedy.value < now else now // 2
    return max(int(floor), stated)


def _lowered(remedy: Remedy, now: object, _limits: Ladder) -> _New:
    if isinstance(now, bool) or not isinstance(now, int | float) or not isinstance(remedy.value, int | float):
        return _NOTHING
    return round(now - remedy.value, 4) if isinstance(now, float) else now - int(remedy.value)


def _raised(remedy: Remedy, now: object, limits: Ladder) -> _New:
    if isinstance(now, bool) or not isinstance(now, int | float) or not isinstance(remedy.value, int | float):
        return _NOTHING
    new = round(now + remedy.value, 4)
    return (
        new
        if remedy.knob != "gpu_memory_utilization" or new <= limits.most_gpu_memory_utilization
        else _NOTHING
    )


def _scaled(remedy: Remedy, now: object, _limits: Ladder) -> _New:
    if not isinstance(now, int) or not isinstance(remedy.value, float):
        return _NOTHING
    return int(now * remedy.value)


def _set(remedy: Remedy, _now: object, _limits: Ladder) -> _New:
    return _NOTHING if remedy.value is None else remedy.value


def _removed(_remedy: Remedy, now: object, _limits: Ladder) -> _New:
    return _NOTHING if now is None else None


_NEW_VALUE: dict[str, Callable[[Remedy, object, Ladder], _New]] = {
    "halve": _halved,
    "lower": _lowered,
    "raise": _raised,
    "scale": _scaled,
    "set": _set,
    "remove": _removed,
}
LEAST_POOL_SHARE = 0.8
"""A KV pool given in bytes is never turned below this share of the wish."""


def _floor(knob: str, limits: Ladder) -> float:
    floors: dict[str, float] = {
        "max_num_seqs": limits.least_max_num_seqs,
        "max_num_batched_tokens": limits.least_max_num_batched_tokens,
        "gpu_memory_utilization": limits.least_gpu_memory_utilization,
        "max_model_len": limits.least_max_model_len,
        "speculative.num_speculative_tokens": 1,
    }
    return floors.get(knob, 0)


def _below_floor(remedy: Remedy, new: object, wished: Engine, limits: Ladder) -> bool:
    if isinstance(new, bool) or not isinstance(new, int | float):
        return False
    if remedy.knob == "kv_cache_memory_bytes":
        wish = wished.arguments.kv_cache_memory_bytes
        return wish is not None and new < LEAST_POOL_SHARE * wish
    return new < _floor(remedy.knob, limits)
