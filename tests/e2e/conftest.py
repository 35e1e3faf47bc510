"""Makes rigs for the tests of this folder, and removes them."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from box import free_port
from driver import RigUnderTest, environment
from rigs import double_settings, vllm_settings

Maker = Callable[..., RigUnderTest]


@pytest.fixture(scope="module")
def make_rig(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Make rigs; each is stopped and removed after the module's tests."""
    made: list[RigUnderTest] = []

    def make(kind: tuple[str, str]) -> RigUnderTest:
        engine, runtime = kind
        folder = Path(tempfile.mkdtemp(prefix="rigd-"))
        port = free_port()
        double = engine == "double"
        settings = (
            double_settings(request, runtime, folder, port)
            if double
            else vllm_settings(request, runtime, port)
        )
        rules = settings["supervision"]
        under_test = RigUnderTest(
            folder=folder,
            settings=settings,
            environ=environment(folder),
            stall_s=rules["stall_deadline_s"],
            boot_s=30 if double else 180,
            faults=folder / "faults.json" if double else None,
        )
        made.append(under_test)
        return under_test

    yield make
    for under_test in made:
        under_test.close()
        shutil.rmtree(under_test.folder, ignore_errors=True)
