"""The launch job: sweep, open the gates, create the engine. Says what holds it while it waits."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from rigd import errors
from rigd.adapters.store import Store
from rigd.engine.spec import LaunchSpec
from rigd.runtime import startlog
from rigd.runtime.base import EngineRef, GateReport, LaunchError, Runtime, RuntimeUnavailableError
from rigd.runtime.gates import check_gates
from rigd.supervise.classify import diagnose
from rigd.supervise.ending import full_sentence, remedies_of, retry_helps
from rigd.supervise.live import Board, Live
from rigd.supervise.observations import LaunchDone, LaunchFailed
from rigd.supervise.plan import Plan
from rigd.supervise.state import Failure

GATE_POLL_S = 0.5
SPEC = TypeAdapter(LaunchSpec)

GATE_KINDS = {"port": "port_in_use", "gpu": "gpu_mem_busy", "disk": "disk_full", "shm": "shm_exhausted"}
"""The catalogue's class for a gate that stays shut; `tree` has its own."""

HOST_GATE = "host:"
"""Begins the name of the gate that the host's watch shuts; the finding's class follows."""


class CancelledLaunchError(Exception):
    """The launch is no longer wanted; raised inside the runtime by the progress callback."""


@dataclass(kw_only=True)
class LaunchJob:
    """One launch. `cancel()` makes it end soon; nothing it created stays behind then."""

    plan: Plan
    runtime: Runtime
    store: Store
    state_dir: Path
    board: Board
    now: Callable[[], float]
    cancelled: bool = False

    def cancel(self) -> None:
        """Ask the job to end; `run` returns a failure that nobody waits for."""
        self.cancelled = True

    async def run(self) -> LaunchDone | LaunchFailed:
        """Launch the engine, and return what came of it."""
        # Folders of starts outlive a lost store: a number is never given twice.
        newest = max(startlog.starts(self.state_dir), default=0)
        start = await self.store.next_start(minimum=newest + 1)
        try:
            shut = await self._open_gates()
            if shut is not None:
                # No start helps a broken host, and none is to blame for it: the wish stays, the breaker too.
                broken = shut.name.startswith(HOST_GATE)
                return LaunchFailed(failure=self._gate_failure(shut, start), temporary=broken)
            return await self._create(start)
        except RuntimeUnavailableError as error:
            return LaunchFailed(failure=self._failure("runtime_unavailable", error, start), temporary=True)
        except LaunchError as error:
            if error.temporary:
                away = self._failure("runtime_unavailable", error, start)
                return LaunchFailed(failure=away, temporary=True)
            return LaunchFailed(failure=self._launch_failure(error, start))
        except CancelledLaunchError as error:
            return LaunchFailed(failure=self._failure("cancelled", error, start))
        except TimeoutError:
            limits = self.plan.rig.supervision.deadlines
            late = f"pull and creation took longer than {limits.pull_s + limits.create_s:.0f} s"
            slow = errors.RigdError(late, hint="look at the network, or raise supervision.deadlines.pull_s")
            return LaunchFailed(failure=self._failure("launch_timeout", slow, start))
        except errors.RigdError as error:
            return LaunchFailed(failure=self._failure("launch_failed", error, start))

    async def _open_gates(self) -> GateReport | None:
        """Wait until every gate is open; return the one that stayed shut."""
        deadline_s = time.monotonic() + self.plan.rig.supervision.deadlines.gates_s
        began_s = self.now()
        self.board.show(Live(phase="checking the machine", since_s=began_s))
        await self.runtime.sweep()
        try:
            while True:
                reports = await check_gates(self.plan.spec, self.plan.rig.gates, self.runtime)
                shut = self.board.hold or next((report for report in reports if not report.open), None)
                if shut is None or time.monotonic() >= deadline_s:
                    return shut
                self._stop_if_cancelled()
                self.board.waiting = True
                self.board.show(Live(phase="waiting for the machine", detail=shut.detail, since_s=began_s))
                await asyncio.sleep(GATE_POLL_S)
        finally:
            self.board.waiting = False

    async def _create(self, start: int) -> LaunchDone:
        limits = self.plan.rig.supervision.deadlines
        folder = startlog.folder_of(self.state_dir, start)
        loop = asyncio.get_running_loop()
        began_s = self.now()

        def progress(text: str, fraction: float | None) -> None:
            self._stop_if_cancelled()
            live = Live(phase=text, fraction=fraction, since_s=began_s)
            loop.call_soon_threadsafe(self.board.show, live)

        self._stop_if_cancelled()
        spec = self.plan.spec
        await self.store.record_start(
            start,
            digest=spec.digest,
            runtime=spec.runtime,
            began_s=began_s,
            spec_json=SPEC.dump_json(spec).decode(),
        )
        async with asyncio.timeout(limits.pull_s + limits.create_s):
            ref: EngineRef = await self.runtime.launch(spec, start=start, folder=folder, progress=progress)
        if self.cancelled:
            await self.runtime.stop(ref, grace_s=0.0, deadline_s=limits.stop_s)
            raise CancelledLaunchError("the launch is no longer wanted")
        return LaunchDone(ref=ref)

    def _stop_if_cancelled(self) -> None:
        if self.cancelled:
            raise CancelledLaunchError("the launch is no longer wanted")

    def _gate_failure(self, shut: GateReport, start: int) -> Failure:
        gate, _, detail = shut.name.partition(":")
        kind = detail if shut.name.startswith(HOST_GATE) else GATE_KINDS.get(gate, f"gate_{shut.name}")
        return Failure(
            kind=kind, sentence=full_sentence(shut.detail), hint=shut.hint, at_s=self.now(), start=start
        )

    def _failure(self, kind: str, error: Exception, start: int) -> Failure:
        return Failure(
            kind=kind,
            sentence=full_sentence(errors.explain(error)),
            hint=errors.hint_of(error),
            at_s=self.now(),
            start=start,
        )

    def _launch_failure(self, error: LaunchError, start: int) -> Failure:
        """Return the failure in the catalogue's words, where the runtime's own text is in it."""
        found = diagnose((), runtime_error=error.detail or str(error))
        if found.kind == "unknown":
            return self._failure("launch_failed", error, start)
        return Failure(
            kind=found.kind,
            sentence=full_sentence(found.sentence),
            hint=found.remedy,
            retry_helps=retry_helps(found),
            remedies=remedies_of(found),
            evidence=tuple(item.text for item in found.evidence),
            at_s=self.now(),
            start=start,
        )
