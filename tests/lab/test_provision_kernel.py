"""What the kernel itself answers for: live settings, a disk by its UUID, a real tool's ram disk, the file of swap."""

import json
import secrets
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import install
import pytest
from box import Box, booted
from desks import Desk, Ran, desk_of
from own_network import own_network
from provisioned import PLAYBOOKS
from test_provision_site import changed, told

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

LIVE = {"net.ipv4.tcp_keepalive_time": 301, "net.ipv4.ip_local_port_range": "33000 60000"}
"""Settings that a box with a network of its own has for itself."""
OF_ITS_OWN = {"is_container": False, "usual": {}}
"""The playbook takes a box in nspawn for what it is; these tests know which settings are the box's."""
KERNEL = "6.1.0-0-lab"
DISK_MIB = 24
SWAPON = """#!/bin/sh
# A file of this box cannot carry swap: it lies on layers.
case "$1" in --show*) cat /run/swaps 2>/dev/null || true ;; *) echo "$1" >> /run/swaps ;; esac
"""


@pytest.fixture(scope="module")
def desk(need_parts: Callable[..., None]) -> Iterator[Desk]:
    """Give a box at the end of a cable, whose kernel's settings for networks are its own."""
    need_parts("twins", "box")
    lab = install.default_folder()
    folder = Path(tempfile.mkdtemp(prefix="rigd-desk-"))
    try:
        with own_network(world=False) as network, booted(lab / "twins", lab / "box_key", 22, network) as box:
            yield desk_of(box, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def do(desk: Desk, name: str, *, check: bool = False, **variables: Any) -> Ran:
    work = desk.check if check else desk.apply
    return work(PLAYBOOKS / f"{name}.yml", "-e", json.dumps(variables))


def now(box: Box) -> dict[str, str]:
    """Return what the kernel says of the settings, white space aside."""
    said = box.run(f"sysctl -n {' '.join(LIVE)}").splitlines()
    return {name: " ".join(value.split()) for name, value in zip(LIVE, said, strict=True)}


WISHED = {name: str(value) for name, value in LIVE.items()}


# --- settings ---


def test_settings_are_the_kernel_s_at_once_and_after_the_next_boot(desk):
    words = OF_ITS_OWN | {"sysctl_settings": LIVE}
    assert now(desk.box) != WISHED

    first = do(desk, "sysctl", **words)
    assert first.code == 0, told(first)
    assert now(desk.box) == WISHED
    second = do(desk, "sysctl", **words)
    assert (second.code, changed(second)) == (0, []), told(second)

    desk.box.cut_power()
    desk.box.boot_again()
    assert now(desk.box) == WISHED


def test_a_setting_that_somebody_turned_is_found_and_turned_back(desk):
    words = OF_ITS_OWN | {"sysctl_settings": LIVE}
    assert do(desk, "sysctl", **words).code == 0
    desk.box.run("sysctl -qw net.ipv4.tcp_keepalive_time=77")

    foretold = do(desk, "sysctl", check=True, **words)
    assert "net.ipv4.tcp_keepalive_time: 77 -> 301" in json.dumps(foretold.events)
    assert do(desk, "sysctl", **words).code == 0
    assert now(desk.box) == WISHED


def test_a_later_file_that_says_otherwise_is_told_and_a_value_that_the_kernel_refuses_is_a_sentence(desk):
    later = desk.box.put("/etc/sysctl.d/99-other.conf", "net.ipv4.tcp_keepalive_time = 5\n")
    ran = do(desk, "sysctl", **OF_ITS_OWN, sysctl_settings=LIVE)
    later.unlink()
    refused = do(desk, "sysctl", **OF_ITS_OWN, sysctl_settings={"net.ipv4.ip_local_port_range": "many"})
    desk.box.run("sed -i /many/d /etc/sysctl.d/60-rigd.conf")

    assert "later at boot, by /etc/sysctl.d/99-other.conf (5)" in json.dumps(ran.events)
    assert refused.code != 0
    assert "the kernel does not take net.ipv4.ip_local_port_range = many: Invalid argument" in told(refused)


# --- disks ---


@pytest.fixture
def disk(desk: Desk, tmp_path: Path) -> Iterator[str]:
    """Plug a disk with a file system into the box; give its UUID."""
    name, image = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)), tmp_path / "disk"
    image.write_bytes(b"")
    subprocess.run(["truncate", "-s", f"{DISK_MIB}M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-U", name, image], check=True, timeout=30)
    device = subprocess.run(
        ["losetup", "-f", "--show", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    node = Path(device).stat().st_rdev
    try:
        desk.box.at_console(
            f"[ -b {device} ] || mknod {device} b {node >> 8} {node & 255}; mkdir -p /dev/disk/by-uuid;"
            f" ln -s {device} /dev/disk/by-uuid/{name}"
        )
        yield name
    finally:
        desk.box.at_console(
            "! mountpoint -q /srv/models || umount /srv/models; sed -i '/models/d' /etc/fstab"
        )
        subprocess.run(["losetup", "-d", device], check=False)


def test_a_real_disk_is_mounted_by_its_uuid_and_stays_when_all_is_well(desk, disk):
    words = {"disks_mounts": [{"path": "/srv/models", "src": f"UUID={disk}"}],
             "disks_folders": [{"path": "/srv/models/hub", "mode": "0750"}]}  # fmt: skip

    first = do(desk, "disks", **words)
    assert first.code == 0, told(first)
    assert desk.box.run("findmnt -no FSTYPE,UUID /srv/models || findmnt -no FSTYPE /srv/models").startswith(
        "ext4"
    )
    second = do(desk, "disks", **words)
    assert (second.code, changed(second)) == (0, []), told(second)

    desk.box.run("umount /srv/models; ! test -e /srv/models/hub")
    third = do(desk, "disks", **words)
    assert "They are mounted, now and at boot" in changed(third), told(third)
    assert desk.box.run("stat -c %a /srv/models/hub").strip() == "750"


# --- swap ---


def test_a_cushion_of_swap_is_made_once_and_used_from_the_next_boot_on(desk):
    desk.box.put("/usr/local/sbin/swapon", SWAPON, mode=0o755)
    words = OF_ITS_OWN | {"swap_gib": 1}

    first = do(desk, "sysctl", **words)
    second = do(desk, "sysctl", **words)
    seen = desk.box.run(
        "stat -c '%a %s' /swapfile; blkid -p -o value -s TYPE /swapfile; grep swap /etc/fstab"
    )
    desk.box.at_console("rm /swapfile /run/swaps; sed -i /swap/d /etc/fstab")

    assert first.code == 0, told(first)
    assert (second.code, changed(second)) == (0, []), told(second)
    assert seen.splitlines() == [f"600 {1 << 30}", "swap", "/swapfile none swap sw 0 0"]


# --- ram disks ---


@pytest.fixture(scope="module")
def with_initramfs(nspawn_box: Box) -> Box:
    """Give a box whose initial ram disks the real tools make; its kernel is an empty one."""
    nspawn_box.put("/etc/dpkg/dpkg.cfg.d/lab", "force-unsafe-io\n")
    nspawn_box.run(
        "apt-get -qq update && DEBIAN_FRONTEND=noninteractive"
        " apt-get -qq -y install --no-install-recommends initramfs-tools",
        timeout_s=120,
    )
    nspawn_box.run(
        f"mkdir -p /lib/modules/{KERNEL}; cd /lib/modules/{KERNEL}; touch modules.order modules.builtin;"
        f" depmod {KERNEL}; touch /boot/vmlinuz-{KERNEL}; echo CONFIG_RD_GZIP=y > /boot/config-{KERNEL};"
        f" update-initramfs -c -k {KERNEL}",
        timeout_s=60,
    )
    return nspawn_box


def test_a_drivers_blacklist_reaches_the_real_ram_disk(with_initramfs, tmp_path):
    box, file = with_initramfs, "/etc/modprobe.d/rigd-nvidia.conf"
    desk = desk_of(box, tmp_path)
    playbook = json.dumps([{"hosts": "box", "gather_facts": False, "tasks": [{
        "name": "blacklist", "rigd.box.kernel_blacklist":
        {"name": ["nouveau"], "lines": ["options nouveau modeset=0"], "blacklist_file": file}}]}])  # fmt: skip

    first = desk.apply(playbook)
    assert first.code == 0, told(first)
    assert file[1:] in box.run(f"lsinitramfs /boot/initrd.img-{KERNEL}").splitlines()
    assert "nouveau" in box.run(
        f"cd $(mktemp -d) && unmkinitramfs /boot/initrd.img-{KERNEL} . && cat .{file}"
    )
    second = desk.apply(playbook)
    assert (second.code, changed(second)) == (0, []), told(second)

    box.run(f"touch -d '+1 minute' {file}")
    foretold = desk.check(playbook)
    assert f"make the initial ram disks anew ({KERNEL})" in json.dumps(foretold.events)
