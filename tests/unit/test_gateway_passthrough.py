"""The pass-through: piece by piece both ways, hang-ups and errors as they are, limits of its own."""

import asyncio
import contextlib
import json
import socket

import httpx
import pytest
from gateway_engine import answer, engine

from rigd.errors import UsageError
from rigd.gateway.headers import towards_client, towards_engine
from rigd.gateway.passthrough import PassThrough
from rigd.gateway.server import listen, serving
from rigd.gateway.tap import End
from rigd.gateway.upstream import Limits, Upstream

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PATIENT = Limits(connect_s=10, silence_s=10, client_s=10)


class Notes:
    """A tap that remembers what it saw."""

    def __init__(self):
        self.seen = []
        self.end = None

    def watch(self, exchange):
        self.seen.append(("path", exchange.path))
        return self

    def asked(self, chunk):
        self.seen.append(("asked", chunk))

    def asked_all(self):
        self.seen.append(("asked all",))

    def answered(self, status):
        self.seen.append(("answered", status))

    def told(self, chunk):
        self.seen.append(("told", chunk))

    def ended(self, end):
        self.end = end


@contextlib.asynccontextmanager
async def through(url, limits=PATIENT, *taps):
    """Run a pass-through to `url`; give a client of it."""
    upstream = Upstream(url, limits)
    app = PassThrough(upstream, limits, taps)
    async with serving(app, listen(0)) as at, httpx.AsyncClient(base_url=at, trust_env=False) as client:
        client.app = app
        yield client
    await upstream.aclose()


async def test_pieces_come_through_one_by_one_as_the_engine_says_them():
    heard, go_on = [], asyncio.Event()

    async def script(call):
        await call.body()
        await call.say(SSE)
        await call.chunk(b"data: one\n\n")
        await asyncio.wait_for(go_on.wait(), 5)  # Only a client that has the first piece lets it go on.
        await call.chunk(b"data: two\n\n")
        await call.say(b"0\r\n\r\n")

    async with (
        engine(script) as behind,
        through(behind.url) as client,
        client.stream("POST", "/v1/chat/completions", content=b'{"stream": true}') as stream,
    ):
        async for piece in stream.aiter_raw():
            heard.append(piece)
            go_on.set()

    assert heard == [b"data: one\n\n", b"data: two\n\n"]


async def test_request_goes_on_unchanged_but_for_headers_of_the_connection():
    async def script(call):
        call.sent = await call.body()
        await call.say(answer("200 OK", b"{}", b"x-engine: yes", b"connection: x-private", b"x-private: 1"))

    async with engine(script) as behind, through(behind.url) as client:
        got = await client.post(
            "/v1/%63hat/completions?a=b%20c&d",
            content=b'{"odd":  "spacing"}',
            headers={"authorization": "Bearer key", "connection": "x-mine", "x-mine": "1", "te": "trailers"},
        )
    (call,) = behind.calls

    assert call.line == "POST /v1/%63hat/completions?a=b%20c&d HTTP/1.1"
    assert call.sent == b'{"odd":  "spacing"}'
    assert call.headers["authorization"] == "Bearer key"
    assert call.headers["host"] == behind.url.removeprefix("http://")
    assert not {"x-mine", "te", "transfer-encoding"} & set(call.headers)
    assert (got.headers["x-engine"], "x-private" in got.headers) == ("yes", False)


async def test_request_body_streams_on_before_it_is_complete():
    first_part = asyncio.Event()

    async def script(call):
        await call.reader.readuntil(b"first")
        first_part.set()
        await call.reader.readuntil(b"0\r\n\r\n")
        await call.say(answer("200 OK", b""))

    async def body():
        yield b"first"
        await asyncio.wait_for(first_part.wait(), 5)
        yield b"second"

    async with engine(script) as behind, through(behind.url) as client:
        got = await client.post("/v1/chat/completions", content=body())

    assert got.status_code == 200


async def test_client_that_hangs_up_before_the_first_token_ends_the_engines_work_at_once(wait_until):
    notes = Notes()

    async def script(call):
        await call.body()
        await call.until_closed()

    async with engine(script) as behind, through(behind.url, Limits(), notes) as client:
        asking = asyncio.ensure_future(client.post("/v1/chat/completions", content=b"{}", timeout=30))
        await wait_until(lambda: behind.calls)
        asking.cancel()
        await wait_until(behind.calls[0].closed.is_set, 2)
        await wait_until(lambda: client.app.under_way == 0, 2)

    assert notes.end is End.HANG_UP


async def test_client_that_hangs_up_in_the_middle_ends_the_engines_work_at_once(wait_until):
    async def script(call):
        await call.body()
        await call.say(SSE)
        await call.chunk(b"data: one\n\n")
        await call.until_closed()

    async with engine(script) as behind, through(behind.url, Limits()) as client:
        async with client.stream("POST", "/v1/chat/completions", content=b"{}") as stream:
            await anext(stream.aiter_raw())
        await wait_until(behind.calls[0].closed.is_set, 2)


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "404 Not Found", "500 Broken"])
async def test_errors_of_the_engine_are_passed_on_as_they_are(status):
    body = b'{"error":{"message":"This model\'s maximum context length is 10 tokens","code":400}}'

    async def script(call):
        await call.body()
        await call.say(answer(status, body, b"content-type: application/json", b"retry-after: 7"))

    async with engine(script) as behind, through(behind.url) as client:
        got = await client.post("/v1/chat/completions", content=b"{}")

    assert (str(got.status_code), got.content) == (status[:3], body)
    assert got.headers["retry-after"] == "7"


async def test_answer_that_breaks_off_breaks_off_for_the_client_too():
    notes = Notes()

    async def script(call):
        await call.body()
        await call.say(SSE)
        await call.chunk(b"data: one\n\n")

    async with engine(script) as behind, through(behind.url, PATIENT, notes) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/chat/completions", content=b"{}")

    assert notes.end is End.BROKEN


async def test_packed_answers_and_heads_without_body_stay_as_they_are():
    async def script(call):
        if call.line.startswith("HEAD"):
            await call.say(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n")
        else:
            await call.say(answer("200 OK", b"not really gzip", b"content-encoding: gzip"))

    async with engine(script) as behind, through(behind.url) as client:
        head = await client.head("/v1/models")
        async with client.stream("GET", "/v1/models") as stream:
            raw = b"".join([piece async for piece in stream.aiter_raw()])

    assert head.headers["content-length"] == "999"
    assert raw == b"not really gzip"


def said(got):
    return got.json()["error"]


async def test_engine_that_is_not_there_is_502_with_a_sentence(free_port):
    async with through(f"http://127.0.0.1:{free_port}") as client:
        got = await client.post("/v1/chat/completions", content=b"{}")

    assert (got.status_code, got.headers["retry-after"]) == (502, "5")
    assert said(got)["type"] == "gateway_error"
    assert f"127.0.0.1:{free_port} does not answer" in said(got)["message"]


async def test_those_who_watch_hear_of_what_is_answered_here(free_port):
    notes = Notes()
    async with through(f"http://127.0.0.1:{free_port}", PATIENT, notes) as client:
        await client.get("/v1/models")

    assert notes.seen == [("path", "/v1/models"), ("answered", 502)]
    assert notes.end is End.REFUSED


async def test_engine_that_says_nothing_is_504_after_the_silence_limit():
    async def script(call):
        await call.body()
        await call.until_closed()

    async with engine(script) as behind, through(behind.url, Limits(silence_s=0.2)) as client:
        got = await client.post("/v1/chat/completions", content=b"{}")

    assert got.status_code == 504


async def test_engine_that_answers_nonsense_is_502():
    async def script(call):
        await call.say(b"SSH-2.0-OpenSSH_9.2\r\n")

    async with engine(script) as behind, through(behind.url) as client:
        got = await client.get("/v1/models")

    assert got.status_code == 502
    assert "broke" in said(got)["message"]


@pytest.mark.parametrize("stated", [True, False])
async def test_body_over_the_limit_is_413(stated):
    async def script(call):
        await call.until_closed()

    async def body():
        for _ in range(20):
            yield b"x" * 100

    async with engine(script) as behind, through(behind.url, Limits(body_bytes=1000)) as client:
        got = await client.post("/v1/chat/completions", content=b"x" * 2000 if stated else body())

    assert got.status_code == 413


async def test_requests_over_the_limit_are_503_and_others_go_on(wait_until):
    release = asyncio.Event()

    async def script(call):
        await asyncio.wait_for(release.wait(), 5)
        await call.say(answer("200 OK", b"done"))

    async with engine(script) as behind, through(behind.url, Limits(exchanges=1)) as client:
        first = asyncio.ensure_future(client.get("/v1/models"))
        await wait_until(lambda: behind.calls)
        refused = await client.get("/v1/models")
        release.set()
        done = await first
        again = await client.get("/v1/models")

    assert (refused.status_code, done.status_code, again.status_code) == (503, 200, 200)
    assert refused.headers["retry-after"] == "2"


async def test_many_at_once_all_come_through():
    async def script(call):
        number = await call.body()
        await call.say(answer("200 OK", number, b"connection: close"))

    async with engine(script) as behind, through(behind.url, Limits()) as client:
        got = await asyncio.gather(*(client.post("/v1/x", content=str(at)) for at in range(40)))

    assert [one.text for one in got] == [str(at) for at in range(40)]


async def test_tap_sees_the_exchange_in_order_and_one_that_raises_disturbs_nobody():
    class Broken(Notes):
        def asked(self, chunk):
            raise OSError("disk full")

    async def script(call):
        await call.body()
        await call.say(answer("200 OK", b"fine"))

    notes, broken = Notes(), Broken()
    async with engine(script) as behind, through(behind.url, PATIENT, broken, notes) as client:
        got = await client.post("/v1/chat/completions", content=b"{}")

    assert got.text == "fine"
    assert notes.seen == [
        ("path", "/v1/chat/completions"),
        ("asked", b"{}"),
        ("asked all",),
        ("answered", 200),
        ("told", b"fine"),
    ]
    assert (notes.end, broken.end) == (End.DONE, None)


async def test_small_pieces_are_not_held_back_by_the_kernel():
    made = []

    class Noted(asyncio.Protocol):
        def connection_made(self, transport):
            made.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    listener = listen(0)
    server = await asyncio.get_running_loop().create_server(Noted, sock=listener)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    await reader.read()
    writer.close()
    server.close()

    assert made == [1]


async def test_port_that_is_taken_is_told_with_who_to_ask():
    taken = listen(0)
    port = taken.getsockname()[1]

    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}") as raised:
        listen(port)
    taken.close()

    assert f":{port}" in raised.value.hint


def test_hop_by_hop_headers_end_here():
    headers = [(b"Connection", b"close, X-Hop"), (b"X-Hop", b"1"), (b"Keep-Alive", b"5"), (b"Accept", b"*/*")]

    assert towards_engine([*headers, (b"Host", b"here"), (b"Expect", b"100-continue")], b"there") == [
        (b"host", b"there"),
        (b"accept", b"*/*"),
    ]
    assert towards_client(headers) == [(b"accept", b"*/*")]


async def test_error_body_is_json_in_the_engines_form(free_port):
    async with through(f"http://127.0.0.1:{free_port}") as client:
        got = await client.get("/v1/models")

    assert set(json.loads(got.content)["error"]) == {"message", "type", "param", "code"}
