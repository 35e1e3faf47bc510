"""The secrets that this daemon and its rig know, as values: what an incident must not hold, in any spelling."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.types import Secret

from rigd.adapters.secrets import from_file
from rigd.errors import RigdError
from rigd.rig.schema import Rig, SecretRef
from rigd.runtime.secrets import resolve_secret
from rigd.supervise.redaction import SECRET_NAME

SHORTEST_VARIABLE = 8
"""A variable that is only named like a secret (`AUTH=no`) is one from this length on."""


def known_secrets(
    rig: Rig, *, token_file: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return every secret that the rig file refers to, the API's token, and what our own environment holds.

    One that cannot be read is left out: the engine cannot have had it either.
    """
    variables = os.environ if environ is None else environ
    found = {
        value
        for name, value in variables.items()
        if SECRET_NAME.search(name) and len(value) >= SHORTEST_VARIABLE and not Path(value).is_absolute()
    }
    for one in _secrets_in(rig):
        if isinstance(one, Secret):
            found.add(str(one.get_secret_value()))
            continue
        with contextlib.suppress(RigdError):
            found.add(resolve_secret(one, environ=variables))
    if token_file is not None:
        with contextlib.suppress(RigdError):
            found.add(from_file(token_file))
    return tuple(sorted(found))


def _secrets_in(value: Any) -> Iterator[SecretRef | Secret[Any]]:
    if isinstance(value, SecretRef | Secret):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets_in(getattr(value, name))
    elif isinstance(value, dict):
        for one in value.values():
            yield from _secrets_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _secrets_in(one)
