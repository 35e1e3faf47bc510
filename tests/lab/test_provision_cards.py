"""`site.yml` on a box with two cards that its tools play: real driver packages, one reboot, and all after it."""

import json
from dataclasses import dataclass

import played_cards
import pytest
from desks import Ran
from provisioned import Fresh, fresh
from test_provision_site import changed, told
from vendor_archive import serve, toolkit_debs

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

SITE = {"driver_source": "archive", "driver_cuda": "12.2", "power_watts": 280, "updates_policy": "hold"}
FIRST, SECOND = played_cards.UUIDS


@dataclass(frozen=True, kw_only=True)
class Rig:
    """The box, the run that rebooted it, and one more."""

    desk: Fresh
    first: Ran
    second: Ran


@pytest.fixture(scope="module")
def rig(need_parts, tmp_path_factory, own_wheel_kept):
    """Apply the site to a box with two cards that nouveau has, and let it reboot when it is asked to."""
    need_parts("box", "wheels")
    with fresh("box", **SITE, rigd_source=str(own_wheel_kept)) as desk:
        played_cards.insert(desk.box)
        vendor = serve(desk.box, toolkit_debs(), "stable/deb/amd64", work=tmp_path_factory.mktemp("debs"))
        # What an old guide left works until the same archive is named with another key: then all of apt stops.
        desk.box.run("GNUPGHOME=/root/vendor-key gpg --export > /usr/share/keyrings/old.gpg")
        old = f"deb [signed-by=/usr/share/keyrings/old.gpg] {vendor.address}/stable/deb/amd64 /\n"
        desk.box.put("/etc/apt/sources.list.d/libnvidia-container.list", old)
        desk.variables["toolkit_repository"] = vendor.address
        first = desk.do_over_a_reboot("site")
        yield Rig(desk=desk, first=first, second=desk.do("site"))


def test_it_reboots_once_and_comes_to_its_end(rig):
    assert rig.first.code == 0, told(rig.first)
    assert [event["name"] for event in rig.first.events if event.get("result", {}).get("rebooted")] == [
        "The box reboots"
    ]
    print(f"\nfirst run with driver and reboot {rig.first.took_s:.0f} s, second {rig.second.took_s:.1f} s")


def test_a_second_run_neither_changes_nor_reboots(rig):
    left = rig.desk.foretell("site")

    assert (rig.second.code, left.code) == (0, 0), told(rig.second) + told(left)
    assert changed(rig.second) == []
    assert changed(left) == []


def test_the_driver_is_debians_own_and_real(rig):
    box = rig.desk.box

    assert (
        box.run("dpkg-query -W -f '${db:Status-Abbrev}' nvidia-kernel-dkms libcuda1 nvidia-smi")
        == "hi hi hi "
    )
    assert "bookworm" in box.run("cat /etc/apt/sources.list.d/rigd-non-free.sources")
    assert "main" in box.run("cat /etc/apt/sources.list")
    assert "blacklist nova_core" in box.run("cat /etc/modprobe.d/rigd-nvidia.conf")


def test_limits_and_persistence_hold_now_and_after_a_boot(rig):
    box = rig.desk.box
    told_by_cards = box.run("nvidia-smi --query-gpu=uuid,power")

    assert told_by_cards.count("280.00") == 2
    assert told_by_cards.count("Enabled") == 2
    assert f"-i {FIRST} -pl 280\n" in box.run("cat /etc/systemd/system/rigd-power.service")
    assert box.run("systemctl is-enabled rigd-power").strip() == "enabled"


def test_the_toolkit_is_held_and_docker_knows_its_runtime(rig):
    box = rig.desk.box
    keys = json.loads(box.run("cat /etc/docker/daemon.json"))

    assert keys["runtimes"] == {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
    assert (keys["bridge"], keys["live-restore"]) == ("none", True)
    assert "libnvidia-container" not in box.run("ls /etc/apt/sources.list.d")
    held = set(box.run("apt-mark showhold").split())
    assert held >= {"nvidia-container-toolkit", "libnvidia-container1", "nvidia-kernel-dkms", "docker.io"}


def test_limits_of_single_cards(rig):
    ran = rig.desk.do("power", power_limits={SECOND: 250})
    told_by_cards = rig.desk.box.run("nvidia-smi --query-gpu=uuid,power").splitlines()
    rig.desk.do("power")

    assert ran.code == 0, told(ran)
    assert ["280.00" in told_by_cards[0], "250.00" in told_by_cards[1]] == [True, True]


def test_secure_boot_stops_with_instructions(rig):
    rig.desk.box.put(f"{played_cards.FOLDER}/secure-boot", "")
    driver, firmware = rig.desk.do("driver"), rig.desk.do("secure_boot")
    rig.desk.box.run(f"rm {played_cards.FOLDER}/secure-boot")

    assert (driver.code, firmware.code) == (1, 1)
    assert "mokutil --import" in told(driver)
    assert "Enroll MOK" in told(firmware)


def test_a_card_that_is_missing_fails_the_smoke_test(rig):
    ran = rig.desk.do("smoke", smoke_cards=3)

    assert ran.code == 1
    assert "a card is missing on the bus" in told(ran)
