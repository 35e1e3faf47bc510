"""What both published rigs and the other files in `configs/` come to, item by item."""

from dataclasses import asdict
from pathlib import Path

import pytest

from rigd.engine.command import compose_file, shell_command
from rigd.engine.launch import UnknownToVersionError, launch_spec
from rigd.engine.spec import MountSpec
from rigd.rig.load import load
from rigd.rig.schema import Rig, RuntimeKind, SecretRef

CONFIGS = Path(__file__).parents[2] / "configs"
HOME = Path("/home/me")
LAB = {"RIGD_LAB": "/lab", "RIGD_LAB_PYTHON": "/opt/python", "RIGD_LAB_IMAGE": "rigd-lab:1"}
MTP = '{"method":"mtp","num_speculative_tokens":3,"draft_sample_method":"probabilistic"}'


def spec_of(name: str):
    """Return what a file of `configs/` launches."""
    return launch_spec(load(CONFIGS / name, environ=LAB, home=HOME).rig, rig_folder=CONFIGS, home=HOME)


def engine(**settings):
    """Return what a rig with these engine settings launches."""
    given = {"runtime": "process", "version": "0.32.0", "model": "org/model"} | settings
    return launch_spec(
        Rig.model_validate({"name": "box", "engine": given}), rig_folder=Path("/etc/rigd"), home=HOME
    )


def flags(argv: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the values of each flag."""
    found: dict[str, tuple[str, ...]] = {}
    flag = ""
    for word in argv:
        if word.startswith("--"):
            flag = word
            assert flag not in found
            found[flag] = ()
        elif flag:
            found[flag] += (word,)
    return found


def test_rig_a_arguments():
    spec = spec_of("rig-a-qwen3.6-27b-docker.yaml")

    assert spec.argv[0] == "llmfan46/Qwen3.6-27B-uncensored-heretic-v2-Native-MTP-Preserved-GPTQ-Int4"
    assert flags(spec.argv[1:]) == {
        "--host": ("0.0.0.0",),
        "--port": ("8000",),
        "--served-model-name": ("qwen3.6-27b",),
        "--chat-template": ("/templates/froggeric-chat-template.jinja",),
        "--default-chat-template-kwargs": ('{"enable_thinking":true}',),
        "--dtype": ("float16",),
        "--quantization": ("gptq_marlin",),
        "--kv-cache-dtype": ("fp8",),
        "--attention-backend": ("FLASHINFER",),
        "--tensor-parallel-size": ("2",),
        "--max-model-len": ("262144",),
        "--max-num-seqs": ("10",),
        "--enable-prefix-caching": (),
        "--enable-prompt-tokens-details": (),
        "--enable-auto-tool-choice": (),
        "--tool-call-parser": ("qwen3_coder",),
        "--reasoning-parser": ("qwen3",),
        "--speculative-config": (MTP,),
    }


def test_rig_a_environment_and_secret():
    spec = spec_of("rig-a-qwen3.6-27b-docker.yaml")

    assert dict(spec.environment) == {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512",
        "VLLM_USE_FLASHINFER_SAMPLER": "1",
        "NCCL_P2P_DISABLE": "1",
    }
    assert spec.secrets == (("VLLM_API_KEY", SecretRef(file="/etc/rigd/rig-a.key")),)
    assert spec.api_key == SecretRef(file="/etc/rigd/rig-a.key")


def test_rig_a_container():
    spec = spec_of("rig-a-qwen3.6-27b-docker.yaml")

    assert spec.container is not None
    assert asdict(spec.container) == {
        "image": "vllm/vllm-openai:v0.32.0",
        "name": "vllm-dual-3090",
        "entrypoint": ("vllm", "serve"),
        "mounts": tuple(
            asdict(mount)
            for mount in (
                MountSpec(
                    source="/home/me/models-cache",
                    target="/root/.cache/huggingface",
                    read_only=False,
                    create=True,
                ),
                MountSpec(
                    source="/home/me/vllm-cache", target="/root/.cache/vllm", read_only=False, create=True
                ),
                MountSpec(
                    source="/home/me/froggeric-chat-template.jinja",
                    target="/templates/froggeric-chat-template.jinja",
                    read_only=True,
                ),
            )
        ),
        "gpus": "all",
        "gpu_injection": "gpus",
        "shm_size": 16 * 1024**3,
        "ipc": "host",
        "network": "bridge",
        "container_port": 8000,
        "ulimits": (),
        "memory": None,
        "pids_limit": None,
        "pull": "missing",
        "user": None,
    }
    assert (spec.host, spec.port, spec.base_url) == ("127.0.0.1", 8320, "http://127.0.0.1:8320")


def test_rig_a_channels():
    rig = load(CONFIGS / "rig-a-qwen3.6-27b-docker.yaml", environ={}, home=HOME).rig

    channels = [(channel.name, channel.context, channel.output, channel.parallel) for channel in rig.channels]

    assert channels == [
        ("primary", 200_000, 8192, 1),
        ("coder", 65_536, 4096, 2),
        ("utility", 16_384, 1024, 2),
    ]
    assert sum(parallel * context for _, context, _, parallel in channels) == 363_840
    assert sum(parallel * output for _, _, output, parallel in channels) == 18_432


def test_rig_b_command():
    spec = spec_of("rig-b-qwen3.8-27b-process.yaml")

    assert spec.argv[:3] == ("vllm", "serve", "/home/me/models/Qwen3.8-27B-W4A16-AutoRound")
    assert flags(spec.argv[3:]) == {
        "--host": ("100.64.0.2",),
        "--port": ("18020",),
        "--served-model-name": ("qwen3.8-27b",),
        "--tensor-parallel-size": ("2",),
        "--kv-cache-memory-bytes": ("13388056064",),
        "--max-model-len": ("262144",),
        "--max-num-seqs": ("8",),
        "--kv-cache-dtype": ("fp8",),
        "--mamba-ssm-cache-dtype": ("float16",),
        "--async-scheduling": (),
        "--max-num-batched-tokens": ("4096",),
        "--enable-prefix-caching": (),
        "--enable-prompt-tokens-details": (),
        "--language-model-only": (),
        "--enable-auto-tool-choice": (),
        "--tool-call-parser": ("qwen3_coder",),
        "--speculative-config": (MTP,),
        "--reasoning-parser": ("qwen3",),
    }
    assert spec.environment == (("CUDA_VISIBLE_DEVICES", "0,1"),)
    assert (spec.runtime, spec.version, spec.container) == (RuntimeKind.PROCESS, "0.27.1", None)


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_every_file_of_configs_can_be_launched_without_a_warning(name):
    loaded = load(CONFIGS / name, environ=LAB, home=HOME)

    assert loaded.warnings == ()
    assert launch_spec(loaded.rig, rig_folder=CONFIGS, home=HOME).argv
    for prefix in loaded.rig.prefixes:
        assert all(
            Path(file).is_file() for file in (*prefix.files, *filter(None, (prefix.request, prefix.tools)))
        )


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        pytest.param(True, ("--a-b",), id="true"),
        pytest.param(False, ("--no-a-b",), id="false"),
        pytest.param(3, ("--a-b", "3"), id="number"),
        pytest.param(0.5, ("--a-b", "0.5"), id="fraction"),
        pytest.param("text with spaces", ("--a-b", "text with spaces"), id="text"),
        pytest.param({"b": [1, None], "a": "é"}, ("--a-b", '{"b":[1,null],"a":"é"}'), id="mapping"),
        pytest.param(["x", 2, {"y": True}], ("--a-b", "x", "2", '{"y":true}'), id="list"),
    ],
)
def test_extra_arguments(value, rendered):
    assert engine(arguments={"extra": {"a_b": value}}).argv[-len(rendered) :] == rendered


def test_settings_left_out_are_not_passed():
    assert engine().argv == (
        *("vllm", "serve", "org/model", "--host", "127.0.0.1", "--port", "8000"),
        *("--served-model-name", "org/model"),
    )


@pytest.mark.parametrize(
    ("version", "settings", "flag", "variable"),
    [
        pytest.param(
            "0.32.0", {"arguments": {"attention_backend": "FLASHINFER"}}, True, False, id="flag-new"
        ),
        pytest.param(
            "0.12.0", {"arguments": {"attention_backend": "FLASHINFER"}}, False, True, id="flag-old"
        ),
        pytest.param(
            "0.32.0",
            {"environment": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}},
            True,
            False,
            id="variable-new",
        ),
        pytest.param(
            "0.12.0",
            {"environment": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}},
            False,
            True,
            id="variable-old",
        ),
        pytest.param(
            "0.14.1",
            {"environment": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}},
            False,
            True,
            id="variable-still-read",
        ),
    ],
)
def test_attention_backend_goes_the_way_that_the_version_reads(version, settings, flag, variable):
    spec = engine(version=version, **settings)

    assert (flags(spec.argv[3:]).get("--attention-backend") == ("FLASHINFER",)) is flag
    assert (dict(spec.environment).get("VLLM_ATTENTION_BACKEND") == "FLASHINFER") is variable


def test_what_a_version_does_not_know_is_not_launched():
    with pytest.raises(
        UnknownToVersionError, match=r"vLLM 0\.30\.0 does not know max_num_active_seqs"
    ) as caught:
        engine(version="0.30.0", arguments={"max_num_active_seqs": 4})

    assert [finding.key for finding in caught.value.findings] == ["engine.arguments.max_num_active_seqs"]


@pytest.mark.parametrize(
    ("model", "launched"),
    [
        pytest.param("org/model", "org/model", id="hub"),
        pytest.param("~/model", "/home/me/model", id="home"),
        pytest.param("./model", "/etc/rigd/model", id="beside-the-rig"),
        pytest.param("/models/a/../b", "/models/b", id="absolute"),
    ],
)
def test_models_of_a_bare_process(model, launched):
    assert engine(model=model).argv[2] == launched


def test_a_container_sees_its_own_paths():
    docker = {
        "image": "a:1",
        "container": "c",
        "network": "host",
        "mounts": [{"source": "m", "target": "/m"}],
    }

    spec = engine(runtime="docker", docker=docker, model="./model", host="100.64.0.2", port=18020)

    assert spec.argv[:5] == ("./model", "--host", "100.64.0.2", "--port", "18020")
    assert spec.container is not None
    assert spec.container.mounts[0].source == "/etc/rigd/m"


def test_a_pasted_command_masks_secrets_and_quotes_the_rest():
    spec = engine(
        api_key={"env": "MY_KEY"},
        environment={"A": "it's $HOME", "T": {"credential": "token"}},
        arguments={"speculative": {"method": "mtp", "num_speculative_tokens": 2}},
    )

    assert shell_command(spec).splitlines() == [
        "# T must be set in this shell: the systemd credential token",
        "# VLLM_API_KEY must be set in this shell: the daemon's environment variable MY_KEY",
        "A='it'\"'\"'s $HOME' \\",
        '  T="$T" \\',
        '  VLLM_API_KEY="$VLLM_API_KEY" \\',
        "  vllm serve org/model \\",
        "  --host 127.0.0.1 \\",
        "  --port 8000 \\",
        "  --served-model-name org/model \\",
        """  --speculative-config '{"method":"mtp","num_speculative_tokens":2}'""",
    ]


def test_the_compose_file_of_rig_a():
    expected = (Path(__file__).parents[1] / "data/rig/rig-a.compose.yaml").read_text()

    assert compose_file(spec_of("rig-a-qwen3.6-27b-docker.yaml")) == expected


def test_the_compose_file_expands_nothing():
    docker = {"image": "a:1", "container": "c", "gpus": [1], "gpu_injection": "cdi", "memory": "1536mb"}

    text = compose_file(
        engine(runtime="docker", docker=docker, environment={"A": "${HOME} no", "B": "no", "C": "1"})
    )

    assert "A: $${HOME} no\n" in text
    assert 'B: "no"\n' in text
    assert 'C: "1"\n' in text
    assert "- nvidia.com/gpu=1\n" in text
    assert "mem_limit: 1536m\n" in text
    assert 'restart: "no"\n' in text
