"""Which phase of its start an engine is in, read from its log, and how long it still takes. Pure.

The table holds the lines that every vLLM from 0.8 to 0.33 prints in some form; the estimate is learned from
earlier starts of the same rig.
"""

import enum
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Phase(enum.StrEnum):
    """What an engine does between its creation and its first answer, in order."""

    LAUNCH = "launching"
    CONFIGURE = "reading the configuration"
    DISTRIBUTED = "connecting the cards"
    WEIGHTS = "loading weights"
    COMPILE = "compiling"
    PROFILE = "sizing the KV cache"
    CAPTURE = "capturing graphs"
    SERVE = "starting the server"


ORDER = tuple(Phase)

_MARKS: tuple[tuple[Phase, tuple[str, ...]], ...] = (
    (
        Phase.CONFIGURE,
        (
            r"vLLM API server version",
            r"non-default args",
            r"Initializing a V1 LLM engine",
            r"Resolved architecture",
        ),
    ),
    (
        Phase.DISTRIBUTED,
        (
            r"distributed_init_method",
            r"world_size=\d+ rank=\d+",
            r"vLLM is using nccl",
            r"Init\w* torch distributed",
        ),
    ),
    (
        Phase.WEIGHTS,
        (r"Starting to load model", r"Loading safetensors checkpoint shards", r"Loading model weights"),
    ),
    (
        Phase.COMPILE,
        (
            r"torch_compile_cache",
            r"Dynamo bytecode transform",
            r"[Cc]ompiling a graph",
            r"torch\.compile takes",
        ),
    ),
    (
        Phase.PROFILE,
        (
            r"Loading weights took",
            r"Model loading took",
            r"[Mm]emory profiling takes",
            r"Available KV cache memory",
            r"KV cache size: [\d,]+ tokens",
        ),
    ),
    (Phase.CAPTURE, (r"Capturing CUDA graphs", r"[Gg]raph capturing (?:finished|took)")),
    (
        Phase.SERVE,
        (
            r"init engine .* took",
            r"Starting vLLM(?: API)? server",
            r"Available routes are",
            r"startup complete",
        ),
    ),
)
_ANY = re.compile("|".join(f"(?P<{phase.name}>{'|'.join(patterns)})" for phase, patterns in _MARKS))
_SHARE = re.compile(r"(\d{1,3})% (?:Completed)?\s*\|?|\b(\d{1,3})%\|")
_POOL = re.compile(r"KV cache size: ([\d,]+) tokens")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a start has come: the phase, and when each phase so far began (seconds since creation)."""

    phase: Phase = Phase.LAUNCH
    began_s: tuple[tuple[Phase, float], ...] = ((Phase.LAUNCH, 0.0),)
    fraction: float | None = None
    """Share of the present phase, where the engine prints one."""
    pool_tokens: int | None = None
    """Tokens in the KV pool, once the engine has said so."""


def after_line(progress: Progress, line: str, *, elapsed_s: float) -> Progress:
    """Return the progress after one more line of the log; phases only go forward."""
    found = _ANY.search(line)
    pool = _POOL.search(line)
    tokens = int(pool.group(1).replace(",", "")) if pool else progress.pool_tokens
    if found is None or found.lastgroup is None:
        return progress
    phase = Phase[found.lastgroup]
    share = _SHARE.search(line)
    percent = next((int(group) for group in share.groups() if group), None) if share else None
    fraction = None if percent is None else min(1.0, percent / 100)
    if ORDER.index(phase) < ORDER.index(progress.phase):
        phase, fraction = progress.phase, progress.fraction
    began = progress.began_s
    if phase is not progress.phase:
        began = (*began, (phase, elapsed_s))
    return Progress(phase=phase, began_s=began, fraction=fraction, pool_tokens=tokens)


def durations(progress: Progress, *, ready_s: float) -> dict[str, float]:
    """Return the seconds of each phase of a start that became healthy `ready_s` seconds after creation."""
    ends = [*(at for _, at in progress.began_s[1:]), ready_s]
    return {phase.value: round(end - at, 2) for (phase, at), end in zip(progress.began_s, ends, strict=True)}


def remaining_s(
    progress: Progress, history: Sequence[Mapping[str, float]], *, elapsed_s: float
) -> float | None:
    """Return the seconds until the engine is up, from the medians of earlier starts; None without any.

    The present phase counts with what is left of its median; a phase that takes longer than ever before counts
    as about to end.
    """
    if not history:
        return None
    at = ORDER.index(progress.phase)
    spent_s = elapsed_s - progress.began_s[-1][1]
    now_s = max(0.0, _median(history, ORDER[at]) - spent_s)
    return now_s + sum(_median(history, phase) for phase in ORDER[at + 1 :])


def _median(history: Sequence[Mapping[str, float]], phase: Phase) -> float:
    return statistics.median(start.get(phase.value, 0.0) for start in history)
