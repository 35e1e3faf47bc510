"""The double's tokenizer: deterministic, reversible, and about four characters a token."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigd.sim.tokenizer import SPECIAL, VOCABULARY, Tokenizer

ENGLISH = (
    "The supervisor asks the engine every two seconds and reports what it said. When nothing moves although work is "
    "in flight, it ends the whole tree, starts the engine again and proves that it answers before it says so. "
) * 10
CODE = (
    "def decode_s(profile: Profile, batch: int) -> float:\n    return profile.step_s * (1 + share * batch)\n"
    * 10
)


def test_same_text_gives_the_same_ids_in_every_process():
    assert Tokenizer().encode("Hello, world 42") == Tokenizer().encode("Hello, world 42")


@pytest.mark.parametrize("text", [pytest.param(ENGLISH, id="english"), pytest.param(CODE, id="code")])
def test_a_token_is_about_four_characters(text):
    assert 2.5 <= len(text) / len(Tokenizer().encode(text)) <= 5.0


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=100))
def test_tokens_become_the_text_again(text):
    tokenizer = Tokenizer()

    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_one_token_each():
    assert Tokenizer().encode("<|im_start|>") == [SPECIAL["<|im_start|>"]]


def test_ids_are_within_the_vocabulary():
    assert all(0 <= token < VOCABULARY for token in Tokenizer().encode(ENGLISH + CODE))


def test_common_beginning_stays_common():
    tokenizer = Tokenizer()
    first, second = tokenizer.encode(ENGLISH + "one"), tokenizer.encode(ENGLISH + "two")
    common = next(index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)

    assert common >= len(tokenizer.encode(ENGLISH)) - 1
