"""Rules about vLLM's settings, its environment and its address. Pure."""

import ipaddress
import re
from collections.abc import Iterator

from rigd.rig.findings import Finding, error, warning
from rigd.rig.schema import Arguments, Rig

SECRET_NAME = re.compile(r"(^|_)(API_?KEYS?|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
OWN_FLAGS = {
    "host": "engine.host", "port": "engine.port", "model": "engine.model",
    "served_model_name": "engine.served_model_name", "api_key": "engine.api_key",
    "speculative_config": "engine.arguments.speculative",
}  # fmt: skip
"""Flags that rigd renders from a key of another place."""
SHORT_FLAGS = {
    "tp": "engine.arguments.tensor_parallel_size", "q": "engine.arguments.quantization",
    "sc": "engine.arguments.speculative",
}  # fmt: skip
SECRET_FLAGS = ("api_key", "hf_token")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def batches_hold_prompts(rig: Rig) -> Iterator[Finding]:
    """Tell of numbers of tokens and requests that vLLM refuses together."""
    arguments = rig.engine.arguments
    tokens, length = arguments.max_num_batched_tokens, arguments.max_model_len
    whole = length if isinstance(length, int) and arguments.enable_chunked_prefill is False else 0
    if tokens is not None and tokens < whole:
        yield error(
            "engine.arguments.max_num_batched_tokens",
            f"{tokens} is less than max_model_len ({length}) while chunked prefill is off",
            "raise it, or leave enable_chunked_prefill on",
        )
    if tokens is not None and arguments.max_num_seqs is not None and tokens < arguments.max_num_seqs:
        yield error(
            "engine.arguments.max_num_batched_tokens",
            f"{tokens} is less than max_num_seqs ({arguments.max_num_seqs}): each request needs a token a step",
        )
    active, most = arguments.max_num_active_seqs, arguments.max_num_seqs
    if active is not None and most is not None and active > most:
        yield error("engine.arguments.max_num_active_seqs", f"{active} is more than max_num_seqs ({most})")


def tool_calls_have_a_parser(rig: Rig) -> Iterator[Finding]:
    """Tell of tool calling without the parser that vLLM insists on."""
    if rig.engine.arguments.enable_auto_tool_choice and rig.engine.arguments.tool_call_parser is None:
        yield error(
            "engine.arguments.enable_auto_tool_choice",
            "needs tool_call_parser",
            "for Qwen3 coder models: tool_call_parser: qwen3_coder",
        )


def secrets_are_references(rig: Rig) -> Iterator[Finding]:
    """Tell of a secret written out; the finding never repeats the value."""
    hint = "write a reference instead: {env: NAME}, {file: /path} or {credential: NAME}"
    for name, value in rig.engine.environment.items():
        if name == "VLLM_API_KEY":
            yield error(f"engine.environment.{name}", "the key belongs under engine.api_key", hint)
        elif isinstance(value, str) and value and SECRET_NAME.search(name):
            yield error(f"engine.environment.{name}", "looks like a secret written out in the rig file", hint)
    for name in rig.engine.arguments.extra:
        if _snake(name) in SECRET_FLAGS:
            yield error(
                f"engine.arguments.extra.{name}",
                "would show the secret in the process list",
                "use engine.api_key, or a reference under engine.environment (HF_TOKEN)",
            )


def environment_names_are_names(rig: Rig) -> Iterator[Finding]:
    """Tell of variables that no shell could set, or that rigd sets itself."""
    for name, value in rig.engine.environment.items():
        key = f"engine.environment.{name}"
        if not VARIABLE_NAME.fullmatch(name):
            yield error(key, "is no name of an environment variable", "letters, digits and _ only")
        elif name.startswith("RIGD_"):
            yield error(key, "RIGD_ names mark the engine's processes and are rigd's own")
        elif isinstance(value, str) and ("\0" in value or "\n" in value):
            yield error(key, "the value has a line break or a NUL in it")


def extra_is_extra(rig: Rig) -> Iterator[Finding]:
    """Tell of extra arguments that have a key of their own, or cannot be flags."""
    seen: set[str] = set()
    for name, value in rig.engine.arguments.extra.items():
        key, plain = f"engine.arguments.extra.{name}", _snake(name)
        home = _home_of(plain)
        if home is not None and home != "engine.api_key":
            yield error(key, "has a key of its own", f"write it as {home}")
        elif not re.fullmatch(r"[a-z][a-z0-9_]*", plain):
            yield error(key, "is no name of a vLLM flag", "write the flag's name without the leading dashes")
        elif plain in seen:
            yield error(key, "is there twice, once with dashes and once with underscores")
        elif value is None:
            yield error(key, "has no value", "write true for a flag without a value")
        elif isinstance(value, list) and not value:
            yield error(key, "is an empty list")
        seen.add(plain)


def _home_of(name: str) -> str | None:
    """Return the key that renders a flag, if it is not `extra`."""
    for candidate in (name, name.removeprefix("no_")):
        if candidate in Arguments.model_fields and candidate != "extra":
            return f"engine.arguments.{candidate}"
    return OWN_FLAGS.get(name) or SHORT_FLAGS.get(name)


def _snake(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def address_is_private(rig: Rig) -> Iterator[Finding]:
    """Tell of an engine that the whole network reaches, or an address that is none."""
    host = rig.engine.host
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
            yield error("engine.host", f"{host!r} is neither an address nor a host name")
        return
    if address.is_unspecified:
        without = "" if rig.engine.api_key is not None else ", without a key"
        yield warning(
            "engine.host",
            f"{host} opens the engine to every network of this box{without}",
            "bind to 127.0.0.1 or to the tailnet address (100.x.y.z)",
        )


def served_name_is_one(rig: Rig) -> Iterator[Finding]:
    """Tell of values that would be read as flags."""
    engine = rig.engine
    for key, value in (("model", engine.model), ("served_model_name", engine.served_model_name)):
        if value is not None and (not value.strip() or value.startswith("-")):
            yield error(f"engine.{key}", f"{value!r} is no name")
