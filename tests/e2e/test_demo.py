"""The newcomer's tour, walked for real: a daemon and the engine double as processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rigd import demo

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environ(tmp_path):
    return os.environ | {"PYTHONPATH": str(PROJECT), "TMPDIR": str(tmp_path)}


def processes_of_tours(folder: Path) -> list[str]:
    """Return processes whose command line or working files lie in `folder`."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [" ".join(line) for line in lines if any(str(folder) in word for word in line)]


@pytest.mark.timeout(150)
def test_whole_tour_recovers_everything_and_leaves_nothing(environ, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "rigd.cli", "demo", "--json"],
        env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert len(demo.STEPS) == len(document["steps"])
    assert all(step["noticed_s"] is not None or step["recovered_s"] is not None for step in document["steps"])
    assert (list(tmp_path.iterdir()), processes_of_tours(tmp_path)) == ([], [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_tour_that_is_interrupted_leaves_nothing(environ, tmp_path, number, block_until):
    process = subprocess.Popen(
        [sys.executable, "-m", "rigd.cli", "demo"],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for line in process.stdout:
            if line.startswith("2/"):
                break
        process.send_signal(number)
        _, err = process.communicate(timeout=40)
    finally:
        process.kill()
        process.wait()

    assert (process.returncode, err) == (130, "")
    assert list(tmp_path.iterdir()) == []
    block_until(lambda: not processes_of_tours(tmp_path))


def test_tour_that_goes_wrong_says_where_the_logs_are(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def broken(stage, say):
        raise demo.DemoError("the engine was restarted")

    monkeypatch.setattr(demo, "STEPS", (demo.Step(name="x", about="x", show=broken),))

    with pytest.raises(demo.DemoError, match="broke off") as caught:
        demo.run(lambda _text: None)

    (kept,) = tmp_path.iterdir()
    assert str(kept) in caught.value.hint


def test_rig_file_of_the_tour_is_found():
    assert (demo.configs_folder() / "prompts").is_dir()
