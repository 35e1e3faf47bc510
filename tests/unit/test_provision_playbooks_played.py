"""The playbooks on Ubuntu and on boxes with cards, foretold by recorded answers of the boxes' programs."""

from pathlib import Path

import pytest
from played_tools import jammy, noble, resolute, trixie

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
CANONICAL = "Canonical Ltd. Kernel Module Signing"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Foretell a playbook on a played box."""

    def run(played, name, **variables):
        bench = played.play(tmp_path, monkeypatch)
        return bench.run(
            PLAYBOOKS / f"{name}.yml",
            check=True,
            diff=True,
            extra_vars=[f"{k}={v}" for k, v in variables.items()],
        )

    return run


def what(outcome, name):
    return outcome.ended(name).result["changes"]


def text_of(outcome, name):
    """Return the text that a file would have."""
    return "".join(difference["after"] for difference in outcome.ended(name).result["diff"])


def why(outcome):
    """Return what the task that failed says."""
    (name,) = outcome.names("failed")
    return outcome.ended(name).result["msg"]


def test_the_whole_site_on_ubuntu_with_secure_boot(check):
    outcome = check(noble(secure_boot=True), "site")

    assert outcome.counts.get("failed") is None, why(outcome)
    assert any(
        str(text).startswith("archive, branch 580: the archive's modules") for text in outcome.messages()
    )
    assert (
        "skipped: the driver's modules of Ubuntu's archive are built and signed already" in outcome.messages()
    )
    assert what(outcome, "The driver is installed, and built for the kernel that boots next") == [
        "install linux-modules-nvidia-580-server-open-generic 1.0",
        "install nvidia-headless-no-dkms-580-server-open 1.0",
        "install nvidia-utils-580-server 1.0",
    ]


def test_a_box_without_cards_says_why_all_that_is_about_cards_is_skipped(check):
    outcome = check(noble(driver=""), "site")

    assert outcome.counts.get("failed") is None, why(outcome)
    # Headers, blacklist, driver, Secure Boot, persistence, toolkit, CDI, smoke; power is off by itself.
    assert outcome.messages().count("no NVIDIA card found on the PCI bus (lspci -d 10de:)") == 8
    assert "skipped: neither power_watts nor power_limits is given" in outcome.messages()
    assert "The driver is installed, and built for the kernel that boots next" not in outcome.names()


def test_the_newer_line_of_kernels_on_2204_takes_its_own_modules(check):
    outcome = check(jammy(), "driver")

    installed = what(outcome, "The driver is installed, and built for the kernel that boots next")
    assert "install linux-modules-nvidia-580-server-open-generic-hwe-22.04 1.0" in installed


def test_2204_has_a_python_that_is_too_old_for_rigd(check):
    outcome = check(jammy(tools={"python3": "echo 3.10"}), "rigd")

    assert "is 3.10, and rigd needs 3.11" in why(outcome)


def test_nova_is_kept_from_the_cards_on_2604(check):
    outcome = check(resolute(), "blacklist")

    text = text_of(outcome, "The drivers are named, and the ram disks know it")
    assert "blacklist nova_core\nblacklist nova_drm\noptions nouveau modeset=0\n" in text


def test_nova_that_has_the_cards_is_a_reason_to_reboot(check):
    kernel = "7.0.0-28-generic"
    outcome = check(resolute(modules={kernel: "580.95.05"}), "reboot")

    assert outcome.names("changed") == ["The box reboots"]
    told = outcome.ended("Look for reasons").result["stdout"]
    assert "NovaCore has the cards" in told
    assert "driver 580.95.05 is installed, and none is loaded" in told


def test_debian_takes_nvidias_repository_and_headers_of_this_kernel_and_those_to_come(check):
    headers = check(trixie(), "headers")

    assert what(headers, "Headers of this kernel and of those to come") == [
        "install linux-headers-amd64 1.0",
        "install linux-headers-6.12.48+deb13-amd64 1.0",
    ]


def test_debians_driver_comes_from_nvidia(check):
    outcome = check(trixie(), "driver")

    assert any(
        "nvidia, branch 580: the archive's driver is too old" in str(text) for text in outcome.messages()
    )
    assert "NVIDIA's driver repository is a source" in outcome.names("changed")
    assert "install nvidia-kernel-open-dkms 1.0" in what(
        outcome, "The driver is installed, and built for the kernel that boots next"
    )


def test_secure_boot_on_debian_stops_before_anything_is_installed(check):
    outcome = check(trixie(secure_boot=True), "driver")

    assert "Secure Boot is on" in why(outcome)
    assert "blue screen at the console" in why(outcome)


@pytest.mark.parametrize(
    ("signer", "fails"),
    [
        pytest.param("", True, id="unsigned"),
        pytest.param("DKMS module signing key", True, id="own-key-not-enrolled"),
        pytest.param(CANONICAL, False, id="canonical"),
    ],
)
def test_a_module_that_the_firmware_refuses_stops_before_the_reboot(check, signer, fails):
    kernel = "6.8.0-79-generic"
    outcome = check(noble(secure_boot=True, modules={kernel: "580.95.05"}, signer=signer), "secure_boot")

    assert (outcome.names("failed") == ["The firmware will load the driver"]) is fails
    assert not fails or "mokutil --import" in why(outcome)


def test_a_next_kernel_without_the_driver_is_not_booted(check):
    old, new = "6.8.0-79-generic", "6.8.0-80-generic"
    outcome = check(noble(kernels=(old, new), modules={old: "580.95.05"}), "reboot")

    assert "kernel 6.8.0-80-generic would boot next, and it has no nvidia module" in why(outcome)


def test_a_reboot_that_is_not_allowed_is_told(check):
    kernel = "6.8.0-79-generic"
    outcome = check(noble(modules={kernel: "580.95.05"}), "reboot", reboot_allowed="false")

    assert outcome.names("changed") == []
    assert [
        "driver 580.95.05 is installed, and none is loaded",
        "nouveau has the cards",
    ] in outcome.messages()


def test_podman_in_dockers_place_is_refused(check):
    outcome = check(noble(installed={"podman-docker": "4.9"}), "docker")

    assert "podman-docker is installed in Docker's place" in why(outcome)


def test_containers_of_the_other_docker_keep_it_from_being_replaced(check):
    played = noble(installed={"docker.io": "28.2"}, tools={"docker": "echo 4f1c"})

    outcome = check(played, "docker", docker_source="docker")

    assert "containers run. Stop them first" in why(outcome)


def test_a_docker_that_is_there_stays(check):
    outcome = check(noble(installed={"docker.io": "28.2"}), "docker")

    assert outcome.counts.get("failed") is None, why(outcome)
    assert "Docker's repository is a source" not in outcome.names("changed")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        pytest.param(
            {"distribution": "Fedora", "distribution_version": "43"}, "this is Fedora 43", id="fedora"
        ),
        pytest.param({"distribution_version": "20.04"}, "this is Ubuntu 20.04", id="old-ubuntu"),
        pytest.param({"architecture": "aarch64"}, "is a aarch64 machine", id="arm"),
        pytest.param({"service_mgr": "openrc"}, "run by openrc", id="no-systemd"),
    ],
)
def test_another_system_is_refused_before_anything_is_changed(check, more, sentence):
    played = noble()
    played.facts |= more

    assert sentence in why(check(played, "preflight"))


def test_a_full_disk_is_told_before_anything_is_changed(check):
    played = noble(tools={"df": "printf 'x x\\n/dev/sda1 1 1 5242880 90%% /\\n'"})

    assert "/ has 5 GiB free, and 20 are wanted" in why(check(played, "preflight"))


def test_held_updates_keep_unattended_upgrades_from_kernel_driver_and_docker(check):
    outcome = check(
        noble(installed={"linux-image-generic": "6.8", "docker-ce": "29"}), "updates", updates_policy="hold"
    )

    text = text_of(outcome, "unattended-upgrades keeps away")
    assert '  "linux-image-";\n' in text
    assert '  "docker\\.io";\n' in text
    assert what(outcome, "apt holds them, or lets them go") == ["hold docker-ce", "hold linux-image-generic"]
