"""Whatever clients send, and however large: nothing in the linter raises or takes long."""

import contextlib
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigd.prefix.anthropic import as_chat
from rigd.prefix.causes import difference
from rigd.prefix.common import common_prefixes
from rigd.prefix.hits import Cache
from rigd.prefix.kinds import kinds
from rigd.prefix.lint import lint_body, lint_prompt
from rigd.prefix.sequence import compare
from rigd.prefix.sources import Prompt, Recorded, parse
from rigd.supervise import warm

KEYS = st.sampled_from(
    [
        *(
            "messages",
            "prompt",
            "input",
            "system",
            "instructions",
            "tools",
            "role",
            "content",
            "text",
            "type",
        ),
        *("function", "name", "input_schema", "tool_calls", "tool_use", "tool_result", "thinking", "model"),
        *("cache_salt", "chat_template_kwargs", "documents"),
    ]
)
TEXTS = st.sampled_from(
    ["", "user", "system", "text", "assistant", " today is 2026-07-11\n", "x" * 80, "{", "\ud83d"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": TEXTS, "content": VALUES}) | VALUES, max_size=4)
BODIES = st.dictionaries(KEYS, VALUES, max_size=5) | st.fixed_dictionaries(
    {"messages": MESSAGES, "tools": VALUES}
)


@given(st.lists(BODIES, min_size=1, max_size=4))
@settings(max_examples=120, deadline=None)
def test_no_body_is_too_odd(bodies):
    recorded = [Recorded(name=str(at), body=body) for at, body in enumerate(bodies)]

    for one in recorded:
        json.dumps([found.document() for found in lint_body(one)])
        assert isinstance(as_chat(one.body), dict)
    compared = compare(recorded, {}, Cache(), None)
    prefixes = [body for kind in kinds(recorded) for body in common_prefixes(kind)]

    assert len(compared) == len(bodies) - 1
    assert all(0 <= one.hit <= one.length and one.again >= 0 for one in compared)
    for body in prefixes:  # What is written is what the warm-up takes.
        assert warm.from_request("x", body).body["messages"] == body["messages"][:-1]


@given(BODIES)
@settings(max_examples=100, deadline=None)
def test_a_body_does_not_differ_from_itself(body):
    assert difference(body, json.loads(json.dumps(body))).expected


@given(
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
    st.sampled_from(["a.json", "a.jsonl", "a.md"]),
)
def test_any_file_is_read_or_refused_with_a_sentence(content, name):
    with contextlib.suppress(ValueError):  # The only refusal that there is; it becomes a sentence.
        assert parse(name, content)


@pytest.mark.parametrize(
    "text",
    [
        " " * 300_000 + "x",
        "a/" * 150_000 + "!",
        "0a" * 150_000,
        "Mon " * 75_000,
        "{{" * 100_000,
        "1:" * 100_000,
    ],
    ids=["spaces", "slashes", "hex", "days", "braces", "clocks"],
)
def test_long_texts_of_one_kind_are_linted_in_time(text):
    began_s = time.process_time()

    lint_prompt(Prompt(name="p", text=text))

    assert time.process_time() - began_s < 2


def test_long_conversations_are_compared_in_time():
    turn = [{"role": "user", "content": "question " * 200}, {"role": "assistant", "content": "answer " * 200}]
    system = {"role": "system", "content": "rule " * 20_000}
    recorded = [
        Recorded(name=str(at), body={"model": "m", "messages": [system, *turn * at]}) for at in range(1, 60)
    ]
    began_s = time.process_time()

    found = compare(recorded, {}, Cache(), None)
    (kind,) = kinds(recorded)

    assert len(kind.openings) == 1
    assert all(one.difference.expected for one in found)
    assert time.process_time() - began_s < 2
