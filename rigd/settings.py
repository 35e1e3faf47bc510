"""Settings of the daemon itself: paths, socket, logging. What the engine is comes from the rig file.

Read from `RIGD_*` in the environment; secrets are references, see `adapters/secrets.py`.
"""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from rigd import paths


class Settings(BaseSettings):
    """The daemon's own settings, each overridable by `RIGD_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix="RIGD_", use_attribute_docstrings=True, frozen=True)

    state_dir: Path = Field(default_factory=lambda: paths.state_dir(os.environ))
    """Folder of the store and of the engine's logs; kept across reboots."""

    runtime_dir: Path = Field(default_factory=lambda: paths.runtime_dir(os.environ))
    """Folder of the socket and of the secret files handed to the engine; gone after a reboot."""

    socket: Path = Field(default_factory=lambda: paths.socket_path(os.environ))
    """The API's unix socket."""

    socket_group: str | None = None
    """Group that may use the socket (mode 0660). None: only the daemon's own user and root (0600)."""

    bind: str | None = None
    """HOST:PORT of a TCP listener beside the socket, for example the tailnet address; needs `token_file`."""

    token_file: Path | None = None
    """File (mode 0600) whose first line is the bearer token that callers on TCP must send."""

    hosts: tuple[str, ...] = ()
    """Further names by which callers may address the TCP listener (JSON list); its own address always may."""

    host_look_s: float = Field(default=10.0, gt=0)
    """How often the cards are read, in seconds. What they say must hold for some looks before it is told."""

    host_socket: Path = Path("/run/rigd-host.sock")
    """Socket of root's one-shot, which sets the cards and does what `host.allow_*` allows."""

    provision_socket: Path = Path("/run/rigd-provision.sock")
    """Socket of root's one-shot that holds the host against `host.drift.playbook`."""

    drift_settle_s: float = Field(default=60.0, gt=0)
    """From the daemon's start to the first look whether the host has drifted, and from a look that shows something to
    the one that confirms it. Seconds."""

    log_level: str = "info"
    """debug, info, warning or error."""

    log_json: bool | None = None
    """True: JSON lines; False: console; None: JSON unless stderr is a terminal."""
