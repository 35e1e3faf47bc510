"""A rig's engine section becomes a launch specification, everything spelled out. Pure.

Nothing is added that the rig does not say, except what addresses the engine: `--host`, `--port`,
`--served-model-name`; and `VLLM_API_KEY`, as a reference, where the rig has an `api_key`.
"""

import os.path
from pathlib import Path

from rigd.engine.arguments import engine_arguments, flag_name
from rigd.engine.spec import ContainerSpec, LaunchSpec, MountSpec
from rigd.engine.versions import ATTENTION_VARIABLE, knows, version_findings
from rigd.errors import UsageError
from rigd.rig.findings import Finding, errors
from rigd.rig.schema import Docker, Engine, Process, Rig, RuntimeKind, SecretRef
from rigd.rig.sizes import parse_size

API_KEY_VARIABLE = "VLLM_API_KEY"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104  (inside a container's own network; the host's side is published on one address)


class UnknownToVersionError(UsageError):
    """The rig asks its version of vLLM for something that this version does not know."""

    def __init__(self, version: str, findings: tuple[Finding, ...]) -> None:
        """Say every such setting."""
        super().__init__(
            f"cannot launch vLLM {version} with this rig: " + "; ".join(map(str, findings)),
            hint="change the setting or engine.version in the rig file",
        )
        self.findings = findings


def launch_spec(rig: Rig, *, rig_folder: Path, home: Path) -> LaunchSpec:
    """Return what to launch for `rig`; paths are resolved against the rig file's folder and `home`.

    Raises `UnknownToVersionError` for settings that the rig's version of vLLM does not know.
    """
    if wrong := errors(version_findings(rig)):
        raise UnknownToVersionError(rig.engine.version, wrong)
    engine = rig.engine
    places = _Places(rig_folder, home)
    environment, secrets = _environment(engine, places)
    docker = engine.docker if engine.runtime is RuntimeKind.DOCKER else None
    process = engine.process or Process()
    model = engine.model if docker is not None else places.model(engine.model)
    served = engine.served_model_name or model
    bridge = docker is not None and docker.network == "bridge"
    host, port = (ANY_ADDRESS, docker.container_port) if bridge and docker else (engine.host, engine.port)
    address = ("--host", host, "--port", str(port), "--served-model-name", served)
    following = (model, *address, *_with_attention(engine))
    return LaunchSpec(
        rig=rig.name,
        runtime=engine.runtime,
        version=engine.version,
        model=model,
        served_model_name=served,
        argv=following if docker is not None else (*places.command(process.executable), *following),
        environment=environment,
        secrets=secrets,
        host=engine.host,
        port=engine.port,
        api_key=places.secret(engine.api_key) if engine.api_key is not None else None,
        container=_container(docker, places) if docker is not None else None,
        working_directory=_optional_path(process.working_directory, places) if docker is None else None,
        inherit_environment=() if docker is not None else tuple(sorted(set(process.inherit_environment))),
    )


class _Places:
    """Turns the paths of a rig file into absolute ones."""

    def __init__(self, rig_folder: Path, home: Path) -> None:
        self._rig_folder = rig_folder
        self._home = home

    def path(self, text: str) -> str:
        """Return an absolute path: `~` is home, anything relative begins at the rig file's folder."""
        if text == "~" or text.startswith("~/"):
            return os.path.normpath(self._home / text[2:])
        return os.path.normpath(self._rig_folder / text)

    def model(self, text: str) -> str:
        """Return a model of a bare process: a path if it is written as one, else the Hugging Face id."""
        return self.path(text) if text.startswith(("~/", "./", "../", "/")) else text

    def command(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return a command whose program is absolute, unless it is a bare name to be found on PATH."""
        program, *rest = words
        return (self.path(program) if "/" in program else program, *rest)

    def secret(self, ref: SecretRef) -> SecretRef:
        """Return a reference whose file, if it is one, is absolute."""
        return ref if ref.file is None else SecretRef(file=self.path(ref.file))


def _optional_path(text: str | None, places: _Places) -> str | None:
    return None if text is None else places.path(text)


def _environment(
    engine: Engine, places: _Places
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, SecretRef], ...]]:
    """Return plain variables and secret ones, each sorted by name."""
    plain = {name: value for name, value in engine.environment.items() if isinstance(value, str)}
    secret = {
        name: places.secret(value)
        for name, value in engine.environment.items()
        if isinstance(value, SecretRef)
    }
    if engine.api_key is not None:
        secret[API_KEY_VARIABLE] = places.secret(engine.api_key)
    if not knows(engine.version, ATTENTION_VARIABLE):
        plain.pop(ATTENTION_VARIABLE, None)
    backend = engine.arguments.attention_backend
    if backend is not None and not knows(engine.version, "attention_backend"):
        plain[ATTENTION_VARIABLE] = backend
    return tuple(sorted(plain.items())), tuple(sorted(secret.items(), key=lambda item: item[0]))


def _with_attention(engine: Engine) -> tuple[str, ...]:
    """Return the settings; a variable that this version no longer reads becomes its flag."""
    argv = engine_arguments(engine)
    named = engine.environment.get(ATTENTION_VARIABLE)
    flag = flag_name("attention_backend")
    if isinstance(named, str) and flag not in argv and not knows(engine.version, ATTENTION_VARIABLE):
        return (*argv, flag, named)
    return argv


def _container(docker: Docker, places: _Places) -> ContainerSpec:
    return ContainerSpec(
        image=docker.image,
        name=docker.container,
        entrypoint=docker.entrypoint,
        mounts=tuple(
            MountSpec(
                source=places.path(mount.source),
                target=mount.target,
                read_only=mount.read_only,
                create=mount.create,
            )
            for mount in docker.mounts
        ),
        gpus=docker.gpus,
        gpu_injection=docker.gpu_injection,
        shm_size=None if docker.shm_size is None else parse_size(docker.shm_size),
        ipc=docker.ipc,
        network=docker.network,
        container_port=docker.container_port,
        ulimits=tuple(sorted((name, limit.soft, limit.hard) for name, limit in docker.ulimits.items())),
        memory=None if docker.memory is None else parse_size(docker.memory),
        pids_limit=docker.pids_limit,
        pull=docker.pull,
        user=docker.user,
    )
