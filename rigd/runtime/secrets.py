"""A specification's secret references become values at the last moment, and are hidden from whatever is printed."""

from collections.abc import Iterable, Mapping

from rigd.adapters import secrets as source
from rigd.engine.spec import LaunchSpec
from rigd.rig.schema import SecretRef

MASK = "***"
SHORTEST_MASKED = 4
"""Shorter ones are left: replacing them would garble ordinary text, and they protect nothing."""


def resolve_secret(ref: SecretRef, *, environ: Mapping[str, str] | None = None) -> str:
    """Return the value that a reference names. Raises `UsageError` that names the reference."""
    kind, name = reference(ref)
    return source.resolve(kind, name, environ=environ)


def resolve_secrets(spec: LaunchSpec, *, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the secret environment variables of a launch, by name. Keep them out of argv, logs and errors."""
    return {name: resolve_secret(ref, environ=environ) for name, ref in spec.secrets}


def resolve_api_key(spec: LaunchSpec, *, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the key that requests to the engine must carry, if it has one."""
    return None if spec.api_key is None else resolve_secret(spec.api_key, environ=environ)


def reference(ref: SecretRef) -> tuple[str, str]:
    """Return a reference as its kind and name."""
    for kind, name in (("env", ref.env), ("file", ref.file), ("credential", ref.credential)):
        if name is not None:
            return kind, name
    raise AssertionError("the schema lets no reference be empty")


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with every secret in it replaced by `***`, longest first so that none leaves a rest."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST_MASKED:
            text = text.replace(secret, MASK)
    return text
