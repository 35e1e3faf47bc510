"""The double's faults, one by one: what a supervisor gets to see of each."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
import psutil
import pytest
from box import free_port
from contract_engine import KEY, Engine, Engines

from rigd.adapters.proc import private_memory
from rigd.adapters.vllm import AnswerKind, HealthKind, VllmClient
from rigd.sim.signatures import SIGNATURES
from rigd.supervise.classify import diagnose

ASK_S = 5.0
EXIT_S = 10.0
BASE = ("--host", "127.0.0.1", "-tp", "2", "--enable-prompt-tokens-details", "--max-num-seqs", "8")
CLASSES = {
    "oom-weights": "oom_weights",
    "oom-profile": "oom_profile",
    "oom-sampler": "oom_sampler_warmup",
    "oom-cudagraph": "oom_cudagraph",
    "kv-none": "kv_none",
    "kv-small": "kv_small",
    "gpu-busy": "gpu_mem_busy",
    "mamba-seqs": "mamba_seqs",
    "cache-poisoned": "compile_cache_poisoned",
    "weights-corrupt": "weights_corrupt",
    "hf-network": "hf_network",
    "model-missing": "hf_not_found",
    "fp8-kv": "fp8_kv_ampere",
    "custom-allreduce": "custom_ar_ipc",
    "shm-exhausted": "shm_exhausted",
}
SPECULATION = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')
CHAT = {"messages": [{"role": "user", "content": "go on"}], "max_tokens": 64, "ignore_eos": True}


@pytest.fixture
def starter(tmp_path):
    """Start doubles with other arguments; all of them end with the test."""
    engines = Engines(
        kind="double", command=(sys.executable, "-m", "rigd.sim", "m"), environment={}, folder=tmp_path
    )
    started: list[Engine] = []

    def start(*arguments: str) -> Engine:
        port = free_port()
        process, log = engines.run(*BASE, *arguments, "--port", str(port))
        engine = Engine(kind="double", process=process, port=port, log=log)
        started.append(engine)
        return engine

    yield start
    for engine in started:
        engine.end()


@pytest.fixture
def ready(starter, block_until) -> Callable[..., Engine]:
    """Start a double and wait until it is healthy."""

    def start(*arguments: str) -> Engine:
        engine = starter(*arguments)
        block_until(lambda: _healthy(engine), 15)
        return engine

    return start


@pytest.fixture
def asked():
    """Ask an engine one thing with rigd's client."""

    async def ask(engine: Engine, question: str, *arguments: object):
        client = VllmClient(engine.url, model="m", api_key=KEY)
        try:
            return await getattr(client, question)(*arguments)
        finally:
            await client.aclose()

    return lambda *words: asyncio.run(ask(*words))


def _healthy(engine: Engine) -> bool:
    assert engine.alive, engine.log.read_text()
    try:
        return httpx.get(f"{engine.url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def ended(engine: Engine) -> tuple[int, str]:
    return engine.process.wait(EXIT_S), engine.log.read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(
            ["--sim-fault", "fail-at-start=oom-weights"],
            r"torch\.OutOfMemoryError: CUDA out of memory\.",
            id="oom",
        ),
        pytest.param(
            ["--sim-fault", "oom-unless-max-num-seqs=4"],
            r"warming up sampler with 8 dummy requests",
            id="oom-that-fewer-slots-heal",
        ),
        pytest.param(
            ["--sim-fault", "mamba-blocks=5"], r"Please lower max_num_seqs to at most 5 or", id="mamba"
        ),
        pytest.param(
            ["--sim-fault", "kv-max-len=20000"],
            r"max seq len \(32768\).*estimated maximum model length is 20000\.",
            id="kv-small",
        ),
        pytest.param(
            ["--max-model-len", "20000", "--sim-pool-tokens", "16000"],
            r"max seq len \(20000\).*estimated maximum model length is 16000\.",
            id="kv-small-by-itself",
        ),
        pytest.param(
            ["--sim-fault", "fail-at-start=gpu-busy"], r"Free memory on device cuda:0", id="gpu-busy"
        ),
        pytest.param(["--sim-fault", "fail-at-start=weights-corrupt"], r"SafetensorError", id="weights"),
    ],
)
def test_failing_start_names_its_cause_and_ends_with_code_1(starter, arguments, text):
    code, log = ended(starter(*arguments))

    assert code == 1
    assert re.search(text, log)
    assert "EngineCore failed to start." in log
    assert log.rstrip().endswith(
        "Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    )


def test_fewer_slots_heal_what_they_should(ready):
    assert ready("--sim-fault", "oom-unless-max-num-seqs=4", "--max-num-seqs", "4").alive


def test_slow_start_takes_its_time(starter, block_until):
    began_s = time.monotonic()
    engine = starter("--sim-fault", "slow-start=1.5")
    block_until(lambda: _healthy(engine), 15)

    assert time.monotonic() - began_s > 1.5


@pytest.mark.parametrize(("signature", "kind"), CLASSES.items(), ids=CLASSES)
def test_classifier_knows_every_failing_start_of_the_double(starter, signature, kind):
    code, log = ended(starter("--sim-fault", f"fail-at-start={signature}"))

    assert diagnose(log.splitlines(), exit_code=code).kind == kind


def test_every_signature_has_its_class():
    assert set(CLASSES) == set(SIGNATURES)


@pytest.mark.parametrize("code", [0, 3])
def test_start_may_end_with_any_code(starter, code):
    assert ended(starter("--sim-fault", f"exit-at-start={code}"))[0] == code


def test_hanging_start_refuses_connections_and_ends_at_term(starter, asked, block_until):
    engine = starter("--sim-fault", "hang-at-start")
    block_until(lambda: "Completed | 0/4" in engine.log.read_text(), 10)

    assert asked(engine, "health", ASK_S).kind is HealthKind.REFUSED
    engine.process.terminate()
    assert engine.process.wait(EXIT_S) == 0


def test_core_dies_after_its_time_and_the_server_ends_with_code_0(ready, asked):
    engine = ready("--sim-fault", "die-after=0.5")
    code, log = ended(engine)

    assert code == 0
    assert "EngineCore encountered a fatal error." in log
    assert "illegal memory access" in log


def test_core_dies_at_the_first_request(ready, asked):
    engine = ready("--sim-fault", "die-at-request")
    assert asked(engine, "health", ASK_S).kind is HealthKind.PASSING

    answer = asked(engine, "complete", "x", 4, ASK_S)

    assert (answer.kind, answer.status) == (AnswerKind.HTTP_ERROR, 500)
    assert ended(engine)[0] == 0


@pytest.mark.parametrize("code", [0, 7])
def test_server_may_end_with_any_code(ready, code):
    engine = ready("--sim-fault", "exit-after=0.3", "--sim-fault", f"exit-code={code}")

    assert ended(engine)[0] == code


def test_freeze_comes_and_goes_with_the_file(ready, asked, tmp_path):
    faults = tmp_path / "faults.json"
    engine = ready("--sim-faults", str(faults))
    faults.write_text(json.dumps({"freeze": True}))
    time.sleep(0.3)  # The file is looked at ten times a second.
    frozen = asked(engine, "complete", "x", 4, 1.0)
    health = asked(engine, "health", ASK_S)
    faults.write_text("{}")
    thawed = asked(engine, "complete", "x", 4, ASK_S)

    assert (frozen.kind, health.kind, thawed.kind) == (
        AnswerKind.TIMEOUT,
        HealthKind.PASSING,
        AnswerKind.ANSWERED,
    )


def test_stall_heals_by_itself(ready, asked):
    engine = ready("--sim-fault", "stall=1")
    answer = asked(engine, "complete", "x", 8, ASK_S)

    assert answer.kind is AnswerKind.ANSWERED
    assert answer.took_s > 1


def test_garbage_is_exclamation_marks(ready, asked):
    assert asked(ready("--sim-fault", "garbage"), "complete", "x", 8, ASK_S).text == "!" * 8


def test_empty_answers_are_empty_and_still_counted(ready, asked):
    answer = asked(ready("--sim-fault", "empty"), "complete", "x", 8, ASK_S)

    assert (answer.kind, answer.completion_tokens) == (AnswerKind.EMPTY, 8)


def test_completions_may_all_fail_under_a_good_health(ready, asked):
    engine = ready("--sim-fault", "http-500")
    answer = asked(engine, "complete", "x", 8, ASK_S)

    assert (answer.kind, answer.status) == (AnswerKind.HTTP_ERROR, 500)
    assert asked(engine, "health", ASK_S).kind is HealthKind.PASSING


def test_health_may_be_slow(starter, asked, block_until):
    engine = starter("--sim-fault", "slow-health=1")
    block_until(lambda: "Application startup complete." in engine.log.read_text(), 10)

    assert asked(engine, "health", 0.5).kind is HealthKind.TIMEOUT
    assert asked(engine, "health", ASK_S).kind is HealthKind.PASSING


def test_acceptance_may_collapse(ready, asked):
    engine = ready(
        "--speculative-config",
        '{"method":"mtp","num_speculative_tokens":3}',
        "--sim-fault",
        "acceptance-collapse",
    )
    asked(engine, "chat", CHAT, ASK_S)
    counters = asked(engine, "counters", ASK_S)

    assert counters.draft_tokens > 0
    assert counters.accepted_tokens == 0


def test_acceptance_may_fall_to_a_share(ready, asked):
    engine = ready(*SPECULATION, "--sim-fault", "acceptance=0.1")
    for _ in range(8):
        asked(engine, "chat", CHAT | {"max_tokens": 400}, ASK_S)
    counters = asked(engine, "counters", ASK_S)

    assert 0.02 < counters.accepted_tokens / counters.draft_tokens < 0.2


def test_drafter_may_be_missing(ready, asked):
    engine = ready(*SPECULATION, "--sim-fault", "no-drafts")
    asked(engine, "chat", CHAT, ASK_S)
    counters = asked(engine, "counters", ASK_S)

    assert counters.generation_tokens >= 64
    assert (counters.drafts, counters.draft_tokens, counters.accepted_tokens) == (0, 0, 0)


def test_requests_may_push_one_another_out(ready, asked):
    engine = ready("--sim-fault", "preempt=20")
    answer = asked(engine, "chat", CHAT, ASK_S)
    counters = asked(engine, "counters", ASK_S)

    assert (answer.completion_tokens, counters.generation_tokens) == (64, 64)
    assert counters.preemptions >= 2


def test_pool_of_a_start_may_be_smaller(ready, asked):
    whole = asked(ready(), "counters", ASK_S).pool_tokens
    small = asked(ready("--sim-fault", "pool-share=0.5"), "counters", ASK_S).pool_tokens

    assert small == whole // 2


def test_core_may_grow(ready, block_until):
    engine = ready("--sim-fault", "leak=40")
    tree = [engine.process.pid, *(process.pid for process in engine.tree())]
    before = sum(private_memory(pid) for pid in tree)

    block_until(lambda: sum(private_memory(pid) for pid in tree) > before + 10 * 2**20, 10)


def test_log_may_be_flooded(ready, block_until):
    engine = ready("--sim-fault", "log-flood=5000")

    assert block_until(lambda: engine.log.read_text().count("the same warning again") > 1000, 10)


def test_nobody_ends_at_term_when_told_so(ready):
    engine = ready("--sim-fault", "refuse-term")
    for pid in (engine.process.pid, *(child.pid for child in engine.tree())):
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.5)

    assert engine.alive
    assert len(engine.tree()) == 3


def test_orphans_outlive_their_server_in_a_session_of_their_own(ready):
    engine = ready("--sim-fault", "orphans")
    tree = engine.tree()
    own_session = os.getsid(engine.process.pid)
    sessions = {os.getsid(process.pid) for process in tree}
    os.killpg(engine.process.pid, signal.SIGKILL)
    engine.process.wait(EXIT_S)
    time.sleep(0.5)
    left = [process for process in tree if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    for process in tree:
        process.kill()

    assert own_session not in sessions
    assert len(left) == 3


def test_hybrid_model_hits_from_the_third_sighting(ready, asked):
    engine = ready("--sim-hybrid")
    system = {"role": "system", "content": "These are the rules of the house. " * 60}
    bodies = [
        {"messages": [system, {"role": "user", "content": f"turn {turn}"}], "max_tokens": 2}
        for turn in range(3)
    ]
    cached = [asked(engine, "chat", body, ASK_S).cached_tokens for body in bodies]

    assert cached[:2] == [0, 0]
    assert cached[2] > 300


def test_check_reads_the_arguments_and_starts_nothing():
    command = [sys.executable, "-m", "rigd.sim", "--check-arguments", "m"]

    assert subprocess.run([*command, *BASE], check=False, capture_output=True).returncode == 0
    refused = subprocess.run([*command, "--nonsense"], check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "unrecognized arguments: --nonsense" in refused.stderr


def test_double_starts_within_a_second_and_stays_small(ready):
    began_s = time.monotonic()
    engine = ready()
    took_s = time.monotonic() - began_s
    processes = [psutil.Process(engine.process.pid), *engine.tree()]

    assert (
        took_s < 5
    )  # Half a second where nothing else runs; this only catches a start that waits for something.
    assert sum(_own_mib(process) for process in processes) < 120


def _own_mib(process: psutil.Process) -> float:
    return process.memory_full_info().pss / 2**20
