"""vLLM's settings as an argument list, in the schema's order. Pure."""

import json
from collections.abc import Iterator

from pydantic import JsonValue

from rigd.engine.versions import knows
from rigd.rig.schema import Arguments, Engine, Speculative

_FLAG_OF = {"speculative": "speculative-config"}
"""Keys whose flag has another name."""
_NOT_FLAGS = ("extra",)


def engine_arguments(engine: Engine) -> tuple[str, ...]:
    """Return what follows model, address and name: every setting that the rig gives, and no other."""
    arguments = engine.arguments
    argv: list[str] = []
    for key in Arguments.model_fields:
        if key in _NOT_FLAGS or (key == "attention_backend" and not knows(engine.version, key)):
            continue
        value = getattr(arguments, key)
        argv += render(_FLAG_OF.get(key, key), _plain(value))
    for key in sorted(arguments.extra, key=flag_name):
        argv += render(key, arguments.extra[key])
    return tuple(argv)


def flag_name(key: str) -> str:
    """Return a setting's flag: `max_num_seqs` and `max-num-seqs` are both `--max-num-seqs`."""
    return "--" + key.lstrip("-").replace("_", "-")


def render(key: str, value: JsonValue) -> Iterator[str]:
    """Yield a setting as vLLM's parser takes it.

    True and false become `--x` and `--no-x`, a mapping compact JSON, a list one flag with many values; None nothing.
    """
    flag = flag_name(key)
    match value:
        case None:
            return
        case bool():
            yield flag if value else "--no-" + flag.removeprefix("--")
        case list():
            yield flag
            yield from (_scalar(item) for item in value)
        case _:
            yield flag
            yield _scalar(value)


def _scalar(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Speculative | JsonValue) -> JsonValue:
    """Return a value of the schema as JSON would carry it, extra keys merged in."""
    if not isinstance(value, Speculative):
        return value
    given: dict[str, JsonValue] = value.model_dump(exclude={"extra"}, exclude_none=True)
    return given | value.extra
