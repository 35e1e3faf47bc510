"""Rules about the engine's container and its cards. Pure."""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from rigd.rig.findings import Finding, error, warning
from rigd.rig.schema import Docker, Rig, RuntimeKind
from rigd.rig.sizes import parse_size

NCCL_SHM_LEAST = 1024**3
"""Docker gives 64 MiB of /dev/shm, with which NCCL and vLLM's own broadcast fail; 1 GiB has been enough."""
FLOATING_TAGS = ("latest", "nightly", "main", "edge", "stable")


def container_of(rig: Rig) -> Docker | None:
    return rig.engine.docker if rig.engine.runtime is RuntimeKind.DOCKER else None


def image_is_pinned(rig: Rig) -> Iterator[Finding]:
    """Tell of an image that may be another one tomorrow."""
    docker = container_of(rig)
    if docker is None or "@" in docker.image:
        return
    tag = docker.image.rpartition("/")[2].partition(":")[2]
    hint = "name a version (vllm/vllm-openai:v0.32.0) or, better, a digest (...@sha256:...)"
    if not tag:
        yield error("engine.docker.image", f"{docker.image!r} has no tag, which means `latest`", hint)
    elif tag.lower() in FLOATING_TAGS:
        yield error("engine.docker.image", f"the tag {tag!r} floats: it may be another image tomorrow", hint)


def shared_memory_is_enough(rig: Rig) -> Iterator[Finding]:
    """Tell of several ranks with the small /dev/shm that Docker gives by default."""
    docker, ranks = container_of(rig), rig.engine.arguments.tensor_parallel_size or 1
    if docker is None or ranks < 2 or docker.ipc == "host":  # noqa: PLR2004  (two ranks talk to each other)
        return
    if docker.shm_size is None or parse_size(docker.shm_size) < NCCL_SHM_LEAST:
        given = "Docker's 64 MiB" if docker.shm_size is None else str(docker.shm_size)
        yield error(
            "engine.docker.shm_size",
            f"{given} of /dev/shm is too little for {ranks} tensor-parallel ranks (NCCL fails or hangs)",
            "set shm_size: 16gb, or ipc: host",
        )


def cards_are_enough(rig: Rig) -> Iterator[Finding]:
    """Tell of fewer cards than ranks."""
    docker, ranks = container_of(rig), rig.engine.arguments.tensor_parallel_size or 1
    visible = rig.engine.environment.get("CUDA_VISIBLE_DEVICES")
    places: list[tuple[str, tuple[int | str, ...]]] = []
    if docker is not None and isinstance(docker.gpus, tuple):
        places.append(("engine.docker.gpus", docker.gpus))
    if isinstance(visible, str) and visible:
        places.append(("engine.environment.CUDA_VISIBLE_DEVICES", tuple(visible.split(","))))
    for key, cards in places:
        if len(cards) < ranks:
            yield error(
                key,
                f"lists {len(cards)} card(s), but tensor_parallel_size is {ranks}",
                "list as many cards as ranks",
            )
        if len(set(cards)) < len(cards):
            yield error(key, "names a card twice")


def template_is_mounted(rig: Rig) -> Iterator[Finding]:
    """Tell of a chat template that no mount brings into the container."""
    docker, template = container_of(rig), rig.engine.arguments.chat_template
    if docker is None or template is None or not template.startswith("/"):
        return
    path = PurePosixPath(template)
    if not any(path.is_relative_to(mount.target) for mount in docker.mounts):
        yield warning(
            "engine.arguments.chat_template",
            f"{template} is under none of the mounts, so the image itself must have it",
            "add its file to engine.docker.mounts",
        )


def mounts_are_distinct(rig: Rig) -> Iterator[Finding]:
    """Tell of two mounts on one path."""
    docker = container_of(rig)
    targets = Counter(str(PurePosixPath(mount.target)) for mount in docker.mounts) if docker else {}
    for number, mount in enumerate(docker.mounts if docker else ()):
        if targets[str(PurePosixPath(mount.target))] > 1:
            yield error(f"engine.docker.mounts[{number}].target", f"{mount.target} is mounted more than once")


def ulimits_are_ordered(rig: Rig) -> Iterator[Finding]:
    """Tell of a soft limit above its hard one."""
    docker = container_of(rig)
    for name, limit in (docker.ulimits if docker else {}).items():
        if limit.hard != -1 and (limit.soft == -1 or limit.soft > limit.hard):
            yield error(f"engine.docker.ulimits.{name}", "its soft limit is above its hard limit")


def container_port_is_used(rig: Rig) -> Iterator[Finding]:
    """Tell of a container port that host networking ignores."""
    docker = container_of(rig)
    if docker is not None and docker.network == "host" and "container_port" in docker.model_fields_set:
        yield warning(
            "engine.docker.container_port",
            "has no effect with network: host; the engine binds engine.port itself",
            "remove it",
        )
