"""Tells people: hears the journal, folds it into messages, stores them, has them delivered. Makes no choice.

    journal -> heard -> fold -> stored (0600) -> outbox -> notify's child -> outcome -> stored, journalled

Everything waits in a task of its own: the loop that decides never waits for a disk or a server here. What was
journalled while no daemon told of it is read back from the journal, by number and time; so nothing is lost or
told twice over a restart.
"""

import asyncio
import contextlib
import json
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rigd import log
from rigd.adapters import notify
from rigd.adapters.blocking import run_blocking
from rigd.adapters.notify import Letter, Record, RecordBusyError
from rigd.adapters.private_file import read_private, write_private
from rigd.adapters.store import Store
from rigd.adapters.worker import Worker
from rigd.errors import RigdError, explain
from rigd.rig.schema import AlertKind, Alerts
from rigd.runtime.secrets import mask, resolve_secret
from rigd.supervise import outbox
from rigd.supervise.alert_receivers import (
    cleaned,
    label,
    labelled,
    letter_of,
    named_urls,
    trial_message,
    try_out,
    url_of,
)
from rigd.supervise.alert_state import Happening, Message, Seen
from rigd.supervise.alerts import fold
from rigd.supervise.decision import Entry
from rigd.supervise.outbox import KEPT, Kept, Outcome
from rigd.supervise.plan import Plan
from rigd.supervise.quiet import quiet_until
from rigd.supervise.state import STATUS, Failure, Status

STATE_NAME = "alerts.json"
RECORD_NAME = "alerts.delivered"
STATE_LIMIT = 8 * 2**20
TICK_S = 1.0
DISK_S = 5.0
HEARD_LIMIT = 2000
"""Entries heard but not folded yet; the loop journals far fewer in a second."""
CATCH_UP_LIMIT = 1000
"""Entries of the journal that are read back after a restart."""
SETTLED_S = 30.0
"""How long a state must last to be believed without its journal entry, in seconds."""
CLOSING_S = 5.0
"""Longest wait for a delivery under way when the daemon ends; it goes on by itself after that."""
OWN = "alert-"
"""How the kinds of entries begin that are written here."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What the alerts look at beside the journal."""

    plan: Callable[[], Plan]
    status: Callable[[], Status]
    trouble: Callable[[], str | None]
    """What keeps the daemon from its work (the runtime does not answer), in a sentence."""
    journal: Callable[[Entry], Awaitable[None]]
    now: Callable[[], float]


class Alerter:
    """The alerts of one daemon. Does nothing at all where the rig file names no receiver."""

    def __init__(self, around: Around, store: Store, *, state_dir: Path) -> None:
        self._around = around
        self._store = store
        self._path = state_dir / STATE_NAME
        self._record = Record(state_dir / RECORD_NAME)
        self._heard: deque[Happening] = deque(maxlen=HEARD_LIMIT)
        self._kept = Kept()
        self._stored: Kept | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._delivery: asyncio.Task[None] | None = None
        self._disk: Worker | None = None
        self._box = socket.gethostname()
        self._problem: str | None = None
        self._log = log.get("alerts")

    @property
    def rules(self) -> Alerts:
        """The rig file's section."""
        return self._around.plan().rig.alerts

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="alerts")

    async def close(self) -> None:
        """End; a delivery under way gets a moment, and goes on without the daemon after that."""
        if self._delivery is not None:
            await asyncio.wait([self._delivery], timeout=CLOSING_S)
        for task in (self._task, self._delivery):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._record.release()
        if self._disk is not None:
            self._disk.end()

    def heard(self, at_s: float, entries: tuple[Entry, ...]) -> None:
        """Take journal entries as they are written; returns at once."""
        failure = self._around.status().failure
        for entry in entries:
            if not entry.kind.startswith(OWN):
                happening = Happening(
                    at_s=at_s, kind=entry.kind, message=entry.message, data=entry.data, failure=failure
                )
                self._heard.append(happening)
        self._news.set()

    # What the API asks.

    def document(self) -> dict[str, Any]:
        """Return who is told, what is open and what waits, without any URL."""
        rules, kept, now_s = self.rules, self._kept, self._around.now()
        receivers = []
        for name, url in named_urls(rules).items():
            known = kept.outbox.receiver(name)
            waiting = sum(name in parcel.to for parcel in kept.outbox.parcels)
            receivers.append({
                "name": label(url),
                "waiting": waiting,
                "sent_s": known.sent_s,
                "refusals": known.fails,
                "detail": known.detail,
                "again_s": known.next_s if known.fails else None,
            })  # fmt: skip
        problems = [
            {
                "subject": item.subject,
                "kind": str(item.kind),
                "since_s": item.since_s,
                "sentence": item.sentence,
                "class": item.cause,
                "told": item.told,
                "remind_s": item.remind_s if item.told else item.due_s,
            }
            for item in kept.alerts.problems
        ]
        notes = [
            {"at_s": note.at_s, "due_s": note.due_s, "kind": str(note.kind), "title": note.title}
            for note in kept.alerts.notes
        ]
        return {
            "now_s": now_s,
            "receivers": receivers,
            "problems": problems,
            "notes": notes,
            "quiet_until_s": quiet_until(now_s, rules.quiet_hours, rules.timezone),
            "storage_problem": self._problem,
        }

    async def test(self) -> dict[str, Any]:
        """Send a test message to every receiver now, past queue, grouping and quiet hours."""
        named = named_urls(self.rules)
        now_s = self._around.now()
        rig = self._around.plan().rig.name
        message = trial_message(rig, self._box, now_s=now_s, zone=self.rules.timezone)
        results = await try_out(message, named, folder=self._folder)
        for result in results:
            said = "taken" if result["ok"] else f"refused: {result['detail']}"
            kind = "alert-sent" if result["ok"] else "alert-failed"
            await self._around.journal(Entry(kind=kind, message=f"test message to {result['name']}: {said}"))
        return {"results": results}

    @property
    def _folder(self) -> Path:
        return self._around.plan().path.resolve().parent

    # The task.

    async def _run(self) -> None:
        begun = False
        while True:
            try:
                if self.rules.urls:
                    if not begun:
                        await self._begin()
                        begun = True
                    await self._look()
                else:
                    self._heard.clear()
            except Exception:  # noqa: BLE001  (alerts may fail; the daemon may not)
                self._log.exception("alerts failed; going on")
            # Not `wait_for`: until Python 3.12 it loses a cancellation that comes together with the news.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._news.wait()
            self._news.clear()

    async def _begin(self) -> None:
        """Read what an earlier daemon stored, and what it journalled but did not fold."""
        text = None
        with contextlib.suppress(TimeoutError):
            text = await run_blocking(lambda: read_private(self._path, limit=STATE_LIMIT), deadline_s=DISK_S)
        now_s = self._around.now()
        if text is None:
            newest = await self._store.events(0, 1, newest=True)
            self._kept = Kept(seen_s=0.0, cursor=newest[-1].id if newest else 0)
            # What was journalled since this daemon began is in the list of what was heard, so nothing is missed.
            return
        try:
            self._kept = self._stored = KEPT.validate_json(text)
        except ValueError as error:
            self._log.warning("stored alerts not understood; beginning anew", error=str(error)[:300])
        await self._catch_up(now_s)

    async def _catch_up(self, now_s: float) -> None:
        """Take what is in the journal but was not folded; the first one heard here marks its end."""
        kept = self._kept
        failure = await self._stored_failure()
        rows = await self._store.events(kept.cursor, CATCH_UP_LIMIT, newest=True)
        first_heard_s = self._heard[0].at_s if self._heard else float("inf")
        missed = [
            Happening(
                at_s=row.at_s,
                kind=row.kind,
                message=row.message,
                data=tuple(json.loads(row.data_json).items()) if row.data_json else (),
                failure=failure if failure is not None and row.at_s >= failure.at_s else None,
            )
            for row in rows
            if kept.seen_s < row.at_s < first_heard_s and not row.kind.startswith(OWN)
        ]
        self._heard.extendleft(reversed(missed))
        # The clock may have been put back since: from here on times of this daemon count.
        cursor = rows[-1].id if rows else kept.cursor
        self._kept = replace(kept, cursor=cursor, seen_s=min(kept.seen_s, now_s))

    async def _stored_failure(self) -> Failure | None:
        """Return the last failure of the status that an earlier daemon stored."""
        text = await self._store.load_status()
        try:
            return STATUS.validate_json(text).failure if text is not None else None
        except ValueError:
            return None

    async def _look(self) -> None:
        rules, now_s = self.rules, self._around.now()
        quiet = quiet_until(now_s, rules.quiet_hours, rules.timezone) is not None
        happenings = [self._heard.popleft() for _ in range(len(self._heard))]
        plan = self._around.plan()
        alerts, messages = fold(
            self._kept.alerts,
            happenings,
            self._seen(now_s),
            rules,
            rig=plan.rig.name,
            box=self._box,
            now_s=now_s,
            quiet=quiet,
        )
        if messages:
            messages = await self._without_secrets(messages)
        # No await from here to the next line that sets `_kept`: a delivery changes the outbox too.
        names = tuple(named_urls(rules))
        seen_s = max([self._kept.seen_s, *(happening.at_s for happening in happenings)])
        box, entries = outbox.put(self._kept.outbox, messages, names)
        box, late = outbox.tidy(box, names, now_s=now_s)
        self._kept = replace(self._kept, alerts=alerts, outbox=box, seen_s=seen_s)
        await self._store_it()
        for entry in (*entries, *late):
            await self._around.journal(entry)
        if self._delivery is None or self._delivery.done():
            self._delivery = None
            if outbox.due(self._kept.outbox, now_s=now_s):
                self._delivery = asyncio.create_task(self._deliver(), name="alert delivery")

    def _seen(self, now_s: float) -> Seen:
        status, trouble = self._around.status(), self._around.trouble()
        troubles = []
        if self._store.problem is not None:
            troubles.append((AlertKind.STORE, f"{self._store.problem}"))
        if trouble is not None:
            troubles.append((AlertKind.HOST, trouble))
        settled = status.since_s > 0 and now_s - status.since_s >= SETTLED_S
        return Seen(
            state=status.state if settled else None,
            reason=status.reason,
            failure=status.failure,
            changed=bool(status.overlay or status.trial or status.fallback_from),
            trends=frozenset(str(one.kind) for one in status.troubles),
            troubles=tuple(troubles),
        )

    async def _without_secrets(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return messages without the engine's secrets, should a log line have shown one."""
        spec = self._around.plan().spec

        def read() -> list[str]:
            found = []
            for _, ref in spec.secrets:
                with contextlib.suppress(RigdError):
                    found.append(resolve_secret(ref))
            return found

        try:
            secrets = await run_blocking(read, deadline_s=DISK_S)
        except TimeoutError:
            secrets = []
        return tuple(
            replace(item, title=mask(item.title, secrets), body=mask(item.body, secrets)) for item in messages
        )

    async def _store_it(self) -> None:
        """Store all that is known, if it has changed; a disk in trouble is said once, and tried again."""
        kept = self._kept
        if kept == self._stored:
            return
        text = KEPT.dump_json(kept).decode()
        if self._disk is None:
            self._disk = Worker("rigd-alerts")
        try:
            # One thread, in order: a write that hangs can never put an older content over a newer one.
            async with asyncio.timeout(DISK_S):
                await asyncio.wrap_future(self._disk.run(lambda: write_private(self._path, text)))
        except (OSError, TimeoutError) as error:
            if self._problem is None:
                self._log.warning("alerts cannot be stored; they stay in memory", error=str(error))
            self._problem = f"cannot write '{self._path}': {error or 'the disk does not answer'}"
        else:
            self._stored, self._problem = kept, None

    async def _deliver(self) -> None:
        """Deliver what is due; what an orphan of an earlier daemon delivered counts first."""
        try:
            done = await self._record.take()
            await self._settle(done, {})
            await self._record.clear()
            urls, letters, failures = await run_blocking(self._letters, deadline_s=DISK_S)
            await self._settle(failures, {})
            if letters:
                await self._settle(await notify.send(letters, self._record), urls)
                await self._record.clear()
        except RecordBusyError:
            return  # An earlier daemon's delivery goes on; its outcome is read when it is done.
        except Exception:  # noqa: BLE001  (as in `_run`)
            self._log.exception("a delivery failed; trying again")
        finally:
            self._record.release()

    def _letters(self) -> tuple[dict[str, str], list[Letter], list[notify.Delivery]]:
        urls: dict[str, str] = {}
        letters, failures = [], []
        named = named_urls(self.rules)
        for name, message in outbox.due(self._kept.outbox, now_s=self._around.now()):
            if name not in named:
                continue
            try:
                urls[name] = url_of(named[name], self._folder)
            except RigdError as error:
                failures.append(notify.Delivery(id=message.id, name=name, ok=False, detail=explain(error)))
                continue
            letters.append(letter_of(message, name, urls[name]))
        return urls, letters, failures

    async def _settle(
        self, done: tuple[notify.Delivery, ...] | list[notify.Delivery], urls: Mapping[str, str]
    ) -> None:
        named = named_urls(self.rules)
        outcomes = [
            Outcome(id=item.id, name=item.name, ok=item.ok, detail=cleaned(item.detail, urls.get(item.name)))
            for item in done
        ]
        box, entries = outbox.settle(self._kept.outbox, outcomes, now_s=self._around.now())
        self._kept = replace(self._kept, outbox=box)
        await self._store_it()
        for entry in entries:
            await self._around.journal(labelled(entry, named))
