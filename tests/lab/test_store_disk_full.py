"""The store on a disk that is really full."""

import os
import subprocess

import pytest

from rigd.adapters.store import Store

pytestmark = pytest.mark.lab


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("not root here: `sudo` runs the test that mounts a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder):
    """Leave no byte free; return the file to remove."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 512):
                pass
        except OSError:
            return ballast


async def test_a_full_disk_is_said_and_made_up_for_once_there_is_room(small_disk):
    store = await Store.open(small_disk / "rigd.db")
    await store.append_events([(1.0, "k", "before", None)])
    ballast = fill(small_disk)

    written = [await store.append_events([(2.0, "k", "x" * 5_000, None)]) for _ in range(20)]
    await store.save_status("latest")

    assert not written[-1]
    assert "disk is full" in store.problem
    assert await store.load_status() == "latest"
    assert len(await store.events()) == 21

    ballast.unlink()
    assert await store.flush()

    assert store.problem is None
    await store.close()
    again = await Store.open(small_disk / "rigd.db")
    assert again.recovered_from is None
    assert len(await again.events()) == 21
    assert await again.load_status() == "latest"
    await again.close()


async def test_a_store_is_read_on_a_full_disk(small_disk):
    store = await Store.open(small_disk / "rigd.db")
    await store.save_status("ready")
    await store.close()
    fill(small_disk)

    again = await Store.open(small_disk / "rigd.db")

    assert again.recovered_from is None
    assert await again.load_status() == "ready"
    assert again.problem is None or "disk is full" in again.problem
    await again.close()


async def test_a_store_begun_on_a_full_disk_goes_on_in_memory(small_disk):
    ballast = fill(small_disk)
    store = await Store.open(small_disk / "rigd.db")

    assert not await store.save_status("in memory")
    assert store.problem is not None
    assert await store.next_start() == 1

    ballast.unlink()
    assert await store.flush()

    assert store.problem is None
    await store.close()
