"""Fixtures of the lab tests beside those of `tests/conftest.py`."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import install
import pytest
from box import Box, lab_box

from rigd.provision.wheel import own_wheel


@pytest.fixture(scope="module")
def nspawn_box(need_parts) -> Iterator[Box]:
    """Boot a Debian with systemd and sshd of its own; give its ssh target, `run()` and `put()`."""
    need_parts("box")
    with lab_box() as box:
        yield box


@pytest.fixture(scope="session")
def own_wheel_kept(tmp_path_factory) -> Path:
    """Give rigd as a wheel, as it was when the tests began: a file of the project may change meanwhile."""
    made = own_wheel()
    kept = tmp_path_factory.mktemp("wheel") / made.name
    shutil.copy(made, kept)
    return kept


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """Give rigd as the wheel that pip makes of the project."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(folder),
        str(install.PROJECT),
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("rigd-*.whl"))
