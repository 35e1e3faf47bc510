"""What to try after a failure: a restart, a wait, a cache moved aside, one knob, or nothing more. Pure.

    failure (class, steps of its rule) -> road -> first rung that still leads anywhere

The classifier's rule names the first remedies, with the numbers of the message; `ROADS` says how a class goes on
after that. Knob directions are not obvious (docs of the failure catalogue, section 7): memory that runs out while
the KV pool is sized wants utilization *up*, any other out-of-memory wants it down.

How to add a road: a line in `ROADS`. How to add a turn: a member of `rules.model.Change` and its row in `_NEW_VALUE`.
How to add a kind of rung: a member of `Move`, a row in `_RUNGS`, and in `failing` what it does.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rigd.rig.schema import Engine, Ladder
from rigd.supervise import knobs
from rigd.supervise.caches import CACHES
from rigd.supervise.conditions import CONDITIONS
from rigd.supervise.knobs import Scalar


class Move(enum.StrEnum):
    """The kinds of rungs."""

    RESTART = "restart"
    RECREATE = "recreate"
    """As a restart: every start makes its container anew, and the end of one takes its anonymous volumes along."""
    WAIT = "wait"
    """Launch nothing until a condition outside the engine holds (`conditions`)."""
    MOVE_ASIDE = "move_aside"
    """Rename a cache (`caches`), once, so that the engine makes it anew."""
    TURN = "turn"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One thing that may help: a knob and what to do with it, in the classifier's words.

    `value` of a restart: how often at most, in place of the rig file's `restarts`.
    """

    knob: str
    change: str
    value: Scalar = None
    needs: str = ""
    """What a look must have found (`found`) before this is a remedy."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """What to do next. `knob`, `old` and `new` for a turn; `knob` names the condition or the cache otherwise."""

    move: Move
    knob: str = ""
    old: Scalar = None
    new: Scalar = None

    def mark(self, kind: str) -> str:
        """Return what is remembered of a failure of class `kind` that was answered by this rung."""
        return kind if self.move in REPEATED else f"{kind} {self.move} {self.knob}"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What was tried already, so that no road goes in circles."""

    answered: tuple[str, ...] = ()
    """Marks of the rungs taken since the last knob was turned."""
    moved: frozenset[str] = frozenset()
    """Caches moved aside for this class under this rig file."""
    values: frozenset[tuple[str, Scalar]] = frozenset()
    """Knobs and the values that they have had: none is gone back to."""


REPEATED = frozenset({Move.RESTART, Move.RECREATE})
SPENT = "spent"


def spent(kind: str, condition: str) -> str:
    """Return the mark of a condition that waiting for does not help failures of class `kind`."""
    return f"{kind} {SPENT} {condition}"


def found(kind: str, what: str) -> str:
    """Return the mark of what a look has found out about failures of class `kind`."""
    return f"{kind} found {what}"


def _halve(knob: str) -> Remedy:
    return Remedy(knob=knob, change="halve")


def _wait(condition: str) -> Remedy:
    return Remedy(knob=condition, change="wait")


def _set(knob: str, value: Scalar = None) -> Remedy:
    return Remedy(knob=knob, change="set", value=value)


def _lower(knob: str, by: float) -> Remedy:
    return Remedy(knob=knob, change="lower", value=by)


RESTART = Remedy(knob="engine", change="restart")
RESTART_ONCE = Remedy(knob="engine", change="restart", value=1)
NO_MTP = Remedy(knob="speculative", change="remove")
UTILIZATION = "gpu_memory_utilization"
OFFLINE_KNOB = "environment.HF_HUB_OFFLINE"
WHOLE = "whole"
"""Found by a look: all that the engine has downloaded is whole."""
NO_P2P = _set("environment.NCCL_P2P_DISABLE", "1")
NO_CUSTOM_ALL_REDUCE = _set("disable_custom_all_reduce", value=True)
SHALLOWER = _lower("speculative.num_speculative_tokens", 1)
LESS_MEMORY = (
    _halve("max_num_seqs"),
    _halve("max_num_batched_tokens"),
    _lower("gpu_memory_utilization", 0.02),
    SHALLOWER,
    NO_MTP,
)
HANGING = (RESTART, NO_P2P, NO_MTP, NO_CUSTOM_ALL_REDUCE)

ROADS: Mapping[str, tuple[Remedy, ...]] = {
    # Memory of the cards. A pool that is sized too small wants utilization up: the rules of kv_none and kv_small.
    "oom_sampler_warmup": LESS_MEMORY,
    "oom_profile": (_halve("max_num_batched_tokens"), *LESS_MEMORY),
    "oom_cudagraph": (
        _lower("gpu_memory_utilization", 0.03),
        *LESS_MEMORY,
        _set("enforce_eager", value=True),  # Decodes far slower: after everything else.
    ),
    # The gates wait for the dying engine's memory before every start. The same load would kill the same settings.
    "post_ready_oom": (
        RESTART_ONCE,
        _halve("max_num_batched_tokens"),
        _lower("gpu_memory_utilization", 0.02),
        _halve("max_num_seqs"),
        SHALLOWER,
        NO_MTP,
    ),
    "gpu_mem_busy": (_wait("gpu_memory"), _set("gpu_memory_utilization")),
    "profile_race": (_wait("gpu_memory"), RESTART),
    "orphan_gpu_mem": (_wait("gpu_memory"), RESTART),
    # What the engine needs of its surroundings.
    "port_in_use": (_wait("port"), RESTART),
    "disk_full": (_wait("disk"),),
    "shm_exhausted": (_wait("shm"), _set("docker.ipc", "host"), _set("docker.shm_size", "16gb")),
    "hf_not_found": (_wait("model_mount"),),
    # An incomplete snapshot could never be completed offline.
    "hf_network": (
        _wait("network"),
        Remedy(knob=OFFLINE_KNOB, change="set", value="1", needs=WHOLE),
        RESTART,
    ),
    "registry_unreachable": (_wait("registry"), RESTART),
    "runtime_unavailable": (_wait("docker"),),
    "weights_corrupt": (Remedy(knob="hf_download", change="move_aside"),),
    "threads_limit": (
        Remedy(knob="docker.pids_limit", change="remove"),
        _set("environment.OPENBLAS_NUM_THREADS", "1"),
    ),
    # The second start finds files and compilations in the cache. The variable is vLLM's own deadline: it is
    # raised only where the log says that this was the one that passed.
    "ready_timeout": (RESTART_ONCE, _set("environment.VLLM_ENGINE_READY_TIMEOUT_S")),
    # Hangs, and answers that are none.
    "ima_mtp_gdn": (RESTART, _set("async_scheduling", value=False), NO_MTP),
    "ima_other": (RESTART_ONCE, NO_CUSTOM_ALL_REDUCE, _set("enforce_eager", value=True)),
    "engine_stalled": HANGING,
    "rpc_timeout": HANGING,
    "stall_forever": HANGING,
    # What only the numbers show: answered while the engine serves, once nothing runs. A shorter max_model_len would
    # ease the pool too, but break what clients were promised.
    "spec_accept_collapse": (RESTART_ONCE, NO_MTP),
    "preempt_thrash": (_halve("max_num_seqs"),),
    "host_ram_leak": (RESTART,),
    "garbage_output": (RESTART, NO_CUSTOM_ALL_REDUCE, NO_P2P, NO_MTP),
    # Healthy, and no answer to the first request, in words that no rule knows: mostly a kernel of the draft model.
    "cannot_serve": (RESTART_ONCE, NO_MTP),
}
"""Roads that replace the remedies of the rule; every other class goes by its rule alone.

A step without a value takes the rule's, which holds the number of the message, and is left out where there is none.
"""


def next_rung(
    kind: str,
    remedies: tuple[Remedy, ...],
    engine: Engine,
    wished: Engine,
    limits: Ladder,
    *,
    tried: Tried,
) -> Rung:
    """Return the first rung that still leads anywhere, from the engine as it is now."""
    for remedy in _road(kind, remedies):
        if remedy.needs and found(kind, remedy.needs) not in tried.answered:
            continue
        rung = _RUNGS.get(remedy.change, _turn)(kind, _instead(remedy, engine), engine, wished, limits, tried)
        if rung is not None:
            return rung
    return Rung(move=Move.STOP)


def _road(kind: str, remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """Return the road of a class, with the numbers that the message states."""
    if kind not in ROADS:
        return remedies
    stated = {(one.knob, one.change): one.value for one in remedies if one.value is not None}
    return tuple(
        replace(one, value=stated.get((one.knob, one.change))) if one.value is None else one
        for one in ROADS[kind]
    )


def _instead(remedy: Remedy, engine: Engine) -> Remedy:
    """Return the remedy for the knob that counts: a pool given in bytes makes the share of memory irrelevant."""
    pinned = engine.arguments.kv_cache_memory_bytes is not None
    if remedy.knob == UTILIZATION and pinned and remedy.change == "lower":
        return Remedy(knob="kv_cache_memory_bytes", change="scale", value=0.95)
    return remedy


def _again(
    kind: str, remedy: Remedy, _engine: Engine, _wished: Engine, limits: Ladder, tried: Tried
) -> Rung | None:
    """Return a restart, as long as there were not too many of them for this class."""
    most = remedy.value if isinstance(remedy.value, int) else limits.restarts
    rung = Rung(move=Move(remedy.change))
    return rung if tried.answered.count(rung.mark(kind)) < min(most, limits.restarts) else None


def _wait_for(
    kind: str, remedy: Remedy, _engine: Engine, _wished: Engine, limits: Ladder, tried: Tried
) -> Rung | None:
    """Return a wait, unless it was in vain, or the condition held and the same failure came back too often."""
    rung = Rung(move=Move.WAIT, knob=remedy.knob)
    often = tried.answered.count(rung.mark(kind)) >= max(1, limits.restarts)
    fruitless = often or spent(kind, remedy.knob) in tried.answered
    return None if fruitless or remedy.knob not in CONDITIONS else rung


def _move_aside(
    _kind: str, remedy: Remedy, engine: Engine, _wished: Engine, limits: Ladder, tried: Tried
) -> Rung | None:
    """Return the moving of a cache, once; a model is not moved where it could not be fetched again."""
    offline = knobs.read(engine, OFFLINE_KNOB) not in {None, "", "0"}
    kept = remedy.knob == "hf_download" and offline
    known = remedy.knob in CACHES and remedy.knob not in tried.moved
    return Rung(move=Move.MOVE_ASIDE, knob=remedy.knob) if limits.enabled and known and not kept else None


def _turn(
    _kind: str, remedy: Remedy, engine: Engine, wished: Engine, limits: Ladder, tried: Tried
) -> Rung | None:
    """Return the turn of one knob, or None where it is at its end, or is no knob of this engine."""
    if not limits.enabled or remedy.change not in _NEW_VALUE:
        return None
    try:
        set_to = knobs.read(engine, remedy.knob)
        now = knobs.in_effect(engine, remedy.knob)
        if remedy.knob == "speculative":
            now = None if set_to is None else "on"
        new = _NEW_VALUE[remedy.change](remedy, now, limits)
        if new is _NOTHING or new == now or _below_floor(remedy, new, wished, limits):
            return None
        settled = new if isinstance(new, str | int | float | bool) else None
        knobs.write(engine, remedy.knob, settled)
    except knobs.UnknownKnobError:
        return None
    if (remedy.knob, settled) in tried.values:
        return None
    old = _old(remedy.knob, set_to, now)
    return Rung(move=Move.TURN, knob=remedy.knob, old=old, new=settled)


_RUNGS: dict[str, Callable[[str, Remedy, Engine, Engine, Ladder, Tried], Rung | None]] = {
    "restart": _again,
    "recreate": _again,
    "wait": _wait_for,
    "move_aside": _move_aside,
}
"""What is no turn of a knob; every other change is one, or a person's work."""


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
    if remedy.knob == UTILIZATION:
        new = min(new, limits.most_gpu_memory_utilization)
    return new if new > now else _NOTHING


def _scaled(remedy: Remedy, now: object, _limits: Ladder) -> _New:
    if not isinstance(now, int) or not isinstance(remedy.value, float):
        return _NOTHING
    return int(now * remedy.value)


def _taken(remedy: Remedy, now: object, _limits: Ladder) -> _New:
    if remedy.value is None or (isinstance(now, str) and remedy.value in now.split(",")):
        return _NOTHING  # Of a list that is a value among others, such as PyTorch's allocator settings.
    return remedy.value


def _removed(_remedy: Remedy, now: object, _limits: Ladder) -> _New:
    return _NOTHING if now is None else None


_NEW_VALUE: dict[str, Callable[[Remedy, object, Ladder], _New]] = {
    "halve": _halved,
    "lower": _lowered,
    "raise": _raised,
    "scale": _scaled,
    "set": _taken,
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
