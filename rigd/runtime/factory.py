"""Make the runtime that a specification asks for; the Docker SDK is loaded only for those that need it."""

from pathlib import Path

from rigd.engine.spec import LaunchSpec
from rigd.rig.schema import RuntimeKind
from rigd.runtime.base import Runtime


def make_runtime(
    rig_name: str,
    kind: RuntimeKind | LaunchSpec,
    *,
    state_dir: Path,
    runtime_dir: Path,
    log_max_mib: float,
) -> Runtime:
    """Return the rig's runtime; `kind` may be given as the specification that says it."""
    wanted = kind.runtime if isinstance(kind, LaunchSpec) else kind
    if wanted is RuntimeKind.DOCKER:
        from rigd.runtime.docker import DockerRuntime  # noqa: PLC0415  (25 MiB that a bare process does not need)

        return DockerRuntime(rig_name, runtime_dir=runtime_dir, state_dir=state_dir, log_max_mib=log_max_mib)
    from rigd.runtime.process import ProcessRuntime  # noqa: PLC0415  (either one, never both)

    return ProcessRuntime(rig_name, runtime_dir=runtime_dir, state_dir=state_dir, log_max_mib=log_max_mib)
