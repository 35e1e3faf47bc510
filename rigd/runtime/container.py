"""From a launch specification to the container that Docker is asked for. Pure but for `write_secrets`."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rigd.adapters.docker import BindMount, Creation, DeviceAsk
from rigd.engine.spec import (
    LABEL_DIGEST,
    LABEL_RIG,
    LABEL_START,
    MARKER_DIGEST,
    MARKER_RIG,
    MARKER_START,
    ContainerSpec,
    LaunchSpec,
)
from rigd.runtime.base import LaunchError

LABEL_CHECK = "rigd.check"
"""Label of the one-shot containers that ask the parser; their value is the rig's name."""
SECRETS_TARGET = "/run/rigd/secrets"
OOM_SCORE = 300
"""The kernel ends the engine before the programs that keep the box reachable."""
# Values reach the engine's environment only, not the container's, which `docker inspect` shows to its whole group.
_WITH_SECRETS = f"""\
for file in {SECRETS_TARGET}/*; do
  IFS= read -r value <"$file" || [ -n "$value" ] || exit 125
  export "${{file##*/}}=$value"
done
unset file value
exec "$@"
"""
_GPU = (("gpu",),)


def creation(spec: LaunchSpec, *, start: int, secrets: Path | None, log_max_bytes: int) -> Creation:
    """Return the engine's container; `secrets` is the folder that holds them, if there are any."""
    container = _described(spec)
    entrypoint, command = container.entrypoint, spec.argv
    mounts = tuple(
        BindMount(source=mount.source, target=mount.target, read_only=mount.read_only)
        for mount in container.mounts
    )
    if secrets is not None:
        mounts = (*mounts, BindMount(source=str(secrets), target=SECRETS_TARGET, read_only=True))
        entrypoint, command = ("/bin/sh",), ("-c", _WITH_SECRETS, "rigd-secrets", *entrypoint, *command)
    bridged = container.network != "host"
    own = {LABEL_RIG: spec.rig, LABEL_DIGEST: spec.digest, LABEL_START: str(start)}
    marks = {MARKER_RIG: spec.rig, MARKER_DIGEST: spec.digest, MARKER_START: str(start)}
    return Creation(
        image=container.image,
        name=container.name,
        entrypoint=entrypoint,
        command=command,
        environment=_gpu_environment(container) | dict(spec.environment) | marks,
        labels=dict(spec.labels) | own,
        mounts=mounts,
        devices=_devices(container),
        runtime="nvidia" if container.gpu_injection == "runtime" and container.gpus != "none" else None,
        shm_size=None if container.ipc == "host" else container.shm_size,
        ipc=container.ipc,
        network=container.network,
        publish=((container.container_port, spec.host.strip("[]"), spec.port),) if bridged else (),
        ulimits=container.ulimits,
        memory=container.memory,
        pids_limit=container.pids_limit,
        user=container.user,
        log_max_bytes=log_max_bytes,
        oom_score=OOM_SCORE,
    )


def probe_creation(spec: LaunchSpec, command: tuple[str, ...]) -> Creation:
    """Return the one-shot container that runs `command` in the same image: no GPU, no network, nothing writable."""
    container = _described(spec)
    return Creation(
        image=container.image,
        name=None,
        entrypoint=command[:1],
        command=command[1:],
        environment=dict(spec.environment),
        labels={LABEL_CHECK: spec.rig},
        mounts=tuple(
            BindMount(source=mount.source, target=mount.target, read_only=True)
            for mount in container.mounts
            if Path(mount.source).exists()
        ),
        network="none",
        user=container.user,
        log_max_bytes=1024 * 1024,
    )


def refuse_missing_sources(spec: LaunchSpec) -> None:
    """Make the caches that may be made; raise for every other mount whose source is not there."""
    for mount in _described(spec).mounts:
        source = Path(mount.source)
        if source.exists():
            continue
        if not mount.create:
            raise LaunchError(
                f"cannot mount {mount.source!r} at {mount.target!r}: there is no such file or folder",
                hint="make it, correct the path in engine.docker.mounts, or set `create: true` there",
            )
        try:
            source.mkdir(parents=True)
        except OSError as error:
            raise LaunchError(
                f"cannot make the folder {mount.source!r} for the mount at {mount.target!r}",
                hint="make it yourself, and give it to the user that the container runs as",
                detail=str(error),
            ) from error


def write_secrets(folder: Path, values: Mapping[str, str], *, user: str | None) -> Path | None:
    """Write each value into a file of its own, readable by the container's user alone; None without values.

    The folder above (0700) keeps everyone else on this host out, so a container whose user is not ours may be
    given files that its own users can read.
    """
    remove_secrets(folder)
    if not values:
        return None
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.parent.chmod(0o700)
    folder.mkdir(mode=0o700)
    owner = _numeric(user)
    if os.geteuid() == 0 and owner is not None:
        os.chown(folder, *owner)
    foreign = user is not None and not (os.geteuid() == 0 and owner is not None)
    for name, value in values.items():
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(value + "\n")
            if os.geteuid() == 0 and owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), 0o444 if foreign else 0o400)
    folder.chmod(0o555 if foreign else 0o500)
    return folder


def remove_secrets(folder: Path) -> None:
    """Remove what `write_secrets` wrote."""
    if folder.is_dir():
        folder.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _described(spec: LaunchSpec) -> ContainerSpec:
    if spec.container is None:
        raise LaunchError(f"cannot make a container for the rig {spec.rig!r}: it describes none")
    return spec.container


def _devices(container: ContainerSpec) -> tuple[DeviceAsk, ...]:
    if container.gpus == "none" or container.gpu_injection == "runtime":
        return ()
    ids = () if isinstance(container.gpus, str) else tuple(str(index) for index in container.gpus)
    if container.gpu_injection == "cdi":
        names = tuple(f"nvidia.com/gpu={one}" for one in ids or ("all",))
        return (DeviceAsk(driver="cdi", device_ids=names),)
    if ids:
        return (DeviceAsk(device_ids=ids, capabilities=_GPU),)
    return (DeviceAsk(count=-1, capabilities=_GPU),)


def _gpu_environment(container: ContainerSpec) -> dict[str, str]:
    """Return what the nvidia runtime reads; a rig's own variables come after and win."""
    if container.gpu_injection != "runtime" or container.gpus == "none":
        return {}
    cards = container.gpus if isinstance(container.gpus, str) else ",".join(map(str, container.gpus))
    return {"NVIDIA_VISIBLE_DEVICES": cards, "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def _numeric(user: str | None) -> tuple[int, int] | None:
    if user is None:
        return None
    uid, _, gid = user.partition(":")
    return (int(uid), int(gid) if gid.isdigit() else int(uid)) if uid.isdigit() else None
