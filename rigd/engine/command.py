"""A launch specification as a person would type it: a shell command, or a compose file. Pure.

Secrets stay references. rigd's own labels are left out: what a person starts by hand is a person's, and rigd
would take it for its own.
"""

import io
import shlex
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString

from rigd.engine.spec import ContainerSpec, LaunchSpec
from rigd.rig.schema import SecretRef

SECRETS_IN_CONTAINER = "/run/secrets"
_KIB = 1024
_UNITS = ((_KIB**3, "g"), (_KIB**2, "m"), (_KIB, "k"))


def shell_command(spec: LaunchSpec) -> str:
    """Return a command to paste: the bare process, or `docker run`. Secrets come from the shell's own variables."""
    lines = _process_lines(spec) if spec.container is None else _docker_lines(spec, spec.container)
    notes = [f"# {name} must be set in this shell: {describe_secret(ref)}" for name, ref in spec.secrets]
    return "\n".join([*notes, " \\\n  ".join(lines)])


def _grouped(argv: tuple[str, ...]) -> list[str]:
    """Return quoted lines: the command and its model, then one line for each flag and its values."""
    lines: list[str] = []
    for word in argv:
        if lines and not word.startswith("--"):
            lines[-1] += " " + shlex.quote(word)
        else:
            lines.append(shlex.quote(word))
    return lines


def describe_secret(ref: SecretRef) -> str:
    """Return in words where a secret is."""
    if ref.env is not None:
        return f"the daemon's environment variable {ref.env}"
    if ref.file is not None:
        return f"the file {ref.file}"
    return f"the systemd credential {ref.credential}"


def _process_lines(spec: LaunchSpec) -> list[str]:
    lines = [] if spec.working_directory is None else [f"cd {shlex.quote(spec.working_directory)} &&"]
    lines += [f"{name}={shlex.quote(value)}" for name, value in spec.environment]
    lines += [f'{name}="${name}"' for name, _ in spec.secrets]
    return lines + _grouped(spec.argv)


def _docker_lines(spec: LaunchSpec, container: ContainerSpec) -> list[str]:
    options: list[tuple[str, str]] = [("--name", container.name), ("--restart", "no")]
    options += [("--label", f"{name}={value}") for name, value in spec.labels]
    options += _gpu_options(container)
    if container.network == "host":
        options.append(("--network", "host"))
    else:
        options.append(("--publish", f"{_bracketed(spec.host)}:{spec.port}:{container.container_port}"))
    options.append(("--ipc", container.ipc))
    for flag, value in (
        ("--shm-size", container.shm_size),
        ("--memory", container.memory),
        ("--pids-limit", container.pids_limit),
        ("--user", container.user),
    ):
        if value is not None:
            options.append((flag, str(value)))
    options += [("--ulimit", f"{name}={soft}:{hard}") for name, soft, hard in container.ulimits]
    options += [("--volume", volume) for volume in _volumes(container)]
    options += [("--env", f"{name}={value}") for name, value in spec.environment]
    options += [("--env", name) for name, _ in spec.secrets]
    options += [("--pull", container.pull), ("--entrypoint", container.entrypoint[0])]
    lines = [f"{flag} {shlex.quote(value)}" for flag, value in options]
    return [
        "docker run --detach",
        *lines,
        *_grouped((container.image, *container.entrypoint[1:], *spec.argv)),
    ]


def _gpu_options(container: ContainerSpec) -> list[tuple[str, str]]:
    if container.gpus == "none":
        return []
    indices = container.gpus if isinstance(container.gpus, tuple) else ()
    if container.gpu_injection == "cdi":
        names = [f"nvidia.com/gpu={index}" for index in indices] or ["nvidia.com/gpu=all"]
        return [("--device", name) for name in names]
    listed = ",".join(map(str, indices)) or "all"
    if container.gpu_injection == "runtime":
        return [("--runtime", "nvidia"), ("--env", f"NVIDIA_VISIBLE_DEVICES={listed}")]
    return [("--gpus", f'"device={listed}"' if indices else "all")]


def _volumes(container: ContainerSpec) -> list[str]:
    return [
        f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "") for mount in container.mounts
    ]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def compose_file(spec: LaunchSpec) -> str:
    """Return a compose file with the same container. Secrets are mounted as files, never in its environment.

    Raises ValueError for a rig whose engine is a bare process.
    """
    if spec.container is None:
        raise ValueError("a bare process has no compose file")
    service = _service(spec, spec.container)
    document: dict[str, Any] = {"name": spec.rig, "services": {"engine": service}}
    if spec.secrets:
        document["secrets"] = {name.lower(): _compose_secret(ref) for name, ref in spec.secrets}
    out = io.StringIO()
    yaml = YAML()
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(document, out)
    return out.getvalue()


def _service(spec: LaunchSpec, container: ContainerSpec) -> dict[str, Any]:
    """Return the one service of the compose file; keys without a value are left out."""
    entrypoint = [_literal(word) for word in container.entrypoint]
    command = [_literal(word) for word in spec.argv]
    if spec.secrets:
        entrypoint, command = _reading_secrets(spec), [*entrypoint, *command]
    network: dict[str, Any] = (
        {"network_mode": "host"}
        if container.network == "host"
        else {"ports": [DoubleQuotedScalarString(
            f"{_bracketed(spec.host)}:{spec.port}:{container.container_port}")]}
    )  # fmt: skip
    service: dict[str, Any] = {
        "image": container.image,
        "container_name": container.name,
        "restart": DoubleQuotedScalarString("no"),
        "pull_policy": container.pull,
        "entrypoint": entrypoint,
        "command": command,
        "environment": {name: _literal(value) for name, value in spec.environment},
        "secrets": [name.lower() for name, _ in spec.secrets],
        **network,
        "volumes": [_literal(volume) for volume in _volumes(container)],
        "shm_size": _size(container.shm_size),
        "ipc": container.ipc,
        "mem_limit": _size(container.memory),
        "pids_limit": container.pids_limit,
        "user": container.user,
        "ulimits": {name: {"soft": soft, "hard": hard} for name, soft, hard in container.ulimits},
        **_compose_gpus(container),
        "labels": {name: _literal(value) for name, value in spec.labels},
        "healthcheck": {"disable": True},
    }
    return {key: value for key, value in service.items() if value not in (None, [], {})}


def _reading_secrets(spec: LaunchSpec) -> list[str]:
    """Return an entrypoint that exports each secret from its file and then becomes the command."""
    exports = " ".join(
        f'{name}="$$(cat {SECRETS_IN_CONTAINER}/{name.lower()})"; export {name};' for name, _ in spec.secrets
    )
    return ["/bin/sh", "-c", f'{exports} exec "$$@"', "sh"]


def _compose_secret(ref: SecretRef) -> dict[str, str]:
    if ref.env is not None:
        return {"environment": ref.env}
    if ref.file is not None:
        return {"file": _literal(ref.file)}
    return {"file": f"/etc/credstore/{ref.credential}"}


def _compose_gpus(container: ContainerSpec) -> dict[str, Any]:
    if container.gpus == "none":
        return {}
    indices = container.gpus if isinstance(container.gpus, tuple) else ()
    if container.gpu_injection == "runtime":
        return {"runtime": "nvidia"}
    if container.gpu_injection == "cdi":
        names = [f"nvidia.com/gpu={index}" for index in indices] or ["nvidia.com/gpu=all"]
        device: dict[str, Any] = {"driver": "cdi", "device_ids": names, "capabilities": ["gpu"]}
    elif indices:
        device = {
            "driver": "nvidia",
            "device_ids": [str(index) for index in indices],
            "capabilities": ["gpu"],
        }
    else:
        device = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _literal(text: str) -> str:
    """Return text that compose does not expand, quoted where some YAML would take it for something else."""
    escaped = text.replace("$", "$$")
    if escaped.lower() in _WORDS or escaped[:1].isdigit():
        return _double_quoted(escaped)
    return _single_quoted(escaped) if '"' in escaped else escaped


def _double_quoted(text: str) -> str:
    quoted: str = DoubleQuotedScalarString(text)
    return quoted


def _single_quoted(text: str) -> str:
    quoted: str = SingleQuotedScalarString(text)
    return quoted


_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n", "~", "")


def _size(size: int | None) -> str | None:
    """Return a size as Docker writes it, in the largest unit that keeps it exact."""
    if size is None:
        return None
    for unit, letter in _UNITS:
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return f"{size}b"
