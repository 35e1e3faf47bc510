"""Start-up phases read from the log, and the estimate of the time left."""

import pytest

from rigd.supervise.phases import Phase, Progress, after_line, durations, remaining_s

LINES = [
    (1.0, "(APIServer pid=1) INFO 11-30 [api_server.py:1] vLLM API server version 0.32.0", Phase.CONFIGURE),
    (2.0, "INFO 11-30 [parallel_state.py:1] world_size=2 rank=0 local_rank=0", Phase.DISTRIBUTED),
    (3.0, "(Worker_TP0 pid=3) Loading safetensors checkpoint shards:  50% Completed | 1/2", Phase.WEIGHTS),
    (5.0, "(Worker_TP0 pid=3) INFO Dynamo bytecode transform time: 3.1 s", Phase.COMPILE),
    (9.0, "(EngineCore pid=2) INFO GPU KV cache size: 691,176 tokens", Phase.PROFILE),
    (12.0, "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  30%|###", Phase.CAPTURE),
    (20.0, "(APIServer pid=1) INFO:     Application startup complete.", Phase.SERVE),
]


@pytest.fixture
def finished():
    progress = Progress()
    for at_s, line, _ in LINES:
        progress = after_line(progress, line, elapsed_s=at_s)
    return progress


def test_phases_follow_the_log_in_order():
    progress = Progress()
    for at_s, line, phase in LINES:
        progress = after_line(progress, line, elapsed_s=at_s)
        assert progress.phase is phase


def test_phases_never_go_back():
    late = after_line(Progress(), LINES[-1][1], elapsed_s=20)

    assert after_line(late, LINES[0][1], elapsed_s=21).phase is Phase.SERVE


def test_share_and_pool_are_read_from_the_lines(finished):
    loading = after_line(Progress(), LINES[2][1], elapsed_s=3)

    assert (loading.fraction, finished.pool_tokens) == (0.5, 691_176)


def test_other_lines_change_nothing():
    assert after_line(Progress(), "\x00\xff garbage 99%", elapsed_s=1) == Progress()


def test_durations_add_up_to_the_whole_start(finished):
    assert sum(durations(finished, ready_s=21.0).values()) == pytest.approx(21.0)


def test_no_estimate_without_history():
    assert remaining_s(Progress(), [], elapsed_s=3) is None


def test_estimate_is_what_is_left_of_the_medians(finished):
    history = [durations(finished, ready_s=21.0)]
    loading = after_line(Progress(), LINES[2][1], elapsed_s=3.0)

    assert remaining_s(loading, history, elapsed_s=4.0) == pytest.approx(17.0)
    assert remaining_s(loading, history, elapsed_s=400.0) == pytest.approx(16.0)
