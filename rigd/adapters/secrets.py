"""Where secrets come from: the environment, private files, systemd credentials.

Errors name the place, never the value.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from rigd.errors import UsageError

MOST_BYTES = 64 * 1024
"""Largest secret; keys and tokens are some hundred bytes."""
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SecretError(UsageError):
    """A secret that cannot be had from where the reference says."""


def from_environment(name: str, environ: Mapping[str, str]) -> str:
    """Return the secret in an environment variable of this process."""
    value = environ.get(name)
    if not value:
        state = "empty" if name in environ else "not set"
        raise SecretError(
            f"cannot read the secret in the environment variable {name!r}: it is {state}",
            hint=f"set {name} where rigd is started; under systemd use a credential instead",
        )
    return _checked(value.encode("utf-8", "surrogateescape"), f"environment variable {name!r}")


def from_file(path: Path) -> str:
    """Return the secret in a file that only its owner may read."""
    return _checked(_read(path, f"file '{path}'", private=True), f"file '{path}'")


def from_credential(name: str, environ: Mapping[str, str]) -> str:
    """Return a systemd credential of this service."""
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if "/" in name or name in ("", ".", ".."):
        raise SecretError(f"cannot read the systemd credential {name!r}: that is no name of a credential")
    if not folder:
        raise SecretError(
            f"cannot read the systemd credential {name!r}: this process was given none",
            hint=f"add LoadCredential={name}:/etc/rigd/{name} to the unit; started by hand, use `file` or `env`",
        )
    what = f"systemd credential {name!r}"
    # systemd itself decides who may read there.
    return _checked(_read(Path(folder) / name, what, private=False), what)


def resolve(kind: str, name: str, *, environ: Mapping[str, str] | None = None) -> str:
    """Return the secret that a reference of `kind` (env, file, credential) names. Raises `SecretError`."""
    variables = os.environ if environ is None else environ
    match kind:
        case "env":
            return from_environment(name, variables)
        case "file":
            return from_file(Path(name))
        case "credential":
            return from_credential(name, variables)
        case _:
            raise SecretError(
                f"cannot read a secret of the kind {kind!r}: there are env, file and credential"
            )


def _read(path: Path, what: str, *, private: bool) -> bytes:
    try:
        # Not blocking: a FIFO without a writer would hold us for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise SecretError(f"cannot read the secret in the {what}: it is no regular file")
            if private and state.st_mode & _OPEN_TO_OTHERS:
                raise SecretError(
                    f"cannot use the secret in the {what}: others on this box may read it "
                    f"(mode {stat.S_IMODE(state.st_mode):04o})",
                    hint=f"chmod 600 {path}",
                )
            return file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise SecretError(f"cannot read the secret in the {what}: it does not exist") from None
    except OSError as error:
        raise SecretError(f"cannot read the secret in the {what}: {error.strerror}") from error


def _checked(content: bytes, what: str) -> str:
    """Return a secret fit for an environment variable: one line of text, less one line break at its end."""
    if len(content) > MOST_BYTES:
        raise SecretError(f"cannot use the secret in the {what}: it is larger than {MOST_BYTES // 1024} KiB")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        # No cause: it would carry the bytes.
        raise SecretError(f"cannot use the secret in the {what}: it is not UTF-8 text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SecretError(f"cannot use the secret in the {what}: it is empty")
    if any(character in text for character in "\n\r\0"):
        raise SecretError(f"cannot use the secret in the {what}: it has more than one line")
    return text
