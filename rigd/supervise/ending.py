"""The stop job: end the whole tree, sweep what is left, and say from the log what went wrong."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path

from rigd import errors, log
from rigd.adapters.store import Store
from rigd.runtime import startlog
from rigd.runtime.base import Runtime, RuntimeUnavailableError, StopReport
from rigd.supervise.classify import Diagnosis, Retry, diagnose
from rigd.supervise.decision import StopEngine
from rigd.supervise.host import HostFinding
from rigd.supervise.host_blame import RECENT_S, blamed
from rigd.supervise.ladder import Remedy
from rigd.supervise.observations import StopDone, StopFailed
from rigd.supervise.slow_answers import ANSWERED
from rigd.supervise.state import Failure

LOG_BYTES = 4 << 20
"""How much of the log's end is diagnosed. Start-up logs are far smaller; a long run ends with its cause."""
EVIDENCE_LINES = 8
DIAGNOSIS_S = 10.0
"""Longest time spent on a log before a restart goes on without, in seconds."""

OURS_KNOWS_BEST = ANSWERED | {"engine_stalled", "garbage_output", "canary_refused", "host_oom_kill"}
"""What probes saw and no log line says better; the log only adds evidence."""

UNCHANGED = frozenset({"restart", "recreate", "wait"})
"""Steps that leave the settings and the files as they are."""

SAYS_NOTHING = frozenset({"worker_died", "engine_exited"})
"""Classes of the log that only say that something ended; what the supervisor saw then says more."""

ENDINGS = frozenset({"worker_died", "engine_exited", "cannot_serve"})
"""What the supervisor saw of an engine that ended; its log may name an error that no rule knows."""


BeforeStop = Callable[[StopEngine], Awaitable[None]]
"""Takes down what will be gone after the stop. Bounded in time, and never raises."""
HostSays = Callable[[float], tuple[HostFinding, ...]]
"""What the kernel and the cards said since a time."""
Room = Callable[[Failure], Awaitable[Failure]]
"""Adds what the cards have room for, once the engine is gone. Bounded in time, and never raises."""
AfterStop = Callable[[StopEngine, StopDone], None]
"""Told how the stop went; returns at once."""


async def end_engine(
    action: StopEngine,
    runtime: Runtime,
    *,
    stop_s: float,
    state_dir: Path,
    store: Store,
    now: Callable[[], float],
    before_stop: BeforeStop | None = None,
    after_stop: AfterStop | None = None,
    host_says: HostSays | None = None,
    room: Room | None = None,
) -> StopDone | StopFailed:
    """End the engine named, then every other engine of this rig, then their remains."""
    if before_stop is not None:
        await before_stop(action)
    try:
        report = StopReport(processes=0, killed=0, survivors=(), took_s=0.0)
        if action.ref is not None:
            report = await runtime.stop(action.ref, grace_s=action.grace_s, deadline_s=stop_s)
        for other in await runtime.find():
            report = _sum(report, await runtime.stop(other, grace_s=action.grace_s, deadline_s=stop_s))
        swept = await runtime.sweep()
    except RuntimeUnavailableError as error:
        return StopFailed(message=errors.explain(error))
    except errors.RigdError as error:
        return StopFailed(message=errors.explain(error))
    report = replace(report, processes=report.processes + len(swept))
    diagnosis = None
    if action.failure is not None:
        diagnosis = await _diagnosis(action.failure, state_dir, host_says, room)
    if action.ref is not None:
        outcome = diagnosis.kind if diagnosis is not None else "stopped"
        gone = action.failure.exit if action.failure is not None else None
        exit_json = None if gone is None else json.dumps(asdict(gone))
        await store.update_start(action.ref.start, ended_s=now(), outcome=outcome, exit_json=exit_json)
    done = StopDone(report=report, diagnosis=diagnosis)
    if after_stop is not None:
        after_stop(action, done)
    return done


async def _diagnosis(
    failure: Failure, state_dir: Path, host_says: HostSays | None, room: Room | None
) -> Failure:
    """Return the failure as the log, the host and the cards tell it."""
    found = await _from_log(failure, state_dir)
    if host_says is not None:
        found = blamed(found, host_says(failure.at_s - RECENT_S))
    return found if room is None else await room(found)


async def _from_log(failure: Failure, state_dir: Path) -> Failure:
    """Return the failure as its log tells it; one that cannot be read in time never holds up a restart."""
    try:
        async with asyncio.timeout(DIAGNOSIS_S):
            return await asyncio.to_thread(refine, failure, state_dir)
    except Exception as error:  # noqa: BLE001  (whatever a log contains, the engine must come back)
        log.get("ending").warning("log not diagnosed", start=failure.start, error=errors.explain(error))
        return failure


def refine(failure: Failure, state_dir: Path) -> Failure:
    """Return the failure in the catalogue's words, with the lines of the log that say so."""
    if not failure.start:
        return failure
    folder = startlog.folder_of(state_dir, failure.start)
    text = ""
    with contextlib.suppress(OSError):
        text = startlog.tail(folder, LOG_BYTES)
    gone = failure.exit
    found = diagnose(
        text.splitlines(),
        exit_code=gone.code if gone is not None else None,
        oom_killed=gone.oom_killed if gone is not None else False,
        runtime_error=gone.detail if gone is not None else "",
        exited_member=gone.member if gone is not None else None,
    )
    return merged(failure, found)


def merged(failure: Failure, found: Diagnosis) -> Failure:
    """Return what the probes saw and what the log says as one failure."""
    evidence = tuple(f"{item.line_number}: {item.text}" for item in found.evidence[-EVIDENCE_LINES:])
    said_nothing = found.kind in SAYS_NOTHING and failure.kind not in SAYS_NOTHING
    if found.kind == "unknown" or failure.kind in OURS_KNOWS_BEST or said_nothing:
        return replace(failure, evidence=evidence, sentence=_with_error(failure, found))
    return replace(
        failure,
        kind=found.kind,
        sentence=full_sentence(found.sentence),
        hint=found.remedy or failure.hint,
        retry_helps=failure.retry_helps and retry_helps(found),
        remedies=remedies_of(found),
        evidence=evidence,
    )


def _with_error(failure: Failure, found: Diagnosis) -> str:
    """Return the failure's sentence, with the engine's first error where that is all that is known."""
    error = found.captured.get("error")
    if failure.kind not in ENDINGS or found.kind not in {"unknown", *SAYS_NOTHING} or not error:
        return failure.sentence
    return full_sentence(f"{failure.sentence} The first error in its log: {error}")


def remedies_of(found: Diagnosis) -> tuple[Remedy, ...]:
    """Return what the diagnosis says may help, in the ladder's words."""
    return tuple(Remedy(knob=step.knob, change=step.change, value=step.value) for step in found.steps)


def retry_helps(found: Diagnosis) -> bool:
    """Return whether the same settings may work another time: by themselves, or once what is waited for holds."""
    if found.retry is Retry.CONDITIONAL:
        return any(step.change in UNCHANGED for step in found.steps)
    return found.retry is Retry.YES


def full_sentence(text: str) -> str:
    """Return the text with a full stop, where it has no end of its own."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _sum(left: StopReport, right: StopReport) -> StopReport:
    return StopReport(
        processes=left.processes + right.processes,
        killed=left.killed + right.killed,
        survivors=(*left.survivors, *right.survivors),
        took_s=left.took_s + right.took_s,
    )
