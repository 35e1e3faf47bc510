"""A download in the Hugging Face cache: whether it is whole, which of its files are damaged, and what is moved."""

import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rigd.adapters import hub_cache
from rigd.engine.spec import ContainerSpec, LaunchSpec, MountSpec
from rigd.rig.schema import Arguments, Engine, Rig, RuntimeKind, Speculative
from rigd.supervise import downloads, looking
from rigd.supervise.plan import Plan

MODEL, COMMIT = "org/model-7b", "c0ffee"
SPEC = LaunchSpec(
    rig="r",
    runtime=RuntimeKind.PROCESS,
    version="0.32.0",
    model=MODEL,
    served_model_name="m",
    argv=(),
    environment=(),
    secrets=(),
    host="127.0.0.1",
    port=8000,
)
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = {"weight_map": {"a": FIRST, "b": SECOND}}


def tensors(size=4096, fill=b"\1"):
    """Return a safetensors file with one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + fill * size


def whole_model():
    return {
        "config.json": b"{}",
        "tokenizer.json": b'{"model": 1}',
        "model.safetensors.index.json": json.dumps(INDEX).encode(),
        FIRST: tensors(),
        SECOND: tensors(fill=b"\2"),
    }


class Hub:
    """A cache with one model, laid out as Hugging Face's library does."""

    def __init__(self, root, files, model=MODEL):
        self.folder = root / f"models--{model.replace('/', '--')}"
        self.snapshot = self.folder / "snapshots" / COMMIT
        for place in (self.snapshot, self.folder / "blobs", self.folder / "refs"):
            place.mkdir(parents=True)
        (self.folder / "refs/main").write_text(COMMIT)
        for name, content in files.items():
            blob = self.folder / "blobs" / self.checksum(name, content)
            blob.write_bytes(content)
            self.pointer(name).symlink_to(os.path.relpath(blob, self.snapshot))

    @staticmethod
    def checksum(name, content):
        if name.endswith(".safetensors"):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    def pointer(self, name):
        return self.snapshot / name

    def damage(self, name, content=None):
        """Change one byte in the middle of a file, or put other content in its place; return where it lies."""
        blob = self.pointer(name).resolve()
        old = blob.read_bytes()
        blob.write_bytes(old[:-10] + b"!" + old[-9:] if content is None else content)
        return blob


@pytest.fixture
def hub(tmp_path):
    return Hub(tmp_path, whole_model())


def checked(hub, seconds=60.0, **more):
    return hub_cache.check(hub.folder, until_s=time.monotonic() + seconds, **more)


# Whole.


def test_whole_download_lacks_nothing(hub):
    assert hub_cache.lacking(hub.folder) is None


@pytest.mark.parametrize(
    ("gone", "lacks"),
    [
        (SECOND, f"{SECOND} was not fetched"),
        ("config.json", "there is no config.json"),
        ("tokenizer.json", "there is no tokenizer"),
    ],
)
def test_what_a_download_lacks_is_named(hub, gone, lacks):
    hub.pointer(gone).unlink()

    assert hub_cache.lacking(hub.folder) == lacks


def test_link_that_leads_nowhere_is_no_file(hub):
    hub.pointer(FIRST).resolve().unlink()

    assert hub_cache.lacking(hub.folder) == f"{FIRST} was not fetched"


def test_file_that_is_partly_fetched_is_not_whole_until_it_is_there(hub):
    (hub.folder / "blobs/abc.incomplete").write_bytes(b"half")
    assert hub_cache.lacking(hub.folder) == "a file is only partly fetched"

    (hub.folder / "blobs/abc").write_bytes(b"all of it")
    assert hub_cache.lacking(hub.folder) is None


def test_parts_are_counted_where_there_is_no_index(hub):
    hub.pointer("model.safetensors.index.json").unlink()
    assert hub_cache.lacking(hub.folder) is None

    hub.pointer(FIRST).unlink()
    assert hub_cache.lacking(hub.folder) == f"{FIRST} was not fetched"


def test_revision_that_was_never_fetched_is_not_whole(hub):
    assert hub_cache.lacking(hub.folder, COMMIT) is None
    assert "no snapshot of v2" in hub_cache.lacking(hub.folder, "v2")


# Damaged.


def test_good_files_are_all_compared(hub):
    found = checked(hub)

    assert (found.damaged, found.files, found.complete) == ((), 5, True)


def test_changed_byte_is_found_by_the_checksum(hub):
    blob = hub.damage(SECOND)

    (found,) = checked(hub).damaged

    assert (found.name, found.path, found.why) == (SECOND, blob, "its content is not what the hub has")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (tensors()[:-100], "and its header says"),
        (tensors()[:20], "cut off within its header"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git-lfs"),
        (b"<html>502</html>", "does not begin with a header"),
        (b"", "does not begin with a header"),
    ],
    ids=["cut-off", "within-header", "lfs", "error-page", "empty"],
)
def test_file_that_is_cut_off_or_none_is_found_without_reading_the_rest(hub, content, why):
    hub.damage(FIRST, content)

    found = checked(hub, seconds=-1)

    assert [one.name for one in found.damaged] == [FIRST]
    assert why in found.damaged[0].why
    assert not found.complete


def test_small_file_is_compared_as_git_does(hub):
    hub.damage("config.json", b"{ }")

    assert [one.name for one in checked(hub).damaged] == ["config.json"]


def test_file_whose_name_is_no_checksum_proves_nothing(hub):
    blob = hub.pointer(FIRST).resolve()
    hub.pointer(FIRST).unlink()
    blob.rename(hub.pointer(FIRST))

    found = checked(hub)

    assert (found.damaged, found.complete) == ((), False)


def test_progress_names_the_file_and_ends_at_all(hub):
    seen = []

    checked(hub, progress=lambda name, share: seen.append((name, share)))

    assert {name for name, _ in seen} == set(whole_model())
    assert [share for _, share in seen] == sorted(share for _, share in seen)
    assert seen[-1][1] == 1.0


# Moved aside.


def plan(tmp_path, **arguments):
    spec = replace(SPEC, environment=(("HF_HUB_CACHE", str(tmp_path)),))
    engine = Engine(runtime="process", version="0.32.0", model=MODEL, arguments=Arguments(**arguments))
    return Plan(path=Path("rig.yaml"), rig=Rig(name="r", engine=engine), spec=spec)


async def test_only_the_damaged_file_is_moved_and_named(hub, tmp_path):
    blob = hub.damage(SECOND)

    result = await looking.move("hf_download", 7, plan(tmp_path))

    assert result.moved
    assert f"{SECOND} (its content is not what the hub has)" in result.detail
    assert blob.with_name(f"{blob.name}.aside-7").exists()
    assert not hub.pointer(SECOND).is_symlink()
    assert hub.pointer(FIRST).exists()


async def test_move_that_was_interrupted_counts_as_done(hub, tmp_path):
    hub.damage(SECOND)
    await looking.move("hf_download", 7, plan(tmp_path))

    again = await looking.move("hf_download", 7, plan(tmp_path))

    assert (again.moved, "before" in again.detail) == (True, True)
    assert hub.pointer(FIRST).exists()


async def test_download_that_is_as_the_hub_has_it_is_not_fetched_again(hub, tmp_path):
    result = await looking.move("hf_download", 7, plan(tmp_path))

    assert not result.moved
    assert "5 files" in result.finding
    assert "would bring the same" in result.finding
    assert hub.pointer(FIRST).exists()


async def test_download_that_cannot_be_compared_is_moved_whole(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "CHECK_S", -1.0)

    result = await looking.move("hf_download", 7, plan(tmp_path))

    assert result.moved
    assert not hub.folder.exists()
    again = await looking.move("hf_download", 7, plan(tmp_path))
    assert again.moved


async def test_file_that_may_not_be_moved_is_told_with_the_command(hub, tmp_path, monkeypatch):
    def refused(*_args, **_more):
        raise PermissionError(13, "Permission denied")

    blob = hub.damage(SECOND)
    monkeypatch.setattr(downloads, "move_aside", refused)

    result = await looking.move("hf_download", 7, plan(tmp_path))

    assert not result.moved
    assert SECOND in result.finding
    assert f"`sudo rm {blob}`" in result.finding


async def test_download_that_may_not_be_read_is_moved_whole(hub, tmp_path, monkeypatch):
    def refused(*_args, **_more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hub_cache, "check", refused)

    result = await looking.move("hf_download", 7, plan(tmp_path))

    assert (result.moved, hub.folder.exists()) == (True, False)


async def test_check_is_shown_while_it_lasts(hub, tmp_path):
    seen = []

    await looking.move("hf_download", 7, plan(tmp_path), show=lambda name, share: seen.append((name, share)))

    assert seen


# For a start without the network.


async def test_engine_with_whole_downloads_misses_nothing(hub, tmp_path):
    made = plan(tmp_path)

    assert await downloads.missing(made.rig.engine, made.spec) is None


async def test_draft_model_counts_too(hub, tmp_path):
    draft = Speculative(method="eagle3", num_speculative_tokens=3, model="org/draft")
    made = plan(tmp_path, speculative=draft)
    assert "org/draft: there is no snapshot" in await downloads.missing(made.rig.engine, made.spec)

    Hub(tmp_path, {"config.json": b"{}", "model.safetensors": tensors()}, "org/draft")
    assert await downloads.missing(made.rig.engine, made.spec) is None


async def test_revision_of_the_rig_file_is_the_one_that_counts(hub, tmp_path):
    made = plan(tmp_path, extra={"revision": "v2"})

    assert "no snapshot of v2" in await downloads.missing(made.rig.engine, made.spec)


async def test_container_is_known_by_its_mount(hub, tmp_path):
    made = plan(tmp_path)
    mounted = ContainerSpec(
        image="i:1",
        name="c",
        entrypoint=("vllm",),
        mounts=(MountSpec(source=str(tmp_path), target="/hub", read_only=False),),
    )
    spec = replace(SPEC, container=mounted, environment=(("HF_HUB_CACHE", "/hub"),))
    assert await downloads.missing(made.rig.engine, spec) is None

    own = replace(spec, container=replace(mounted, mounts=()))
    assert "in the container itself" in await downloads.missing(made.rig.engine, own)
