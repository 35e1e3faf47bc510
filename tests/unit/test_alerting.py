"""The alerts of a daemon, without one: a real store, a real receiver, kills at any point."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from receiver import REFUSE, Receiver

from rigd.adapters.store import Store
from rigd.supervise import alerting, outbox
from rigd.supervise.alerting import STATE_NAME, Alerter, Around
from rigd.supervise.decision import Entry
from rigd.supervise.plan import Plan, load_plan
from rigd.supervise.state import Failure, State, Status

GAVE_UP = Entry(kind="gave-up", message="gave up after 5 failures", data=(("to", "failed"),))
NOISE = Entry(kind="launched", message="engine launched as start 3")
FAILURE = Failure(
    kind="cuda_oom_kv", sentence="It does not fit.", evidence=("1: the key is engine-key-value",), start=3
)


@dataclass
class Daemon:
    """What of a daemon the alerts need; `begin` and `kill` as often as a test likes."""

    folder: Path
    plan: Plan
    status: Status = field(default_factory=lambda: Status(state=State.FAILED, failure=FAILURE))
    trouble: str | None = None
    journalled: list[Entry] = field(default_factory=list)
    store: Store | None = None
    alerter: Alerter | None = None

    async def begin(self) -> None:
        """Start a daemon."""
        self.store = await Store.open(self.folder / "rigd.db")
        around = Around(
            plan=lambda: self.plan,
            status=lambda: self.status,
            trouble=lambda: self.trouble,
            journal=self.journal,
            now=time.time,
        )
        self.alerter = Alerter(around, self.store, state_dir=self.folder)
        self.alerter.start()

    async def journal(self, *entries: Entry, heard: bool = True) -> None:
        """Write to the journal as the loop does; `heard` False: killed before anybody was told of it."""
        assert self.store is not None
        assert self.alerter is not None
        at_s = time.time()
        self.journalled += entries
        rows = [(at_s, entry.kind, entry.message, json.dumps(dict(entry.data))) for entry in entries]
        await self.store.append_events(rows)
        if heard:
            self.alerter.heard(at_s, entries)

    async def kill(self) -> None:
        """End without a farewell: what is not stored is lost."""
        assert self.store is not None
        assert self.alerter is not None
        for task in (self.alerter._task, self.alerter._delivery):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self.alerter._record.release()
        if self.alerter._disk is not None:
            self.alerter._disk.end()
        await self.store.close()

    @property
    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.journalled]

    def receivers(self) -> list[dict[str, object]]:
        assert self.alerter is not None
        return self.alerter.document()["receivers"]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_WAIT_S", 0.1)
    monkeypatch.setattr(alerting, "TICK_S", 0.05)


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def make_plan(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", "engine-key-value")

    def make(**alerts: object) -> Plan:
        section = {"urls": [receiver.url], "group_s": 0.0, "timezone": "UTC", **alerts}
        path = tmp_path / "rig.yaml"
        engine = {
            "runtime": "process",
            "version": "0.32.0",
            "model": "org/model",
            "api_key": {"env": "ENGINE_KEY"},
        }
        path.write_text(json.dumps({"name": "rig-a", "engine": engine, "alerts": section}))
        return load_plan(path)

    return make


@pytest.fixture
async def daemon(tmp_path, make_plan):
    made = Daemon(folder=tmp_path, plan=make_plan())
    await made.begin()
    yield made
    await made.kill()


async def test_giving_up_reaches_the_receiver_with_class_and_evidence(daemon, receiver, wait_until):
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: "alert-sent" in daemon.kinds)

    (message,) = receiver.got
    assert message["title"] == "rig-a: gave up (cuda_oom_kv)"
    assert message["type"] == "failure"
    for words in ("gave up after 5", "class: cuda_oom_kv, start 3", "1: the key is ***"):
        assert words in message["message"]
    assert "engine-key-value" not in message["message"]


async def test_receiver_that_refuses_then_accepts_gets_it_once(daemon, receiver, wait_until):
    receiver.answer = REFUSE
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: receiver.asked == 1)
    receiver.down()
    await wait_until(lambda: daemon.receivers()[0]["refusals"] == 2, 20)
    receiver.answer = 200
    receiver.up()
    await wait_until(lambda: "alert-sent" in daemon.kinds, 20)

    assert len(receiver.got) == 1
    assert daemon.kinds == ["gave-up", "alert-failed", "alert-sent"]
    assert daemon.receivers()[0]["waiting"] == 0


async def test_loop_is_never_held_up_by_a_receiver_that_hangs(daemon, receiver, wait_until):
    receiver.hold.clear()
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: receiver.asked == 1)
    slowest_s, before_s = 0.0, time.monotonic()
    for _ in range(50):
        await daemon.journal(NOISE)
        await asyncio.sleep(0.01)
        slowest_s, before_s = max(slowest_s, time.monotonic() - before_s), time.monotonic()

    assert slowest_s < 0.5
    receiver.hold.set()
    await wait_until(lambda: receiver.got)


async def test_what_was_journalled_but_not_told_before_a_kill_is_told_by_the_next_daemon(
    daemon, receiver, wait_until
):
    await daemon.journal(NOISE)
    await wait_until((daemon.folder / STATE_NAME).exists)
    await daemon.journal(GAVE_UP, heard=False)
    await daemon.kill()
    await daemon.begin()
    await wait_until(lambda: receiver.got)
    await daemon.kill()
    await daemon.begin()
    await daemon.journal(NOISE)
    await asyncio.sleep(0.2)

    assert len(receiver.got) == 1


async def test_message_that_waits_survives_a_kill(daemon, receiver, wait_until):
    receiver.down()
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: "alert-failed" in daemon.kinds)
    await daemon.kill()
    receiver.up()
    await daemon.begin()
    await wait_until(lambda: "alert-sent" in daemon.kinds, 20)

    assert receiver.titles == ["rig-a: gave up (cuda_oom_kv)"]


async def test_delivery_that_outlives_its_daemon_is_not_repeated(daemon, receiver, wait_until):
    receiver.hold.clear()
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: receiver.asked == 1)
    await daemon.kill()
    await daemon.begin()
    await asyncio.sleep(0.3)
    receiver.hold.set()
    await wait_until(lambda: "alert-sent" in daemon.kinds)

    assert (receiver.asked, len(receiver.got)) == (1, 1)


async def test_journal_from_before_alerts_were_wanted_is_no_news(daemon, receiver, wait_until, make_plan):
    daemon.plan = make_plan(urls=[])
    await daemon.kill()
    (daemon.folder / STATE_NAME).unlink(missing_ok=True)
    await daemon.begin()
    await daemon.journal(GAVE_UP)
    await asyncio.sleep(0.1)
    assert not (daemon.folder / STATE_NAME).exists()
    await daemon.kill()
    daemon.plan, daemon.status = make_plan(), Status(state=State.READY)
    await daemon.begin()
    await daemon.journal(NOISE)
    await wait_until((daemon.folder / STATE_NAME).exists)
    await asyncio.sleep(0.2)

    assert receiver.got == []


async def test_damaged_state_is_begun_anew(daemon, receiver, wait_until):
    await daemon.kill()
    (daemon.folder / STATE_NAME).write_text("{nonsense")
    await daemon.begin()
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: receiver.got)

    assert len(receiver.got) == 1


async def test_reference_that_cannot_be_read_is_said_without_it(daemon, wait_until, make_plan):
    daemon.plan = make_plan(urls=[{"file": "no-such-url"}])
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: "alert-failed" in daemon.kinds)

    said = next(entry.message for entry in daemon.journalled if entry.kind == "alert-failed")
    assert "cannot tell file:no-such-url" in said
    assert "does not exist" in said


async def test_url_from_a_private_file_beside_the_rig_file_is_told(daemon, receiver, wait_until, make_plan):
    path = daemon.folder / "url"
    path.touch(mode=0o600)
    path.write_text(receiver.url + "\n")
    daemon.plan = make_plan(urls=[{"file": "url"}])
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: "alert-sent" in daemon.kinds)

    assert daemon.receivers()[0]["name"] == "file:url"
    assert len(receiver.got) == 1


async def test_test_message_goes_past_queue_and_quiet_hours(daemon, receiver, make_plan):
    daemon.plan = make_plan(quiet_hours="00:00-23:59", kinds=[], urls=[receiver.url, "bogus://hunter22"])
    assert daemon.alerter is not None
    first, second = (await daemon.alerter.test())["results"]

    assert (first["ok"], second["ok"]) == (True, False)
    assert receiver.titles == ["rig-a: test"]
    assert daemon.kinds == ["alert-sent", "alert-failed"]
    assert "hunter22" not in str([second, daemon.journalled])


async def test_nothing_of_a_url_is_in_state_journal_or_document(daemon, receiver, wait_until):
    receiver.answer = REFUSE
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: "alert-failed" in daemon.kinds)
    assert daemon.alerter is not None
    shown = f"{daemon.alerter.document()} {daemon.journalled} {(daemon.folder / STATE_NAME).read_text()}"

    assert "password-in-url" not in shown
    assert "token-in-path" not in shown
    assert "json://127.0.0.1:" in shown


async def test_runtime_that_is_away_is_told_as_host_trouble(daemon, receiver, wait_until):
    daemon.status = Status(state=State.STOPPED)
    daemon.trouble = "Docker does not answer"
    await wait_until(lambda: receiver.got)
    daemon.trouble = None
    await wait_until(lambda: len(receiver.got) == 2)

    assert receiver.titles == ["rig-a: host trouble", "rig-a: host trouble is over"]


async def test_disk_that_cannot_be_written_keeps_no_alert_from_people(daemon, receiver, wait_until):
    (daemon.folder / f"{STATE_NAME}.new").mkdir()
    await daemon.journal(GAVE_UP)
    await wait_until(lambda: receiver.got)
    assert daemon.alerter is not None
    assert "cannot write" in daemon.alerter.document()["storage_problem"]
    (daemon.folder / f"{STATE_NAME}.new").rmdir()
    await daemon.journal(replace(NOISE, kind="check-refused"))

    await wait_until(lambda: daemon.alerter.document()["storage_problem"] is None)
