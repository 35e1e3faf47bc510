"""What the types of a rig file cannot say: settings that contradict one another. Pure; each rule is one function.

To add a rule: write a function that yields findings, and name it in `RULES`.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from rigd.rig.findings import Finding, Severity
from rigd.rig.schema import Arguments, Docker, Engine, Rig, RuntimeKind
from rigd.rig.sizes import parse_size

NCCL_SHM_LEAST = 1024**3
"""Docker gives 64 MiB of /dev/shm, with which NCCL and vLLM's own broadcast fail; 1 GiB has been enough."""
FLOATING_TAGS = ("latest", "nightly", "main", "edge", "stable")
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
ENGINE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _error(key: str, sentence: str, hint: str | None = None) -> Finding:
    return Finding(severity=Severity.ERROR, key=key, sentence=sentence, hint=hint)


def _warning(key: str, sentence: str, hint: str | None = None) -> Finding:
    return Finding(severity=Severity.WARNING, key=key, sentence=sentence, hint=hint)


def _docker(rig: Rig) -> Docker | None:
    return rig.engine.docker if rig.engine.runtime is RuntimeKind.DOCKER else None


def image_is_pinned(rig: Rig) -> Iterator[Finding]:
    """Tell of an image that may be another one tomorrow."""
    docker = _docker(rig)
    if docker is None or "@" in docker.image:
        return
    tag = docker.image.rpartition("/")[2].partition(":")[2]
    hint = "name a version (vllm/vllm-openai:v0.32.0) or, better, a digest (...@sha256:...)"
    if not tag:
        yield _error("engine.docker.image", f"{docker.image!r} has no tag, which means `latest`", hint)
    elif tag.lower() in FLOATING_TAGS:
        yield _error("engine.docker.image", f"the tag {tag!r} floats: it may be another image tomorrow", hint)


def shared_memory_is_enough(rig: Rig) -> Iterator[Finding]:
    """Tell of several ranks with the small /dev/shm that Docker gives by default."""
    docker, ranks = _docker(rig), rig.engine.arguments.tensor_parallel_size or 1
    if docker is None or ranks < 2 or docker.ipc == "host":  # noqa: PLR2004  (two ranks talk to each other)
        return
    if docker.shm_size is None or parse_size(docker.shm_size) < NCCL_SHM_LEAST:
        given = "Docker's 64 MiB" if docker.shm_size is None else str(docker.shm_size)
        yield _error(
            "engine.docker.shm_size",
            f"{given} of /dev/shm is too little for {ranks} tensor-parallel ranks (NCCL fails or hangs)",
            "set shm_size: 16gb, or ipc: host",
        )


def cards_are_enough(rig: Rig) -> Iterator[Finding]:
    """Tell of fewer cards than ranks."""
    docker, ranks = _docker(rig), rig.engine.arguments.tensor_parallel_size or 1
    visible = rig.engine.environment.get("CUDA_VISIBLE_DEVICES")
    places = []
    if docker is not None and isinstance(docker.gpus, tuple):
        places.append(("engine.docker.gpus", docker.gpus))
    if isinstance(visible, str) and visible:
        places.append(("engine.environment.CUDA_VISIBLE_DEVICES", tuple(visible.split(","))))
    for key, cards in places:
        if len(cards) < ranks:
            yield _error(
                key,
                f"lists {len(cards)} card(s), but tensor_parallel_size is {ranks}",
                "list as many cards as ranks",
            )
        if len(set(cards)) < len(cards):
            yield _error(key, "names a card twice")


def batches_hold_prompts(rig: Rig) -> Iterator[Finding]:
    """Tell of numbers of tokens and requests that vLLM refuses together."""
    arguments = rig.engine.arguments
    tokens, length = arguments.max_num_batched_tokens, arguments.max_model_len
    if arguments.enable_chunked_prefill is False and tokens is not None and isinstance(length, int):
        if tokens < length:
            yield _error(
                "engine.arguments.max_num_batched_tokens",
                f"{tokens} is less than max_model_len ({length}) while chunked prefill is off",
                "raise it, or leave enable_chunked_prefill on",
            )
    if tokens is not None and arguments.max_num_seqs is not None and tokens < arguments.max_num_seqs:
        yield _error(
            "engine.arguments.max_num_batched_tokens",
            f"{tokens} is less than max_num_seqs ({arguments.max_num_seqs}): each request needs a token a step",
        )
    active, most = arguments.max_num_active_seqs, arguments.max_num_seqs
    if active is not None and most is not None and active > most:
        yield _error("engine.arguments.max_num_active_seqs", f"{active} is more than max_num_seqs ({most})")


def tool_calls_have_a_parser(rig: Rig) -> Iterator[Finding]:
    """Tell of tool calling without the parser that vLLM insists on."""
    if rig.engine.arguments.enable_auto_tool_choice and rig.engine.arguments.tool_call_parser is None:
        yield _error(
            "engine.arguments.enable_auto_tool_choice",
            "needs tool_call_parser",
            "for Qwen3 coder models: tool_call_parser: qwen3_coder",
        )


def template_is_mounted(rig: Rig) -> Iterator[Finding]:
    """Tell of a chat template that no mount brings into the container."""
    docker, template = _docker(rig), rig.engine.arguments.chat_template
    if docker is None or template is None or not template.startswith("/"):
        return
    path = PurePosixPath(template)
    if not any(path.is_relative_to(mount.target) for mount in docker.mounts):
        yield _warning(
            "engine.arguments.chat_template",
            f"{template} is under none of the mounts, so the image itself must have it",
            "add its file to engine.docker.mounts",
        )


def mounts_are_distinct(rig: Rig) -> Iterator[Finding]:
    """Tell of two mounts on one path."""
    docker = _docker(rig)
    targets = Counter(str(PurePosixPath(mount.target)) for mount in docker.mounts) if docker else {}
    for number, mount in enumerate(docker.mounts if docker else ()):
        if targets[str(PurePosixPath(mount.target))] > 1:
            yield _error(
                f"engine.docker.mounts[{number}].target", f"{mount.target} is mounted more than once"
            )


def secrets_are_references(rig: Rig) -> Iterator[Finding]:
    """Tell of a secret written out; the finding never repeats the value."""
    hint = "write a reference instead: {env: NAME}, {file: /path} or {credential: NAME}"
    for name, value in rig.engine.environment.items():
        if name == "VLLM_API_KEY":
            yield _error(f"engine.environment.{name}", "the key belongs under engine.api_key", hint)
        elif isinstance(value, str) and value and SECRET_NAME.search(name):
            yield _error(
                f"engine.environment.{name}", "looks like a secret written out in the rig file", hint
            )
    for name in rig.engine.arguments.extra:
        if _snake(name) in SECRET_FLAGS:
            yield _error(
                f"engine.arguments.extra.{name}",
                "would show the secret in the process list",
                "use engine.api_key, or a reference under engine.environment (HF_TOKEN)",
            )


def environment_names_are_names(rig: Rig) -> Iterator[Finding]:
    """Tell of variables that no shell could set, or that rigd sets itself."""
    for name, value in rig.engine.environment.items():
        key = f"engine.environment.{name}"
        if not ENGINE_NAME.fullmatch(name):
            yield _error(key, "is no name of an environment variable", "letters, digits and _ only")
        elif name.startswith("RIGD_"):
            yield _error(key, "RIGD_ names mark the engine's processes and are rigd's own")
        elif isinstance(value, str) and ("\0" in value or "\n" in value):
            yield _error(key, "the value has a line break or a NUL in it")


def extra_is_extra(rig: Rig) -> Iterator[Finding]:
    """Tell of extra arguments that have a key of their own, or cannot be flags."""
    seen: set[str] = set()
    for name, value in rig.engine.arguments.extra.items():
        key, plain = f"engine.arguments.extra.{name}", _snake(name)
        home = _home_of(plain)
        if home is not None and home != "engine.api_key":
            yield _error(key, f"has a key of its own: {home}", f"move it to {home}")
        elif not re.fullmatch(r"[a-z][a-z0-9_]*", plain):
            yield _error(key, "is no name of a vLLM flag", "write the flag's name without the leading dashes")
        elif plain in seen:
            yield _error(key, "is there twice, once with dashes and once with underscores")
        elif value is None:
            yield _error(key, "has no value", "write true for a flag without a value")
        elif isinstance(value, list) and not value:
            yield _error(key, "is an empty list")
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
            yield _error("engine.host", f"{host!r} is neither an address nor a host name")
        return
    if address.is_unspecified:
        without = "" if rig.engine.api_key is not None else ", without a key"
        yield _warning(
            "engine.host",
            f"{host} opens the engine to every network of this box{without}",
            "bind to 127.0.0.1 or to the tailnet address (100.x.y.z)",
        )


def container_port_is_used(rig: Rig) -> Iterator[Finding]:
    """Tell of a container port that host networking ignores."""
    docker = _docker(rig)
    if docker is not None and docker.network == "host" and "container_port" in docker.model_fields_set:
        yield _warning(
            "engine.docker.container_port",
            "has no effect with network: host; the engine binds engine.port itself",
            "remove it",
        )


def channels_fit(rig: Rig) -> Iterator[Finding]:
    """Tell of channels that are longer than the engine's context, or named twice."""
    length = rig.engine.arguments.max_model_len
    names = Counter(channel.name for channel in rig.channels)
    for number, channel in enumerate(rig.channels):
        if names[channel.name] > 1:
            yield _error(f"channels[{number}].name", f"{channel.name!r} is there more than once")
        if isinstance(length, int) and channel.context + channel.output > length:
            yield _error(
                f"channels[{number}].context",
                f"context {channel.context} and output {channel.output} exceed max_model_len ({length})",
                f"lower context to {max(length - channel.output, 1)}",
            )


def prefixes_are_distinct(rig: Rig) -> Iterator[Finding]:
    """Tell of prefixes named twice, and of warming what no cache keeps."""
    names = Counter(prefix.name for prefix in rig.prefixes)
    for number, prefix in enumerate(rig.prefixes):
        if names[prefix.name] > 1:
            yield _error(f"prefixes[{number}].name", f"{prefix.name!r} is there more than once")
    if rig.prefixes and rig.engine.arguments.enable_prefix_caching is False:
        yield _error(
            "engine.arguments.enable_prefix_caching",
            "is off, so no prefix can be warmed",
            "turn it on, or remove prefixes",
        )
    if rig.prefixes and not rig.engine.arguments.enable_prompt_tokens_details:
        yield _warning(
            "engine.arguments.enable_prompt_tokens_details",
            "is off, so warm prefixes can be proved from counters only, which other traffic blurs",
            "set it to true",
        )


def deadlines_make_sense(rig: Rig) -> Iterator[Finding]:
    """Tell of deadlines that cannot be kept together."""
    supervision = rig.supervision
    if supervision.stop_grace_s >= supervision.deadlines.stop_s:
        yield _error(
            "supervision.stop_grace_s",
            f"{supervision.stop_grace_s:g} s leaves no time for KILL within deadlines.stop_s "
            f"({supervision.deadlines.stop_s:g} s)",
        )
    if supervision.stall_deadline_s < 2 * supervision.probe_interval_s:
        yield _error(
            "supervision.stall_deadline_s",
            f"{supervision.stall_deadline_s:g} s is less than two probe intervals",
        )
    if supervision.backoff.max_s < supervision.backoff.initial_s:
        yield _error("supervision.backoff.max_s", "is less than initial_s")


def ulimits_are_ordered(rig: Rig) -> Iterator[Finding]:
    """Tell of a soft limit above its hard one."""
    docker = _docker(rig)
    for name, limit in (docker.ulimits if docker else {}).items():
        if limit.hard != -1 and (limit.soft == -1 or limit.soft > limit.hard):
            yield _error(f"engine.docker.ulimits.{name}", "its soft limit is above its hard limit")


def served_name_is_one(rig: Rig) -> Iterator[Finding]:
    """Tell of values that would be read as flags."""
    engine: Engine = rig.engine
    for key, value in (("model", engine.model), ("served_model_name", engine.served_model_name)):
        if value is not None and (not value.strip() or value.startswith("-")):
            yield _error(f"engine.{key}", f"{value!r} is no name")


RULES: tuple[Callable[[Rig], Iterator[Finding]], ...] = (
    image_is_pinned,
    shared_memory_is_enough,
    cards_are_enough,
    batches_hold_prompts,
    tool_calls_have_a_parser,
    template_is_mounted,
    mounts_are_distinct,
    ulimits_are_ordered,
    secrets_are_references,
    environment_names_are_names,
    extra_is_extra,
    served_name_is_one,
    address_is_private,
    container_port_is_used,
    channels_fit,
    prefixes_are_distinct,
    deadlines_make_sense,
)


def validate(rig: Rig) -> tuple[Finding, ...]:
    """Return everything that is wrong or doubtful about a rig, rule by rule; what depends on vLLM's version is not here."""
    return tuple(finding for rule in RULES for finding in rule(rig))
