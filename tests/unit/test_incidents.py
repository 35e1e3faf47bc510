"""Incidents are collected beside the recovery: bounded before the stop, whole after it, and private."""

import asyncio
import io
import json
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rigd.adapters.gpu import GpuCard, GpuReadings
from rigd.adapters.write_behind import EventRow
from rigd.rig.schema import RuntimeKind
from rigd.runtime import startlog
from rigd.runtime.base import EngineExit, EngineRef, StopReport
from rigd.supervise import evidence, incidents
from rigd.supervise.decision import Entry, StopEngine
from rigd.supervise.incident import PART, TOTAL_BYTES
from rigd.supervise.incidents import Incidents
from rigd.supervise.known_secrets import known_secrets
from rigd.supervise.observations import StopDone
from rigd.supervise.plan import load_plan
from rigd.supervise.state import Failure, Status

RIG = """
name: box
engine:
  runtime: process
  version: 0.32.0
  model: double
  port: 8000
  api_key: {env: BOX_API_KEY}
  environment:
    HF_TOKEN: {env: BOX_HF}
logs: {keep_incidents: 3}
"""
API_KEY, HF_TOKEN, API_TOKEN = "planted-api-key-1", "planted-hf-token-2", "planted-rigd-token-3"
AT_S = 1_700_000_000.0
REF = EngineRef(
    runtime=RuntimeKind.PROCESS, id="1:2", pid=2**22 + 1, start=3, digest="d", created_s=AT_S - 60
)
EXITED = Failure(
    kind="worker_died",
    sentence="A worker ended.",
    exit=EngineExit(code=137, member="VLLM::Worker_TP"),
    at_s=AT_S,
    start=3,
)
HUNG = Failure(kind="engine_stalled", sentence="No progress.", at_s=AT_S, start=3)


class FakeClient:
    def __init__(self):
        self.last_metrics = (AT_S - 1, f"vllm:num_requests_running 1.0\n# {HF_TOKEN}\n".encode())
        self.asked = 0

    async def counters(self, timeout_s):
        self.asked += 1


class FakeGpus:
    def __init__(self):
        self.delay_s = 0.0

    async def read(self, *, deadline_s=5.0):
        await asyncio.sleep(self.delay_s)
        return GpuReadings(at_s=AT_S, driver="595.71", cards=(GpuCard(index=0, name="RTX 3090"),))


class FakeStore:
    def __init__(self):
        self.rows = []

    def add(self, at_s, kind, message="", data=None):
        self.rows.append(
            EventRow(
                id=len(self.rows) + 1, at_s=at_s, kind=kind, message=message, data_json=json.dumps(data or {})
            )
        )

    async def events(self, after_id=0, limit=100, *, newest=False):
        return self.rows[-limit:]


class FakeEffects:
    def __init__(self, plan, store):
        self.plan = plan
        self.client = FakeClient()
        self.before_stop = self.after_stop = None
        self.listeners = []
        self.entries = []
        self._store = store

    def on_journal(self, listener):
        self.listeners.append(listener)

    async def journal(self, *entries):
        for entry in entries:
            self.entries.append(entry)
            self._store.add(AT_S + 1, entry.kind, entry.message)
        for listener in self.listeners:
            listener(AT_S + 1, entries)


class Box:
    """A collector over fakes, and the folder it writes to."""

    def __init__(self, folder: Path, token: Path):
        self.folder = folder
        path = folder / "rig.yaml"
        path.write_text(RIG)
        self.store = FakeStore()
        self.gpus = FakeGpus()
        self.effects = FakeEffects(load_plan(path), self.store)
        self.status = Status()
        self.token = token
        self.incidents = self.daemon()

    def daemon(self):
        found = Incidents(
            self.effects,
            self.store,
            self.gpus,
            state_dir=self.folder,
            status=lambda: self.status,
            token_file=self.token,
        )
        found.attach()
        return found

    def log(self, text, start=3):
        folder = startlog.folder_of(self.folder, start)
        startlog.prepare(folder).write_text(text)
        (folder / startlog.SPEC_NAME).write_text(
            json.dumps({"argv": ["serve", "--api-key", API_KEY], "port": 8000})
        )

    async def settle(self):
        while tasks := tuple(self.incidents._tasks):
            await asyncio.gather(*tasks)

    async def fail(self, failure=EXITED, diagnosis=None):
        action = StopEngine(job=1, ref=REF, grace_s=0.5, failure=failure)
        self.store.add(failure.at_s, "failure", failure.sentence)
        await self.incidents.before_stop(action)
        report = StopReport(processes=1, killed=0, survivors=(), took_s=0.1)
        self.incidents.after_stop(action, StopDone(report=report, diagnosis=diagnosis or failure))
        await self.settle()

    @property
    def kept(self):
        return sorted(entry.name for entry in (self.folder / "incidents").iterdir())

    def read(self, number, name):
        return (self.folder / f"incidents/{number:06d}" / name).read_text()


@pytest.fixture
async def box(tmp_path, monkeypatch):
    monkeypatch.setenv("BOX_API_KEY", API_KEY)
    monkeypatch.setenv("BOX_HF", HF_TOKEN)
    monkeypatch.setattr(evidence, "KERNEL_LINES", 5)
    monkeypatch.setattr(incidents, "REFRESH_S", 0.01)
    token = tmp_path / "token"
    token.write_text(API_TOKEN + "\n")
    token.chmod(0o600)
    made = Box(tmp_path, token)
    yield made
    await made.incidents.close()


async def test_incident_holds_log_trail_metrics_gpus_kernel_settings_and_versions(box):
    box.log("first\nlast words\n")
    box.store.add(AT_S - 5, "ready", "ready")

    await box.fail(diagnosis=replace(EXITED, kind="cuda_oom", sentence="Out of memory.", hint="rigd logs"))

    assert box.kept == ["000001"]
    document = await box.incidents.show(1)
    assert (document["class"], document["start"], document["complete"]) == ("cuda_oom", 3, True)
    assert document["exit"]["code"] == 137
    assert document["versions"]["driver"] == "595.71"
    assert document["log"] == ["first", "last words"]
    assert [entry["kind"] for entry in document["trail"]][:2] == ["ready", "failure"]
    assert "num_requests_running" in box.read(1, "metrics.txt")
    assert "RTX 3090" in box.read(1, "gpus.json")
    assert {part["name"] for part in document["parts"]} >= {
        "engine.log",
        "metrics.txt",
        "gpus.json",
        "spec.json",
    }
    assert box.effects.entries[-1].kind == "incident"


async def test_planted_secrets_and_prompts_are_in_no_file_of_the_bundle(box):
    prompt = "my private words"
    box.log(
        f"key {API_KEY} and {HF_TOKEN}\n"
        f"INFO 11-30 02:33:11 [logger.py:41] Received request a: prompt: '{prompt}', params: X\n"
        f"token {API_TOKEN} https://user:hunter2@host/ Authorization: Bearer abcdef\n"
    )
    failure = replace(
        EXITED, sentence=f"It said {API_KEY}.", evidence=(f"1: prompt: '{prompt}'", HF_TOKEN), hint=API_TOKEN
    )
    box.store.add(AT_S, "failure", f"message with {HF_TOKEN}", {"note": API_KEY})

    await box.fail(failure)

    content = await box.incidents.bundle(1)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        texts = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}
    assert len(texts) > 5
    for name, text in texts.items():
        for secret in (API_KEY, HF_TOKEN, API_TOKEN, prompt, "hunter2", "abcdef"):
            assert secret not in text, (name, secret)
    assert "secrets of this rig, replaced" in texts["incident-1/CONTENTS.txt"]
    shown = json.dumps(await box.incidents.show(1))
    assert API_KEY not in shown
    assert prompt not in shown


async def test_plain_exit_holds_the_stop_up_for_a_third_of_a_second_at_most(box):
    box.gpus.delay_s = 30
    began_s = time.monotonic()

    await box.incidents.before_stop(StopEngine(job=1, ref=REF, grace_s=0.5, failure=EXITED))

    assert time.monotonic() - began_s < incidents.EXIT_S + 1.5  # The reading would take 30 s.
    assert box.effects.client.asked == 0


async def test_hung_engine_is_asked_for_stacks_within_its_seconds(box, monkeypatch):
    asked = []

    async def dump(pid, *, deadline_s):
        asked.append(deadline_s)
        return "Thread 1 (idle)"

    monkeypatch.setattr(evidence, "_members", lambda _rig, _ref: [evidence.proc.read(1)])
    monkeypatch.setattr(evidence.stacks, "dump", dump)
    monkeypatch.setattr(evidence.stacks, "program", lambda: "py-spy")
    ref = replace(REF, pid=1)
    await box.incidents.before_stop(StopEngine(job=1, ref=ref, grace_s=0.5, failure=HUNG))
    await box.settle()

    assert asked
    assert max(asked) < incidents.HUNG_S
    partial = box.folder / "incidents/000001.partial"
    assert "Thread 1 (idle)" in (partial / "stacks.txt").read_text()


async def test_asked_stop_makes_no_incident(box):
    action = StopEngine(job=1, ref=REF, grace_s=0.5, failure=None)

    await box.incidents.before_stop(action)
    report = StopReport(processes=1, killed=0, survivors=(), took_s=0.1)
    box.incidents.after_stop(action, StopDone(report=report))
    await box.settle()

    assert not (box.folder / "incidents").exists()


async def test_stop_that_is_tried_again_adds_to_the_same_incident(box):
    box.log("words\n")
    action = StopEngine(job=1, ref=REF, grace_s=0.5, failure=EXITED)
    await box.incidents.before_stop(action)
    await box.settle()
    assert box.kept == ["000001.partial"]

    await box.fail()

    assert box.kept == ["000001"]


async def test_next_daemon_finishes_what_a_killed_one_had_begun(box):
    box.log("words\n")
    await box.incidents.before_stop(StopEngine(job=1, ref=REF, grace_s=0.5, failure=EXITED))
    await box.settle()

    box.incidents = box.daemon()
    await box.settle()
    assert box.kept == ["000001"]
    assert (await box.incidents.newest(5))[0]["complete"] is False
    await box.fail()

    assert box.kept == ["000001"]
    document = await box.incidents.show(1)
    assert document["complete"] is True
    assert {"metrics.txt", "engine.log"} <= {part["name"] for part in document["parts"]}


async def test_flooding_log_keeps_an_incident_within_its_limit(box):
    box.log("x" * 200 + "\n" + "a line of the flood that goes on and on and on\n" * 120_000)

    await box.fail()

    sizes = {path.name: path.stat().st_size for path in (box.folder / "incidents/000001").iterdir()}
    assert sum(sizes.values()) <= TOTAL_BYTES
    assert all(size <= PART[name].limit_bytes for name, size in sizes.items())
    assert sizes["engine.log"] > 1_000_000


async def test_log_that_is_one_endless_line_is_no_way_around_the_masks(box):
    box.log(API_KEY[-8:] + "y" * 3_000_000)

    await box.fail()

    assert len(box.read(1, "engine.log")) < 20_000


async def test_retention_keeps_the_newest(box):
    for number in range(5):
        await box.fail(replace(EXITED, at_s=AT_S + number))

    assert box.kept == ["000003", "000004", "000005"]
    assert [entry["id"] for entry in await box.incidents.newest(10)] == [5, 4, 3]


async def test_trail_grows_until_the_engine_serves_again(box, wait_until):
    await box.fail()
    box.store.add(AT_S + 2, "launched")
    box.store.add(AT_S + 30, "ready")

    box.incidents.journalled(AT_S + 30, (Entry(kind="ready", message=""),))

    async def recovered():
        return (await box.incidents.show(1))["outcome"] == "recovered"

    await wait_until(recovered)
    document = await box.incidents.show(1)
    assert document["outcome_s"] == 30.0
    assert [entry["kind"] for entry in document["trail"]][-1] == "ready"


async def test_launch_that_fails_is_an_incident_once(box):
    for at_s in (AT_S, AT_S + 10):
        failure = Failure(kind="port_in_use", sentence="Port 8000 is in use.", at_s=at_s, start=4)
        box.status = Status(failure=failure)
        box.incidents.journalled(at_s, (Entry(kind="backoff", message=""),))
        await box.settle()

    (only,) = await box.incidents.newest(10)
    assert (only["class"], only["engine"]) == ("port_in_use", None)


async def test_runtime_that_is_away_is_no_incident(box):
    box.status = Status(failure=Failure(kind="runtime_unavailable", sentence="Docker is away.", at_s=AT_S))
    box.incidents.journalled(AT_S, (Entry(kind="backoff", message=""),))
    await box.settle()

    assert await box.incidents.newest(10) == []


async def test_full_disk_loses_the_incident_and_nothing_else(box, monkeypatch):
    def full(*_words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(box.incidents._files, "write", full)

    await box.fail()

    assert box.kept == []
    lost = box.effects.entries[-1]
    assert lost.kind == "incident-lost"
    assert "No space left" in lost.message
    monkeypatch.undo()
    await box.fail(replace(EXITED, at_s=AT_S + 1))
    assert len(box.kept) == 1


async def test_part_that_finds_no_room_is_said_and_the_rest_is_kept(box, monkeypatch):
    box.log("words\n")
    write = box.incidents._files.write

    def full(number, name, content):
        if name == "metrics.txt":
            raise OSError(28, "No space left on device")
        write(number, name, content)

    monkeypatch.setattr(box.incidents._files, "write", full)

    await box.fail()

    document = await box.incidents.show(1)
    assert "metrics.txt: No space left on device" in document["left_out"]
    assert document["log"] == ["words"]


async def test_broken_evidence_never_stops_a_stop(box, monkeypatch):
    async def broken(*_words, **_more):
        raise ZeroDivisionError

    monkeypatch.setattr(evidence, "take_before_stop", broken)

    await box.fail()

    assert "nothing could be taken" in " ".join((await box.incidents.show(1))["left_out"])


async def test_incident_that_is_not_there_is_none(box):
    assert await box.incidents.show(99) is None
    assert await box.incidents.bundle(99) is None


def test_known_secrets_are_those_of_rig_daemon_and_environment(tmp_path):
    path = tmp_path / "rig.yaml"
    path.write_text(RIG)
    environ = {
        "BOX_API_KEY": API_KEY,
        "GITHUB_TOKEN": "ghp-from-environment",
        "RIGD_TOKEN_FILE": "/etc/rigd/token",
        "SSH_AUTH": "no",
        "LANG": "en_GB.UTF-8",
    }

    found = known_secrets(load_plan(path).rig, token_file=tmp_path / "missing", environ=environ)

    assert set(found) == {API_KEY, "ghp-from-environment"}
