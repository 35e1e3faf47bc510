"""vLLM's command line, as far as its surface goes: every flag is known, those that matter here are used."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rigd.sim import flags
from rigd.sim.faults import FAULTS
from rigd.sim.timing import PROFILES, Profile

_SERVE_USAGE = "usage: vllm serve [model_tag] [options]\n"
_TOP_USAGE = (
    "usage: vllm [-h] [-v]\n"
    "            {chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}\n"
    "            ...\n"
)
_EXAMPLES = """examples:
  rigd sim some-model --port 8000
  rigd sim some-model --port 8000 --tensor-parallel-size 2 --sim-profile rig-b --sim-speed 10
  rigd sim some-model --sim-fault die-after=30 --sim-fault slow-start=5
  rigd sim some-model --sim-faults faults.json     # {"freeze": true}; read again when it changes
"""
_SECRET = ("api_key", "hf_token")
_CONTEXT = 32_768
_LONGEST_CONTEXT = 262_144
_SCALE = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


class ArgumentError(Exception):
    """The arguments are wrong; the text is what vLLM prints before it exits with 2."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the double was asked to be."""

    model: str
    served_model_names: tuple[str, ...]
    host: str
    port: int
    api_keys: tuple[str, ...]
    ranks: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    prefix_caching: bool
    prompt_tokens_details: bool
    drafts: int
    tools: bool
    enforce_eager: bool
    access_log: bool
    pool_tokens: int
    hybrid: bool
    acceptance: float
    profile: Profile
    version: str
    device: str
    faults_file: Path | None
    faults: tuple[tuple[str, str], ...]
    check_only: bool
    given: tuple[tuple[str, str], ...]
    """The arguments as they were given, for the log."""

    @property
    def name(self) -> str:
        """The name that answers carry."""
        return self.served_model_names[0]

    @property
    def blocks(self) -> int:
        """Blocks in the KV pool."""
        return self.pool_tokens // self.block_size


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.startswith("unrecognized arguments")
        usage, program = (_TOP_USAGE, "vllm") if unknown else (_SERVE_USAGE, "vllm serve")
        raise ArgumentError(f"{usage}{program}: error: {message}\n")


def parse(argv: Sequence[str], environ: dict[str, str]) -> Settings:
    """Return the settings that `argv` (without the program's name) asks for, or raise `ArgumentError`."""
    words = _normalised(argv)
    found = _parser().parse_args(words)
    profile = PROFILES[found.sim_profile].faster(found.sim_speed)
    pool = _pool_tokens(found, profile)
    keys = found.api_key or ([environ["VLLM_API_KEY"]] if environ.get("VLLM_API_KEY") else [])
    model = found.model_tag or found.model or "Qwen/Qwen3-0.6B"
    return Settings(
        model=model,
        served_model_names=tuple(found.served_model_name or (model,)),
        host=found.host or "127.0.0.1",
        port=found.port if found.port is not None else 8000,
        api_keys=tuple(key for key in keys if key),
        ranks=found.tensor_parallel_size or 1,
        max_model_len=_context(found.max_model_len, pool),
        max_num_seqs=found.max_num_active_seqs or found.max_num_seqs or 256,
        max_num_batched_tokens=found.max_num_batched_tokens or 4096,
        block_size=found.block_size or 16,
        prefix_caching=found.enable_prefix_caching is not False,
        prompt_tokens_details=bool(found.enable_prompt_tokens_details),
        drafts=_drafts(found.speculative_config, found.spec_tokens),
        tools=bool(found.enable_auto_tool_choice and found.tool_call_parser),
        enforce_eager=bool(found.enforce_eager),
        access_log=not found.disable_uvicorn_access_log,
        pool_tokens=pool,
        hybrid=found.sim_hybrid,
        acceptance=profile.acceptance if found.sim_acceptance is None else found.sim_acceptance,
        profile=profile,
        version=found.sim_version,
        device=found.sim_device,
        faults_file=found.sim_faults,
        faults=tuple(found.sim_fault or ()),
        check_only=found.check_arguments,
        given=tuple(
            (name, repr(value))
            for name, value in vars(found).items()
            if value is not None and name not in _SECRET
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="vllm serve",
        usage="vllm serve [model_tag] [options]",
        description="The engine double: answers as `vllm serve` does, without a GPU.\n"
        "All flags of `vllm serve` 0.32.0 are accepted.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=True,
    )
    parser.add_argument("model_tag", nargs="?")
    _add_vllm(parser)
    _add_sim(parser.add_argument_group("the double"))
    return parser


def _add_vllm(parser: argparse.ArgumentParser) -> None:
    converters: dict[str, Callable[[str], Any]] = {
        "max-model-len": _tokens_or_auto,
        "max-num-batched-tokens": _tokens,
        "max-num-active-seqs": int,
    }
    converters |= {
        "kv-cache-memory-bytes": _tokens,
        "speculative-config": _json,
        "num-gpu-blocks-override": int,
    }
    second: dict[str, list[str]] = {}
    for alias, name in flags.ALIAS.items():
        second.setdefault(name, []).append(alias)

    def names(flag: str) -> list[str]:
        return [f"--{flag}", *second.get(f"--{flag}", ())]

    hidden = argparse.SUPPRESS
    for flag in flags.BOOLEAN:
        parser.add_argument(*names(flag), action=argparse.BooleanOptionalAction, help=hidden)
    for flag in flags.SWITCH:
        parser.add_argument(*names(flag), action="store_true", default=None, help=hidden)
    for flag in flags.INTEGER:
        parser.add_argument(*names(flag), type=int, help=hidden)
    for flag in flags.NUMBER:
        parser.add_argument(*names(flag), type=float, help=hidden)
    for flag in flags.LISTED:
        parser.add_argument(*names(flag), nargs="+", help=hidden)
    for flag in flags.TEXT:
        parser.add_argument(*names(flag), type=converters.get(flag, str), help=hidden)


def _add_sim(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--check-arguments", action="store_true", help="parse, then exit with 0 or 2")
    group.add_argument(
        "--sim-profile", choices=tuple(PROFILES), default="fast", help="whose timing: fast, rig-a or rig-b"
    )
    group.add_argument(
        "--sim-speed", type=_positive, default=1.0, help="how many times faster than the profile"
    )
    group.add_argument("--sim-pool-tokens", type=int, help="size of the KV pool in tokens")
    group.add_argument(
        "--sim-hybrid", action="store_true", help="prefix hits only from the third sighting on"
    )
    group.add_argument("--sim-acceptance", type=float, help="share of draft tokens that are kept, 0 to 1")
    group.add_argument("--sim-version", default="0.32.0", help="version that /version and the log tell")
    group.add_argument(
        "--sim-device", choices=("GPU", "CPU"), default="GPU", help="device that the log tells"
    )
    group.add_argument(
        "--sim-fault",
        action="append",
        type=_fault,
        metavar="NAME[=VALUE]",
        help="a fault from the start on; may be repeated: " + ", ".join(sorted(FAULTS)),
    )
    group.add_argument(
        "--sim-faults", type=Path, metavar="FILE", help="JSON object of faults, read again when it changes"
    )


def _normalised(argv: Sequence[str]) -> list[str]:
    """Return the words with `--a_b` as `--a-b`, and without the `serve` that may come first."""
    words = list(argv[1:] if argv and argv[0] == "serve" else argv)
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            words[index] = name.replace("_", "-") + equals + value
    return words


def _pool_tokens(found: argparse.Namespace, profile: Profile) -> int:
    if found.sim_pool_tokens:
        return int(found.sim_pool_tokens)
    if found.num_gpu_blocks_override:
        return int(found.num_gpu_blocks_override) * (found.block_size or 16)
    if found.kv_cache_memory_bytes:
        return int(found.kv_cache_memory_bytes / profile.bytes_per_token)
    return profile.pool_tokens


def _context(given: int | str | None, pool: int) -> int:
    if given is None:
        return min(_CONTEXT, pool)
    if isinstance(given, str):
        return min(_LONGEST_CONTEXT, pool)
    return given


def _drafts(config: dict[str, object] | None, tokens: int | None) -> int:
    number = (config or {}).get("num_speculative_tokens", tokens or 0)
    return number if isinstance(number, int) else 0


def _json(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to <function loads>.") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"Value {text} is not an object.")
    return value


def _tokens(text: str) -> int:
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG])", text):
        return int(float(match[1]) * _SCALE[match[2]])
    return int(text)


def _tokens_or_auto(text: str) -> int | str:
    return "auto" if text in ("auto", "-1") else _tokens(text)


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _fault(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if name not in FAULTS:
        raise argparse.ArgumentTypeError(f"no fault {name!r}; there are {', '.join(sorted(FAULTS))}")
    return name, value


def print_usage(error: ArgumentError) -> int:
    """Print what vLLM prints, and return its exit code."""
    sys.stderr.write(str(error))
    return 2
