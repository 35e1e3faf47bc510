"""Drift on a machine of its own: root's one-shot under systemd, the daemon without root, the doctor over ssh."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from box import BoxError, free_port

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PROJECT = Path(__file__).resolve().parents[2]
UNITS = PROJECT / "systemd"
NAMES = ("rigd.service", "rigd-provision.socket", "rigd-provision@.service")
SYSTEM = "/etc/systemd/system"
RIG = """
name: box
engine:
  runtime: process
  version: 0.32.0
  model: /srv/models/double
  served_model_name: double
  port: {port}
  arguments: {{tensor_parallel_size: 2, max_model_len: 8192}}
  process:
    executable: [/opt/rigd/bin/python, -m, rigd.sim, --sim-profile, fast]
supervision:
  probe_interval_s: 0.5
  stop_grace_s: 2
gates:
  disk_free_gib: 0.1
  gpu_settle_s: 0
host:
  drift: {{playbook: playbook/site.yml, variables: box.yml, every_s: 3, apply: [mend], idle_s: 1}}
"""
SITE = """
- hosts: all
  become: true
  gather_facts: false
  tasks:
    - {name: mended, copy: {dest: /etc/rigd-mended, content: "{{ word }}", mode: "0600"}, tags: [mend]}
    - {name: kept, copy: {dest: /etc/rigd-kept, content: "{{ word }}", mode: "0600"}}
"""
ASK = """
import socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(60)
peer.connect("/run/rigd-provision.sock")
peer.sendall(sys.argv[1].encode() + b"\\n")
print(peer.makefile().readline().strip())
"""
LEAVE = """
import subprocess, time
until_s = time.monotonic() + 60
while subprocess.run(["pgrep", "-x", "sleep"], stdout=subprocess.DEVNULL).returncode != 0:
    if time.monotonic() > until_s:
        sys.exit("the slow task never began")
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def box(nspawn_box, wheel):
    """Install rigd and its units in the box; the daemon serves the double as user rigd."""
    box = nspawn_box
    port = free_port()
    box.put(f"/root/{wheel.name}", wheel)
    box.run(f"/opt/rigd/bin/pip install -q --no-deps --no-index /root/{wheel.name}", timeout_s=120)
    for name in NAMES:
        box.put(f"{SYSTEM}/{name}", UNITS / name)
    box.put("/etc/sysusers.d/rigd.conf", UNITS / "sysusers.d/rigd.conf")
    box.put("/etc/tmpfiles.d/rigd.conf", UNITS / "tmpfiles.d/rigd.conf")
    box.run("systemd-sysusers && systemd-tmpfiles --create rigd.conf")
    # A box has its boot id from a mount that these settings cover with the machine's own.
    drop_in = (
        "[Service]\nProtectKernelTunables=no\nProtectControlGroups=no\nEnvironment=RIGD_DRIFT_SETTLE_S=1\n"
    )
    box.put(f"{SYSTEM}/rigd.service.d/test.conf", drop_in)
    box.put("/etc/rigd/rig.yaml", RIG.format(port=port))
    box.put("/etc/rigd/box.yml", "word: as it should be\n")
    box.put("/etc/rigd/playbook/site.yml", SITE)
    box.put("/root/ask.py", ASK)
    box.run("chgrp -R rigd /etc/rigd && chmod -R go-w /etc/rigd && chmod 755 /root /root/ask.py")
    well(box)
    box.run("systemctl daemon-reload && systemctl enable --now rigd-provision.socket rigd", timeout_s=90)
    try:
        box.run("/opt/rigd/bin/rigd wait ready --timeout 60", timeout_s=80)
    except BoxError as error:
        raise AssertionError(f"{error}\n{box.run('journalctl -o cat -n 60', check=False)}") from error
    return box


def well(box):
    box.run("umask 077; for name in mended kept; do printf 'as it should be' >/etc/rigd-$name; done")


def drift(box):
    return json.loads(box.run("/opt/rigd/bin/rigd status --json"))["drift"]


def ask(box, user, text):
    return box.run(f"runuser -u {user} -- /usr/bin/python3 /root/ask.py '{text}'", check=False)


@pytest.mark.parametrize("name", ["rigd-provision.socket", "rigd-provision@x.service"])
def test_systemd_finds_nothing_wrong_with_the_units(box, name):
    assert box.run(f"systemd-analyze verify {name}") == ""


def test_the_daemon_without_root_sees_that_all_is_as_it_should_be(box, block_until):
    found = block_until(lambda: drift(box)["checked_s"] and drift(box), 120)

    assert (found["problem"], found["differences"]) == ("", [])
    assert box.run("stat -c '%a %U' /var/lib/rigd-provision").split() == ["700", "root"]


def test_others_may_not_ask(box):
    assert "PermissionError" in ask(box, "nobody", '{"act": "check"}')


def test_what_may_be_mended_is_and_the_rest_is_told(box, block_until):
    box.run("echo by hand >/etc/rigd-mended; echo by hand >/etc/rigd-kept")

    block_until(lambda: box.run("cat /etc/rigd-mended") == "as it should be", 120)

    block_until(lambda: [one["task"] for one in drift(box)["differences"]] == ["kept"], 120)
    assert box.run("cat /etc/rigd-kept").strip() == "by hand"
    told = json.loads(box.run("/opt/rigd/bin/rigd events --json --limit 200"))["events"]
    applied = [one for one in told if one["kind"] == "drift-apply"]
    assert [one["data"]["state"] for one in applied] == ["intended", "done"], applied
    well(box)
    block_until(lambda: not drift(box)["differences"], 120)


def test_root_runs_no_playbook_that_the_daemon_s_user_could_have_written(box, block_until):
    box.run("chown rigd /etc/rigd/playbook/site.yml")
    try:
        block_until(lambda: "does not belong to root" in drift(box)["problem"], 120)
    finally:
        box.run("chown root /etc/rigd/playbook/site.yml")
    assert "chown" in drift(box)["hint"]


def test_an_asker_that_goes_away_ends_the_run(box, block_until):
    box.run("systemctl stop rigd")
    slow = (
        SITE
        + "    - {name: slow, command: sleep 120, tags: [mend]}\n    - {name: late, command: 'true', tags: [mend]}\n"
    )
    box.put("/etc/rigd/playbook/site.yml", slow)
    box.put("/root/leave.py", ASK.split("print(", 1)[0] + LEAVE)

    box.run("""runuser -u rigd -- /usr/bin/python3 /root/leave.py '{"act": "apply"}'""", timeout_s=90)

    block_until(lambda: "stopped before its end" in box.run("journalctl -o cat -t rigd-provision -n 20"), 120)
    assert "late" not in box.run("journalctl -o cat -t rigd-provision -n 20")
    box.put("/etc/rigd/playbook/site.yml", SITE)
    box.run("systemctl start rigd")


def test_after_a_reboot_it_is_looked_again(box, block_until):
    before_s = drift(box)["checked_s"]

    box.run("systemctl reboot", check=False)
    box.boot_again()

    block_until(lambda: box.run("systemctl is-active rigd", check=False).strip() == "active", 120)
    block_until(lambda: drift(box)["this_boot"] and drift(box)["checked_s"] > (before_s or 0), 120)


def test_the_doctor_looks_at_the_box_over_ssh(box, tmp_path):
    (tmp_path / "rig.yaml").write_text(box.run("cat /etc/rigd/rig.yaml"))
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh/config").write_text(
        f"Host box\n  HostName 127.0.0.1\n  Port {box.port}\n  User root\n  IdentityFile {box.key}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "rigd.cli.main", "doctor", str(tmp_path / "rig.yaml"), "--host", "box",
         "--accept-new", "--json"],
        env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    found = {one["id"]: one["severity"] for one in document["findings"]}
    assert document["facts"]["system"]["hostname"] == box.run("hostname").strip()
    assert (found["cards"], found["service"]) == ("error", "ok")
    assert document["facts"]["service"]["units"]["rigd-provision.socket"] == "active"
