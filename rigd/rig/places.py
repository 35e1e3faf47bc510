"""Which keys the schema has where, and what may stand there, in words. Pure."""

import difflib
import enum
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rigd.rig.schema import PrivateUrl, Rig, SecretRef, Size

FOREIGN: Mapping[str, str] = {
    "restart": "rigd owns restarts (policy `no`, always): see supervision.attempts and supervision.backoff",
    "restart_policy": "rigd owns restarts (policy `no`, always): see supervision.attempts and supervision.backoff",
    "ports": "ports are engine.port (on the host) and engine.docker.container_port",
    "volumes": "volumes are engine.docker.mounts, each with source and target",
    "command": "what to serve is engine.model and engine.arguments",
    "container_name": "the container's name is engine.docker.container",
    "network_mode": "the network is engine.docker.network: bridge or host",
    "deploy": "cards are engine.docker.gpus",
    "healthcheck": "rigd's own probes are under supervision",
    "speculative_config": "speculative decoding is engine.arguments.speculative",
    "env": "variables are engine.environment",
    "labels": "rigd labels its containers itself",
    "privileged": "rigd never asks for a privileged container",
    "api_keys": "there is one key: engine.api_key",
}
"""Keys of other tools that people try, and where the thing is here."""


def model_at(path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """Return the schema's model at a key path, if there is one."""
    found = _annotation_at(path)
    return next(iter(_models(found)), None) if found is not None else None


def describe_at(path: tuple[str | int, ...]) -> str:
    """Return in words what may stand at a key path."""
    found = _annotation_at(path)
    return "something else" if found is None else describe(found)


def advice_for(path: tuple[str | int, ...]) -> str:
    """Return what to write instead of an unknown key, or an empty text."""
    key = str(path[-1]).lstrip("-").replace("-", "_").lower()
    model = model_at(path[:-1])
    here = tuple(model.model_fields) if model is not None else ()
    elsewhere = [place for place in all_keys() if place[-1] == key]
    if key in here:
        return f"did you mean {key!r}?"
    if key in FOREIGN:
        return FOREIGN[key]
    if near := difflib.get_close_matches(key, here, n=1, cutoff=0.75):
        return f"did you mean {near[0]!r}?"
    if elsewhere:
        return "it belongs at " + " or ".join(".".join(place) for place in elsewhere[:3])
    if near := difflib.get_close_matches(key, here, n=1, cutoff=0.6):
        return f"did you mean {near[0]!r}?"
    if path[:-1] == ("engine", "arguments"):
        return "another flag of vLLM goes under engine.arguments.extra"
    names = {place[-1]: place for place in all_keys()}
    if near := difflib.get_close_matches(key, names, n=1, cutoff=0.8):
        return f"did you mean {'.'.join(names[near[0]])}?"
    return "known here: " + ", ".join(here) if here else ""


@cache
def all_keys() -> tuple[tuple[str, ...], ...]:
    """Return the path of every key of the schema; `*` stands for a name or a place in a list."""
    return tuple(_keys_below(Rig, ()))


def _keys_below(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, info in model.model_fields.items():
        yield (*path, name)
        for below, repeated in _models_with_repeat(info.annotation):
            yield from _keys_below(below, (*path, name, "*") if repeated else (*path, name))


def _models_with_repeat(annotation: Any) -> Iterator[tuple[type[BaseModel], bool]]:
    origin = get_origin(annotation)
    if origin in (tuple, list, dict):
        for below in get_args(annotation):
            for model in _models(below):
                yield model, True
    elif origin in (Union, types.UnionType, Annotated):
        for below in get_args(annotation):
            yield from _models_with_repeat(below)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, False


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation allows directly (not inside lists and mappings)."""
    if isinstance(annotation, FieldInfo):
        yield from _models(annotation.annotation)
    elif get_origin(annotation) in (Union, types.UnionType, Annotated):
        for below in get_args(annotation):
            yield from _models(below)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _annotation_at(path: tuple[str | int, ...]) -> Any:
    """Return the annotation (or field) at a key path; None where the schema has nothing."""
    found: Any = Rig
    for part in path:
        found = _step(found, part)
        if found is None:
            return None
    return found


def _step(annotation: Any, part: str | int) -> Any:
    for model in _models(annotation):
        if part in model.model_fields:
            return model.model_fields[str(part)]
    plain = annotation.annotation if isinstance(annotation, FieldInfo) else annotation
    origin = get_origin(plain)
    if origin in (Union, types.UnionType, Annotated):
        steps = (_step(below, part) for below in get_args(plain))
        return next((step for step in steps if step is not None), None)
    if origin is dict and isinstance(part, str):
        return get_args(plain)[1]
    if origin in (tuple, list) and isinstance(part, int):
        return get_args(plain)[0]
    return None


def describe(annotation: Any, bounds: tuple[Any, ...] = ()) -> str:
    """Return in words what a type of the schema allows."""
    if annotation == Size:
        return "a size such as 16gb"
    if isinstance(annotation, FieldInfo):
        return describe(annotation.annotation, tuple(annotation.metadata))
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *metadata = get_args(annotation)
        flat = [
            item for meta in metadata for item in (meta.metadata if isinstance(meta, FieldInfo) else (meta,))
        ]
        return describe(base, (*flat, *bounds))
    if origin in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        if set(parts) == {int, str} and bounds:
            return "a size such as 16gb"
        return " or ".join(describe(part, bounds) for part in parts)
    if origin is Literal:
        choices = get_args(annotation)
        return f"one of {', '.join(map(str, choices))}" if len(choices) > 1 else f"{choices[0]!r}"
    if origin in _COLLECTIONS:
        return _COLLECTIONS[origin]
    return _describe_plain(annotation, bounds)


def _describe_plain(annotation: Any, bounds: tuple[Any, ...]) -> str:
    if annotation in _PLAIN:
        return _PLAIN[annotation] + _bounds(bounds)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a section with " + ", ".join(annotation.model_fields)
    return "any value"


_COLLECTIONS: Mapping[Any, str] = {tuple: "a list", list: "a list", dict: "a mapping of names to values"}
_PLAIN: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    SecretRef: "a reference to a secret: {env: NAME}, {file: PATH} or {credential: NAME}",
    PrivateUrl: "an Apprise URL",
}


def _bounds(bounds: tuple[Any, ...]) -> str:
    words = []
    for bound in bounds:
        match bound:
            case Ge(ge=least):
                words.append(f"at least {least}")
            case Gt(gt=above):
                words.append(f"above {above}")
            case Le(le=most):
                words.append(f"at most {most}")
            case Lt(lt=below):
                words.append(f"below {below}")
            case MinLen():
                pass
    return f" ({', '.join(words)})" if words else ""
