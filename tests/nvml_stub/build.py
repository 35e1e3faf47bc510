"""Compiles the pretended driver."""

import shutil
import subprocess
from pathlib import Path

import pytest


def build(folder: Path) -> Path:
    """Put the pretended `libnvidia-ml.so.1` into a folder and return the folder; skip without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here: `apt-get install gcc` brings it")
    subprocess.run(
        [
            *(compiler, "-shared", "-fPIC", "-Wall", "-Werror"),
            *("-o", folder / "libnvidia-ml.so.1", Path(__file__).with_name("stub.c")),
        ],
        check=True,
        timeout=60,
    )
    return folder
