"""Starts: what is refused, what the log shows on the way, and which processes there are."""

import os
import re
import socket

from box import free_port
from contract_engine import ARGUMENTS

PHASES = (
    r"\(APIServer pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[.+:\d+\] ",
    r"\(EngineCore pid=\d+\) INFO .* Initializing a V1 LLM engine \(v[\d.]+\) with config: model=",
    r"\(Worker_TP\d pid=\d+\) INFO .* Starting to load model ",
    r"Loading safetensors checkpoint shards:   0% Completed \| 0/\d+ \[00:00<\?, \?it/s\]",
    r"Loading safetensors checkpoint shards: 100% Completed \| (\d+)/\1 \[",
    r"\(Worker_TP0 pid=\d+\) INFO .* Loading weights took [\d.]+ seconds",
    r"\(EngineCore pid=\d+\) INFO .* [CG]PU KV cache size: [\d,]+ tokens, Maximum concurrency for 8,192 tokens",
    r"\(EngineCore pid=\d+\) INFO .* init engine \(profile, create kv cache, warmup model\) took [\d.]+ s",
    r"\(APIServer pid=\d+\) INFO .* Starting vLLM server on http://127\.0\.0\.1:\d+",
    r"INFO:     Started server process \[\d+\]",
    r"INFO:     Application startup complete\.",
)


def test_connections_are_refused_until_the_engine_is_ready(engine):
    assert set(engine.before_ready) == {"refused"}


def test_log_shows_the_phases_in_order(engine):
    log = engine.log.read_text(errors="replace")
    position = 0
    for phase in PHASES:
        found = re.compile(phase).search(log, position)
        assert found is not None, phase
        position = found.start()


async def test_pool_in_the_log_is_the_pool_of_the_metrics(engine, client):
    found = re.search(r"KV cache size: ([\d,]+) tokens", engine.log.read_text(errors="replace"))
    counters = await client.counters(10)

    assert found is not None
    assert int(found[1].replace(",", "")) == counters.pool_tokens


def test_core_is_a_child_of_the_server_and_the_workers_are_children_of_the_core(engine):
    core, workers = engine.core, engine.workers

    assert core.ppid() == engine.process.pid
    assert [worker.ppid() for worker in workers] == [core.pid, core.pid]
    assert core.cmdline()[0] == "VLLM::EngineCore"
    assert sorted(worker.cmdline()[0] for worker in workers) == ["VLLM::Worker_TP0", "VLLM::Worker_TP1"]


def test_all_processes_are_in_one_session(engine):
    sessions = {os.getsid(process.pid) for process in engine.tree()}

    assert sessions == {os.getsid(engine.process.pid)}


def test_unknown_flag_ends_with_usage_and_code_2(engines):
    process, log = engines.run(*ARGUMENTS, "--port", "18999", "--no-such-flag", "3")

    assert process.wait(90) == 2
    assert log.read_text().endswith("vllm: error: unrecognized arguments: --no-such-flag 3\n")


def test_value_of_the_wrong_kind_ends_with_usage_and_code_2(engines):
    process, log = engines.run("--port", "many")

    assert process.wait(90) == 2
    text = log.read_text()
    assert "usage: vllm serve [model_tag] [options]" in text
    assert text.endswith("vllm serve: error: argument --port: invalid int value: 'many'\n")


def test_port_of_somebody_else_ends_before_anything_is_loaded(engines):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", free_port()))
        stranger.listen()
        process, log = engines.run(*ARGUMENTS, "--port", str(stranger.getsockname()[1]))
        code = process.wait(90)

    assert code == 1
    assert log.read_text().rstrip().endswith("OSError: [Errno 98] Address already in use")
    assert "EngineCore" not in log.read_text()
