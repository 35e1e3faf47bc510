"""The unit on a machine of its own: installed, started, watched, restarted, killed; the engine outlives it all."""

import json
from pathlib import Path

import httpx
import pytest
from box import BoxError, free_port

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PROJECT = Path(__file__).resolve().parents[2]
UNITS = PROJECT / "systemd"
INSTALLED = {
    "/etc/systemd/system/rigd.service": "rigd.service",
    "/etc/sysusers.d/rigd.conf": "sysusers.d/rigd.conf",
    "/etc/tmpfiles.d/rigd.conf": "tmpfiles.d/rigd.conf",
}
READY_S = 90
EXPOSURE = 41
"""Tenths of a point in `systemd-analyze security`; the comment in the unit says what the rest is good for."""
SECRET = "sk-box-4711"
RIG = """
name: box
engine:
  runtime: process
  version: 0.32.0
  model: /srv/models/double
  served_model_name: double
  port: {port}
  api_key: {{credential: vllm_api_key}}
  arguments: {{tensor_parallel_size: 2, max_model_len: 8192, enable_prefix_caching: true}}
  process:
    executable: [/opt/rigd/bin/python, -m, rigd.sim, --sim-profile, fast]
supervision:
  probe_interval_s: 0.5
  stop_grace_s: 2
gates:
  disk_free_gib: 0.1
"""
DOCKER_RIG = """
name: strict
engine:
  runtime: docker
  version: 0.32.0
  model: some/model
  docker: {image: "vllm/vllm-openai:v0.32.0", container: strict}
"""


@pytest.fixture(scope="module")
def engine_port():
    return free_port()


@pytest.fixture(scope="module")
def box(nspawn_box, wheel, engine_port):
    """Install rigd in the box as a person would, start it, and wait until its engine serves."""
    box = nspawn_box
    box.put(f"/root/{wheel.name}", wheel)
    box.run(f"/opt/rigd/bin/pip install -q --no-deps --no-index /root/{wheel.name}", timeout_s=120)
    for inside, unit in INSTALLED.items():
        box.put(inside, UNITS / unit)
    box.run("systemd-sysusers && systemd-tmpfiles --create rigd.conf")
    box.put("/etc/rigd/rig.yaml", RIG.format(port=engine_port))
    box.put("/etc/credstore/vllm_api_key", SECRET + "\n", mode=0o600)
    box.run("systemctl daemon-reload && systemctl enable --now rigd", timeout_s=90)
    wait_for(box, "ready")
    return box


def status(box):
    return json.loads(box.run("/opt/rigd/bin/rigd status --json"))


def wait_for(box, state):
    try:
        box.run(f"/opt/rigd/bin/rigd wait {state} --timeout {READY_S}", timeout_s=READY_S + 20)
    except BoxError as error:
        raise AssertionError(f"{error}\n{box.run('journalctl -u rigd -o cat -n 40', check=False)}") from error


def unit(box, *names):
    """Return properties of the unit as systemd tells them."""
    lines = box.run(f"systemctl show rigd -p {','.join(names)}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def daemon_pid(box):
    return int(unit(box, "MainPID")["MainPID"])


def wait_for_new_daemon(box, old_pid, block_until):
    """Wait until another daemon is ready and answers; return its pid."""

    def renewed():
        now = unit(box, "MainPID", "ActiveState")
        return (
            now["ActiveState"] == "active" and int(now["MainPID"]) not in (0, old_pid) and int(now["MainPID"])
        )

    pid = block_until(renewed, 30)
    wait_for(box, "ready")
    return pid


# --- the files ---


@pytest.mark.parametrize("drop_in", [False, True], ids=["the-unit", "docker-only"])
def test_systemd_finds_nothing_wrong_with_the_unit(box, drop_in):
    folder = "/etc/systemd/system/rigd.service.d"
    if drop_in:
        box.put(f"{folder}/docker-only.conf", UNITS / "rigd.service.d/docker-only.conf")
    try:
        said = box.run("systemd-analyze verify /etc/systemd/system/rigd.service")
    finally:
        box.run(f"rm -rf {folder}")

    assert said == ""


def test_the_unit_is_hardened(box):
    box.run(
        f"systemd-analyze security --offline=true --threshold={EXPOSURE} /etc/systemd/system/rigd.service"
    )


# --- the service ---


def test_the_daemon_serves_as_its_own_user_without_capabilities(box):
    pid = daemon_pid(box)
    lines = box.run(f"cat /proc/{pid}/status").splitlines()
    fields = dict(line.split(":", 1) for line in lines)

    assert fields["Uid"].split() == [box.run("id -u rigd").strip()] * 4
    assert int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert status(box)["daemon"]["pid"] == pid


def test_systemd_is_told_how_it_stands(box, block_until):
    told = unit(box, "Result", "NRestarts", "WatchdogUSec")

    assert block_until(lambda: "ready" in unit(box, "StatusText")["StatusText"].lower(), 15)
    assert (told["Result"], told["NRestarts"], told["WatchdogUSec"]) == ("success", "0", "30s")


def test_the_watchdog_is_fed(box, block_until):
    first = unit(box, "WatchdogTimestampMonotonic")

    assert block_until(lambda: unit(box, "WatchdogTimestampMonotonic") != first, 25)


def test_files_are_private_and_the_socket_is_for_the_group(box):
    modes = box.run("stat -c '%a %U:%G %n' /run/rigd /run/rigd/rigd.sock /var/lib/rigd /var/lib/rigd/rigd.db")

    assert modes.splitlines() == [
        "750 rigd:rigd /run/rigd",
        "660 rigd:rigd /run/rigd/rigd.sock",
        "700 rigd:rigd /var/lib/rigd",
        "600 rigd:rigd /var/lib/rigd/rigd.db",
    ]


def test_the_credential_reaches_the_engine_and_shows_nowhere(box, engine_port):
    models = f"http://127.0.0.1:{engine_port}/v1/models"  # The box shares this machine's network.

    assert httpx.get(models).status_code == 401
    assert httpx.get(models, headers={"authorization": f"Bearer {SECRET}"}).status_code == 200
    assert SECRET not in box.run("ps axww -o args")
    assert SECRET not in box.run("journalctl -u rigd -o cat")
    assert SECRET not in box.run("grep -rs . /var/lib/rigd/starts || true")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("systemctl restart rigd", id="restart"),
        pytest.param("systemctl stop rigd; systemctl start rigd", id="stop-and-start"),
        pytest.param("systemctl kill -s KILL --kill-whom=main rigd", id="kill"),
        pytest.param("systemctl kill -s TERM --kill-whom=main rigd", id="term-by-hand"),
    ],
)
def test_the_engine_outlives_the_daemon(box, end, block_until):
    engine, daemon = status(box)["engine"], daemon_pid(box)

    box.run(end)
    renewed = wait_for_new_daemon(box, daemon, block_until)

    after = status(box)
    assert after["engine"] == engine
    assert after["daemon"]["pid"] == renewed
    assert box.run(f"cat /proc/{engine['pid']}/comm")


def test_a_daemon_that_stands_still_is_begun_anew_and_finds_its_engine(box, block_until):
    box.run(
        "mkdir -p /run/systemd/system/rigd.service.d &&"
        " printf '[Service]\nWatchdogSec=3\n' >/run/systemd/system/rigd.service.d/soon.conf &&"
        " systemctl daemon-reload && systemctl restart rigd"
    )
    wait_for(box, "ready")
    engine, daemon = status(box)["engine"], daemon_pid(box)

    box.run(f"kill -STOP {daemon}")
    wait_for_new_daemon(box, daemon, block_until)

    assert status(box)["engine"] == engine
    assert "watchdog" in box.run("journalctl -u rigd -o cat -n 200").lower()
    box.run("rm -r /run/systemd/system/rigd.service.d && systemctl daemon-reload && systemctl restart rigd")
    wait_for(box, "ready")


def test_an_engine_that_dies_is_replaced(box, block_until):
    before = status(box)["engine"]

    box.run(f"kill -KILL {before['pid']}")
    block_until(lambda: (status(box)["engine"] or before)["pid"] != before["pid"], 30)
    wait_for(box, "ready")

    assert status(box)["engine"]["start"] > before["start"]


def test_a_wrong_rig_file_is_said_once_and_not_tried_for_ever(box, block_until):
    good = box.run("cat /etc/rigd/rig.yaml")
    box.put("/etc/rigd/rig.yaml", "name: box\nengin: {}\n")
    try:
        box.run("systemctl restart rigd", check=False)

        block_until(lambda: unit(box, "ActiveState")["ActiveState"] == "failed", 20)
        assert unit(box, "ExecMainStatus")["ExecMainStatus"] == "2"
        assert "engin" in box.run("journalctl -u rigd -o cat -n 20")
    finally:
        box.put("/etc/rigd/rig.yaml", good)
        box.run("systemctl restart rigd")
    wait_for(box, "ready")


def test_the_stricter_unit_for_docker_lets_the_daemon_run(box):
    good = box.run("cat /etc/rigd/rig.yaml")
    box.run(
        "/opt/rigd/bin/rigd stop"
    )  # Under that unit an engine of the process runtime would hold up its end.
    box.put("/etc/rigd/rig.yaml", DOCKER_RIG)
    folder = "/etc/systemd/system/rigd.service.d"
    box.put(f"{folder}/docker-only.conf", UNITS / "rigd.service.d/docker-only.conf")
    try:
        box.run("systemctl daemon-reload && systemctl restart rigd")

        assert status(box)["configuration"]["path"] == "/etc/rigd/rig.yaml"
        assert "Docker" in box.run("/opt/rigd/bin/rigd status")  # There is none in this box.
        assert unit(box, "KillMode")["KillMode"] == "mixed"
    finally:
        box.run(f"rm -r {folder}")
        box.put("/etc/rigd/rig.yaml", good)
        box.run("systemctl daemon-reload && systemctl restart rigd && /opt/rigd/bin/rigd start")
    wait_for(box, "ready")
