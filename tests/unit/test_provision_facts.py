"""Facts: what they are made of, from files as several systems have them; a part brings no other part."""

import json
import os
from collections.abc import Callable, Mapping

import pytest

from rigd.provision.target import facts, facts_hardware, facts_login, facts_network, facts_system

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n'
UBUNTU = (
    'PRETTY_NAME="Ubuntu 24.04.2 LTS"\nNAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n'
    'VERSION_ID="24.04"\nVERSION_CODENAME=noble\n'
)
ROCKY = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'
ELSEWHERE = "NAME=Void\nID=void\n"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], None]:
    """Have the facts read these texts in place of files."""

    def know(texts: Mapping[str, str]) -> None:
        def text_of(path: str) -> str:
            return texts.get(path, "").strip()

        def assignments_of(path: str) -> dict[str, str]:
            pairs = (line.partition("=") for line in text_of(path).splitlines())
            return {name: value.strip('"') for name, _, value in pairs}

        for module in (facts_system, facts_hardware, facts_network):
            monkeypatch.setattr(module, "text_of", text_of)
        for module in (facts_system, facts_hardware):
            monkeypatch.setattr(module, "lines_of", lambda path: text_of(path).splitlines())
        monkeypatch.setattr(facts_system, "assignments_of", assignments_of)

    return know


@pytest.mark.parametrize(
    ("release", "debian_version", "expected"),
    [
        pytest.param(DEBIAN, "13.1", ("Debian", "13.1", "13", "trixie", "Debian"), id="debian"),
        pytest.param(
            DEBIAN, "trixie/sid", ("Debian", "13", "13", "trixie", "Debian"), id="debian-before-release"
        ),
        pytest.param(UBUNTU, "trixie/sid", ("Ubuntu", "24.04", "24", "noble", "Debian"), id="ubuntu"),
        pytest.param(ROCKY, "", ("Rocky", "9.4", "9", "NA", "RedHat"), id="a-relative-of-another-family"),
        pytest.param(ELSEWHERE, "", ("Void", "NA", "NA", "NA", "Void"), id="unknown"),
    ],
)
def test_distribution(files, release, debian_version, expected):
    files({"/etc/os-release": release, "/etc/debian_version": debian_version})

    seen = facts_system.distribution()

    assert expected == (
        seen["distribution"],
        seen["distribution_version"],
        seen["distribution_major_version"],
        seen["distribution_release"],
        seen["os_family"],
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(
            {"/proc/1/environ": "container=systemd-nspawn\0A=b"}, ("container", "guest"), id="nspawn-as-root"
        ),
        pytest.param(
            {"/run/systemd/container": "systemd-nspawn"}, ("systemd-nspawn", "guest"), id="nspawn-as-user"
        ),
        pytest.param({"/proc/1/cgroup": "1:cpu:/docker/abc"}, ("docker", "guest"), id="docker"),
        pytest.param(
            {"/sys/devices/virtual/dmi/id/sys_vendor": "QEMU"}, ("kvm", "guest"), id="virtual-machine"
        ),
        pytest.param({"/proc/modules": "kvm 1 2 - Live 0x0"}, ("kvm", "host"), id="host"),
        pytest.param({}, ("NA", "NA"), id="neither"),
    ],
)
def test_virtualization(files, monkeypatch, texts, expected):
    files(texts)
    monkeypatch.setattr(facts_system.os.path, "exists", lambda _path: False)

    seen = facts_system.virtualization()

    assert (seen["virtualization_type"], seen["virtualization_role"]) == expected


def test_two_sockets_with_threads_are_counted(files):
    cores = [(package, core) for package in "01" for core in "01" for _ in range(2)]
    files({
        "/proc/cpuinfo": "\n".join(
            f"processor\t: {number}\nphysical id\t: {package}\ncore id\t: {core}\n"
            for number, (package, core) in enumerate(cores)
        )
    })  # fmt: skip

    seen = facts_hardware.processors()

    assert (seen["processor_count"], seen["processor_cores"], seen["processor_threads_per_core"],
            seen["processor_vcpus"]) == (2, 2, 2, 8)  # fmt: skip


def test_memory_is_in_mib(files):
    files(
        {
            "/proc/meminfo": "MemTotal:  2048000 kB\nMemFree:  1024000 kB\nSwapTotal: 4096 kB\nSwapFree: 4096 kB\n"
        }
    )

    seen = facts_hardware.memory()

    assert (seen["memtotal_mb"], seen["memfree_mb"], seen["swaptotal_mb"]) == (2000, 1000, 4)


def test_kernel_words_without_a_value_are_true(files):
    files({"/proc/cmdline": "ro console=tty0 console=ttyS0 quiet"})

    seen = facts_system.kernel_command_line()

    assert seen["cmdline"] == {"ro": True, "console": "ttyS0", "quiet": True}
    assert seen["proc_cmdline"]["console"] == ["tty0", "ttyS0"]


ADDRESSES = [
    {"ifname": "lo", "flags": ["LOOPBACK"], "mtu": 65536, "address": "00:00:00:00:00:00",
     "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
    {"ifname": "enp5s0", "flags": ["UP"], "mtu": 1500, "address": "aa:bb:cc:00:11:22",
     "addr_info": [
         {"family": "inet", "local": "192.168.1.20", "prefixlen": 24, "broadcast": "192.168.1.255",
          "label": "enp5s0", "scope": "global"},
         {"family": "inet", "local": "192.168.1.21", "prefixlen": 24, "scope": "global"},
         {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]},
    {"ifname": "br-1a2b", "flags": [], "mtu": 1500, "address": "aa:bb:cc:00:11:23", "addr_info": []},
]  # fmt: skip


def test_interfaces_and_the_default_route(files, monkeypatch):
    files({"/sys/class/net/enp5s0/type": "1", "/sys/class/net/enp5s0/operstate": "up",
           "/sys/class/net/br-1a2b/operstate": "down", "/sys/class/net/lo/type": "772"})  # fmt: skip
    route = [{"dst": "8.8.8.8", "gateway": "192.168.1.1", "dev": "enp5s0", "prefsrc": "192.168.1.20"}]
    answers = {"address": ADDRESSES, "-4": route, "-6": []}
    monkeypatch.setattr(facts_network, "_ip", lambda *words: answers[words[0]])

    seen = facts_network.network()

    assert seen["interfaces"] == ["lo", "enp5s0", "br-1a2b"]
    assert seen["all_ipv4_addresses"] == ["192.168.1.20", "192.168.1.21"]
    assert seen["default_ipv4"] == {
        "gateway": "192.168.1.1", "interface": "enp5s0", "address": "192.168.1.20", "alias": "enp5s0", "mtu": 1500,
        "type": "ether", "macaddress": "aa:bb:cc:00:11:22", "broadcast": "192.168.1.255",
        "netmask": "255.255.255.0", "network": "192.168.1.0", "prefix": "24",
    }  # fmt: skip
    assert seen["default_ipv6"] == {}
    assert seen["br_1a2b"]["active"] is False
    assert seen["enp5s0"]["ipv4_secondaries"][0]["address"] == "192.168.1.21"
    assert "macaddress" not in seen["lo"]


def test_a_box_without_ip_has_no_addresses_and_is_no_error(monkeypatch):
    monkeypatch.setattr(facts_network.shutil, "which", lambda *_args, **_kwargs: None)

    seen = facts_network.network()

    assert (seen["all_ipv4_addresses"], seen["default_ipv4"]) == ([], {})
    assert "lo" in seen["interfaces"]


def test_the_owner_s_own_facts_are_json_ini_or_a_program(tmp_path, monkeypatch):
    (tmp_path / "a.fact").write_text('{"gpus": 2}')
    (tmp_path / "b.fact").write_text("[rig]\nname = left\n")
    (tmp_path / "c.fact").write_text("#!/bin/sh\necho '[1, 2]'\n")
    (tmp_path / "c.fact").chmod(0o755)
    (tmp_path / "d.fact").write_text("neither")
    (tmp_path / "e.txt").write_text("{}")
    monkeypatch.setattr(facts_system, "LOCAL_FACTS", str(tmp_path))

    seen = facts_system.local_facts()["local"]

    assert {name: seen[name] for name in "abc"} == {
        "a": {"gpus": 2},
        "b": {"rig": {"name": "left"}},
        "c": [1, 2],
    }
    assert seen["d"].startswith("error loading facts")
    assert set(seen) == set("abcd")


def test_every_fact_that_a_table_names_is_there():
    seen = facts.gather()

    assert facts.known() - set(seen) <= {"distribution_minor_version"}
    json.dumps(seen)


def test_a_part_brings_no_other_part(monkeypatch):
    monkeypatch.setattr(facts_network, "_ip", lambda *_words: pytest.fail("asked for the network"))

    seen = facts.gather(frozenset({"distribution", "user_id"}))

    assert {"distribution", "os_family", "user_id", "user_dir"} <= set(seen)
    assert "memtotal_mb" not in seen


def test_an_interface_s_own_fact_brings_the_network():
    assert "lo" in facts.gather(frozenset({"lo"}))


def test_a_group_s_name_brings_the_group():
    assert "memtotal_mb" in facts.gather(frozenset({"hardware"}))


def test_a_user_without_an_entry_is_no_error(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)

    assert facts_login.user()["user_id"] == "4000000"
