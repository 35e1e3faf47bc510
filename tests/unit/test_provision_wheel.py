"""rigd as a wheel: the files that run, the same bytes each time, and the same from where it was installed."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile

import pytest

from rigd.provision import wheel


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make the wheel in a state folder of its own."""
    monkeypatch.setenv("RIGD_STATE_DIR", str(tmp_path))
    wheel.own_wheel.cache_clear()
    yield wheel.own_wheel()
    wheel.own_wheel.cache_clear()


def test_it_holds_the_package_and_what_lies_beside_it_in_a_clone(made):
    names = set(zipfile.ZipFile(made).namelist())

    assert {"rigd/cli/main.py", "rigd/configs/example.yaml", "rigd/units/rigd.service",
            "rigd/playbooks/site.yml", "rigd/playbooks/tasks/cards.yml"} <= names  # fmt: skip
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]


def test_its_record_is_right_and_it_says_what_it_needs(made):
    archive = zipfile.ZipFile(made)
    information = next(name.split("/")[0] for name in archive.namelist() if name.endswith("/RECORD"))
    for line in archive.read(f"{information}/RECORD").decode().splitlines():
        name, digest, _ = line.split(",")
        if digest:
            seen = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).decode().rstrip("=")
            assert digest == f"sha256={seen}", name

    assert "Requires-Dist: fabric" in archive.read(f"{information}/METADATA").decode()
    assert b"rigd = rigd.cli.main:main" in archive.read(f"{information}/entry_points.txt")


def test_an_installed_rigd_makes_the_same_wheel_again(made, tmp_path):
    """So that a box finds no difference between itself and the laptop that set it up."""
    zipfile.ZipFile(made).extractall(tmp_path / "site")
    program = "from rigd.provision.wheel import own_wheel; p = own_wheel(); print(p); print(p.stat().st_size)"
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "RIGD_STATE_DIR": str(tmp_path / "other")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environ, check=True, capture_output=True, text=True
    )
    path = done.stdout.split()[0]

    assert os.path.basename(path) == made.name  # noqa: PTH119  (a text of another process)
    with open(path, "rb") as other:  # noqa: PTH123
        assert other.read() == made.read_bytes()


def test_only_the_latest_few_stay(tmp_path):
    for number in range(6):
        path = tmp_path / f"rigd-{number}.whl"
        path.touch()
        os.utime(path, (number, number))

    wheel._forget_old(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["rigd-3.whl", "rigd-4.whl", "rigd-5.whl"]
