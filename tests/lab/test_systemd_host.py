"""Root's one-shot on a machine of its own: the daemon has no root, asks on a socket, and nobody else may."""

import json
import time
from pathlib import Path

import pytest
from box import BoxError, free_port
from nvml_stub.build import build

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PROJECT = Path(__file__).resolve().parents[2]
UNITS = PROJECT / "systemd"
NAMES = ("rigd.service", "rigd-host-act.socket", "rigd-host-act@.service", "rigd-gpu-settings.service")
SYSTEM = "/etc/systemd/system"
CARDS = "/var/lib/rigd-cards"
ASKED = "/var/lib/rigd-host/asked"
PRETENDED = f"""[Service]
Environment=LD_LIBRARY_PATH={CARDS} NVML_STUB={CARDS}/cards RIGD_HOST_LOOK_S=1
ReadWritePaths={CARDS}
"""
NVIDIA_SMI = f"""#!/bin/sh
echo "$(id -un) nvidia-smi $*" >>{ASKED}
printf 'limit 0 290000\\nlimit 1 290000\\n' >{CARDS}/cards
"""
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
  backoff: {{initial_s: 0.2, max_s: 1}}
gates:
  disk_free_gib: 0.1
  gpu_settle_s: 0
host:
  gpus: [{{power_limit_w: 290}}]
  allow_gpu_reset: {reset}
  allow_reboot: {reboot}
  most_per_day: {most}
  act_after_s: 2
"""
ASK = """
import json, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(60)
peer.connect("/run/rigd-host.sock")
peer.sendall(sys.argv[1].encode() + b"\\n")
print(peer.makefile().readline().strip())
"""


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def box(nspawn_box, wheel, tmp_path_factory, port):
    """Install rigd, its units and two pretended cards in the box; the daemon serves as user rigd."""
    box = nspawn_box
    box.put(f"/root/{wheel.name}", wheel)
    box.run(f"/opt/rigd/bin/pip install -q --no-deps --no-index /root/{wheel.name}", timeout_s=120)
    for name in NAMES:
        box.put(f"{SYSTEM}/{name}", UNITS / name)
    box.put("/etc/sysusers.d/rigd.conf", UNITS / "sysusers.d/rigd.conf")
    box.put("/etc/tmpfiles.d/rigd.conf", UNITS / "tmpfiles.d/rigd.conf")
    box.run("systemd-sysusers && systemd-tmpfiles --create rigd.conf")
    box.put(f"{CARDS}/libnvidia-ml.so.1", build(tmp_path_factory.mktemp("nvml")) / "libnvidia-ml.so.1")
    box.put(f"{CARDS}/cards", "")
    # A box has its boot id from a mount that these settings cover with the machine's own.
    box.put(
        f"{SYSTEM}/rigd.service.d/boot.conf", "[Service]\nProtectKernelTunables=no\nProtectControlGroups=no\n"
    )
    for name in ("rigd.service", "rigd-host-act@.service", "rigd-gpu-settings.service"):
        box.put(f"{SYSTEM}/{name}.d/cards.conf", PRETENDED)
    box.put("/usr/local/bin/nvidia-smi", NVIDIA_SMI, mode=0o755)
    box.put("/root/ask.py", ASK)
    box.run(f"chmod 755 /root /root/ask.py {CARDS}")
    allow(box, port)
    box.run(
        "systemctl daemon-reload && systemctl enable --now rigd-host-act.socket rigd-gpu-settings rigd",
        timeout_s=90,
    )
    wait_ready(box)
    return box


def allow(box, port, *, reset="true", reboot="false", most=3):
    box.put("/etc/rigd/rig.yaml", RIG.format(port=port, reset=reset, reboot=reboot, most=most))
    box.run("chgrp rigd /etc/rigd /etc/rigd/rig.yaml")


def wait_ready(box):
    try:
        box.run("/opt/rigd/bin/rigd wait ready --timeout 60", timeout_s=80)
    except BoxError as error:
        raise AssertionError(f"{error}\n{box.run('journalctl -o cat -n 60', check=False)}") from error


def status(box):
    return json.loads(box.run("/opt/rigd/bin/rigd status --json"))


def events(box, act):
    told = json.loads(box.run("/opt/rigd/bin/rigd events --json --limit 500"))["events"]
    return [one["data"]["state"] for one in told if one["kind"] == "host-act" and one["data"]["act"] == act]


def ask(box, user, **request):
    until_s = time.monotonic() + 30
    while True:
        said = box.run(
            f"runuser -u {user} -- /usr/bin/python3 /root/ask.py '{json.dumps(request)}'", check=False
        )
        # systemd takes one at a time, and hangs up while the one before is still on its way out.
        if said.strip() or time.monotonic() > until_s:
            return json.loads(said) if said.startswith("{") else said


def asked(box):
    return box.run(f"cat {ASKED} 2>/dev/null || true").splitlines()


@pytest.mark.parametrize(
    "name", ["rigd-host-act.socket", "rigd-host-act@x.service", "rigd-gpu-settings.service"]
)
def test_systemd_finds_nothing_wrong_with_the_units(box, name):
    assert box.run(f"systemd-analyze verify {name}") == ""


def test_the_cards_were_set_at_boot_as_root(box):
    assert "limit 0 290000\nlimit 1 290000" in box.run(f"cat {CARDS}/cards")
    assert box.run("systemctl is-active rigd-gpu-settings").strip() == "active"


@pytest.mark.parametrize("user", ["nobody", "daemon"])
def test_other_users_are_refused_by_the_socket(box, user):
    assert "PermissionError" in ask(box, user, act="reset-gpu", card="0000:0a:00")
    assert asked(box) == []


def test_a_member_of_rigd_s_group_is_refused_too(box):
    box.run("useradd --groups rigd guest")

    assert "PermissionError" in ask(box, "guest", act="reset-gpu", card="0000:0a:00")


def test_the_daemon_s_user_gets_what_the_rig_file_allows_and_no_more(box):
    reset = ask(box, "rigd", act="reset-gpu", card="0000:0a:00")
    reboot = ask(box, "rigd", act="reboot")
    strange = ask(box, "rigd", act="reset-gpu", card="0; reboot")

    assert reset["ok"] is True
    assert asked(box) == ["root nvidia-smi --gpu-reset -i 0000:0a:00.0"]
    assert (reboot["ok"], strange["ok"]) == (False, False)
    assert "does not allow it" in reboot["message"]
    assert box.run("stat -c '%a %U' /var/lib/rigd-host /var/lib/rigd-host/acts.json").split() == [
        "700",
        "root",
        "600",
        "root",
    ]


def test_settings_that_are_lost_come_back_without_root_in_the_daemon(box, block_until):
    box.put(f"{CARDS}/cards", "limit 0 350000\nlimit 1 290000\n")

    block_until(lambda: box.run(f"tail -n 1 {CARDS}/cards").strip() == "limit 0 290000", 40)

    assert block_until(lambda: not status(box)["host"], 60)


def test_a_card_is_reset_by_the_daemon_s_wish_and_the_engine_serves_again(box, block_until):
    before = status(box)["engine"]
    box.put(f"{CARDS}/cards", "limit 0 290000\nlimit 1 290000\nrecovery 1 1\n")
    block_until(lambda: status(box)["host"], 60)

    box.run(f"kill -KILL {before['pid']}")

    block_until(lambda: asked(box)[1:] == ["root nvidia-smi --gpu-reset -i 0000:14:00.0"], 60)
    block_until(lambda: (status(box)["engine"] or before)["pid"] != before["pid"], 60)
    wait_ready(box)
    assert events(box, "reset-gpu") == ["intended", "done"]


def test_the_host_is_rebooted_once_and_the_count_survives(box, block_until, port):
    box.run("rm /var/lib/rigd-host/acts.json")
    allow(box, port, reboot="true", most=2)  # The daemon itself has counted a reset.
    box.run("systemctl restart rigd")
    wait_ready(box)
    box.put(f"{CARDS}/cards", "limit 0 290000\nlimit 1 290000\nrecovery 1 2\n")
    block_until(lambda: status(box)["host"], 60)
    box.run(f"kill -KILL {status(box)['engine']['pid']}")

    box.boot_again()

    block_until(lambda: box.run("systemctl is-active rigd", check=False).strip() == "active", 60)
    block_until(lambda: "refused" in events(box, "reboot"), 60)
    assert events(box, "reboot") == ["intended", "done", "refused"]

    box.put(f"{CARDS}/cards", "limit 0 290000\nlimit 1 290000\n")
    wait_ready(box)
