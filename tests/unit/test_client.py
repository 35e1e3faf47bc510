"""The client against daemons that answer, lie, stall or are not there."""

import contextlib
import socket
import threading

import pytest

from rigd import client as module
from rigd.client import Client, RefusedError, connect
from rigd.errors import RigdError, UnreachableError, UsageError


@pytest.fixture
def path(state_dirs):
    return str(state_dirs.socket)


@pytest.fixture
def answering(path):
    """Let a socket answer each connection with given bytes, and remember what was asked."""
    with contextlib.ExitStack() as stack:

        def answer(content: bytes, *, hold: bool = False) -> list[bytes]:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(path)
            listener.listen(8)
            asked: list[bytes] = []
            done = threading.Event()

            def serve() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    with connection:
                        asked.append(connection.recv(65536))
                        connection.sendall(content)
                        if hold:
                            done.wait(5)

            thread = threading.Thread(target=serve)
            thread.start()
            stack.callback(thread.join, 5)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            stack.callback(done.set)
            return asked

        yield answer


def ok(body: bytes, length: int | None = None) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (length or len(body)) + body


def test_no_socket_says_how_to_start_one(path):
    with pytest.raises(UnreachableError, match="no rigd daemon answers at") as caught:
        Client(socket=path).get("/v1/status")

    assert "rigd up RIG" in caught.value.hint
    assert caught.value.exit_code == 4


def test_dead_socket_is_no_daemon(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)

    with pytest.raises(UnreachableError, match="no rigd daemon answers at"):
        Client(socket=path).get("/v1/status")


def test_socket_path_too_long_is_wrong_usage():
    with pytest.raises(UsageError, match="too long"):
        Client(socket="/nowhere/" + "x" * 200).get("/v1/status")


@pytest.mark.parametrize(
    "content",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        b"HTTP/1.1 abc\r\n\r\n",
        ok(b"<html>hello</html>"),
        ok(b"[1, 2]"),
        ok(b'{"half": '),
        ok(b"\xff\xfe"),
        b"HTTP/1.1 500 Oops\r\n\r\n<html>",
        b"HTTP/1.1 404 Not Found\r\n\r\n{}",
    ],
    ids=["ssh", "nothing", "no-code", "html", "list", "half", "bytes", "500", "404"],
)
def test_another_programs_answer_is_said_to_be_that(path, answering, content):
    answering(content)

    with pytest.raises(RigdError, match="not a rigd daemon"):
        Client(socket=path).get("/v1/status")


def test_answer_cut_short_means_the_daemon_went_away(path, answering):
    answering(ok(b'{"state": "re', length=500))

    with pytest.raises(UnreachableError, match="went away"):
        Client(socket=path).get("/v1/status")


def test_stream_without_its_end_means_the_daemon_went_away(path, answering):
    answering(b'HTTP/1.1 200 OK\r\n\r\n{"type":"status"}\n{"type":"ping"}\n')
    got = []

    with pytest.raises(UnreachableError, match="went away"):
        got.extend(Client(socket=path).documents("/v1/live"))


def test_stream_with_its_end_ends(path, answering):
    answering(b'HTTP/1.1 200 OK\r\n\r\n{"type":"status"}\n{"type":"ping"}\n{"type":"end"}\n')

    assert list(Client(socket=path).documents("/v1/live")) == [{"type": "status"}]


def test_daemon_that_does_not_answer_is_given_up(path, answering):
    answering(b"", hold=True)

    with pytest.raises(UnreachableError, match=r"did not answer within 0\.1 s"):
        Client(socket=path).get("/v1/status", timeout_s=0.1)


def test_busy_server_is_said(path, answering):
    answering(b"HTTP/1.1 503 Service Unavailable\r\n\r\nService Unavailable")

    with pytest.raises(RefusedError, match="is busy"):
        Client(socket=path).get("/v1/status")


def test_refusal_carries_sentence_and_hint(path, answering):
    answering(b'HTTP/1.1 409 Conflict\r\n\r\n{"error": "maintenance is on", "hint": "rigd maintenance off"}')

    with pytest.raises(RefusedError, match="maintenance is on") as caught:
        Client(socket=path).post("/v1/actions/start")

    assert (caught.value.status, caught.value.hint) == (409, "rigd maintenance off")


def test_query_is_quoted_and_nothing_is_sent_for_none(path, answering):
    asked = answering(ok(b"{}"))

    Client(socket=path).get("/v1/wait", {"state": "ready,failed", "text": "a b&c/ä", "start": None})

    assert asked[0].startswith(b"GET /v1/wait?state=ready,failed&text=a%20b%26c%2F%C3%A4 HTTP/1.0\r\n")


def test_changes_carry_the_header_and_a_body(path, answering):
    asked = answering(ok(b"{}"))

    Client(socket=path).post("/v1/maintenance", {"on": True})

    assert b"X-Rigd: 1\r\n" in asked[0]
    assert asked[0].endswith(b'\r\n\r\n{"on": true}')


@pytest.mark.parametrize(
    ("options", "environ", "where"),
    [
        ({"socket": "/a"}, {"RIGD_URL": "http://b", "RIGD_SOCKET": "/c"}, "/a"),
        ({"url": "http://a"}, {"RIGD_SOCKET": "/c"}, "http://a"),
        ({}, {"RIGD_URL": "http://b/", "RIGD_SOCKET": "/c"}, "http://b"),
        ({}, {"RIGD_SOCKET": "/c"}, "/c"),
        ({}, {"RIGD_RUNTIME_DIR": "/d"}, "/d/rigd.sock"),
    ],
)
def test_options_come_before_the_environment(options, environ, where):
    assert connect(environ, **options).where == where


def test_socket_and_url_exclude_each_other():
    with pytest.raises(UsageError, match="exclude each other"):
        connect({}, socket="/a", url="http://b")


def test_url_without_a_scheme_is_wrong_usage():
    with pytest.raises(UsageError, match="no URL of a daemon"):
        connect({}, url="rig.example.net")


def test_token_comes_from_environment_or_file(tmp_path):
    token = tmp_path / "token"
    token.write_text("abc\nrest\n")

    assert connect({"RIGD_TOKEN_FILE": str(token)}, url="http://a").token == "abc"
    assert connect({"RIGD_TOKEN": "x"}, url="http://a").token == "x"
    with pytest.raises(UsageError, match="cannot read the token file"):
        connect({"RIGD_TOKEN_FILE": str(tmp_path / "none")}, url="http://a")


def test_quiet_hours_limit_is_longer_than_the_servers_ping():
    from rigd.api import streams  # noqa: PLC0415  (the two live in different layers)

    assert module.SILENCE_LIMIT_S > 2 * streams.PING_S
