"""Warm-up arithmetic and proofs."""

import pytest
from supervise import NOW_S, State, load, proved, status, vitals

from rigd.prefix.hits import shared_length
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


@pytest.mark.parametrize(
    ("tokens", "block", "speculative", "cacheable"),
    [(4023, 128, True, 3840), (4023, 128, False, 3968), (100, 128, True, 0), (4023, None, True, 4023)],
)
def test_only_whole_blocks_are_cached_and_one_less_with_speculation(tokens, block, speculative, cacheable):
    assert warm.cacheable_tokens(tokens, block, speculative=speculative) == cacheable


def test_proof_is_the_target_share_or_all_that_can_be_cached():
    def proves(cached, tokens):
        return warm.proves(cached, tokens, POLICY, block_size=128, speculative=True)

    assert [proves(3840, 4023), proves(3712, 4023), proves(256, 500), proves(0, 100)] == [
        True,
        False,
        True,
        False,
    ]


def test_common_tokens_is_the_length_of_the_shared_beginning():
    assert shared_length((1, 2, 3, 4), (1, 2, 9, 4)) == 2
    assert shared_length((1, 2), (1, 2, 3)) == 2


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
