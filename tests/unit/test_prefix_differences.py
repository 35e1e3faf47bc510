"""Where two requests part ways, why, and what of the later one can still hit."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigd.prefix.causes import difference
from rigd.prefix.differences import Cause
from rigd.prefix.hits import Cache, Rate, hit_tokens, seconds, shared_length
from rigd.prefix.sequence import compare
from rigd.prefix.sources import Recorded

RULES = "\n".join(f"Rule {number}: item {number * 7919 % 10007} precedes it." for number in range(40))


def tool(name, **more):
    return {"type": "function", "function": {"name": name, "description": f"{name} a file", **more}}


def body(system=RULES, *turns, tools=("edit", "read", "write"), **more):
    spoken = turns or ("What is here?",)
    roles = ("user", "assistant")
    return {
        "model": "m",
        "tools": [tool(name) for name in tools],
        "messages": [
            {"role": "system", "content": system},
            *({"role": roles[at % 2], "content": text} for at, text in enumerate(spoken)),
        ],
        **more,
    }


def swapped(system):
    lines = system.splitlines()
    return "\n".join([lines[1], lines[0], *lines[2:]])


KEYS = {"parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
KEYS_AGAIN = {"parameters": {"properties": {"path": {"type": "string"}}, "type": "object"}}


def agent(seen="ls: README.md", *, reasoning="", rest=("It holds a README.", "The end of it.")):
    """Return the turns of an agent that all answer one question."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    thought = {"reasoning_content": reasoning} if reasoning else {}
    found = body(RULES, "What is here?")
    found["messages"] += [
        {"role": "assistant", "tool_calls": [call], **thought},
        {"role": "tool", "tool_call_id": "c1", "content": seen},
        *({"role": "assistant", "content": text} for text in rest),
    ]
    return found


@pytest.mark.parametrize(
    ("earlier", "later", "cause", "path"),
    [
        (body(), body(), Cause.SAME, ""),
        (body(), body(RULES, "Another question."), Cause.TAIL, "messages[1].content"),
        (body(), body(RULES, "What is here?", "Files.", "And?"), Cause.CONTINUES, "messages[2].content"),
        (
            body("Today is 2026-07-11.\n" + RULES),
            body("Today is 2026-07-12.\n" + RULES),
            Cause.MOVING,
            "messages[0].content",
        ),
        (body("a  b " + RULES), body("a b " + RULES), Cause.WHITE_SPACE, "messages[0].content"),
        (body(RULES), body(swapped(RULES)), Cause.LINE_ORDER, "messages[0].content"),
        (body("You plan. " + RULES), body("You build. " + RULES), Cause.SYSTEM, "messages[0].content"),
        (body(), body(tools=("read", "edit", "write")), Cause.TOOL_ORDER, "tools[0]"),
        (body(), body(tools=("edit", "fetch", "read", "write")), Cause.TOOLS, "tools[1]"),
        (body(), body(tools=()), Cause.TOOLS, "tools[0]"),
        (
            body() | {"tools": [tool("edit", **KEYS)]},
            body() | {"tools": [tool("edit", **KEYS_AGAIN)]},
            Cause.KEY_ORDER,
            "tools[0]",
        ),
        (
            body(RULES, "one", "first answer", "two", "second", "three"),
            body(RULES, "one", "(compacted)", "two", "second", "three"),
            Cause.HISTORY,
            "messages[2].content",
        ),
        (agent("ls: README.md"), agent("(pruned)"), Cause.HISTORY, "messages[3].content"),
        (agent(reasoning="First look around."), agent(), Cause.HISTORY, "messages[2].tool_calls"),
        (
            agent("ls: README.md"),
            agent("ls: setup.py", rest=("Another answer.",)),
            Cause.TAIL,
            "messages[3].content",
        ),
        (
            body() | {"tools": [tool("edit", note="It edits.", **KEYS)]},
            body() | {"tools": [tool("edit", note="It edits, now 2026-07-12.", **KEYS)]},
            Cause.MOVING,
            "tools[0]",
        ),
        (body(cache_salt="a"), body(cache_salt="b"), Cause.SALT, "cache_salt"),
        (
            body(chat_template_kwargs={"enable_thinking": True}),
            body(chat_template_kwargs={"enable_thinking": False}),
            Cause.SETTINGS,
            "chat_template_kwargs",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Cause) else "",
)
def test_first_difference_is_named_with_cause_and_place(earlier, later, cause, path):
    found = difference(earlier, later)

    assert (found.cause, found.path) == (cause, path)
    assert found.expected is (cause in (Cause.SAME, Cause.TAIL, Cause.CONTINUES))
    assert (found.again > 0) is not found.expected


def test_difference_shows_both_texts_and_the_line():
    found = difference(body(RULES + "\nToday is 2026-07-11."), body(RULES + "\nToday is 2026-07-12."))

    assert found.line == 41
    assert "2026-07-11" in found.earlier
    assert "2026-07-12" in found.later


def test_what_comes_first_in_the_template_is_the_first_difference():
    earlier, later = body("x " + RULES), body("y " + RULES, tools=("write", "read", "edit"))

    assert difference(earlier, later).cause is Cause.SYSTEM
    assert difference(earlier, later, tools_first=True).cause is Cause.TOOL_ORDER


def test_white_space_is_told_although_something_else_differs_further_on():
    found = difference(body("a b\n" + RULES + "x"), body("a  b\n" + RULES + "y"))

    assert found.cause is Cause.WHITE_SPACE


def test_white_space_that_differs_can_be_seen():
    found = difference(body("one\ntwo " + RULES), body("one\r\ntwo " + RULES))

    assert found.earlier.startswith(r"one\ntwo")
    assert found.later.startswith(r"one\r\ntwo")


def test_pictures_are_compared_and_not_counted_as_text():
    def asked(data):
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": RULES}, part]}]}

    first, second = asked("QUJD" * 10_000), asked("QUJE" * 10_000)

    (found,) = compare(recorded(first, second), {}, Cache(), None)
    assert found.length < len(RULES) / 4 + 100
    assert difference(first, second).path == "messages[0].content[1]"


def test_anthropic_and_responses_bodies_are_compared_too():
    first = {"system": [{"type": "text", "text": "Today is 2026-07-11"}], "messages": []}
    second = {"system": [{"type": "text", "text": "Today is 2026-07-12"}], "messages": []}

    assert difference(first, second).path == "system[0].text"
    assert difference(
        {"instructions": "be brief", "input": "a"}, {"instructions": "be long", "input": "a"}
    ).path == ("instructions")


def recorded(*bodies):
    return [Recorded(name=f"{at}.json", body=one) for at, one in enumerate(bodies)]


def test_engine_tokens_give_block_hits_and_seconds():
    requests = recorded(body("Today is 2026-07-11.\n" + RULES), body("Today is 2026-07-12.\n" + RULES))
    tokens = {"0.json": tuple(range(4023)), "1.json": (*range(1000), *range(9000, 12023))}

    (found,) = compare(
        requests, tokens, Cache(block=128, speculative=True), Rate(tokens_per_s=1000, said_by="stated")
    )

    assert (found.by_engine, found.shared, found.length) == (True, 1000, 4023)
    assert (found.block, found.hit) == (7, 6 * 128)
    assert found.read_s == pytest.approx((4023 - 768) / 1000)
    assert found.again == pytest.approx(3000, rel=0.05)


def test_what_the_template_evens_out_is_no_difference():
    bodies = recorded(
        body() | {"tools": [tool("edit", **KEYS)]}, body() | {"tools": [tool("edit", **KEYS_AGAIN)]}
    )

    (found,) = compare(bodies, {"0.json": (1, 2, 3), "1.json": (1, 2, 3)}, Cache(), None)

    assert (found.difference.cause, found.again) == (Cause.SAME, 0)


def test_each_request_is_held_against_the_one_that_it_shares_most_with():
    first, other, next_turn = (
        body(),
        body("Something else entirely. " * 40),
        body(RULES, "What is here?", "x", "y"),
    )

    found = compare(recorded(first, other, next_turn), {}, Cache(), None)

    assert [(one.earlier, one.later) for one in found] == [("0.json", "1.json"), ("0.json", "2.json")]
    assert found[1].difference.cause is Cause.CONTINUES
    assert not found[1].by_engine


def test_another_salt_shares_nothing_although_the_text_does():
    (found,) = compare(recorded(body(cache_salt="a"), body(cache_salt="b")), {}, Cache(), None)

    assert (found.shared, found.hit) == (0, 0)


@pytest.mark.parametrize(
    ("shared", "length", "cache", "hit"),
    [
        (4023, 4023, Cache(block=128, speculative=True), 3840),
        (4023, 4100, Cache(block=128), 3968),
        (64, 64, Cache(block=16), 48),  # The last token is always computed.
        (15, 100, Cache(block=16), 0),
        (100, 100, Cache(block=1600), 0),
    ],
)
def test_hits_are_whole_blocks(shared, length, cache, hit):
    assert hit_tokens(shared, length, cache) == hit


@given(st.text("ab", max_size=9000), st.text("ab", max_size=20), st.text("ab", max_size=20))
def test_shared_length_is_the_longest_common_beginning(beginning, one, other):
    first, second = beginning + one, beginning + other

    length = shared_length(first, second)

    assert length >= len(beginning)
    assert first[:length] == second[:length]
    assert length == min(len(first), len(second)) or first[length] != second[length]


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 300), st.booleans())
def test_hits_never_exceed_what_is_shared_and_grow_with_it(shared, length, block, speculative):
    cache = Cache(block=block, speculative=speculative)

    hit = hit_tokens(shared, length, cache)

    assert 0 <= hit <= min(shared, length)
    assert hit % block == 0
    assert hit_tokens(shared + 1, length, cache) >= hit


def test_seconds_need_a_rate():
    assert seconds(1000, None) is None
    assert seconds(1000, Rate(tokens_per_s=500, said_by="stated")) == 2


def test_comparison_is_json_with_place_and_cost():
    (found,) = compare(recorded(body("x " + RULES), body("y " + RULES)), {}, Cache(), None)

    document = json.loads(json.dumps(found.document()))

    assert document["counted_by"] == "text"
    assert document["difference"]["path"] == "messages[0].content"
    assert document["read_again_s"] is None


def test_an_agent_is_no_continuation_of_its_own_titles():
    title = {"model": "m", "messages": [{"role": "system", "content": "You write titles of three words."}]}

    found = compare(recorded(title, body(), title, body(RULES, "Another.")), {}, Cache(), None)

    assert [one.difference.cause for one in found] == [Cause.KIND, Cause.SAME, Cause.TAIL]
    assert [one.earlier for one in found] == ["0.json", "0.json", "1.json"]
