"""What systemd hears from the daemon."""

import os
import socket

import pytest

from rigd.adapters import systemd


@pytest.fixture(params=["path", "abstract"])
def heard(request, tmp_path, monkeypatch):
    """Listen where systemd would; return a function that gives the lines of the next datagram."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@rigd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name[1:] if name.startswith("@") else name)
        listener.settimeout(2)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield lambda: listener.recv(65536).decode().split("\n")


def test_ready_carries_status_and_pid(heard):
    assert systemd.ready("starting the engine")

    assert heard() == ["READY=1", "STATUS=starting the engine", f"MAINPID={os.getpid()}"]


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        pytest.param(systemd.watchdog, ["WATCHDOG=1"], id="watchdog"),
        pytest.param(lambda: systemd.status("ready: 41 s"), ["STATUS=ready: 41 s"], id="status"),
        pytest.param(lambda: systemd.stopping("bye"), ["STOPPING=1", "STATUS=bye"], id="stopping"),
    ],
)
def test_each_message(heard, call, lines):
    assert call()

    assert heard() == lines


def test_status_stays_one_line_however_long_the_text(heard):
    systemd.status("two\nlines READY=1 " + "x" * 5000)

    (line,) = heard()
    assert line.startswith("STATUS=two lines READY=1 xxx")
    assert len(line) < 1100


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("", id="no-systemd"),
        pytest.param("/nowhere/notify", id="socket-gone"),
        pytest.param("relative", id="not-an-address"),
        pytest.param("@" + "x" * 300, id="name-too-long"),
    ],
)
def test_nobody_to_tell_is_no_error(where):
    assert not systemd.notify("READY=1", environ={"NOTIFY_SOCKET": where})


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        pytest.param({}, None, id="no-watchdog"),
        pytest.param({"WATCHDOG_USEC": "30000000"}, 10.0, id="ours-unless-said-otherwise"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 10.0, id="ours"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None, id="another-process"),
        pytest.param({"WATCHDOG_USEC": "0"}, None, id="off"),
        pytest.param({"WATCHDOG_USEC": "soon"}, None, id="garbage"),
    ],
)
def test_watchdog_interval_is_a_third_of_the_deadline(environ, interval_s):
    assert systemd.watchdog_interval_s(environ) == interval_s
