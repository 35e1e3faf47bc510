"""The settings that rigd may turn: how each is read from and written to a rig's engine section. Pure.

A knob is named as in the rig file: `max_num_seqs`, `speculative.num_speculative_tokens`, `docker.shm_size`,
`environment.NCCL_P2P_DISABLE`. Everything else is a person's work.
"""

from typing import Any

from pydantic import ValidationError

from rigd.rig.schema import Arguments, Engine

Scalar = str | int | float | bool | None

ATTENTION, ATTENTION_VARIABLE = "attention_backend", "VLLM_ATTENTION_BACKEND"
DOCKER_KNOBS = frozenset({"ipc", "shm_size", "pids_limit"})
MODERN = (0, 25)
"""From this version on vLLM's default share of a card's memory is 0.92; before, 0.90 (read in its sources)."""


class UnknownKnobError(ValueError):
    """There is no such knob, or it has no such value; the text says which there are."""


def read(engine: Engine, knob: str) -> Any:
    """Return what a knob stands at; None where the rig file leaves it to vLLM. Raises `UnknownKnobError`."""
    head, _, tail = knob.partition(".")
    if head == "environment" and tail:
        value = engine.environment.get(tail)
        return value if isinstance(value, str) else None
    if head == "docker" and tail in DOCKER_KNOBS:
        return None if engine.docker is None else getattr(engine.docker, tail)
    if knob == "speculative.num_speculative_tokens":
        spec = engine.arguments.speculative
        return None if spec is None else spec.num_speculative_tokens
    if not tail and head in Arguments.model_fields and head != "extra":
        value = getattr(engine.arguments, head)
        # Older rigs name the backend by the variable, which becomes the flag at launch.
        return engine.environment.get(ATTENTION_VARIABLE) if head == ATTENTION and value is None else value
    raise UnknownKnobError(
        f"'{knob}' is no knob; knobs are vLLM's settings by name, environment.NAME, docker.ipc, docker.shm_size"
    )


def write(engine: Engine, knob: str, value: Scalar) -> Engine:
    """Return the engine section with one knob turned; None leaves the setting out.

    Raises `UnknownKnobError` when the knob does not exist here or the schema refuses the value.
    """
    read(engine, knob)
    head, _, tail = knob.partition(".")
    document = engine.model_dump(mode="json", exclude_unset=True)
    if head == "environment":
        _put(document.setdefault("environment", {}), tail, value)
    elif head == "docker":
        if engine.docker is None:
            raise UnknownKnobError(f"'{knob}' is for engines in Docker, and this one is a bare process")
        _put(document["docker"], tail, value)
    elif tail:
        if engine.arguments.speculative is None:
            raise UnknownKnobError("there is no speculative decoding whose depth could be turned")
        _put(document["arguments"]["speculative"], tail, value)
    else:
        _put(document.setdefault("arguments", {}), head, value)
    try:
        return Engine.model_validate(document)
    except ValidationError as error:
        said = "; ".join(str(fault["msg"]) for fault in error.errors())
        raise UnknownKnobError(f"'{knob}' cannot be {value!r}: {said}") from error


def default(engine: Engine, knob: str) -> Scalar:
    """Return what vLLM takes when the setting is left out, for the knobs that are turned from there."""
    version = tuple(int(part) for part in engine.version.split(".")[:2])
    defaults: dict[str, Scalar] = {
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.92 if version >= MODERN else 0.90,
    }
    return defaults.get(knob)


def in_effect(engine: Engine, knob: str) -> Any:
    """Return what a knob stands at, vLLM's default included. Raises `UnknownKnobError`."""
    value = read(engine, knob)
    return value if value is not None else default(engine, knob)


def _put(where: dict[str, Any], key: str, value: Scalar) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value
