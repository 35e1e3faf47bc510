"""Every argument that a rig file can name, asked of the real parser of vLLM."""

import json
import subprocess
from pathlib import Path

import pytest

from rigd.engine import parser_probe_source
from rigd.engine.arguments import engine_arguments
from rigd.engine.launch import launch_spec
from rigd.rig.load import load
from rigd.rig.schema import Arguments, Engine, Speculative

pytestmark = pytest.mark.lab

CONFIGS = Path(__file__).parents[2] / "configs"
DEADLINE_S = 120
VALUES = {
    "tensor_parallel_size": 2,
    "max_model_len": 4096,
    "max_num_seqs": 8,
    "max_num_active_seqs": 4,
    "max_num_batched_tokens": 4096,
    "gpu_memory_utilization": 0.5,
    "kv_cache_memory_bytes": 1 << 30,
    "kv_cache_dtype": "auto",
    "mamba_ssm_cache_dtype": "float16",
    "dtype": "bfloat16",
    "quantization": None,
    "attention_backend": "FLASHINFER",
    "block_size": 128,
    "chat_template": "{{ messages }}",
    "default_chat_template_kwargs": {"enable_thinking": True},
    "tool_call_parser": "qwen3_coder",
    "reasoning_parser": "qwen3",
    "speculative": Speculative(method="mtp", num_speculative_tokens=1),
}
"""A value for each setting that is no switch; `quantization` depends on the model's own files."""
SWITCHES = tuple(name for name, info in Arguments.model_fields.items() if info.annotation == bool | None)
BATCH = """
import json, sys
source, batches = sys.stdin.readline(), sys.stdin.readline()
names = {"__name__": "probe"}
exec(json.loads(source), names)
print("\\nANSWERS " + json.dumps([names["ask"](argv)[0] for argv in json.loads(batches)]), flush=True)
import os
os._exit(0)
"""


@pytest.fixture(scope="module")
def ask(vllm_executable):
    """Return a function that asks the real parser about many argument lists in one process of the engine."""
    python = vllm_executable.read_text().splitlines()[0].removeprefix("#!")

    def ask(*batches: tuple[str, ...]) -> list[dict[str, object]]:
        given = json.dumps(parser_probe_source()) + "\n" + json.dumps(batches) + "\n"
        environment = {"HOME": str(Path.home()), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [python, "-c", BATCH],
            input=given,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env=environment,
            cwd="/",
        )
        answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")]
        assert answers, done.stderr[-2000:]
        return list(json.loads(answers[0].removeprefix("ANSWERS ")))

    return ask


def arguments_of(**settings: object) -> tuple[str, ...]:
    """Return the argument list of an engine with these settings alone."""
    engine = Engine(runtime="process", version="0.32.0", model="m", arguments=Arguments(**settings))
    return ("org/not-here", *engine_arguments(engine))


def test_every_typed_argument_has_a_value_here():
    assert set(VALUES) | set(SWITCHES) | {"extra"} == set(Arguments.model_fields)


def test_the_real_parser_takes_every_typed_argument(ask):
    cases = {name: arguments_of(**{name: value}) for name, value in VALUES.items() if value is not None}
    cases |= {f"{name}=true": arguments_of(**{name: True, "tool_call_parser": "hermes"}) for name in SWITCHES}
    cases |= {f"{name}=false": arguments_of(**{name: False}) for name in SWITCHES}
    cases["quantization"] = arguments_of(quantization="gptq_marlin")

    answers = dict(zip(cases, ask(*cases.values()), strict=True))

    assert {
        name: answer["message"] for name, answer in answers.items() if answer["accepted"] is not True
    } == {}


def test_both_published_rigs_and_the_example_are_taken(ask, lab_models):
    names = ("rig-a-qwen3.6-27b-docker.yaml", "rig-b-qwen3.8-27b-process.yaml", "example.yaml")
    specs = [
        launch_spec(load(CONFIGS / name, environ={}).rig, rig_folder=CONFIGS, home=Path.home())
        for name in names
    ]
    # A chat template is a file of the container; the parser insists that it exists.
    batches = [
        tuple(word for word in spec.argv if not word.endswith(".jinja") and word != "--chat-template")
        for spec in specs
    ]
    batches[1] = batches[1][2:]

    answers = dict(zip(names, ask(*batches), strict=True))

    assert {
        name: answer["message"] for name, answer in answers.items() if answer["accepted"] is not True
    } == {}


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        pytest.param({"extra": {"no-such-flag": 1}}, "unrecognized arguments", id="unknown-flag"),
        pytest.param({"kv_cache_dtype": "fp3"}, "invalid choice: 'fp3'", id="wrong-choice"),
        pytest.param(
            {"tool_call_parser": "qwen9", "enable_auto_tool_choice": True},
            "'qwen9' is none of",
            id="no-such-parser",
        ),
        pytest.param({"tensor_parallel_size": 7}, "must be divisible by tensor parallel size", id="heads"),
        pytest.param({"max_num_seqs": 4, "max_num_active_seqs": 9}, "cannot be greater than", id="active"),
        pytest.param({"max_model_len": 10_000_000}, "max_model_len", id="longer-than-the-model"),
    ],
)
def test_what_would_cost_a_boot_is_refused_in_seconds(ask, lab_models, extra, words):
    given = arguments_of(trust_remote_code=True, **extra)

    (answer,) = ask((str(lab_models / "tinymimo"), *given[1:]))

    assert answer["accepted"] is False
    assert words in str(answer["message"])
