"""Which requests belong together, and the beginning that they share as a body that can be warmed."""

import pytest

from rigd.prefix.anthropic import as_chat
from rigd.prefix.common import TAIL, client_name, common_prefixes, common_tokens, prefix_names, yaml_lines
from rigd.prefix.kinds import kinds
from rigd.prefix.sources import Recorded
from rigd.supervise import warm

RULES = " ".join(f"Rule {number} says item {number * 7919 % 10007}." for number in range(80))
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("edit", "read")]


def request(system, *turns, number=[0], **more):  # noqa: B006  (a counter for names)
    number[0] += 1
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return Recorded(name=f"{number[0]}.json", body={"model": "m", "messages": messages, **more})


def only_kind(*requests):
    (kind,) = kinds(requests)
    return kind


def test_requests_are_grouped_by_model_tools_and_system_text():
    build = [request(RULES + f" Today is 2026-07-{day}.", "q", tools=TOOLS) for day in (11, 12)]
    title = request("You write titles of conversations, at most fifty letters.", "q")
    other_model = request(RULES, "q", tools=TOOLS)
    other_model.body["model"] = "other"

    found = kinds([build[0], title, other_model, build[1]])

    assert [len(kind.requests) for kind in found] == [2, 1, 1]
    assert found[0].requests == tuple(build)
    assert found[0].tools == 2


def test_turns_of_one_conversation_count_once():
    first, second = request(RULES, "one"), request(RULES, "one", "answer", "two")
    other = request(RULES, "else")

    assert only_kind(first, second, other).openings == (first, other)
    assert only_kind(second, first).openings == (first,)
    assert len(only_kind(first, request(RULES, "one")).openings) == 1


def test_shared_system_prompt_and_tools_become_a_prefix_that_the_warm_up_takes():
    kind = only_kind(request(RULES, "one", tools=TOOLS), request(RULES, "two", tools=TOOLS))

    (body,) = common_prefixes(kind)

    assert body["messages"] == [{"role": "system", "content": RULES}, {"role": "user", "content": TAIL}]
    sent = warm.with_tail(warm.from_request("agents", body), "m", 1)
    assert sent["tools"] == TOOLS
    assert sent["messages"][0]["content"] == RULES
    assert len(sent["messages"]) == 2


def test_a_system_prompt_that_ends_differently_is_cut_where_it_does():
    kind = only_kind(request(RULES + "\nToday is Monday", "a"), request(RULES + "\nToday is Tuesday", "b"))

    (body,) = common_prefixes(kind)

    assert body["messages"][0]["content"] == RULES + "\nToday is "


def test_a_shared_beginning_of_the_question_is_a_candidate_beside_the_one_without_it():
    project = "This is the project: " + RULES
    kind = only_kind(request(RULES, project + "Fix it."), request(RULES, project + "Test it."))

    longest, plain = common_prefixes(kind)

    assert longest["messages"][1] == {"role": "user", "content": project}
    assert [message["role"] for message in plain["messages"]] == ["system", "user"]


def test_parts_of_a_question_that_are_the_same_are_kept():
    def parts(question):
        return [{"type": "text", "text": RULES}, {"type": "text", "text": question}]

    kind = only_kind(request(RULES, parts("one")), request(RULES, parts("two")))

    assert common_prefixes(kind)[0]["messages"][1]["content"] == [{"type": "text", "text": RULES}]


def test_questions_with_other_pictures_share_what_stands_before_them():
    """Two clients' screenshots ended a capture with an IndexError: parts without text have nothing to cut."""

    def picture(data):
        return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]

    kind = only_kind(request(RULES, picture("QUJD")), request(RULES, picture("QUJE")))

    assert [one["role"] for one in common_prefixes(kind)[0]["messages"]] == ["system", "user"]
    assert common_prefixes(kind)[0]["messages"][-1]["content"] == TAIL


def test_one_conversation_alone_shares_what_stands_before_its_question():
    (body,) = common_prefixes(only_kind(request(RULES, "one"), request(RULES, "one", "answer", "two")))

    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][1]["content"] == TAIL


@pytest.mark.parametrize(
    "requests",
    [
        [request(None, "one"), request(None, "two")],
        [Recorded(name="a", body={"instructions": RULES, "input": "q"})],
    ],
    ids=["no system prompt", "responses"],
)
def test_where_nothing_can_be_warmed_there_is_no_prefix(requests):
    assert common_prefixes(only_kind(*requests)) == ()


def test_template_settings_that_all_send_are_kept():
    more = {"chat_template_kwargs": {"enable_thinking": False}, "temperature": 0.2}
    (body,) = common_prefixes(only_kind(request(RULES, "a", **more), request(RULES, "b", **more)))

    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "temperature" not in body


def test_common_tokens_are_what_all_begin_with():
    assert common_tokens([(1, 2, 3, 4), (1, 2, 3, 9), (1, 2)]) == 2
    assert common_tokens([(1, 2, 3)]) == 3


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("opencode", "run", "hello"), "opencode"),
        (("/usr/bin/python3", "-u", "my client.py"), "my-client"),
        (("env", "A=b", "npx", "Pi"), "pi"),
        ((), "client"),
    ],
)
def test_prefixes_are_named_after_the_client(command, name):
    assert client_name(command) == name
    assert prefix_names(2, command) == (name, f"{name}-2")


def test_yaml_lines_can_be_read_back(tmp_path):
    from ruamel.yaml import YAML  # noqa: PLC0415  (only here)

    lines = yaml_lines({"opencode": "prompts/opencode.json", "x": "/it's: odd/x.json"})

    assert YAML(typ="safe").load("\n".join(lines)) == {
        "prefixes": [
            {"name": "opencode", "request": "prompts/opencode.json"},
            {"name": "x", "request": "/it's: odd/x.json"},
        ]
    }


def test_anthropic_requests_share_a_prefix_as_the_chat_completion_that_the_engine_makes_of_them():
    def asked(number, question):
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cch={number}"},
            {"type": "text", "text": "You are an agent."},
            {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}},
        ]
        tools = [{"name": "sh", "description": "run", "input_schema": {"type": "object"}}]
        messages = [{"role": "user", "content": [{"type": "text", "text": question}]}]
        return Recorded(
            name=question, body={"model": "m", "system": system, "tools": tools, "messages": messages}
        )

    (body,) = common_prefixes(only_kind(asked(1, "one"), asked(2, "two")))

    assert body["messages"][0] == {"role": "system", "content": "You are an agent." + RULES}
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "sh", "description": "run", "parameters": {"type": "object"}},
        }
    ]


def test_anthropic_turns_become_calls_and_results():
    turn = {
        "system": "s",
        "messages": [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "sh", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "out"}],
                    },
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
    }

    assert as_chat(turn)["messages"] == [
        {"role": "system", "content": "s"},
        {
            "role": "assistant",
            "reasoning": "hm",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "sh", "arguments": '{"a": 1}'}}
            ],
            "content": "I look.",
        },
        {"role": "tool", "tool_call_id": "t1", "content": "out"},
        {"role": "user", "content": "Go on."},
    ]
    chat = {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {}}]}
    assert as_chat(chat) is chat
