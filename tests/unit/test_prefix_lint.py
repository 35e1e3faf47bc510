"""What the linter says of prompt files and request bodies, of bad files, and of live traffic."""

import json
from dataclasses import dataclass, field

import pytest

from rigd.prefix.finding import Level
from rigd.prefix.lint import lint_body, lint_order, lint_prompt
from rigd.prefix.sources import Prompt, Recorded, parse
from rigd.prefix.watch import Sample, Watch

STATIC = "Keep functions short and name things after what they are.\n" * 40


def kinds_of(found, level=Level.WARNING):
    return [one.kind for one in found if one.level is level]


def test_clean_prompt_has_no_findings():
    assert lint_prompt(Prompt(name="p.md", text=STATIC)) == ()


def test_date_before_static_text_is_told_with_line_and_what_stands_behind():
    found = lint_prompt(Prompt(name="p.md", text="You are an agent.\nToday is 2026-07-11.\n" + STATIC))

    assert kinds_of(found) == ["date", "dynamic before static"]
    assert found[0].place == "p.md:2"
    assert found[0].tokens_behind == pytest.approx(len(STATIC) / 4, rel=0.02)


def test_date_at_the_very_end_is_not_blamed_for_its_place():
    found = lint_prompt(Prompt(name="p.md", text=STATIC + "Today is 2026-07-11.\n"))

    assert kinds_of(found) == ["date"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("\ufeff" + STATIC, "byte order mark"),
        (STATIC + "one\r\ntwo\n", "line endings"),
        ("Files:\n- b.py\n- a.py\n- c.py\n- README.md\n- Makefile.am\n", "listing in no order"),
    ],
)
def test_seams_and_listings_are_warned_of(text, kind):
    assert kinds_of(lint_prompt(Prompt(name="p.md", text=text))) == [kind]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("text without an end", "white space at the seam"),
        ("two ends\n\n", "white space at the seam"),
        ("\n  begins late\n", "white space at the seam"),
        ("a \nb\n", "trailing white space"),
    ],
)
def test_white_space_is_noted(text, kind):
    assert kinds_of(lint_prompt(Prompt(name="p.md", text=text)), Level.NOTE) == [kind]


def test_sorted_listing_is_fine():
    text = "Files:\n- a.py\n- b.py\n- c.py\n- d.py\n- e.py\n"

    assert lint_prompt(Prompt(name="p.md", text=text)) == ()


def test_file_with_moving_parts_should_stand_last():
    files = [Prompt(name="env.md", text="Today is 2026-07-11.\n"), Prompt(name="rules.md", text=STATIC)]

    assert [one.source for one in lint_order(files)] == ["env.md"]
    assert lint_order(files[::-1]) == ()


def test_body_findings_have_json_paths_and_leave_the_question_alone():
    body = {
        "tools": [{"type": "function", "function": {"name": "sh", "description": "in /tmp/run-x81k/ box"}}],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Now: 2026-07-11T10:00:00Z."}]},
            {"role": "user", "content": "Why did 2026-07-11T10:00:00Z fail? Today is 2026-07-12."},
        ],
    }

    found = lint_body(Recorded(name="b.json", body=body))

    assert {(one.path, one.kind) for one in found} == {
        ("messages[0].content[0].text", "timestamp"),
        ("tools[0]", "temporary path"),
    }
    assert found[0].place == "b.json: messages[0].content[0].text"


def test_billing_header_that_the_engine_drops_is_no_finding():
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cch=4ad4c38"},
        {"type": "text", "text": "Hi."},
    ]

    assert lint_body(Recorded(name="b", body={"system": system, "messages": []})) == ()


def test_salt_late_system_message_and_doubled_tool_are_told():
    tool = {"type": "function", "function": {"name": "sh"}}
    body = {
        "cache_salt": "secret-salt",
        "tools": [tool, tool],
        "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}],
    }

    found = lint_body(Recorded(name="b.json", body=body))

    assert [one.kind for one in found] == ["cache salt", "dynamic before static", "tool twice"]
    assert "secret-salt" not in json.dumps([one.document() for one in found])


def test_endless_findings_are_cut():
    text = "Today is 2026-07-11.\n" * 500

    assert len(lint_prompt(Prompt(name="p.md", text=text))) <= 60


BODY = {"messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("a.json", json.dumps(BODY), 1),
        ("a.json", json.dumps([BODY, BODY]), 2),
        ("a.json", json.dumps({"body": BODY}), 1),
        ("a.jsonl", f"{json.dumps(BODY)}\n\n{json.dumps(BODY)}\n", 2),
        ("a.json", json.dumps([{"type": "function", "function": {"name": "x"}}]), 1),
        ("recorded", json.dumps(BODY), 1),
        ("a.json", "\ufeff" + json.dumps(BODY), 1),
        ("a.json", json.dumps({"custom_id": "7", "method": "POST", "body": BODY}), 1),
    ],
)
def test_bodies_are_found_in_every_form(name, content, count):
    found = parse(name, content.encode())

    assert len(found) == count
    assert all(isinstance(one, Recorded) for one in found)


@pytest.mark.parametrize("content", ["{{ name }} is an agent", "[draft] a prompt", "plain"])
def test_other_text_is_a_prompt(content):
    assert parse("p.md", content.encode()) == (Prompt(name="p.md", text=content),)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.json", b'{"messages": [}', "not JSON: line 1, column 15"),
        ("a.json", b'{"name": "x"}', "no request body: it has none of messages"),
        ("a.json", b'[{"messages": []}, 7]', r"\[1\] is no request body"),
        ("a.jsonl", b'{"messages": []}\nnope\n', "line 2 is not JSON"),
        ("a.jsonl", b"\n", "no request body in it"),
        ("a.json", b'{"messages": "hello"}', "the JSON is no request body: its `messages` are no list"),
        ("a.jsonl", b'{"prompt": null}', "line 1 is no request body: it has no text in messages, prompt"),
        ("a.json.gz", b"\x1f\x8b\x08", "packed with gzip"),
        ("p.md", "Hello".encode("utf-16"), "UTF-16 text: save it as UTF-8"),
        ("a.txt", b'data: {"choices": []}\n\n', "a stream of an answer"),
        ("p.md", b"caf\xe9 \n", "line 1: byte 0xe9 is not UTF-8"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_files_are_refused_with_the_place(name, content, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(name, content)


@dataclass
class Feed:
    """Gives a watch samples ten seconds apart."""

    watch: Watch = field(default_factory=Watch)
    queries: float = 0
    hits: float = 0
    at_s: float = 0

    def add(self, queries, hits):
        self.queries, self.hits, self.at_s = self.queries + queries, self.hits + hits, self.at_s + 10
        return self.watch.add(Sample(at_s=self.at_s, queries=self.queries, hits=self.hits))


def test_live_rate_is_of_the_interval_and_quiet_ones_give_no_row():
    feed = Feed()

    rows = [feed.add(0, 0), feed.add(1000, 900), feed.add(0, 0)]

    assert [row and row.rate for row in rows] == [None, 0.9, None]


def test_fall_of_the_rate_is_told_once_it_is_clear_and_so_is_its_end():
    feed = Feed()
    feed.add(0, 0)
    before = [feed.add(1000, 950) for _ in range(4)]

    small, fallen, again = feed.add(100, 0), feed.add(4000, 100), feed.add(1000, 950)

    assert [row.note for row in before] == [""] * 4
    assert small.note == ""
    assert "fell from" in fallen.note
    assert "3,900 tokens" in fallen.note
    assert again.note == "is as usual again"


def test_engine_that_looks_nothing_up_is_told_once():
    watch = Watch()

    rows = [watch.add(Sample(at_s=at, queries=0, hits=0, prompts=at * 1000)) for at in range(4)]

    assert [row is not None for row in rows] == [False, True, False, False]
    assert "without prefix caching" in rows[1].note


def test_restarted_engine_is_told_and_forgotten():
    feed = Feed()
    feed.add(5000, 4000)
    feed.queries, feed.hits = 0, 0

    row = feed.add(10, 0)

    assert "restarted" in row.note
    assert feed.add(1000, 0).usual is None
