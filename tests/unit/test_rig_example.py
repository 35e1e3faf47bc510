"""`configs/example.yaml` shows every setting, and what it says about defaults is what the schema does."""

import json
import re
import types
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from rigd.cli.rig import json_schema
from rigd.rig.places import all_keys, model_at
from rigd.rig.schema import Rig

CONFIGS = Path(__file__).parents[2] / "configs"
KEY = re.compile(r"^(?P<indent> *)(?P<off># )?(?P<dash>- )?(?P<key>[a-z_]+):(?: .*)?$")
SECRET_KEYS = {("engine", "api_key"), ("engine", "environment", "*"), ("alerts", "urls", "*")}


def shown() -> dict[tuple[str, ...], str]:
    """Return each key of the example, used or commented out, with the comment above it."""
    found: dict[tuple[str, ...], str] = {}
    comment: list[str] = []
    above: list[tuple[int, str]] = []
    for line in (CONFIGS / "example.yaml").read_text().splitlines():
        match = KEY.match(line)
        if match is None:
            comment = [*comment, line.strip().removeprefix("# ")] if line.lstrip().startswith("#") else []
            continue
        indent = len(match["indent"]) + len(match["dash"] or "")
        above = [(depth, key) for depth, key in above if depth < indent]
        path = (*(key for _, key in above), match["key"])
        found.setdefault(path, " ".join(comment))
        above.append((indent, match["key"]))
        comment = []
    return found


def schema_keys() -> list[tuple[str, ...]]:
    """Return each key of the schema as the example writes it: without places in lists, without secret references."""
    paths = [
        path
        for path in all_keys()
        if not any(path[: len(secret)] == secret and len(path) > len(secret) for secret in SECRET_KEYS)
    ]
    return [tuple(part for part in path if part != "*") for path in paths]


def default_words(path: tuple[str, ...]) -> str:
    """Return how the example has to state a key's default."""
    info: Any = None
    model: type[BaseModel] = Rig
    for part in path:
        info = model.model_fields[part]
        model = next(iter(_models(info.annotation)), model)
    if info.is_required():
        return "Required."
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    if value is None:
        own = path[:2] == ("engine", "arguments") and path[2] != "speculative"
        return "Default: vLLM's own." if own else "Default: none."
    return f"Default: {json.dumps(value, default=list)}."


def _models(annotation: Any) -> list[type[BaseModel]]:
    if get_origin(annotation) in (Union, types.UnionType, Annotated, tuple, dict):
        return [model for below in get_args(annotation) for model in _models(below)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def plain(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path of the example without the name of its one ulimit."""
    return tuple(part for part in path if part != "memlock")


def test_every_setting_is_shown():
    missing = set(schema_keys()) - {plain(path) for path in shown()}

    assert missing == set()


@pytest.mark.parametrize("path", schema_keys(), ids=".".join)
def test_each_setting_says_what_it_is_and_its_default(path):
    comment = next(text for key, text in shown().items() if plain(key) == path)

    assert len(comment.replace(default_words(path), "").strip()) > len("What it")
    assert default_words(path) in comment


def test_every_key_of_the_schema_has_a_description():
    without = [
        (model.__name__, name)
        for path in [(), *all_keys()]
        for model in [model_at(tuple(0 if part == "*" else part for part in path))]
        if model is not None
        for name, info in model.model_fields.items()
        if not info.description
    ]

    assert without == []


def test_the_json_schema_describes_the_keys():
    schema = json_schema()

    assert (
        schema["$defs"]["Arguments"]["properties"]["max_num_seqs"]["description"]
        == "Most requests in one batch."
    )
    assert schema["$defs"]["Arguments"]["additionalProperties"] is False
