"""The pool that rigd reckons is what real vLLM makes: of twenty settings by its own code, of two by a start."""

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from budgets import Case, as_said, cases, oracle_question, reckoned

pytestmark = pytest.mark.lab

ORACLE = Path(__file__).with_name("pool_oracle.py")
ORACLE_DEADLINE_S = 540
START_DEADLINE_S = 240
HYBRID = ("tiny35", "qwen3_5_27b", "qwen3_next_80b", "granite4_tiny")
HYBRID_SLACK = 0.02
LINE = re.compile(r"KV cache size: ([\d,]+) tokens")
MTP_OVER_TWO = {"tensor_parallel_size": 2, "speculative": {"method": "mtp", "num_speculative_tokens": 1}}
STARTED = [
    pytest.param("tinymimo", MTP_OVER_TWO, id="mtp-over-two-ranks"),
    pytest.param("tiny35", {"max_model_len": 8192}, id="hybrid"),
]


@pytest.fixture(scope="module")
def wide_cpu() -> bool:
    """Whether this machine's CPU makes vLLM keep recurrent states in float32."""
    return "avx512_bf16" in Path("/proc/cpuinfo").read_text().split()


@pytest.fixture(scope="module")
def answers(vllm_executable, lab_models, tmp_path_factory) -> dict[str, dict]:
    """Return what vLLM's own code makes of each case."""
    scratch = tmp_path_factory.mktemp("models")
    asked = cases()
    began_s = time.monotonic()
    found = subprocess.run(
        [str(vllm_executable.with_name("python")), str(ORACLE), str(scratch / "answers.json")],
        input=json.dumps([oracle_question(case, lab_models, scratch) for case in asked]),
        capture_output=True,
        text=True,
        check=False,
        timeout=ORACLE_DEADLINE_S,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    )
    assert found.returncode == 0, found.stderr[-3000:]
    print(f"\nvLLM's own code was asked {len(asked)} pools in {time.monotonic() - began_s:.0f} s")
    return dict(
        zip((case.name for case in asked), json.loads((scratch / "answers.json").read_text()), strict=True)
    )


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_pool_is_what_vllm_s_own_code_makes(case: Case, answers, wide_cpu):
    said = answers[case.name]
    assert "error" not in said, said
    mine = as_said(reckoned(case, wide_cpu=wide_cpu))

    if case.model in HYBRID:
        assert mine["tokens"] == pytest.approx(said["tokens"], rel=HYBRID_SLACK)
    else:
        assert mine == {key: said[key] for key in mine}
    print(f"\n{case.name}: vLLM {said['tokens']:,}, rigd {mine['tokens']:,}")


@pytest.fixture
def told(vllm_executable, lab_models, vllm_environment, tmp_path, free_port) -> Callable[[Case], int]:
    """Start the engine of a case and return the tokens of its line; end it at once."""

    def start(case: Case) -> int:
        environment = {
            key: value for key, value in vllm_environment.items() if key != "VLLM_CPU_KVCACHE_SPACE"
        }
        if case.arguments.get("tensor_parallel_size", 1) == 1:
            environment["VLLM_CPU_OMP_THREADS_BIND"] = "0"
        log = tmp_path / "engine.log"
        with log.open("wb") as file:
            engine = subprocess.Popen(
                [
                    str(vllm_executable),
                    "serve",
                    str(lab_models / case.model),
                    "--port",
                    str(free_port),
                    *case.argv,
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                start_new_session=True,
            )
        try:
            return _line(log, engine)
        finally:
            _end(engine)

    return start


def _end(engine: subprocess.Popen) -> None:
    """End an engine and all that it has started; its ranks have sessions of their own."""
    tree = [psutil.Process(engine.pid), *psutil.Process(engine.pid).children(recursive=True)]
    for process in tree:
        with contextlib.suppress(psutil.Error):
            process.kill()
    engine.wait(10)
    psutil.wait_procs(tree, 10)


@pytest.mark.parametrize(("model", "arguments"), STARTED)
def test_pool_is_the_engine_s_own_line(model, arguments, told, wide_cpu):
    whole = {"kv_cache_memory_bytes": 2**30, "enforce_eager": True, "trust_remote_code": True} | arguments
    case = Case(model=model, arguments=whole, said={})
    began_s = time.monotonic()
    said, mine = told(case), reckoned(case, wide_cpu=wide_cpu).tokens.value
    print(f"\n{model}: the engine's line {said:,}, rigd {mine:,}, after {time.monotonic() - began_s:.0f} s")

    assert mine == (pytest.approx(said, rel=HYBRID_SLACK) if model in HYBRID else said)


def _line(log: Path, engine: subprocess.Popen) -> int:
    """Return the tokens of the engine's line, once it is written."""
    until_s = time.monotonic() + START_DEADLINE_S
    while True:
        text = log.read_text(errors="replace")
        if found := LINE.search(text):
            return int(found[1].replace(",", ""))
        if engine.poll() is not None or time.monotonic() > until_s:
            pytest.fail(f"no pool was told:\n{text[-3000:]}")
        time.sleep(0.2)
