"""The rigs under test: the double as a process (always), the double in Docker and real vLLM both ways (lab)."""

import sys
from pathlib import Path
from typing import Any

import pytest

LAB = pytest.mark.lab
DOUBLE = [
    pytest.param(("double", "process"), id="double-process"),
    pytest.param(("double", "docker"), id="double-docker", marks=LAB),
]
REAL = [
    pytest.param(("vllm", "process"), id="vllm-process", marks=LAB),
    pytest.param(("vllm", "docker"), id="vllm-docker", marks=LAB),
]


def prompt(topic: str, lines: int) -> str:
    """Return a long text that never repeats itself: every block of it is a block of its own."""
    return "\n".join(
        f"Rule {number} of {topic}: item {number * 7919 % 10007} precedes {number}."
        for number in range(lines)
    )


def double_settings(request: pytest.FixtureRequest, runtime: str, folder: Path, port: int) -> dict[str, Any]:
    """Return a rig of the double, with deadlines for tests."""
    faults = folder / "faults.json"
    faults.write_text("{}")
    engine: dict[str, Any] = {
        "model": "double",
        "served_model_name": "double",
        "arguments": {"extra": {"sim-profile": "fast", "sim-faults": str(faults)}},
    }
    if runtime == "docker":
        image = request.getfixturevalue("sim_image")
        mounts = [*image["mounts"], {"source": str(folder), "target": str(folder), "read_only": True}]
        engine["docker"] = {**image, "mounts": mounts, "container": f"rigd-test-{port}"}
        engine["environment"] = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    else:
        engine["process"] = {"executable": [sys.executable, "-m", "rigd.sim"]}
    rules = {
        "probe_interval_s": 0.5,
        "probe_timeout_s": 1,
        "stall_deadline_s": 4,
        "stop_grace_s": 3,
        "backoff": {"initial_s": 0.2, "max_s": 1},
        "healthy_stretch_s": 1,  # Each test's failure is the first after a healthy stretch.
        "attempts": 50,
        "deadlines": {"gates_s": 5, "load_s": 20, "first_answer_s": 10, "warm_s": 20, "stop_s": 10},
    }
    return rig(runtime, port, engine, rules)


def vllm_settings(request: pytest.FixtureRequest, runtime: str, port: int) -> dict[str, Any]:
    """Return a rig of real vLLM on the CPU: two ranks, MTP, prefix caching."""
    executable = request.getfixturevalue("vllm_executable")
    models = request.getfixturevalue("lab_models")
    engine: dict[str, Any] = {
        "model": str(models / "tinymimo"),
        "served_model_name": "tiny",
        "environment": request.getfixturevalue("vllm_environment"),
        "arguments": {
            "enforce_eager": True,
            "trust_remote_code": True,
            "max_num_seqs": 8,
            "speculative": {"method": "mtp", "num_speculative_tokens": 1},
        },
    }
    if runtime == "docker":
        engine["docker"] = {**request.getfixturevalue("vllm_image"), "container": f"rigd-test-{port}"}
    else:
        engine["process"] = {"executable": [str(executable), "serve"]}
    rules = {
        "stall_deadline_s": 20,
        "stop_grace_s": 5,
        "backoff": {"initial_s": 0.5, "max_s": 5},
        "healthy_stretch_s": 1,  # Each test's failure is the first after a healthy stretch.
        "attempts": 50,
        "deadlines": {"gates_s": 20, "load_s": 240, "first_answer_s": 90, "warm_s": 120, "stop_s": 30},
    }
    return rig(runtime, port, engine, rules)


def rig(runtime: str, port: int, engine: dict[str, Any], rules: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a rig file with what all rigs under test share."""
    arguments = {
        "tensor_parallel_size": 2,
        "enable_prefix_caching": True,
        "enable_prompt_tokens_details": True,
        **engine.pop("arguments"),
    }
    return {
        "name": f"test-{port}",
        "engine": {
            "runtime": runtime,
            "version": "0.32.0",
            "host": "127.0.0.1",
            "port": port,
            "arguments": arguments,
            **engine,
        },
        "supervision": rules,
        "prefixes": [{"name": "agents", "system": prompt("agents", 250), "files": []}],
        "gates": {"disk_free_gib": 0.1, "gpu_settle_s": 0},
    }
