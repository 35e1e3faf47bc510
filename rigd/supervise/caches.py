"""Where an engine keeps what it can make or fetch again: caches by name, as folders of this host. Pure.

A bare process uses the folders that its environment names. A container sees paths of its own; what of them lies in
a writable mount is on this host, the rest ends with the container, and every start has a new one.

How to add one: a row in `CACHES`.
"""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from rigd.engine.spec import LaunchSpec, MountSpec

CONTAINER_HOME = "/root"
DOWNLOAD = "hf_download"
"""What Hugging Face's library has fetched of the model."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cache on this host. `pattern` is the name of what is moved, within `folder`, which always stays."""

    folder: str
    pattern: str
    mount_root: bool = False
    """Whether what is moved is a mount's own source: an empty folder has to take its place."""


@dataclass(frozen=True, kw_only=True)
class NoPlace:
    """There is nothing that could be moved, and why."""

    why: str


Variables = Mapping[str, str]


def _xdg(variables: Variables) -> str:
    return variables.get("XDG_CACHE_HOME") or posixpath.join(variables["HOME"], ".cache")


def _vllm(variables: Variables) -> str:
    return variables.get("VLLM_CACHE_ROOT") or posixpath.join(_xdg(variables), "vllm")


def _compile(variables: Variables, _model: str) -> str:
    return posixpath.join(_vllm(variables), "torch_compile_cache")


def _p2p(variables: Variables, _model: str) -> str:
    return posixpath.join(_vllm(variables), "gpu_p2p_access_cache_for_*.json")


def _triton(variables: Variables, _model: str) -> str:
    home = variables.get("TRITON_HOME") or variables["HOME"]
    return variables.get("TRITON_CACHE_DIR") or posixpath.join(home, ".triton", "cache")


def _flashinfer(variables: Variables, _model: str) -> str:
    base = variables.get("FLASHINFER_WORKSPACE_BASE") or variables["HOME"]
    return posixpath.join(base, ".cache", "flashinfer")


def _download(variables: Variables, model: str) -> str:
    home = variables.get("HF_HOME") or posixpath.join(_xdg(variables), "huggingface")
    hub = (
        variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE") or posixpath.join(home, "hub")
    )
    return posixpath.join(hub, "models--" + model.replace("/", "--"))


CACHES: Mapping[str, Callable[[Variables, str], str]] = MappingProxyType(
    {
        "compile_cache": _compile,
        "triton_cache": _triton,
        "flashinfer_cache": _flashinfer,
        "p2p_cache": _p2p,
        DOWNLOAD: _download,
    }
)
"""By name: where the engine looks for it, given its variables and its model."""


def place_of(cache: str, spec: LaunchSpec, *, inherited: Variables) -> Place | NoPlace:
    """Return where a cache of this engine lies; `inherited` are the daemon's own variables."""
    if cache == DOWNLOAD and is_folder(spec.model):
        return NoPlace(why=f"the model is a folder of yours ({spec.model}), and no download")
    return _place(cache, spec.model, spec, inherited)


def place_of_download(model: str, spec: LaunchSpec, *, inherited: Variables) -> Place | NoPlace:
    """Return where a download of the engine lies: of its model, or of another that it needs."""
    return _place(DOWNLOAD, model, spec, inherited)


def is_folder(model: str) -> bool:
    """Whether a model is named by its folder, and not by what Hugging Face calls it."""
    return model.startswith(("/", ".", "~"))


def _place(cache: str, model: str, spec: LaunchSpec, inherited: Variables) -> Place | NoPlace:
    own = {name: value for name, value in inherited.items() if name in spec.inherit_environment}
    if spec.container is not None:
        own = {"HOME": CONTAINER_HOME}
    variables = {"HOME": inherited.get("HOME", CONTAINER_HOME), **own, **dict(spec.environment)}
    path = CACHES[cache](variables, model)
    path = posixpath.normpath(variables["HOME"] + path[1:] if path.startswith("~/") else path)
    if not path.startswith("/") or PurePosixPath(variables["HOME"]).is_relative_to(path):
        return NoPlace(why=f"{path} is no folder of its own")
    if spec.container is None:
        return _split(path)
    return _on_host(path, spec.container.mounts)


def _on_host(path: str, mounts: tuple[MountSpec, ...]) -> Place | NoPlace:
    inside = [mount for mount in mounts if PurePosixPath(path).is_relative_to(mount.target)]
    if not inside:
        return NoPlace(why="it lies in the container itself, and every start has a new one")
    mount = max(inside, key=lambda one: len(one.target))
    if mount.read_only:
        return NoPlace(why=f"it lies in {mount.source}, which the container may only read")
    rest = PurePosixPath(path).relative_to(mount.target)
    place = _split(posixpath.normpath(posixpath.join(mount.source, str(rest))))
    return Place(folder=place.folder, pattern=place.pattern, mount_root=str(rest) == ".")


def _split(path: str) -> Place:
    return Place(folder=posixpath.dirname(path), pattern=posixpath.basename(path))
