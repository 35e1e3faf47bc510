"""Each playbook by itself on a bare box, and what it does about a box that is not as it should be."""

import json

import pytest
from provisioned import Fresh, fresh
from test_provision_site import changed, reasons, told
from vendor_archive import Vendor, docker_debs, serve

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

LAST_FIRST = (
    "smoke", "rigd", "updates", "firewall", "tailscale", "headless", "sysctl", "disks", "cdi", "toolkit",
    "daemon_json", "docker", "power", "persistence", "reboot", "secure_boot", "driver", "blacklist", "headers",
    "base", "apt", "clock", "preflight",
)  # fmt: skip
"""Against the order of the site, so that none can lean on one before it."""


@pytest.fixture(scope="module")
def bare(need_parts):
    """Give a bare Debian 13, reached as a user with sudo."""
    need_parts("trixie", "box", "wheels")
    with fresh("trixie", user="op") as desk:
        yield desk


@pytest.fixture(scope="module")
def vendor(bare: Fresh, tmp_path_factory) -> Vendor:
    """Give a signed archive in the box that stands for Docker's own."""
    return serve(
        bare.box, docker_debs(), "linux/debian", suite="trixie", work=tmp_path_factory.mktemp("debs")
    )


@pytest.mark.parametrize("name", LAST_FIRST)
def test_each_playbook_works_alone_and_changes_nothing_the_second_time(bare, name):
    first = bare.do(name, updates_policy="hold")
    second = bare.do(name, updates_policy="hold")
    left = bare.foretell(name, updates_policy="hold")

    assert (first.code, second.code, left.code) == (0, 0, 0), told(first) + told(second) + told(left)
    assert changed(second) == []
    assert changed(left) == []


# --- Docker of several kinds ---


def test_a_daemon_json_that_is_no_json_is_refused_and_kept(bare):
    bare.do("docker")
    before = bare.box.run("cat /etc/docker/daemon.json")
    bare.box.put("/etc/docker/daemon.json", '{"debug": true,, }\n')
    ran = bare.do("daemon_json")
    kept = bare.box.run("cat /etc/docker/daemon.json")
    bare.box.put("/etc/docker/daemon.json", before)

    assert ran.code == 1
    assert "is not valid JSON, line 1, column 16" in told(ran)
    assert kept == '{"debug": true,, }\n'


def test_a_snap_in_dockers_place_is_refused(bare):
    bare.box.run("mkdir -p /var/snap/docker")
    ran = bare.do("docker")
    bare.box.run("rmdir /var/snap/docker /var/snap")

    assert ran.code == 1
    assert "snap remove docker" in told(ran)


def test_the_other_docker_is_replaced_and_a_second_source_of_it_switched_off(bare, vendor):
    """A file from an old guide names Docker's repository with another key: apt would read no list at all."""
    bare.do("docker")
    line = f"deb [signed-by=/usr/share/keyrings/x.gpg] {vendor.address}/linux/debian trixie stable\n"
    bare.box.put("/etc/apt/sources.list.d/old-guide.list", line)
    first = bare.do("docker", docker_source="docker", docker_repository=f"{vendor.address}/linux")
    second = bare.do("docker", docker_source="auto", docker_repository=f"{vendor.address}/linux")
    packages = bare.box.run("dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' 'docker*' 'containerd*'")
    files = bare.box.run("ls /etc/apt/sources.list.d")
    bare.box.run("apt-get -qy purge docker-ce docker-ce-cli containerd.io docker-buildx-plugin docker-compose-plugin"
                 " && rm /etc/apt/sources.list.d/docker.sources && apt-get -q update")  # fmt: skip

    assert (first.code, second.code) == (0, 0), told(first) + told(second)
    assert changed(second) == []
    assert "docker-ce ii" in packages
    assert "docker.io ii" not in packages
    assert "old-guide" not in files


# --- settings ---


def test_disks_are_mounted_and_waited_for(bare):
    bare.do("docker")
    mounts = [{"path": "/srv/models", "src": "tmpfs", "fstype": "tmpfs", "opts": "size=1m,nofail"}]
    words = {"disks_mounts": mounts, "disks_folders": [{"path": "/srv/models/hub", "mode": "0750"}]}
    first = bare.do("disks", **words)
    second = bare.do("disks", **words)

    assert (first.code, second.code) == (0, 0), told(first) + told(second)
    assert changed(second) == []
    assert "tmpfs" in bare.box.run("findmnt -n /srv/models")
    assert "/srv/models" in bare.box.run("systemctl show docker -p RequiresMountsFor")
    bare.box.run("umount /srv/models && sed -i '/models/d' /etc/fstab")


def test_held_packages_are_held_and_released(bare):
    bare.do("docker")
    hold = bare.do("updates", updates_policy="hold")
    held = bare.box.run("apt-mark showhold").split()
    patterns = bare.box.run("apt-config dump Unattended-Upgrade::Package-Blacklist")
    release = bare.do("updates", updates_policy="release")

    assert (hold.code, release.code) == (0, 0), told(hold) + told(release)
    assert {"docker.io", "containerd"} <= set(held)
    assert '"docker\\.io"' in patterns
    assert bare.box.run("apt-mark showhold").split() == []


def test_what_is_off_says_so(bare):
    said = [
        text
        for name in ("power", "disks", "tailscale", "firewall", "updates")
        for text in reasons(bare.do(name))
    ]

    assert len([text for text in said if text.startswith("skipped: ")]) == 5


def test_no_rig_file_no_service(bare):
    ran = bare.do("rigd")

    assert ran.code == 0, told(ran)
    assert any("there is no /etc/rigd/rig.yaml" in text for text in reasons(ran))
    assert json.loads(bare.box.run("rigd rig schema")) is not None
