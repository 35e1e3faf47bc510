"""Warm-up arithmetic and proofs."""

import pytest
from supervise import NOW_S, State, load, proved, status, vitals

from rigd.prefix.hits import Cache
from rigd.rig.schema import Warm
from rigd.supervise import warm

POLICY = Warm()
PREFIX = warm.from_system("agents", "You are rigd.", (("a.md", "text a"), ("b.md", "text b")), None)


def test_files_follow_the_system_text_in_order_with_their_paths():
    content = PREFIX.body["messages"][0]["content"]

    assert content == "You are rigd.\n\n--- a.md\ntext a\n\n--- b.md\ntext b"


def test_sightings_differ_only_in_their_tail():
    first, second = (warm.with_tail(PREFIX, "m", number) for number in (1, 2))

    assert first["messages"][:-1] == second["messages"][:-1]
    assert first["messages"][-1] != second["messages"][-1]
    assert first["max_tokens"] == 1


def test_recorded_request_keeps_tools_and_loses_its_last_user_message():
    body = {
        "model": "theirs",
        "stream": True,
        "tools": [{"type": "function"}],
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    }

    sent = warm.with_tail(warm.from_request("opencode", body), "ours", 1)

    assert (sent["model"], sent["tools"], "stream" in sent) == ("ours", body["tools"], False)
    assert sent["messages"][0]["content"] == "s"
    assert len(sent["messages"]) == 2


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": [{"role": "user", "content": "x"}]}])
def test_recorded_request_without_a_prefix_says_so(body):
    with pytest.raises(ValueError, match=r"no `messages`|no prefix"):
        warm.from_request("bad", body)


MTP = Cache(block=128, speculative=True)


@pytest.mark.parametrize(
    ("cached", "tokens", "cache", "proved"),
    [
        pytest.param(3840, 4023, MTP, True, id="the-target-share"),
        pytest.param(3712, 4023, MTP, False, id="a-block-short-of-it"),
        pytest.param(256, 500, MTP, True, id="all-whole-blocks-but-the-one-given-up"),
        pytest.param(256, 500, Cache(block=128), False, id="no-block-is-given-up-without-speculation"),
        pytest.param(384, 384, Cache(block=128), True, id="a-prefix-of-whole-blocks"),
        pytest.param(0, 100, MTP, False, id="nothing-is-no-proof"),
        pytest.param(3700, 4023, None, False, id="blocks-unknown-below-the-target"),
        pytest.param(3900, 4023, None, True, id="blocks-unknown-the-target-share"),
    ],
)
def test_proof_is_the_target_share_or_all_that_can_be_cached(cached, tokens, cache, proved):
    assert warm.proves(cached, tokens, POLICY, cache) is proved


def test_first_mark_is_kept_and_hits_lost_need_enough_questions():
    marked = warm.first_mark(vitals(load=load(prefix_queries=1000, prefix_hits=900)))
    few = warm.marked(vitals(load=load(prefix_queries=1000, prefix_hits=900)))

    assert warm.first_mark(marked) == marked
    assert not warm.hit_lost(few, 1000)


def test_nothing_is_due_without_prefixes_or_before_the_first_warm_up():
    assert warm.due(status(State.READY), (), now_s=NOW_S + 1e6) is None
    assert warm.due(status(State.READY, warmed_s=None), ("agents",), now_s=NOW_S + 1e6) is None


def test_all_proved_needs_every_prefix():
    assert warm.all_proved((proved("a"), proved("b")), ("a", "b"))
    assert not warm.all_proved((proved("a"),), ("a", "b"))
