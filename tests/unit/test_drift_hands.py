"""Who holds the host against its playbook: the one-shot behind its socket, a child, or nobody, and what helps."""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from rigd.rig.drift import Drift
from rigd.supervise import drift_hands, drift_run
from rigd.supervise.drift import DriftAct
from rigd.supervise.drift_hands import DriftHands
from rigd.supervise.drift_report import Report

REPORT = {"ok": True, "differences": [{"task": "t", "place": "p:1", "what": "", "allowed": False}], "more": 0}


@pytest.fixture
def path():
    # Not tmp_path: a unix socket's path has room for 107 bytes only.
    folder = Path(tempfile.mkdtemp(prefix="rigd-"))
    yield folder / "provision.sock"
    shutil.rmtree(folder, ignore_errors=True)


def hands(path, tmp_path, *, service=True):
    return DriftHands(
        rules=lambda: Drift(playbook="site.yml"),
        rig=lambda: tmp_path / "rig.yaml",
        path=path,
        state_dir=tmp_path,
        service=service,
    )


@contextlib.asynccontextmanager
async def root(path, answer):
    """Answer each request with what `answer(request, reader)` returns."""

    async def serve(reader, writer):
        writer.write(await answer(json.loads(await reader.readline()), reader))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


async def test_the_report_is_root_s_own(path, tmp_path):
    asked = []

    async def answer(request, _reader):
        asked.append(request)
        return json.dumps(REPORT).encode() + b"\n"

    async with root(path, answer):
        report = await hands(path, tmp_path).carry_out(DriftAct.CHECK, asyncio.Event())

    assert (report.ok, report.differences[0].task) == (True, "t")
    assert asked == [{"act": "check"}]


async def test_a_stop_is_passed_on(path, tmp_path):
    async def answer(_request, reader):
        said = await reader.readline()
        return json.dumps({"ok": False, "stopped": True, "message": said.decode().strip()}).encode() + b"\n"

    stop = asyncio.Event()
    stop.set()
    async with root(path, answer):
        report = await hands(path, tmp_path).carry_out(DriftAct.APPLY, stop)

    assert (report.stopped, report.message) == (True, "stop")


@pytest.mark.parametrize("junk", [b"", b"junk\n", b"[]\n"], ids=["nothing", "junk", "another-document"])
async def test_an_answer_that_breaks_off_is_tried_again_later(path, tmp_path, junk, monkeypatch):
    monkeypatch.setattr(drift_hands, "AGAIN_S", (0.0, 0.0))

    async def answer(_request, _reader):
        return junk

    async with root(path, answer):
        report = await hands(path, tmp_path).carry_out(DriftAct.CHECK, asyncio.Event())

    assert (report.ok, report.busy) == (False, True)


async def test_a_one_shot_that_is_about_to_end_is_waited_for(path, tmp_path, monkeypatch):
    """An apply came right after a check, and systemd shut its connection: the check's unit was not gone yet."""
    monkeypatch.setattr(drift_hands, "AGAIN_S", (0.01, 0.01, 0.01))
    answers = [b"", b"", json.dumps(REPORT).encode() + b"\n"]

    async def answer(_request, _reader):
        return answers.pop(0)

    async with root(path, answer):
        report = await hands(path, tmp_path).carry_out(DriftAct.APPLY, asyncio.Event())

    assert report.ok


async def test_an_answer_of_another_version_is_told(path, tmp_path):
    async def answer(_request, _reader):
        return b'{"ok": "perhaps", "differences": 3}\n'

    async with root(path, answer):
        report = await hands(path, tmp_path).carry_out(DriftAct.CHECK, asyncio.Event())

    assert (report.ok, report.busy) == (False, False)
    assert "no report" in report.message


async def test_a_service_without_the_socket_says_what_enables_it(path, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 998)

    report = await hands(path, tmp_path).carry_out(DriftAct.CHECK, asyncio.Event())

    assert (report.ok, report.hint) == (False, "systemctl enable --now rigd-provision.socket")


@pytest.mark.parametrize(("uid", "service"), [(0, True), (1000, False)], ids=["root", "in-the-foreground"])
async def test_where_it_may_find_a_way_itself_a_child_runs_it(path, tmp_path, monkeypatch, uid, service):
    ran = []

    async def child(act, asked, _stop, *, environ):
        ran.append((act, asked.playbook, environ["RIGD_STATE_DIR"]))
        return Report(ok=True)

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(drift_run, "carry_out", child)

    report = await hands(path, tmp_path, service=service).carry_out(DriftAct.CHECK, asyncio.Event())

    assert report.ok
    assert ran == [(DriftAct.CHECK, tmp_path / "site.yml", str(tmp_path / "provision"))]
