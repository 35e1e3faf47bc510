"""Collects an incident for each failure, beside the recovery and never in its way.

    before_stop   what would be gone: bounded by a table of seconds, the only part that a stop waits for
    after_stop    the rest, in the background: log, kernel, versions; redacted, limited, written, journalled
    journalled    the trail of the newest incident grows until the engine serves again or is given up

An incident belongs to a failure by its start and time: a stop that is tried again, or a daemon that takes up after
another, adds to the same incident.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rigd import log
from rigd.adapters.blocking import run_blocking
from rigd.adapters.gpu import GpuReader, GpuReadings
from rigd.adapters.incident_files import IncidentFiles
from rigd.adapters.store import Store
from rigd.errors import explain
from rigd.runtime import startlog
from rigd.runtime.base import EngineRef
from rigd.supervise import evidence, incident
from rigd.supervise.decision import Entry, StopEngine
from rigd.supervise.effects import EngineEffects
from rigd.supervise.evidence import Evidence
from rigd.supervise.known_secrets import known_secrets
from rigd.supervise.observations import StopDone
from rigd.supervise.redaction import Redaction
from rigd.supervise.state import Failure, Status

T = TypeVar("T")

EXIT_S = 0.3
"""Most that a stop waits for evidence when the engine has ended by itself, in seconds."""
ALIVE_S = 2.0
"""When it still runs."""
HUNG_S = 3.0
"""When its stacks are worth having."""
DISK_S = 20.0
"""Longest wait for the disk; an incident is given up then, the engine is not."""
REFRESH_S = 0.5
TRAIL_ENTRIES = 400
LOG_TAIL_LINES = 60
ALREADY_CLEAN = frozenset({"trail.jsonl", "spec.json"})
"""JSON that was made of values without secrets."""
NO_INCIDENT = frozenset({"runtime_unavailable", "cancelled"})
"""Ends of a launch that are no failure of the rig."""


class Incidents:
    """The incidents of one daemon. Nothing here raises into the supervision."""

    def __init__(
        self,
        effects: EngineEffects,
        store: Store,
        gpus: GpuReader,
        *,
        state_dir: Path,
        status: Callable[[], Status],
        token_file: Path | None = None,
    ) -> None:
        self._effects = effects
        self._store = store
        self._gpus = gpus
        self.heard: Callable[[], Sequence[str]] = tuple
        """Returns the kernel lines that the host's watch has heard, oldest first."""
        self._state_dir = state_dir
        self._status = status
        self._token_file = token_file
        self._files = IncidentFiles(state_dir)
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._numbers: dict[str, int] = {}
        self._taken: dict[str, Evidence] = {}
        self._growing: int | None = None
        """The incident whose trail still grows."""
        self._refreshing = False
        self._problem = ""
        self._last_launch: tuple[str, str] | None = None
        self._log = log.get("incidents")

    def attach(self) -> None:
        """Begin to collect: take up what an earlier daemon left, then watch the stops and the journal."""
        self._effects.before_stop = self.before_stop
        self._effects.after_stop = self.after_stop
        self._effects.on_journal(self.journalled)
        self._spawn(self._take_up())

    async def close(self) -> None:
        """End what is being collected; the next daemon finishes it."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What supervision calls.

    async def before_stop(self, action: StopEngine) -> None:
        """Take down what will be gone; returns within the seconds that this kind of failure is worth."""
        failure = action.failure
        if failure is None:
            return
        alive = failure.exit is None
        hung = alive and failure.kind in incident.HUNG
        budget_s = HUNG_S if hung else ALIVE_S if alive else EXIT_S
        key = key_of(failure)
        if key in self._taken or key in self._numbers:
            return  # The stop is being tried again: the first look is the one that counts.
        try:
            rig, client = self._effects.plan.rig.name, self._effects.client
            taken = await evidence.take_before_stop(
                rig, action.ref, client, self._gpus, budget_s=budget_s, alive=alive, hung=hung
            )
        except Exception as error:  # noqa: BLE001  (whatever the evidence does, the engine must come back)
            self._log.warning("evidence not taken", error=explain(error))
            taken = Evidence(missing=[f"nothing could be taken before the stop: {explain(error)}"])
        self._taken[key] = taken
        self._spawn(self._collect(failure, action.ref, final=False))

    def after_stop(self, action: StopEngine, done: StopDone) -> None:
        """Collect the rest in the background."""
        failure = done.diagnosis or action.failure
        if failure is not None:
            self._spawn(self._collect(failure, action.ref, final=True))

    def journalled(self, at_s: float, entries: tuple[Entry, ...]) -> None:
        """Let the trail grow; notice launches that failed with no engine to stop."""
        del at_s
        kinds = {entry.kind for entry in entries}
        if "launched" in kinds:
            self._last_launch = None
        if kinds & {"backoff", "waiting", "aside", "gave-up"}:
            self._note_launch(self._status().failure)
        if self._growing is not None and not self._refreshing:
            self._refreshing = True
            self._spawn(self._refresh())

    def _note_launch(self, failure: Failure | None) -> None:
        if (
            failure is None
            or failure.kind in NO_INCIDENT
            or key_of(failure) in {*self._numbers, *self._taken}
        ):
            return
        same = (failure.kind, failure.sentence)
        if same == self._last_launch:
            return  # The same launch failing the same way again is no new story: the trail tells it.
        self._last_launch = same
        self._taken[key_of(failure)] = Evidence()
        self._spawn(self._collect(failure, None, final=True))

    # Collecting.

    async def _take_up(self) -> None:
        """Finish or remove what a killed daemon left half collected, and go on with the newest trail."""
        async with self._turn:
            finished = await self._on_disk(self._files.recover)
            documents = await self._on_disk(partial(self._documents, incident_limit=None))
        for document in documents or ():
            self._numbers.setdefault(str(document.get("key")), document["id"])
        newest = next(iter(documents or ()), {})
        if newest.get("outcome") == "open":
            self._growing = newest["id"]
        if finished:
            self._log.info("incidents taken up", numbers=finished)

    async def _collect(self, failure: Failure, ref: EngineRef | None, *, final: bool) -> None:
        async with self._turn:
            number = await self._begin(failure)
            document = None
            if number is not None:
                document = await self._write(number, failure, ref, final=final)
            if not final:
                return
            self._taken.pop(key_of(failure), None)
            if number is None or document is None:
                await self._lost(failure, number)
                return
            self._growing = number
            await self._prune_kept()
        data = (("incident", number), ("class", failure.kind), ("start", failure.start))
        await self._effects.journal(
            Entry(kind="incident", message=f"incident {number} kept: {document['sentence']}", data=data)
        )

    async def _begin(self, failure: Failure) -> int | None:
        key = key_of(failure)
        if key not in self._numbers:
            number = await self._on_disk(self._files.begin)
            if number is None:
                return None
            self._numbers[key] = number
        return self._numbers[key]

    async def _write(
        self, number: int, failure: Failure, ref: EngineRef | None, *, final: bool
    ) -> dict[str, Any] | None:
        """Write all that is known of an incident by now; `final` adds what can be had after the stop."""
        plan, status = self._effects.plan, self._status()
        taken = self._taken.get(key_of(failure)) or Evidence()
        secrets = partial(known_secrets, plan.rig, token_file=self._token_file)
        redaction = Redaction(secrets=await run_blocking(secrets, deadline_s=DISK_S))
        texts, missing, after = dict(taken.texts), list(taken.missing), None
        if final:
            after = await self._add_after(texts, missing, failure, redaction)
        if taken.gpus is not None or after is not None:
            texts["gpus.json"] = evidence.gpu_text(taken.gpus, after)
        readings = after or taken.gpus
        versions = await evidence.versions(
            plan.spec.runtime, plan.spec.version, "" if readings is None else readings.driver
        )
        trail = await self._trail(failure.at_s)
        outcome, took_s = incident.outcome_of(trail, failure.at_s)
        document: dict[str, Any] = {
            "id": number,
            "key": key_of(failure),
            "class": failure.kind,
            "sentence": failure.sentence,
            "hint": failure.hint,
            "retry_helps": failure.retry_helps,
            "evidence": list(failure.evidence),
            "at_s": failure.at_s,
            "start": failure.start,
            "exit": None if failure.exit is None else asdict(failure.exit),
            "engine": None if ref is None else asdict(ref),
            "rig": {"name": plan.rig.name, "file": str(plan.path), "digest": plan.spec.digest},
            "overlay": [asdict(step) for step in status.overlay],
            "versions": versions,
            "complete": final,
            "outcome": outcome,
            "outcome_s": took_s,
            "evidence_s": taken.took_s,
            "left_out": missing,
        }
        return await self._on_disk(partial(self._save, number, document, texts, trail, redaction))

    async def _add_after(
        self, texts: dict[str, str], missing: list[str], failure: Failure, redaction: Redaction
    ) -> GpuReadings:
        folder = startlog.folder_of(self._state_dir, failure.start)
        if failure.start:
            texts["engine.log"] = await evidence.engine_log(folder)
            spec = await evidence.launch_spec(folder)
            if spec is not None:
                texts["spec.json"] = json.dumps(redaction.value(spec), indent=2) + "\n"
        texts["kernel.log"] = await evidence.kernel(missing, self.heard())
        return await self._gpus.read()

    def _save(
        self,
        number: int,
        document: dict[str, Any],
        texts: dict[str, str],
        trail: list[Any],
        redaction: Redaction,
    ) -> dict[str, Any]:
        """Write the summary first: what is killed half way then says what it is. Blocks."""
        texts["trail.jsonl"] = incident.trail_text(redaction.value(trail))
        clean: dict[str, Any] = redaction.value(document)
        bodies = {
            name: incident.bounded(name, text if name in ALREADY_CLEAN else redaction.text(text))
            for name in incident.PART
            if (text := texts.get(name))
        }
        clean |= {
            "key": document["key"],
            "complete": False,
            "parts": [],
            "redacted": {name: count for name, count in redaction.counts.items() if count},
        }
        self._put_summary(number, clean)
        for name, (body, cut) in bodies.items():
            try:
                self._files.write(number, name, body)
            except OSError as error:
                clean["left_out"].append(f"{name}: {error.strerror}")
                continue
            clean["parts"].append({"name": name, "bytes": len(body), "cut": cut})
        for name in (
            incident.PART.keys() - bodies.keys() - {"incident.json"}
        ):  # What an earlier daemon had taken.
            if (earlier := self._files.read(number, name)) is not None:
                clean["parts"].append({"name": name, "bytes": len(earlier), "cut": False})
        clean["complete"] = document["complete"]
        self._put_summary(number, clean)
        if document["complete"]:
            self._files.finish(number)
        return clean

    def _put_summary(self, number: int, document: dict[str, Any]) -> None:
        text = json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n"
        if len(text.encode("utf-8", "replace")) > incident.PART["incident.json"].limit_bytes:
            slim = {
                "evidence": document["evidence"][-1:],
                "overlay": [],
                "sentence": document["sentence"][:2000],
            }
            text = json.dumps({**document, **slim}, default=str)[: incident.PART["incident.json"].limit_bytes]
        self._files.write(number, "incident.json", text.encode("utf-8", "replace"))

    async def _trail(self, at_s: float) -> list[Any]:
        rows = await self._store.events(0, TRAIL_ENTRIES, newest=True)
        events = [
            {
                "id": row.id,
                "at_s": row.at_s,
                "kind": row.kind,
                "message": row.message,
                "data": json.loads(row.data_json) if row.data_json else {},
            }
            for row in rows
        ]
        return list(incident.trail_of(events, at_s))

    async def _refresh(self) -> None:
        """Write the newest incident's trail again, and how it went on."""
        try:
            await asyncio.sleep(REFRESH_S)
        finally:
            self._refreshing = False
        async with self._turn:
            number = self._growing
            document = None if number is None else await self._on_disk(partial(self._document, number))
            if number is None or document is None:
                return
            trail = await self._trail(document["at_s"])
            document["outcome"], document["outcome_s"] = incident.outcome_of(trail, document["at_s"])
            if incident.told(trail, document["at_s"]):
                self._growing = None
            secrets = partial(known_secrets, self._effects.plan.rig, token_file=self._token_file)
            redaction = Redaction(secrets=await run_blocking(secrets, deadline_s=DISK_S))
            text = incident.trail_text(redaction.value(trail))

            def write() -> None:
                self._files.write(number, "trail.jsonl", incident.bounded("trail.jsonl", text)[0])
                self._put_summary(number, document)

            await self._on_disk(write)

    async def _lost(self, failure: Failure, number: int | None) -> None:
        """Say that an incident could not be kept; what of it is on disk stays if it says what happened."""
        await self._on_disk(self._files.recover)
        if number not in (await self._on_disk(self._files.numbers) or ()):
            self._numbers.pop(key_of(failure), None)
        message = f"the incident of this failure could not be kept: {self._problem or 'no disk answers'}"
        await self._effects.journal(Entry(kind="incident-lost", message=message))

    async def _prune_kept(self) -> None:
        rules = self._effects.plan.rig.logs
        prune = partial(
            self._files.prune,
            keep=rules.keep_incidents,
            keep_days=rules.keep_incidents_days,
            now_s=time.time(),
        )
        await self._on_disk(prune)
        kept = await self._on_disk(self._files.numbers)
        if kept is not None:
            self._numbers = {key: number for key, number in self._numbers.items() if number in kept}

    async def prune(self) -> None:
        """Remove incidents that are too many or too old."""
        async with self._turn:
            await self._prune_kept()

    # Reading.

    async def newest(self, limit: int) -> list[dict[str, Any]]:
        """Return the incidents, newest first."""
        return await self._on_disk(partial(self._documents, incident_limit=limit)) or []

    async def show(self, number: int) -> dict[str, Any] | None:
        """Return one incident with its trail, the end of its log, and what to do next."""
        return await self._on_disk(partial(self._whole, number))

    async def bundle(self, number: int) -> bytes | None:
        """Return one incident as a tar.gz for a bug report."""

        def pack() -> bytes | None:
            document = self._document(number)
            note = "" if document is None else incident.contents_text(document)
            return self._files.pack(number, incident.PART, note)

        return await self._on_disk(pack)

    def _whole(self, number: int) -> dict[str, Any] | None:
        document = self._document(number)
        if document is None:
            return None
        text = {name: (self._files.read(number, name) or b"").decode("utf-8", "replace") for name in _SHOWN}
        return {
            **document,
            "trail": incident.trail_from(text["trail.jsonl"]),
            "log": text["engine.log"].splitlines()[-LOG_TAIL_LINES:],
            "next": incident.next_steps(document),
            "left_out": incident.left_out_of(document),
            "folder": str(self._files.folder / f"{number:06d}"),
        }

    def _documents(self, *, incident_limit: int | None) -> list[dict[str, Any]]:
        numbers = self._files.numbers()[:incident_limit]
        return [document for number in numbers if (document := self._document(number)) is not None]

    def _document(self, number: int) -> dict[str, Any] | None:
        if number not in self._files.numbers():
            return None
        try:
            document = json.loads(self._files.read(number, "incident.json") or b"")
        except ValueError:
            return None
        return document if isinstance(document, dict) and "class" in document else None

    async def _on_disk(self, work: Callable[[], T]) -> T | None:
        """Return what `work` returns; None where the disk refuses or does not answer."""
        try:
            return await run_blocking(work, deadline_s=DISK_S)
        except (OSError, TimeoutError) as error:
            self._problem = explain(error)
            self._log.warning("incidents cannot be written or read", error=self._problem)
            return None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work), name="incident")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001  (an incident's bug must not become one)
            self._log.exception("incident not collected")


_SHOWN = ("trail.jsonl", "engine.log")


def key_of(failure: Failure) -> str:
    """Return what tells one failure from all others; its class may change when its log has been read."""
    return f"{failure.start}@{failure.at_s:.3f}"
