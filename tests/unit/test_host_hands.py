"""Asking root on its socket: an answer, nobody there, nobody who answers."""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from rigd.adapters import host_socket
from rigd.supervise.host_acts import Act, ActKind
from rigd.supervise.host_hands import HostHands

RESET = Act(kind=ActKind.RESET, at_s=1.0, bus="0000:0a:00")
REBOOT = Act(kind=ActKind.REBOOT, at_s=1.0)
LOWER = Act(kind=ActKind.LOWER, at_s=1.0, bus="0000:0a:00")


@pytest.fixture
def path():
    # Not tmp_path: a unix socket's path has room for 107 bytes only.
    folder = Path(tempfile.mkdtemp(prefix="rigd-"))
    yield folder / "host.sock"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def hands(path, monkeypatch):
    """Give the hands of a daemon without root."""
    monkeypatch.setattr(os, "geteuid", lambda: 998)
    rig = Path("/etc/rigd/rig.yaml")
    return HostHands(rig=lambda: rig, record=Path("/nowhere"), lowered_w=lambda: 220.0, path=path)


@contextlib.asynccontextmanager
async def root(path: Path, answer: bytes):
    """Answer each request with this; the requests are in the list given."""
    requests: list[dict] = []

    async def serve(reader, writer):
        requests.append(json.loads(await reader.readline()))
        writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield requests
    finally:
        server.close()
        await server.wait_closed()


async def test_the_answer_is_root_s_own(hands, path):
    async with root(path, b'{"ok": true, "message": "it was reset", "hint": ""}\n') as requests:
        answer = await hands.carry_out(RESET)

    assert (answer.ok, answer.message) == (True, "it was reset")
    assert requests == [{"act": "reset-gpu", "card": "0000:0a:00"}]


@pytest.mark.parametrize(
    ("act", "command"),
    [
        pytest.param(RESET, "sudo nvidia-smi --gpu-reset -i 0000:0a:00", id="reset"),
        pytest.param(REBOOT, "sudo systemctl reboot", id="reboot"),
        pytest.param(LOWER, "sudo nvidia-smi -i 0000:0a:00 -pl 220", id="lower"),
        pytest.param(
            Act(kind=ActKind.APPLY, at_s=1.0), "sudo rigd host apply-gpu /etc/rigd/rig.yaml", id="settings"
        ),
    ],
)
async def test_where_nobody_can_the_command_to_type_is_said(hands, act, command):
    answer = await hands.carry_out(act)

    assert not hands.here
    assert not answer.ok
    assert f"`{command}`" in answer.hint
    assert "rigd-host-act.socket" in answer.hint


@pytest.mark.parametrize("answer", [b"", b"junk\n", b"[]\n"], ids=["nothing", "junk", "another-document"])
async def test_an_answer_that_breaks_off_is_a_failure_unless_the_host_was_to_go_down(hands, path, answer):
    async with root(path, answer):
        reset, reboot = await hands.carry_out(RESET), await hands.carry_out(REBOOT)

    assert reset.ok is False
    assert reboot.ok is True


async def test_waiting_for_an_answer_ends(path):
    over, gone = asyncio.Event(), asyncio.Event()

    async def serve(_reader, writer):
        await over.wait()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        gone.set()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        with pytest.raises(host_socket.AnswerBrokenOffError, match="did not answer within 0 s"):
            await host_socket.ask({"act": "reboot"}, path=path, deadline_s=0.05)
    finally:
        over.set()
        await gone.wait()  # A connection left open would be told by whichever test runs next.
        server.close()
        await server.wait_closed()
