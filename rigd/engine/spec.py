"""The launch specification: everything a runtime needs, spelled out; a runtime makes no choice.

Secrets are in it as references only, so that a specification can be printed, stored and compared.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field

from rigd.rig.schema import RuntimeKind, SecretRef

LABEL_RIG = "rigd.rig"
LABEL_DIGEST = "rigd.digest"
LABEL_START = "rigd.start"
MARKER_RIG = "RIGD_RIG"
"""Environment variable that marks every process of an engine of ours with the rig's name."""
MARKER_START = "RIGD_START"
"""Environment variable that carries the number of the start."""
MARKER_DIGEST = "RIGD_DIGEST"
"""Environment variable that carries the digest of the specification."""


@dataclass(frozen=True, kw_only=True)
class MountSpec:
    """A bind mount, absolute on both sides."""

    source: str
    target: str
    read_only: bool
    create: bool = False


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """What Docker is told beside image, command and environment. Sizes in bytes."""

    image: str
    name: str
    entrypoint: tuple[str, ...]
    mounts: tuple[MountSpec, ...] = ()
    gpus: str | tuple[int, ...] = "none"
    gpu_injection: str = "gpus"
    shm_size: int | None = None
    ipc: str = "private"
    network: str = "bridge"
    container_port: int = 8000
    ulimits: tuple[tuple[str, int, int], ...] = ()
    memory: int | None = None
    pids_limit: int | None = None
    pull: str = "missing"
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """One engine, ready to launch.

    `argv` is the whole command of a process, or what follows the container's entrypoint. `address` is where
    the daemon reaches the engine (`host`, `port`).
    """

    rig: str
    runtime: RuntimeKind
    version: str
    model: str
    served_model_name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    secrets: tuple[tuple[str, SecretRef], ...]
    """Environment variables whose values are looked up at launch and handed over in private files."""
    host: str
    port: int
    api_key: SecretRef | None = None
    container: ContainerSpec | None = None
    working_directory: str | None = None
    inherit_environment: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = field(default=())
    """Labels beside the three of rigd's own, which the runtime adds."""

    @property
    def digest(self) -> str:
        """Twelve hex digits that change whenever anything launched would change, and only then."""
        values = asdict(self)
        if self.container is not None:
            del values["container"]["pull"]
            for mount in values["container"]["mounts"]:
                del mount["create"]
        text = json.dumps(values, sort_keys=True, default=lambda value: value.model_dump())
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def base_url(self) -> str:
        """Where the engine's HTTP surface answers, seen from this host."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104  (asks loopback)
        return f"http://{host}:{self.port}"
