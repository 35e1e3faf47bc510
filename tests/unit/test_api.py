"""The API over a real unix socket, with a fake supervisor behind it."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from api_fakes import FakeBackend, serving

from rigd.api import connections, listen, streams
from rigd.api.routes import ROUTES
from rigd.client import Client, RefusedError
from rigd.errors import RigdError, UnreachableError, UsageError
from rigd.settings import Settings
from rigd.supervise.decision import Reply
from rigd.supervise.observations import RequestKind

PROJECT = Path(__file__).resolve().parents[2]
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root: `sudo pytest ...`")


@pytest.fixture
def backend(tmp_path):
    return FakeBackend(tmp_path)


@pytest.fixture
def settings(state_dirs):
    return Settings(socket=state_dirs.socket)


@pytest.fixture
async def client(backend, settings):
    async with serving(backend, settings):
        yield Client(socket=str(settings.socket))


async def call(function, *arguments, **options):
    return await asyncio.to_thread(function, *arguments, **options)


async def raw(path: Path, request: bytes) -> bytes:
    """Send bytes as they are and return everything that comes back."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(request)
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 5)
    await close(writer)
    return answer


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection wholly: a half-closed one is a warning in some later test."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def post(path: str, *headers: str, body: bytes = b"{}") -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: rigd.local", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


async def test_status_is_the_backends_document(client, backend):
    assert (await call(client.get, "/v1/status"))["engine"] == backend.document["engine"]


async def test_health_follows_the_loops_heartbeat(client, backend):
    assert (await call(client.get, "/v1/health"))["healthy"] is True

    backend.healthy = False

    with pytest.raises(RigdError):
        await call(client.get, "/v1/health")


async def test_metrics_are_plain_text(client):
    assert "rigd_state" in await call(client.text, "/metrics")


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("/v1/actions/start", {}, (RequestKind.START, True)),
        ("/v1/actions/start", {"reload": False}, (RequestKind.START, False)),
        ("/v1/actions/stop", {}, (RequestKind.STOP, False)),
        ("/v1/actions/restart", {}, (RequestKind.RESTART, True)),
        ("/v1/actions/warm", {}, (RequestKind.WARM, False)),
        ("/v1/maintenance", {"on": True}, (RequestKind.MAINTENANCE_ON, False)),
        ("/v1/maintenance", {"on": False}, (RequestKind.MAINTENANCE_OFF, False)),
    ],
)
async def test_actions_are_posted_to_the_loop(client, backend, path, body, asked):
    reply = await call(client.post, path, body)

    assert ([asked], True) == (backend.asked, reply["ok"])


async def test_refusal_of_the_loop_reaches_the_caller_with_its_hint(client, backend):
    backend.reply = Reply(request=1, ok=False, message="maintenance is on", hint="rigd maintenance off")

    with pytest.raises(RefusedError, match="maintenance is on") as caught:
        await call(client.post, "/v1/actions/start")

    assert (caught.value.hint, caught.value.status) == ("rigd maintenance off", 409)


async def test_wait_answers_as_soon_as_the_state_is_reached(client, backend):
    backend.change(state="starting")
    waiting = asyncio.create_task(
        call(client.get, "/v1/wait", {"state": "ready,failed", "timeout_s": 30}, timeout_s=40)
    )
    await asyncio.sleep(0.05)
    backend.change(state="ready")

    assert (await asyncio.wait_for(waiting, 5))["reached"] is True


async def test_wait_ends_when_time_is_over(client):
    answer = await call(client.get, "/v1/wait", {"state": "failed", "timeout_s": 0.05})

    assert (answer["reached"], answer["status"]["state"]) == (False, "ready")


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("/v1/wait", {"state": "redy"}, "redy"),
        ("/v1/events", {"limit": "many"}, "must be a number"),
        ("/v1/events", {"limit": 100_000}, "between"),
        ("/v1/events", {"after": -1}, "between"),
        ("/v1/logs", {"tail": "nan"}, "between"),
        ("/v1/logs", {"start": 99}, "no log of start 99"),
        ("/v1/nothing", {}, "there is no GET /v1/nothing"),
        ("/v1/actions/start", {}, "there is no GET"),
    ],
)
async def test_wrong_questions_get_a_sentence(client, path, query, words):
    with pytest.raises(RefusedError, match=words):
        await call(client.get, path, query)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"on": "yes"}', "must be true or false"),
        (b"{}", "must be true or false"),
        (b" " * (2**20 + 1), "larger than"),
    ],
    ids=["list", "half", "bytes", "deep", "word", "missing", "large"],
)
async def test_wrong_bodies_get_a_sentence(client, settings, backend, body, words):
    answer = await raw(settings.socket, post("/v1/maintenance", "X-Rigd: 1", body=body))

    assert (answer[:12], words.encode() in answer, backend.asked) == (b"HTTP/1.1 400", True, [])


@pytest.mark.parametrize(
    "headers",
    [(), ("X-Rigd: 1", "Origin: http://evil.example"), ("X-Rigd: 1", "Referer: http://evil.example/"),
     ("X-Rigd: 1", "Sec-Fetch-Site: cross-site")],
    ids=["no header", "origin", "referer", "fetch"],
)  # fmt: skip
async def test_changes_from_a_web_page_are_refused(client, settings, backend, headers):
    answer = await raw(settings.socket, post("/v1/actions/stop", *headers))

    assert (answer[:12], backend.asked) == (b"HTTP/1.1 403", [])


async def test_form_bodies_are_refused(client, settings, backend):
    answer = await raw(
        settings.socket,
        post("/v1/actions/stop", "X-Rigd: 1", "Content-Type: application/x-www-form-urlencoded"),
    )

    assert (answer[:12], backend.asked) == (b"HTTP/1.1 415", [])


async def test_garbage_is_a_bad_request_and_the_server_goes_on(client, settings):
    assert (await raw(settings.socket, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"))[:12] == b"HTTP/1.1 400"

    assert (await call(client.get, "/v1/status"))["state"] == "ready"


async def test_connection_that_never_asks_is_cut(backend, settings, monkeypatch):
    monkeypatch.setattr(connections, "SILENCE_S", 0.05)
    async with serving(backend, settings):
        assert await raw(settings.socket, b"GET /v1/st") == b""


async def test_error_inside_is_one_sentence_without_inner_words(client, settings, backend):
    backend.crash = True

    answer = await raw(settings.socket, b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")

    assert (answer[:12], b"secret inner words" in answer) == (b"HTTP/1.1 500", False)


# --- streams ---


async def test_events_follow_leaves_none_out_and_repeats_none(client, backend, wait_until):
    for number in range(5):
        backend.journal(f"past {number}")
    got = []

    def read():
        for entry in client.documents("/v1/events", {"limit": 3, "follow": 1}):
            got.append(entry["message"])
            if entry["message"] == "last":
                return

    reading = asyncio.create_task(call(read))
    await wait_until(lambda: backend.subscribers)
    for number in range(200):
        backend.journal(f"new {number}")
    backend.journal("last")
    await asyncio.wait_for(reading, 5)

    assert ["past 2", "past 3", "past 4", *[f"new {number}" for number in range(200)], "last"] == got


async def test_events_after_an_id_pages_from_there(client, backend):
    for number in range(5):
        backend.journal(f"entry {number}")

    document = await call(client.get, "/v1/events", {"after": 2, "limit": 2})

    assert [entry["id"] for entry in document["events"]] == [3, 4]


async def test_live_begins_with_the_status_and_tells_changes_and_events(
    client, backend, monkeypatch, wait_until
):
    monkeypatch.setattr(streams, "LIVE_INTERVAL_S", 0.02)
    seen = []

    def read():
        # The status is sampled: it may change on the wire before or after the event that tells why.
        for document in client.documents("/v1/live"):
            seen.append(document)
            states = [item["status"]["state"] for item in seen if item["type"] == "status"]
            if "failed" in states and any(item["type"] == "event" for item in seen):
                return

    reading = asyncio.create_task(call(read))
    await wait_until(lambda: seen)
    backend.journal("it broke")
    backend.change(state="failed")
    await asyncio.wait_for(reading, 5)

    assert seen[0]["status"]["state"] == "ready"
    assert [item["event"]["message"] for item in seen if item["type"] == "event"] == ["it broke"]


async def test_quiet_stream_pings(settings, backend, monkeypatch):
    monkeypatch.setattr(streams, "PING_S", 0.05)
    async with serving(backend, settings):
        reader, writer = await asyncio.open_unix_connection(str(settings.socket))
        writer.write(b"GET /v1/events?follow=1&limit=0 HTTP/1.0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")

        assert await asyncio.wait_for(reader.readline(), 5) == b'{"type":"ping"}\n'
        await close(writer)


async def test_reader_that_leaves_is_unsubscribed(client, settings, backend, wait_until):
    reader, writer = await asyncio.open_unix_connection(str(settings.socket))
    writer.write(b"GET /v1/live HTTP/1.0\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await wait_until(lambda: backend.subscribers == 1)

    await close(writer)

    await wait_until(lambda: backend.subscribers == 0)


async def test_slow_reader_is_cut_and_costs_little(settings, backend, monkeypatch, wait_until):
    monkeypatch.setattr(streams, "SLOW_READER_S", 0.2)
    async with serving(backend, settings):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(settings.socket))
        sock.sendall(b"GET /v1/events?follow=1 HTTP/1.0\r\n\r\n")
        await wait_until(lambda: backend.subscribers == 1)
        for _ in range(400):
            backend.journal("x" * 4096)

        await wait_until(lambda: backend.subscribers == 0)

        assert (await call(Client(socket=str(settings.socket)).get, "/v1/status"))["state"] == "ready"
        sock.close()


async def test_too_many_streams_are_refused_and_the_rest_works(client, settings, backend, wait_until):
    writers = []
    for _ in range(streams.STREAMS_LIMIT):
        reader, writer = await asyncio.open_unix_connection(str(settings.socket))
        writer.write(b"GET /v1/live HTTP/1.0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)

    with pytest.raises(RefusedError, match="too many streams"):
        await call(lambda: next(iter(client.documents("/v1/live"))))

    assert (await call(client.get, "/v1/status"))["state"] == "ready"
    for writer in writers:
        await close(writer)
    await wait_until(lambda: backend.subscribers == 0)


async def test_daemon_that_stops_ends_its_streams_properly(settings, backend, wait_until):
    client = Client(socket=str(settings.socket))
    seen = []

    def read():
        seen.extend(client.documents("/v1/live"))
        return "ended"

    async with serving(backend, settings):
        reading = asyncio.create_task(call(read))
        await wait_until(lambda: seen)

    assert await asyncio.wait_for(reading, 5) == "ended"
    assert not settings.socket.exists()


async def test_daemon_killed_in_the_middle_of_a_stream_is_said(settings, tmp_path):
    child = subprocess.Popen(  # noqa: ASYNC220  (waited for in a thread)
        [sys.executable, str(Path(__file__).with_name("api_fakes.py")), str(settings.socket), str(tmp_path)],
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    try:
        await call(child.stdout.readline)

        def read():
            for _ in Client(socket=str(settings.socket)).documents("/v1/events", {"follow": 1}):
                child.kill()

        with pytest.raises(UnreachableError, match="went away"):
            await asyncio.wait_for(call(read), 20)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


# --- logs ---


async def test_logs_show_the_last_lines_without_escape_codes(client, backend):
    backend.log_of(1).write_text("old start\n")
    backend.log_of(2).write_bytes(
        b"".join(b"\x1b[31mline %d\x1b[0m\n" % number for number in range(300)) + b"\xff\n"
    )

    assert (
        await call(client.text, "/v1/logs", {"tail": 3}) == "line 298\nline 299\n\N{REPLACEMENT CHARACTER}\n"
    )
    assert await call(client.text, "/v1/logs", {"start": 1}) == "old start\n"


async def test_logs_follow_the_growing_log_its_cut_and_the_next_start(
    client, backend, monkeypatch, wait_until
):
    monkeypatch.setattr(streams, "LOG_POLL_S", 0.01)
    log = backend.log_of(1)
    log.write_text("past 1\npast 2\n")
    got = []

    def read():
        for text in client.lines("/v1/logs", {"tail": 1, "follow": 1}):
            got.append(text)
            if text == "second start":
                return

    async def until(text):
        await wait_until(lambda: text in got)

    reading = asyncio.create_task(call(read))
    async with asyncio.timeout(5):
        await until("past 2")
        with log.open("a") as file:
            file.write("new, ")
            file.flush()
            await asyncio.sleep(0.05)
            file.write("whole line\n")
        await until("new, whole line")
        log.write_text("cut\n")
        await until("cut")
        backend.log_of(2).write_text("second start\n")
        await reading

    assert got == ["past 2", "new, whole line", "cut", "--- start 2 ---", "second start"]


# --- who may ---


def test_every_route_that_changes_anything_asks_for_it():
    for route in ROUTES:
        assert (route.method == "POST") == (route.access.value == "change"), route.path


async def test_socket_is_private_to_the_user(client, settings):
    assert stat.S_IMODE(settings.socket.stat().st_mode) == 0o600


@as_root
async def test_socket_of_a_group_is_open_to_it_and_nobody_else(backend, settings):
    grouped = settings.model_copy(update={"socket_group": "nogroup"})
    async with serving(backend, grouped):
        found = settings.socket.stat()

        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, NOBODY)


CHILD = """
import sys
from rigd.client import Client
from rigd.errors import RigdError
client = Client(socket=sys.argv[1])
for ask in (lambda: client.get("/v1/status")["state"], lambda: client.post("/v1/actions/stop")["message"]):
    try:
        print(ask())
    except RigdError as error:
        print(f"{error} -> {error.hint}")
"""


async def as_user(settings: Settings, *switch: str) -> list[str]:
    """Read and change as another user; returns what each came to."""
    base = settings.socket.parent.parent
    for folder in (base, settings.socket.parent):
        folder.chmod(0o755)
    code = base / "code"
    shutil.copytree(PROJECT / "rigd", code / "rigd", ignore=shutil.ignore_patterns("__pycache__"))
    result = await asyncio.to_thread(
        subprocess.run,
        ["setpriv", *switch, "/usr/bin/env", f"PYTHONPATH={code}", "PYTHONDONTWRITEBYTECODE=1",
         shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable, "-c", CHILD,
         str(settings.socket)],
        capture_output=True, text=True, timeout=30, check=False, cwd="/",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@as_root
async def test_other_user_cannot_connect(client, settings):
    read, change = await as_user(settings, f"--reuid={NOBODY}", "--regid=65533", "--clear-groups")

    assert "not allowed" in read
    assert "only user 'root'" in change


@as_root
async def test_member_of_the_group_may_change(backend, settings):
    grouped = settings.model_copy(update={"socket_group": "nogroup"})
    async with serving(backend, grouped):
        answers = await as_user(settings, "--reuid=12345", "--regid=12345", "--groups=65534")

    assert answers == ["ready", "already ready"]


@as_root
async def test_other_user_who_can_connect_may_only_read(client, settings, backend):
    settings.socket.chmod(0o666)

    read, change = await as_user(settings, "--reuid=12345", "--regid=12345", "--clear-groups")

    assert (read, "user 12345 may look, not change" in change, backend.asked) == ("ready", True, [])


# --- sockets ---


def test_socket_of_a_dead_daemon_is_replaced(settings):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(settings.socket))

    listening = listen(settings)

    assert stat.S_ISSOCK(settings.socket.stat().st_mode)
    listening.close()
    assert not settings.socket.exists()


def test_second_daemon_is_told_of_the_first(settings):
    listening = listen(settings)

    with pytest.raises(RigdError, match=f"another rigd daemon is running .*pid {os.getpid()}"):
        listen(settings)

    listening.close()
    listen(settings).close()


def test_living_socket_without_our_lock_is_left_alone(settings):
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(settings.socket))
        living.listen(1)

        with pytest.raises(RigdError, match=f"pid {os.getpid()}"):
            listen(settings)

        assert settings.socket.exists()


def test_file_at_the_sockets_path_is_not_removed(settings):
    settings.socket.write_text("precious")

    with pytest.raises(UsageError, match="something else lies there"):
        listen(settings)

    assert settings.socket.read_text() == "precious"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"socket": Path("/nowhere") / ("x" * 120)}, "longer than 107 bytes"),
        ({"socket_group": "no-such-group"}, "no group 'no-such-group'"),
        ({"bind": "0.0.0.0:7420", "token_file": "given"}, "every network"),
        ({"bind": "[::]:7420", "token_file": "given"}, "every network"),
        ({"bind": "somewhere", "token_file": "given"}, "not HOST:PORT"),
        ({"bind": "127.0.0.1:7420"}, "without a token"),
        ({"token_file": Path("/nonexistent")}, "cannot read the token file"),
    ],
    ids=["long", "group", "everywhere", "everywhere6", "no port", "no token", "no file"],
)
def test_wrong_settings_are_said_and_leave_nothing(settings, tmp_path, changes, words):
    token = tmp_path / "token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    wrong = settings.model_copy(
        update={key: token if value == "given" else value for key, value in changes.items()}
    )

    with pytest.raises(RigdError, match=words):
        listen(wrong)

    assert not settings.socket.exists()
    listen(settings).close()


@pytest.mark.parametrize(
    ("text", "mode", "words"), [("short", 0o600, "shorter"), ("t" * 32, 0o644, "others can read")]
)
def test_weak_tokens_are_refused(settings, tmp_path, text, mode, words):
    token = tmp_path / "token"
    token.write_text(text)
    token.chmod(mode)

    with pytest.raises(UsageError, match=words):
        listen(settings.model_copy(update={"token_file": token}))


# --- TCP ---


@pytest.fixture
def on_tcp(settings, tmp_path, free_port):
    token = tmp_path / "token"
    token.write_text("t" * 32 + "\n")
    token.chmod(0o600)
    return settings.model_copy(
        update={"bind": f"127.0.0.1:{free_port}", "token_file": token, "hosts": ("rig.example.net",)}
    )


async def test_tcp_asks_for_the_token_and_takes_it(backend, on_tcp):
    url = f"http://{on_tcp.bind}"
    async with serving(backend, on_tcp):
        with pytest.raises(RefusedError, match="token"):
            await call(Client(url=url).get, "/v1/status")
        with pytest.raises(RefusedError, match="token"):
            await call(Client(url=url, token="u" * 32).get, "/v1/status")

        assert (await call(Client(url=url).get, "/v1/health"))["healthy"] is True
        client = Client(url=url, token="t" * 32)
        assert (await call(client.get, "/v1/status"))["state"] == "ready"
        assert (await call(client.post, "/v1/actions/stop"))["ok"] is True
        live = client.documents("/v1/live")
        assert (await call(next, live))["type"] == "status"
        with contextlib.closing(live):
            pass


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("rig.example.net:7420", 200), ("localhost", 200), ("", 421)],
)
async def test_tcp_answers_to_its_own_names_only(backend, on_tcp, host, status):
    async with serving(backend, on_tcp):
        address, port = on_tcp.bind.split(":")
        reader, writer = await asyncio.open_connection(address, int(port))
        writer.write(
            f"GET /v1/status HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {'t' * 32}\r\n\r\n".encode()
        )
        answer = await asyncio.wait_for(reader.read(), 5)
        await close(writer)

        assert answer.startswith(f"HTTP/1.1 {status}".encode())


async def test_answers_are_json_with_type(client, settings):
    answer = await raw(settings.socket, b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")

    assert b"content-type: application/json" in head.lower()
    assert json.loads(body)["state"] == "ready"
