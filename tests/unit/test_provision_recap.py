"""Counts in Ansible's words, selection by tags, and what a person and a program see."""

import io
import json
from pathlib import Path

import pytest

from rigd.cli.provision_output import Lines, Screen
from rigd.provision.language.model import Block, Place, Task
from rigd.provision.run.events import ItemEnded, Outcome, PlayStarted, Recap, RunEnded, TaskEnded, TaskStarted
from rigd.provision.run.selection import Selection, beginning_at, flattened

PLACE = Place(file=Path("site.yml"), line=3, column=7)


def task(name, *tags):
    return Task(
        id=name, place=PLACE, name=name, action="ansible.builtin.debug", arguments={}, tags=frozenset(tags)
    )


@pytest.mark.parametrize(
    ("tags", "skip", "own", "runs"),
    [
        ("all", "", "", True),
        ("all", "", "a", True),
        ("all", "", "never", False),
        ("all", "", "never a", False),
        ("a", "", "never a", True),
        ("a", "", "b", False),
        ("a", "", "", False),
        ("a", "", "always", True),
        ("tagged", "", "a", True),
        ("tagged", "", "", False),
        ("untagged", "", "", True),
        ("untagged", "", "a", False),
        ("untagged", "", "always", True),
        ("all", "a", "a", False),
        ("all", "a", "b", True),
        ("all", "tagged", "a", False),
        ("all", "untagged", "", False),
        ("all", "always", "always", False),
        ("all", "a", "always a", False),
        ("all", "b", "always a", True),
    ],
)
def test_tags_as_ansible_takes_them(tags, skip, own, runs):
    selection = Selection(tags=frozenset(tags.split()), skip=frozenset(skip.split()))

    assert selection.takes(frozenset(own.split())) is runs


def test_plain_blocks_are_opened_and_guarding_ones_stay():
    plain = Block(place=PLACE, tasks=(task("a"), task("b", "never")))
    guarding = Block(place=PLACE, tasks=(task("c"),), always=(task("d"),))

    found = flattened((plain, guarding), Selection())

    assert [node.name if isinstance(node, Task) else "block" for node in found] == ["a", "block"]


def test_start_at_a_task_inside_a_block():
    block = Block(place=PLACE, tasks=(task("a"), task("b")), always=(task("z"),))

    found = beginning_at((task("x"), block, task("y")), "b")

    assert found is not None
    assert [inner.name for inner in found[0].tasks] == ["b"]
    assert found[1].name == "y"


def test_recap_counts_as_ansible_does():
    recap = Recap()
    recap.count("box", Outcome.OK)
    recap.count("box", Outcome.CHANGED)
    recap.count("box", Outcome.SKIPPED)
    recap.count("box", Outcome.FAILED, ignored=True, changed=True)
    recap.count("box", Outcome.FAILED)
    recap.rescued("box")
    recap.count("box", Outcome.UNREACHABLE, ignored=True)

    assert recap.counts() == {
        "box": {
            "ok": 4,
            "changed": 2,
            "unreachable": 0,
            "failed": 0,
            "skipped": 1,
            "rescued": 1,
            "ignored": 2,
        }
    }


def shown(*events, **options):
    out = io.StringIO()
    screen = Screen(out, **options)
    for event in events:
        screen(event)
    return out.getvalue()


STARTED = TaskStarted(host="box", name="write", place="site.yml:3:7", action="ansible.builtin.copy")


def ended(outcome, result=None, **more):
    return TaskEnded(
        host="box", name="write", place="site.yml:3:7", outcome=outcome, result=result or {}, **more
    )


def test_screen_speaks_ansibles_words():
    text = shown(
        PlayStarted(name="site", hosts=("box",)),
        STARTED,
        ended(Outcome.CHANGED, {"changes": ["mode 0600 -> 0644"]}),
        RunEnded(hosts={"box": {**dict.fromkeys(("ok", "changed"), 1), **dict.fromkeys(
            ("unreachable", "failed", "skipped", "rescued", "ignored"), 0)}}, took_s=1.0, exit_code=0),
    )  # fmt: skip

    assert "PLAY [site] ***" in text
    assert "TASK [write] ***" in text
    assert "changed: [box] (mode 0600 -> 0644)" in text
    assert "ok=1    changed=1    unreachable=0    failed=0" in text


def test_a_module_s_warnings_are_shown():
    text = shown(STARTED, ended(Outcome.OK, {"warnings": ["/dev/sdb1 is not there yet"]}))

    assert "ok: [box]\n[WARNING]: /dev/sdb1 is not there yet\n" in text


def test_quiet_shows_only_what_changes_or_fails():
    text = shown(STARTED, ended(Outcome.OK), STARTED, ended(Outcome.FAILED, {"msg": "no space"}), quiet=True)

    assert "ok:" not in text
    assert "fatal: [box]: FAILED! => no space" in text
    assert "at site.yml:3:7" in text


def test_difference_is_shown_as_a_unified_diff():
    diff = [{"before": "a\nb\n", "after": "a\nc\n", "before_header": "/etc/x", "after_header": "/etc/x"}]

    text = shown(STARTED, ended(Outcome.CHANGED, {"diff": diff}))

    assert "--- before: /etc/x\n+++ after: /etc/x\n" in text
    assert "\n-b\n+c\n" in text


def test_what_a_box_says_does_not_steer_the_terminal():
    text = shown(STARTED, ended(Outcome.FAILED, {"msg": "x\x1b[2J", "stderr": "\x1b]0;title\x07"}))

    assert "\x1b" not in text


def test_lines_are_one_object_each():
    out = io.StringIO()
    lines = Lines(out)
    lines(STARTED)
    lines(ItemEnded(host="box", name="write", label="1", outcome=Outcome.OK))
    lines(ended(Outcome.CHANGED))

    documents = [json.loads(line) for line in out.getvalue().splitlines()]

    assert [document["event"] for document in documents] == ["task", "item", "result"]
    assert documents[2]["outcome"] == "changed"
