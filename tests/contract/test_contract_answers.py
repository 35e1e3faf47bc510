"""What rigd, its gateway and its clients read out of an engine's answers."""

import json
import re

import pytest
from contract_engine import CONTEXT, KEY, MODEL

from rigd.adapters.vllm import AnswerKind, HealthKind

ANSWER_S = 60.0
ASK_S = 10.0
COMPLETION = {
    "model": MODEL,
    "prompt": "The capital of France is",
    "max_tokens": 8,
    "temperature": 0,
    "ignore_eos": True,
}
CHAT = {
    "model": MODEL,
    "messages": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "hello"}],
}


async def test_health_passes_and_carries_no_body(client, engine):
    answer = await client.health(ASK_S)

    assert answer.kind is HealthKind.PASSING
    assert engine.ask("GET", "/health").content == b""


async def test_version_and_model_list_are_told(client, engine):
    version, names = await client.version(ASK_S), await client.models(ASK_S)
    card = engine.ask("GET", "/v1/models").json()["data"][0]

    assert version is not None
    assert re.match(r"\d+\.\d+\.\d+", version)
    assert names == (MODEL,)
    assert card["max_model_len"] == CONTEXT


def test_completion_has_text_reason_and_usage(engine):
    body = engine.ask("POST", "/v1/completions", json=COMPLETION).json()

    assert body["object"] == "text_completion"
    assert body["model"] == MODEL
    assert isinstance(body["choices"][0]["text"], str)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 8
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 8


async def test_canary_is_answered_with_exactly_the_tokens_asked_for(client):
    first = await client.complete("The capital of France is", 8, ANSWER_S)
    second = await client.complete("The capital of France is", 8, ANSWER_S)

    assert first.kind is AnswerKind.ANSWERED, first.detail
    assert first.completion_tokens == 8
    assert second.text == first.text


async def test_chat_streams_with_usage_and_time_to_first_token(client):
    answer = await client.chat({**CHAT, "max_tokens": 12, "ignore_eos": True}, ANSWER_S)
    tokens = await client.tokenize(CHAT, ASK_S)

    assert answer.kind is AnswerKind.ANSWERED, answer.detail
    assert answer.completion_tokens == 12
    assert tokens is not None
    assert answer.prompt_tokens == len(tokens)
    assert answer.cached_tokens is not None
    assert answer.ttft_s is not None
    assert 0 < answer.ttft_s <= answer.took_s


def test_stream_opens_with_the_role_and_closes_with_usage_and_done(engine):
    body = {
        **CHAT,
        "max_tokens": 4,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer = engine.ask("POST", "/v1/chat/completions", json=body)
    events = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    chunks = [json.loads(event) for event in events[:-1]]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


def test_stream_without_the_option_has_no_usage(engine):
    answer = engine.ask("POST", "/v1/completions", json={**COMPLETION, "stream": True})

    assert '"usage":{' not in answer.text.replace(" ", "")
    assert answer.text.rstrip().endswith("data: [DONE]")


async def test_tokenize_takes_messages_with_and_without_the_generation_prompt(client):
    asked = await client.tokenize(CHAT, ASK_S)
    plain = await client.tokenize({**CHAT, "add_generation_prompt": False}, ASK_S)

    assert asked is not None
    assert plain is not None
    assert asked[: len(plain)] == plain
    assert len(asked) > len(plain)


async def test_prompts_with_other_tails_share_the_tokens_of_their_beginning(client):
    system = {"role": "system", "content": "These are the rules of the house. " * 40}
    tails = [[system, {"role": "user", "content": text}] for text in ("one thing", "quite another one")]
    first, second = [await client.tokenize({"messages": messages}, ASK_S) for messages in tails]

    common = next(index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert common > 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/v1/completions", {**COMPLETION, "prompt": "word " * (CONTEXT + 800)}, id="completion"),
        pytest.param(
            "/v1/chat/completions",
            {**CHAT, "messages": [{"role": "user", "content": "word " * (CONTEXT + 800)}]},
            id="chat",
        ),
    ],
)
def test_prompt_longer_than_the_context_is_the_clients_error(engine, path, body):
    answer = engine.ask("POST", path, json=body)
    error = answer.json()["error"]

    assert (answer.status_code, error["code"], error["type"]) == (400, 400, "BadRequestError")
    assert error["message"].startswith(f"This model's maximum context length is {CONTEXT} tokens.")


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        pytest.param(
            "/v1/completions", {**COMPLETION, "max_tokens": 0}, 400, "BadRequestError", id="no-tokens"
        ),
        pytest.param(
            "/v1/completions", {**COMPLETION, "max_tokens": 9000}, 400, "BadRequestError", id="too-many"
        ),
        pytest.param("/v1/completions", {**COMPLETION, "prompt": ""}, 400, "BadRequestError", id="no-prompt"),
        pytest.param(
            "/v1/completions", {**COMPLETION, "model": "nope"}, 404, "NotFoundError", id="other-model"
        ),
        pytest.param(
            "/v1/completions", {**COMPLETION, "temperature": -3}, 400, "BadRequestError", id="temperature"
        ),
        pytest.param(
            "/v1/chat/completions", {**CHAT, "messages": []}, 400, "BadRequestError", id="no-messages"
        ),
        pytest.param("/v1/chat/completions", {"model": MODEL}, 400, "Bad Request", id="messages-missing"),
        pytest.param(
            "/v1/chat/completions",
            {**CHAT, "chat_template": "{{ x }}"},
            400,
            "BadRequestError",
            id="template",
        ),
        pytest.param(
            "/v1/chat/completions",
            {**CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
            400,
            "BadRequestError",
            id="tools-without-parser",
        ),
    ],
)
def test_wrong_request_gets_a_sentence_and_the_engine_stays_healthy(engine, path, body, status, kind):
    answer = engine.ask("POST", path, json=body)
    error = answer.json()["error"]

    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)
    assert error["message"]
    assert engine.ask("GET", "/health").status_code == 200


def test_body_that_is_no_json_is_refused(engine):
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    answer = engine.ask("POST", "/v1/completions", content=b'{"model":', headers=headers)

    assert answer.status_code == 400
    assert "json_invalid" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}]
)
def test_key_is_asked_for_on_the_openai_paths(engine, headers):
    answer = engine.ask("GET", "/v1/models", headers=headers)

    assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})


@pytest.mark.parametrize("path", ["/health", "/metrics", "/version", "/ping", "/load"])
def test_other_paths_need_no_key(engine, path):
    assert engine.ask("GET", path, headers={}).status_code == 200


def test_tokenize_needs_no_key_either(engine):
    answer = engine.ask("POST", "/tokenize", json={"model": MODEL, "prompt": "hello"}, headers={})

    assert answer.status_code == 200
    assert answer.json()["count"] == len(answer.json()["tokens"])


def test_tokens_become_text_again(engine):
    text = "The engine waits for the next job."
    tokens = engine.ask("POST", "/tokenize", json={"model": MODEL, "prompt": text}).json()["tokens"]

    assert engine.ask("POST", "/detokenize", json={"model": MODEL, "tokens": tokens}).json()["prompt"] == text


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nope", 404), ("GET", "/v1/completions", 405)]
)
def test_unknown_path_and_method_are_told_apart(engine, method, path, status):
    answer = engine.ask(method, path)

    assert answer.status_code == status
    assert "detail" in answer.json()


def test_several_prompts_give_as_many_choices(engine):
    body = engine.ask("POST", "/v1/completions", json={**COMPLETION, "prompt": ["one two", "three"]}).json()

    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["usage"]["completion_tokens"] == 16


def test_stream_of_several_prompts_numbers_its_choices(engine):
    body = {**COMPLETION, "prompt": ["one two", "three"], "stream": True}
    events = engine.ask("POST", "/v1/completions", json=body).text.split("\n")
    chunks = [json.loads(line[6:]) for line in events if line.startswith("data: {")]

    assert {choice["index"] for chunk in chunks for choice in chunk["choices"]} == {0, 1}


def test_answer_ends_before_a_stop_text(engine):
    whole = engine.ask("POST", "/v1/completions", json=COMPLETION).json()["choices"][0]["text"]
    stop = whole[4:7]
    choice = engine.ask("POST", "/v1/completions", json={**COMPLETION, "stop": stop}).json()["choices"][0]

    assert choice["text"] == whole[: whole.find(stop)]
    assert choice["finish_reason"] == "stop"


def test_several_greedy_choices_are_refused(engine):
    answer = engine.ask("POST", "/v1/completions", json={**COMPLETION, "n": 2})

    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "n must be 1 when using greedy sampling, got 2."
