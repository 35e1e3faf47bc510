"""How the lab is installed, and what the tests do where a part of it is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import install
import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(monkeypatch):
    """Replace the parts by ones that only write down that they were made."""
    order = []

    def part(name, *needs, fails=False):
        def make(folder):
            order.append(name)
            if fails:
                raise install.LabError(f"{name}: cannot be had here")
            (folder / name).touch()

        return install.Part(install=make, needs=needs, files=(name,))

    parts = {
        "vllm": part("vllm"),
        "models": part("models", "vllm"),
        "docker": part("docker", fails=True),
        "image": part("image", "docker"),
    }
    monkeypatch.setattr(install, "PARTS", parts)
    monkeypatch.setattr(install, "KEYS", dict.fromkeys(parts, "1"))
    return order


def test_what_a_part_needs_is_made_before_it(made, tmp_path):
    assert install.bring_all(["models"], tmp_path) == []

    assert made == ["vllm", "models"]
    assert install.installed("models", tmp_path)


def test_a_second_run_does_nothing(made, tmp_path):
    install.bring_all(["models"], tmp_path)
    install.bring_all(["models"], tmp_path)

    assert made == ["vllm", "models"]


def test_a_part_that_cannot_be_had_stops_only_what_needs_it(made, tmp_path):
    failures = install.bring_all(["image", "models"], tmp_path)

    assert failures == ["docker: cannot be had here"]
    assert sorted(made) == ["docker", "models", "vllm"]
    assert not install.installed("image", tmp_path)


@pytest.mark.parametrize(
    "marker",
    [
        pytest.param(None, id="killed-before-its-end"),
        pytest.param("{", id="marker-cut-off"),
        pytest.param(json.dumps({"key": "0"}), id="of-another-version"),
    ],
)
def test_a_part_that_is_not_whole_is_made_again(made, tmp_path, marker):
    (tmp_path / "vllm").touch()
    if marker is not None:
        (tmp_path / "vllm.json").write_text(marker)

    assert not install.installed("vllm", tmp_path)
    install.bring_all(["vllm"], tmp_path)

    assert made == ["vllm"]


def test_files_that_were_deleted_are_missed(made, tmp_path):
    install.bring_all(["vllm"], tmp_path)
    (tmp_path / "vllm").unlink()

    assert not install.installed("vllm", tmp_path)


def run_box_test_without_a_lab(tmp_path, *, required):
    environ = os.environ | {"RIGD_LAB": str(tmp_path), "RIGD_LAB_REQUIRED": required}
    one = ["tests/lab/test_systemd.py", "-k", "hardened"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *one], cwd=PROJECT, env=environ,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_a_missing_part_is_a_skip_that_names_the_command(tmp_path):
    done = run_box_test_without_a_lab(tmp_path, required="")

    assert done.returncode == 0
    assert "no box here: `python tests/lab/install.py box` brings it" in done.stdout


def test_a_missing_part_is_an_error_where_the_lab_is_required(tmp_path):
    done = run_box_test_without_a_lab(tmp_path, required="1")

    assert done.returncode == 1
    assert "no box here" in done.stdout


def test_a_skipped_test_fails_the_run_where_the_lab_is_required(tmp_path):
    (tmp_path / "conftest.py").write_text((PROJECT / "tests/conftest.py").read_text())
    (tmp_path / "lab").symlink_to(PROJECT / "tests/lab")
    (tmp_path / "test_one.py").write_text(
        "import pytest\n\n\ndef test_one():\n    pytest.skip('no reason')\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        "test_one.py",
    ]
    environ = os.environ | {"RIGD_LAB_REQUIRED": "1"}

    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1
    assert "1 skipped with RIGD_LAB_REQUIRED=1" in done.stdout
