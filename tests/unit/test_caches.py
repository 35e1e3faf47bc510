"""Where caches lie, and how one is moved aside: names, folders of this host, and what is never touched."""

from dataclasses import replace
from pathlib import Path

import pytest

from rigd.adapters.aside import move_aside
from rigd.engine.spec import ContainerSpec, LaunchSpec, MountSpec
from rigd.rig.schema import Engine, Rig, RuntimeKind
from rigd.supervise import looking
from rigd.supervise.caches import CACHES, NoPlace, Place, place_of
from rigd.supervise.plan import Plan

PROCESS = LaunchSpec(
    rig="r",
    runtime=RuntimeKind.PROCESS,
    version="0.32.0",
    model="org/model-7b",
    served_model_name="m",
    argv=("vllm", "serve", "org/model-7b"),
    environment=(),
    secrets=(),
    host="127.0.0.1",
    port=8000,
    inherit_environment=("HOME",),
)
HOME = {"HOME": "/home/box"}


def container(*mounts, **variables):
    described = ContainerSpec(image="i:1", name="c", entrypoint=("vllm", "serve"), mounts=mounts)
    return replace(
        PROCESS, runtime=RuntimeKind.DOCKER, container=described, environment=tuple(variables.items())
    )


def mount(source, target, *, read_only=False):
    return MountSpec(source=source, target=target, read_only=read_only)


@pytest.mark.parametrize(
    ("cache", "variables", "folder", "name"),
    [
        ("compile_cache", {}, "/home/box/.cache/vllm", "torch_compile_cache"),
        ("compile_cache", {"VLLM_CACHE_ROOT": "/fast/vllm"}, "/fast/vllm", "torch_compile_cache"),
        ("compile_cache", {"VLLM_CACHE_ROOT": "~/v"}, "/home/box/v", "torch_compile_cache"),
        ("compile_cache", {"XDG_CACHE_HOME": "/x"}, "/x/vllm", "torch_compile_cache"),
        ("triton_cache", {}, "/home/box/.triton", "cache"),
        ("triton_cache", {"TRITON_CACHE_DIR": "/t/kernels"}, "/t", "kernels"),
        ("flashinfer_cache", {}, "/home/box/.cache", "flashinfer"),
        ("p2p_cache", {}, "/home/box/.cache/vllm", "gpu_p2p_access_cache_for_*.json"),
        ("hf_download", {}, "/home/box/.cache/huggingface/hub", "models--org--model-7b"),
        ("hf_download", {"HF_HOME": "/hf"}, "/hf/hub", "models--org--model-7b"),
        ("hf_download", {"HF_HUB_CACHE": "/hub"}, "/hub", "models--org--model-7b"),
    ],
)
def test_process_keeps_its_caches_where_its_environment_says(cache, variables, folder, name):
    spec = replace(PROCESS, environment=tuple(variables.items()))

    assert place_of(cache, spec, inherited=HOME) == Place(folder=folder, pattern=name)


def test_container_keeps_its_caches_where_its_mounts_come_from():
    spec = container(mount("/srv/cache", "/root/.cache"), mount("/srv/vllm", "/root/.cache/vllm"))

    assert place_of("compile_cache", spec, inherited=HOME) == Place(
        folder="/srv/vllm", pattern="torch_compile_cache"
    )
    assert place_of("hf_download", spec, inherited=HOME) == Place(
        folder="/srv/cache/huggingface/hub", pattern="models--org--model-7b"
    )


def test_mount_that_is_the_cache_itself_keeps_its_folder():
    place = place_of("triton_cache", container(mount("/srv/triton", "/root/.triton/cache")), inherited=HOME)

    assert place == Place(folder="/srv", pattern="triton", mount_root=True)


@pytest.mark.parametrize(
    ("cache", "spec", "why"),
    [
        ("compile_cache", container(), "every start has a new one"),
        ("compile_cache", container(mount("/s", "/root/.cache", read_only=True)), "only read"),
        ("hf_download", replace(PROCESS, model="/models/mine"), "folder of yours"),
        ("triton_cache", replace(PROCESS, environment=(("TRITON_CACHE_DIR", "/"),)), "no folder of its own"),
        (
            "triton_cache",
            replace(PROCESS, environment=(("TRITON_CACHE_DIR", "/home"),)),
            "no folder of its own",
        ),
        (
            "triton_cache",
            replace(PROCESS, environment=(("TRITON_CACHE_DIR", "rel"),)),
            "no folder of its own",
        ),
    ],
    ids=["in-the-container", "read-only", "own-model", "root", "above-home", "relative"],
)
def test_what_is_no_cache_of_this_host_is_left_alone(cache, spec, why):
    place = place_of(cache, spec, inherited=HOME)

    assert isinstance(place, NoPlace)
    assert why in place.why


def test_every_cache_has_a_place():
    assert all(isinstance(place_of(cache, PROCESS, inherited=HOME), Place) for cache in CACHES)


# Moving.


def plan_of(spec):
    rig = Rig(name="r", engine=Engine(runtime=spec.runtime, version=spec.version, model=spec.model))
    return Plan(path=Path("rig.yaml"), rig=rig, spec=spec)


def filled(folder: Path, size: int = 8192) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_bytes(b"x" * size)
    return folder


def test_cache_is_renamed_and_its_size_told(tmp_path):
    filled(tmp_path / "cache")

    moved = move_aside(tmp_path, "cache", 7)

    assert [path.name for path in moved.paths] == ["cache.aside-7"]
    assert moved.size_bytes >= 8192
    assert [path.name for path in tmp_path.iterdir()] == ["cache.aside-7"]


def test_move_that_was_interrupted_is_found_again_and_not_repeated(tmp_path):
    filled(tmp_path / "cache")
    move_aside(tmp_path, "cache", 7)
    filled(tmp_path / "cache")  # The engine has made a new one since.

    again = move_aside(tmp_path, "cache", 7)

    assert [path.name for path in again.paths] == ["cache.aside-7"]
    assert (tmp_path / "cache/file").exists()


def test_one_old_one_is_kept(tmp_path):
    for stamp in (1, 2, 3):
        filled(tmp_path / "cache")
        move_aside(tmp_path, "cache", stamp)

    assert [path.name for path in tmp_path.iterdir()] == ["cache.aside-3"]


def test_files_of_a_pattern_move_together_and_others_stay(tmp_path):
    for name in ("p2p_for_0.json", "p2p_for_1.json", "mine.json", "p2p_for_0.json.aside-note"):
        (tmp_path / name).write_text("{}")

    moved = move_aside(tmp_path, "p2p_for_*.json", 5)

    assert sorted(path.name for path in moved.paths) == ["p2p_for_0.json.aside-5", "p2p_for_1.json.aside-5"]
    assert (tmp_path / "mine.json").exists()
    assert (tmp_path / "p2p_for_0.json.aside-note").exists()


def test_mounts_own_folder_is_replaced_by_an_empty_one(tmp_path):
    filled(tmp_path / "cache").chmod(0o750)

    move_aside(tmp_path, "cache", 7, leave_empty=True)

    assert list((tmp_path / "cache").iterdir()) == []
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o750


async def test_cache_that_is_not_there_is_said(tmp_path):
    spec = replace(PROCESS, environment=(("VLLM_CACHE_ROOT", str(tmp_path)),))

    result = await looking.move("compile_cache", 7, plan_of(spec))

    assert (result.moved, "there is no" in result.detail) == (False, True)


async def test_what_was_moved_is_told_with_its_size(tmp_path):
    filled(tmp_path / "torch_compile_cache", 1 << 20)
    spec = replace(PROCESS, environment=(("VLLM_CACHE_ROOT", str(tmp_path)),))

    result = await looking.move("compile_cache", 7, plan_of(spec))

    assert result.moved
    assert f"{tmp_path}/torch_compile_cache.aside-7 (1.0 MiB)" in result.detail
