"""The statistics lines: as vLLM writes them, and none about nothing."""

import re

import pytest

from rigd.sim.window import Window

ENGINE = re.compile(
    r"Engine 000: Avg prompt throughput: [\d.]+ tokens/s, Avg generation throughput: [\d.]+ tokens/s, "
    r"Running: 2 reqs, Waiting: 1 reqs, Preemptions: 3, GPU KV cache usage: 12\.5%, Prefix cache hit rate: 96\.8%"
)
DRAFTS = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: 2\.56, Accepted throughput: [\d.]+ tokens/s, "
    r"Drafted throughput: [\d.]+ tokens/s, Accepted: 156 tokens, Drafted: 300 tokens, "
    r"Per-position acceptance rate: 0\.700, 0\.500, 0\.360, Avg Draft acceptance rate: 52\.0%"
)
STEP = {
    "computed": 4160,
    "running": 2,
    "waiting": 1,
    "kv": 0.125,
    "tally": {
        "queries": 1000,
        "hits": 968,
        "preemptions": 3,
        "drafts": 100,
        "draft_tokens": 300,
        "accepted_per_position": [70, 50, 36],
    },
}


class Paper:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, where: str, message: str) -> None:
        self.lines.append(message)


@pytest.fixture
def paper() -> Paper:
    return Paper()


def test_busy_window_writes_both_lines(paper):
    window = Window()
    window.since_s -= 10
    window.add(STEP, generated=256, accepted=156)
    window.write(paper, "GPU")

    assert ENGINE.fullmatch(paper.lines[0])
    assert DRAFTS.fullmatch(paper.lines[1])


def test_first_quiet_window_still_says_so_and_the_next_is_silent(paper):
    window = Window()
    window.add(STEP, generated=256, accepted=156)
    quiet = window.next()
    quiet.since_s -= 10
    quiet.write(paper, "GPU")
    quiet.next().write(paper, "GPU")

    assert len(paper.lines) == 1
    assert "Avg generation throughput: 0.0 tokens/s" in paper.lines[0]
    assert "Prefix cache hit rate: 96.8%" in paper.lines[0]
