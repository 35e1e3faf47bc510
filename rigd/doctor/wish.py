"""What a rig file asks of its host, as the checks need it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.engine.spec import LaunchSpec
from rigd.rig.schema import Rig, RuntimeKind
from rigd.rig.sizes import parse_size

ALWAYS = ("/var/lib/docker", "/var/lib/containerd")
HUB_TARGET, VLLM_TARGET = "/.cache/huggingface", "/.cache/vllm"
SERVICE_USER = "rigd"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A rig, and what would be launched; None where there is no rig file to hold the host against."""

    rig: Rig
    spec: LaunchSpec
    home: str
    """Home of whoever runs the engine."""
    state_dir: str

    @property
    def docker(self) -> bool:
        """Whether the engine runs in a container."""
        return self.rig.engine.runtime is RuntimeKind.DOCKER

    @property
    def uses_cards(self) -> bool:
        """Whether the engine needs a card at all."""
        return self.spec.container is None or self.spec.container.gpus != "none"

    @property
    def ranks(self) -> int:
        """Cards that the engine spreads over."""
        found = self.rig.engine.arguments
        pipeline = found.extra.get("pipeline-parallel-size", found.extra.get("pipeline_parallel_size", 1))
        return (found.tensor_parallel_size or 1) * (pipeline if isinstance(pipeline, int) else 1)

    @property
    def environment(self) -> Mapping[str, str]:
        """The engine's variables that are no secrets."""
        return dict(self.spec.environment)

    @property
    def shm_gib(self) -> float | None:
        """Size of the container's own /dev/shm; None: the host's is used."""
        container = self.rig.engine.docker
        if container is None or container.ipc == "host":
            return None
        return parse_size(container.shm_size) / 2**30 if container.shm_size is not None else 0.0625

    @property
    def hub_cache(self) -> str | None:
        """Folder of the host where models are downloaded to; None where the model is a folder of its own."""
        if self.model_folder is not None or self.rig.engine.model.startswith("/"):
            return None
        if self.spec.container is not None:
            found = (one.source for one in self.spec.container.mounts if one.target.endswith(HUB_TARGET))
            return next(found, None)
        given = self.environment.get("HF_HUB_CACHE") or self.environment.get("HF_HOME")
        return given or f"{self.home}/.cache/huggingface"

    @property
    def model_folder(self) -> str | None:
        """Folder of the host where the model lies, where the rig file names one."""
        model = self.spec.model
        if not model.startswith("/"):
            return None
        if self.spec.container is None:
            return model
        for mount in self.spec.container.mounts:
            if model == mount.target or model.startswith(mount.target.rstrip("/") + "/"):
                return mount.source + model[len(mount.target.rstrip("/")) :]
        return None

    @property
    def vllm_caches(self) -> tuple[str, ...]:
        """Folders of the host where vLLM keeps what it found out about the cards."""
        if self.spec.container is not None:
            return tuple(one.source for one in self.spec.container.mounts if one.target.endswith(VLLM_TARGET))
        given = self.environment.get("VLLM_CACHE_ROOT")
        return (given or f"{self.home}/.cache/vllm",)


def questions(wish: Wish | None) -> dict[str, Any]:
    """Return what the gatherers are to look at."""
    asked: dict[str, Any] = {"user": SERVICE_USER, "paths": [*ALWAYS]}
    if wish is None:
        return asked
    mounts = () if wish.spec.container is None else wish.spec.container.mounts
    named = (*(one.source for one in mounts), wish.hub_cache, wish.model_folder, wish.state_dir)
    asked["paths"] += [path for path in named if path]
    asked["vllm_caches"] = list(wish.vllm_caches)
    if wish.spec.container is not None:
        asked["image"] = wish.spec.container.image
    else:
        process = wish.rig.engine.process
        asked["executable"] = "vllm" if process is None else process.executable[0]
        asked["path"] = wish.environment.get("PATH")
    return asked


def home_of_engine(rig: Path, *, own: str) -> str:
    """Return the home that `~` of a rig file means: that of the service for its own file, else of whoever asks."""
    return f"/var/lib/{SERVICE_USER}" if re.match(r"/etc/rigd(/|$)", str(rig)) else own
