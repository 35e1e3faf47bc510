"""The engine client against servers that say what they should not, and against none at all."""

import asyncio
import contextlib
import json
import socket

import pytest
import pytest_asyncio

from rigd.adapters import vllm
from rigd.adapters.vllm import AnswerKind, HealthKind, VllmClient, parse_counters

FAST_S = 5.0
SHORT_S = 0.2


def http(
    body: bytes, *, status: str = "200 OK", kind: str = "application/json", length: int | None = None
) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def stream(*events: str) -> bytes:
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body


class Stranger:
    """A server that answers every request with the same bytes, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer = http(b"{}")
        self.delay_s = 0.0
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # Aborted transports let go of their sockets in the loop's next round.

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            await self._answer(reader, writer)
        finally:
            writer.transport.abort()  # Wholly and at once: a half-closed one is a warning in some later test.

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")),
                0,
            )
            self.asked.append(head)
            self.bodies.append(await reader.readexactly(length))
            await asyncio.sleep(self.delay_s)
            writer.write(self.answer)
            await writer.drain()

    def body(self) -> dict[str, object]:
        return json.loads(self.bodies[-1])


@pytest_asyncio.fixture
async def stranger():
    found = Stranger()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await found.close()


@pytest_asyncio.fixture
async def client(stranger):
    found = VllmClient(f"http://127.0.0.1:{stranger.port}", model="m", api_key="sk-secret")
    yield found
    await found.aclose()


@pytest.mark.parametrize(
    ("answer", "kind", "status"),
    [
        pytest.param(http(b""), HealthKind.PASSING, 200, id="200"),
        pytest.param(http(b"", status="503 Service Unavailable"), HealthKind.FAILING, 503, id="503"),
        pytest.param(
            http(b"<html>", status="302 Found", kind="text/html"), HealthKind.FAILING, 302, id="redirect"
        ),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", HealthKind.ERROR, None, id="no-http"),
        pytest.param(b"", HealthKind.ERROR, None, id="hangs-up"),
        pytest.param(http(b"abc", length=100), HealthKind.ERROR, None, id="half-a-body"),
    ],
)
async def test_health_is_a_kind_whatever_answers(client, stranger, answer, kind, status):
    stranger.answer = answer
    found = await client.health(FAST_S)

    assert (found.kind, found.status) == (kind, status)
    assert found.kind is HealthKind.PASSING or found.detail


async def test_nobody_listening_is_refused(free_port):
    client = VllmClient(f"http://127.0.0.1:{free_port}", model="m", api_key=None)

    assert (await client.health(FAST_S)).kind is HealthKind.REFUSED
    assert (await client.complete("x", 1, FAST_S)).kind is AnswerKind.REFUSED
    assert (await client.chat({"messages": []}, FAST_S)).kind is AnswerKind.REFUSED
    assert await client.counters(FAST_S) is None
    assert await client.tokenize({"messages": []}, FAST_S) is None
    await client.aclose()


async def test_silence_is_a_timeout_within_the_deadline(client, stranger):
    stranger.delay_s = 60
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    health, answer = await client.health(SHORT_S), await client.complete("x", 1, SHORT_S)

    assert (health.kind, answer.kind) == (HealthKind.TIMEOUT, AnswerKind.TIMEOUT)
    assert loop.time() - began_s < 2


async def test_name_that_does_not_resolve_is_an_error_of_the_prober():
    client = VllmClient("http://no-such-host.invalid:8000", model="m", api_key=None)

    assert (await client.health(FAST_S)).kind in (HealthKind.ERROR, HealthKind.TIMEOUT)
    await client.aclose()


async def test_ipv6_address_is_asked():
    stranger = Stranger()
    try:
        server = await asyncio.start_server(stranger.serve, "::1", 0)
    except OSError:
        pytest.skip("no IPv6 loopback here: `sysctl net.ipv6.conf.lo.disable_ipv6=0` brings it")
    client = VllmClient(f"http://[::1]:{server.sockets[0].getsockname()[1]}", model="m", api_key=None)

    assert (await client.health(FAST_S)).kind is HealthKind.PASSING
    await client.aclose()
    server.close()
    await stranger.close()


def completion(text: str) -> bytes:
    return http(json.dumps({"choices": [{"text": text}], "usage": {"completion_tokens": 3}}).encode())


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(completion(" Paris"), AnswerKind.ANSWERED, id="text"),
        pytest.param(completion(""), AnswerKind.EMPTY, id="no-text"),
        pytest.param(completion(" \n"), AnswerKind.EMPTY, id="blanks"),
        pytest.param(http(b"<html>hello</html>", kind="text/html"), AnswerKind.ERROR, id="html"),
        pytest.param(http(b'{"choices": []}'), AnswerKind.ERROR, id="no-choice"),
        pytest.param(http(b'{"choices": [{"text": 7}]}'), AnswerKind.ERROR, id="text-is-a-number"),
        pytest.param(http(b"[1, 2]"), AnswerKind.ERROR, id="a-list"),
        pytest.param(http(b"[" * 100_000), AnswerKind.ERROR, id="deep-nesting"),
        pytest.param(http(b"\xff\xfe", status="500 Oops"), AnswerKind.HTTP_ERROR, id="500-in-no-encoding"),
    ],
)
async def test_completion_is_a_kind_whatever_answers(client, stranger, answer, kind):
    stranger.answer = answer

    assert (await client.complete("x", 3, FAST_S)).kind is kind


async def test_error_carries_vllms_own_sentence(client, stranger):
    message = "This model's maximum context length is 8192 tokens."
    body = json.dumps({"error": {"message": message, "code": 400}}).encode()
    stranger.answer = http(body, status="400 Bad Request")
    found = await client.complete("x", 3, FAST_S)

    assert (found.kind, found.status) == (AnswerKind.HTTP_ERROR, 400)
    assert found.detail == f"HTTP 400: {message}"


async def test_completion_asks_for_an_answer_that_can_be_judged(client, stranger):
    stranger.answer = completion("x")
    await client.complete("The capital", 5, FAST_S)

    assert stranger.body() == {
        "model": "m", "prompt": "The capital", "max_tokens": 5, "temperature": 0, "ignore_eos": True,
        "skip_special_tokens": False,
    }  # fmt: skip
    assert "authorization: bearer sk-secret" in stranger.asked[-1].lower()


async def test_huge_body_is_not_read_to_its_end(client, stranger, monkeypatch):
    monkeypatch.setattr(vllm, "BODY_LIMIT_BYTES", 1000)
    stranger.answer = http(b"x" * 5000)

    assert (await client.complete("x", 1, FAST_S)).kind is AnswerKind.ERROR
    assert await client.counters(FAST_S) is None


DEATH = '{"error":{"message":"EngineCore encountered an issue.","code":500}}'
OPENING = '{"choices":[{"delta":{"role":"assistant","content":""}}]}'
WORD = '{"choices":[{"delta":{"content":" hello"}}]}'
THOUGHT = '{"choices":[{"delta":{"reasoning":" hmm"}}]}'
USAGE = (
    '{"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,'
    '"prompt_tokens_details":{"cached_tokens":32}}}'
)


async def test_chat_reads_text_usage_and_cached_tokens(client, stranger):
    stranger.answer = stream(OPENING, THOUGHT, WORD, USAGE, "[DONE]")
    found = await client.chat({"messages": [{"role": "user", "content": "hi"}]}, FAST_S)

    assert (found.kind, found.text) == (AnswerKind.ANSWERED, " hmm hello")
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (40, 2, 32)
    assert found.ttft_s is not None
    assert stranger.body()["stream_options"] == {"include_usage": True}
    assert stranger.body()["model"] == "m"


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        pytest.param((OPENING, WORD), AnswerKind.ERROR, id="broken-off"),
        pytest.param((OPENING, "{not json"), AnswerKind.ERROR, id="no-json"),
        pytest.param(("7", "[]", '"x"', "[DONE]"), AnswerKind.EMPTY, id="other-json"),
        pytest.param((OPENING, "[DONE]"), AnswerKind.EMPTY, id="nothing-said"),
        pytest.param((OPENING, DEATH, "[DONE]"), AnswerKind.HTTP_ERROR, id="dies-on-the-way"),
    ],
)
async def test_chat_is_a_kind_whatever_streams(client, stranger, events, kind):
    stranger.answer = stream(*events)

    assert (await client.chat({"messages": []}, FAST_S)).kind is kind


async def test_engine_that_does_not_tell_leaves_cached_tokens_unknown(client, stranger):
    usage = '{"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,"prompt_tokens_details":null}}'
    stranger.answer = stream(OPENING, WORD, usage, "[DONE]")

    assert (await client.chat({"messages": []}, FAST_S)).cached_tokens is None


@pytest.mark.parametrize("body", [b"<html>", b'{"tokens": "many"}', b'{"tokens": [1, "x"]}', b"null"])
async def test_tokens_that_are_none_are_none(client, stranger, body):
    stranger.answer = http(body)

    assert await client.tokenize({"messages": []}, FAST_S) is None


async def test_tokenize_sends_only_what_the_path_takes(client, stranger):
    stranger.answer = http(b'{"tokens": [1, 2]}')
    tokens = await client.tokenize({"messages": [], "tools": [1], "max_tokens": 5, "stream": True}, FAST_S)

    assert tokens == (1, 2)
    assert stranger.body() == {"model": "m", "messages": [], "tools": [1]}


PAGE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} NaN
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:generation_tokens_total{engine="0",model_name="m"} 10.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.79e+09
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 7.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 8.0
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="100"} 1.0
"""


def test_counters_are_summed_over_engines_and_usage_is_the_fullest():
    found = parse_counters(PAGE)

    assert found is not None
    assert (found.running, found.waiting, found.kv_usage) == (3, 0, 0.5)
    assert (found.generation_tokens, found.successes, found.steps) == (10, 7, 8)
    assert (found.block_size, found.pool_tokens) == (16, 1600)


def test_pool_is_told_by_newer_versions():
    page = PAGE.replace(b'kv_cache_size_tokens="None"', b'kv_cache_size_tokens="838784"')

    assert parse_counters(page).pool_tokens == 838_784


def test_older_names_are_known():
    page = b'vllm:num_requests_running{model_name="m"} 1.0\nvllm:gpu_cache_usage_perc{model_name="m"} 0.75\n'
    found = parse_counters(page)

    assert (found.running, found.kv_usage) == (1, 0.75)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>", id="html"),
        pytest.param(b'vllm:num_requests_running{engine="0" 1.0\n', id="broken-labels"),
        pytest.param(b"vllm:num_requests_running{} many\n", id="no-number"),
        pytest.param(b"up 1.0\nprocess_cpu_seconds_total 3\n", id="another-program"),
    ],
)
def test_page_of_something_else_is_none(page):
    assert parse_counters(page) is None


def test_fingerprint_moves_with_the_pool_alone():
    """A long prompt is prefilled in pieces: for minutes only the pool's usage moves."""
    before, after = parse_counters(PAGE), parse_counters(PAGE.replace(b"} 0.5", b"} 0.51"))

    assert before.fingerprint != after.fingerprint


async def test_connection_is_kept_between_questions():
    connections, ended = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.transport.abort()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, family=socket.AF_INET)
    client = VllmClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", model="m", api_key=None)
    for _ in range(5):
        assert (await client.health(FAST_S)).kind is HealthKind.PASSING
    await client.aclose()
    server.close()
    await asyncio.wait_for(ended.wait(), 10)
    await asyncio.sleep(0)  # The aborted transport lets go of its socket in the loop's next round.

    assert connections == 1
