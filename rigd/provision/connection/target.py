"""Which host is meant and how it is reached, and what can go wrong on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rigd.errors import RigdError, UnreachableError, UsageError

CONNECT_TIMEOUT_S = 15.0
PYTHON = "python3"
"""Interpreter of the helper, by the box's PATH."""


class HostUnreachableError(UnreachableError):
    """The host cannot be spoken to (any more); `temporary` where the same try may succeed later."""

    def __init__(self, message: str, *, hint: str | None = None, temporary: bool = False) -> None:
        """As `RigdError`."""
        super().__init__(message, hint=hint)
        self.temporary = temporary


class BecomeError(RigdError):
    """The host is there, but does not give the rights that a task wants."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A host, and how to get at it. What is left out comes from the ssh configuration."""

    name: str
    """As the inventory calls it."""
    local: bool = False
    """This machine, without ssh."""
    address: str | None = None
    """Host name or address, or an alias of the ssh configuration; `name` if left out."""
    user: str | None = None
    port: int | None = None
    key_file: Path | None = None
    password: str | None = field(default=None, repr=False)
    """For ssh itself, where keys are not to be had."""
    become_password: str | None = field(default=None, repr=False)
    """For sudo, where it asks."""
    accept_new: bool = False
    """An unknown host key is stored and trusted; one that has changed never is."""
    bootstrap: bool = False
    """Python may be installed where it is missing."""
    python: str = PYTHON
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    ssh_config: Path | None = None
    """Read instead of `~/.ssh/config` and the system's."""


def target_of(name: str, variables: Mapping[str, Any], *, default: Target | None = None) -> Target:
    """Return the target of an inventory's host by its `ansible_*` variables; `default` gives the rest."""
    base = replace(default, name=name) if default is not None else Target(name=name)
    connection = str(variables.get("ansible_connection", "local" if base.local else "ssh"))
    if connection.rpartition(".")[2] not in ("local", "ssh", "paramiko", "paramiko_ssh", "smart"):
        raise UsageError(
            f"host '{name}': there is no connection '{connection}'", hint="ansible_connection is ssh or local"
        )
    given: dict[str, Any] = {}
    for variable, (field_name, convert) in _VARIABLES.items():
        if variables.get(variable) not in (None, ""):
            try:
                given[field_name] = convert(variables[variable])
            except ValueError as error:
                raise UsageError(
                    f"host '{name}': {variable}: '{variables[variable]}' is no number"
                ) from error
    return replace(base, local=connection.rpartition(".")[2] == "local", **given)


def _path(text: Any) -> Path:
    return Path(str(text)).expanduser()


def _python(text: Any) -> str:
    # `auto` and its kin are Ansible's search; ours is the PATH of the box.
    return PYTHON if str(text).startswith("auto") else str(text)


_VARIABLES: Mapping[str, tuple[str, Any]] = {
    "ansible_host": ("address", str),
    "ansible_user": ("user", str),
    "ansible_ssh_user": ("user", str),
    "ansible_port": ("port", int),
    "ansible_ssh_port": ("port", int),
    "ansible_ssh_private_key_file": ("key_file", _path),
    "ansible_private_key_file": ("key_file", _path),
    "ansible_password": ("password", str),
    "ansible_ssh_pass": ("password", str),
    "ansible_become_password": ("become_password", str),
    "ansible_become_pass": ("become_password", str),
    "ansible_sudo_pass": ("become_password", str),
    "ansible_python_interpreter": ("python", _python),
}
VARIABLES = frozenset({*_VARIABLES, "ansible_connection"})
"""Names of the variables that `target_of` reads."""
