"""The driver by the table, the toolkit, power and the ladder: boxes played by recorded answers."""

import json

import pytest
from provision_recorded import RecordedBox, filled, whats

from rigd.provision.target import cdi, gpu_ladder, nvidia_cards, nvidia_facts, nvidia_plan
from rigd.provision.target.contract import ModuleError
from rigd.provision.target.modules import nvidia_driver, nvidia_power
from rigd.provision.target.nvidia_plan import Wish, choose

BRANCH = "nvidia-headless-no-dkms-{}-server-open nvidia-utils-{}-server linux-modules-nvidia-{}-server-open-generic"
ARCHIVE_580 = (
    *BRANCH.replace("{}", "535").split(),
    *BRANCH.replace("{}", "580").split(),
    *BRANCH.replace("{}", "590").split()[:2],
)
VENDOR = (
    "nvidia-driver-pinning-575", "nvidia-driver-pinning-580", "nvidia-driver-pinning-590", "libnvidia-compute",
    "nvidia-dkms-open", "nvidia-persistenced", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "linux-headers-amd64",
)  # fmt: skip


def box_facts(distribution="ubuntu", *, available=ARCHIVE_580, **more):
    return {"distribution": distribution, "architecture": "amd64", "flavour": "generic", "secure_boot": False,
            "mok_enrolled": False, "available": list(available), "transitional": [],
            "archive_version": "535.247.01-1~deb12u1", **more}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "wish", "source", "branch"),
    [
        pytest.param(box_facts(), Wish(), "archive", 580, id="ubuntu-archive-new-enough"),
        pytest.param(box_facts(secure_boot=True), Wish(), "archive", 580, id="ubuntu-secure-boot-signed-archive"),
        pytest.param(box_facts(available=VENDOR), Wish(), "nvidia", 580, id="ubuntu-archive-too-old"),
        pytest.param(box_facts(available=VENDOR, secure_boot=True), Wish(), "stop", None, id="ubuntu-unsigned"),
        pytest.param(box_facts(available=VENDOR, secure_boot=True, mok_enrolled=True), Wish(), "nvidia", 580,
                     id="ubuntu-dkms-own-key-enrolled"),
        pytest.param(box_facts(available=(*ARCHIVE_580, *VENDOR)), Wish(source="nvidia"), "nvidia", 580,
                     id="ubuntu-vendor-asked-for"),
        pytest.param(box_facts(secure_boot=True), Wish(source="nvidia"), "stop", None, id="ubuntu-vendor-unsigned"),
        pytest.param(box_facts(), Wish(branch=590), "nvidia", 590, id="a-branch-without-modules"),
        pytest.param(box_facts(transitional=[580]), Wish(), "nvidia", 580, id="a-branch-that-is-an-empty-shell"),
        pytest.param(box_facts(), Wish(source="archive", cuda="13.1"), "stop", None, id="archive-asked-and-too-old"),
        pytest.param(box_facts(), Wish(cuda="12.2"), "archive", 580, id="the-newest-of-the-archive"),
        pytest.param(box_facts("debian", available=VENDOR), Wish(), "nvidia", 580, id="debian-vendor"),
        pytest.param(box_facts("debian", available=VENDOR), Wish(cuda="13.1"), "nvidia", 590, id="debian-newer-cuda"),
        pytest.param(box_facts("debian", available=VENDOR), Wish(cuda="13.2"), "nvidia", 595, id="debian-cuda-13-2"),
        pytest.param(box_facts("debian", available=()), Wish(), "nvidia", 580, id="debian-repository-not-there-yet"),
        pytest.param(box_facts("debian", secure_boot=True), Wish(), "stop", None, id="debian-secure-boot"),
        pytest.param(box_facts("debian"), Wish(source="archive"), "stop", None, id="debian-archive-too-old"),
        pytest.param(box_facts("debian"), Wish(source="archive", cuda="12.2"), "archive", 535, id="debian-asked"),
    ],
)  # fmt: skip
def test_the_table_chooses(facts, wish, source, branch):
    plan = choose(facts, wish)

    assert (source, branch) == (plan.source, plan.branch)


def test_the_pin_goes_first_and_names_are_resolved_by_what_apt_knows():
    plan = choose(box_facts("debian", available=VENDOR), Wish())

    assert plan.packages == (
        "nvidia-driver-pinning-580", "linux-headers-amd64", "nvidia-driver-cuda", "nvidia-kernel-open-dkms",
    )  # fmt: skip
    assert plan.resolved
    assert not choose(box_facts("debian", available=VENDOR[:4]), Wish()).resolved


def test_a_cuda_that_the_table_does_not_know_asks_for_a_branch():
    with pytest.raises(ModuleError, match="say `branch` yourself"):
        choose(box_facts(), Wish(cuda="14.0"))


def test_another_distribution_is_a_sentence():
    with pytest.raises(ModuleError, match="not on 'fedora'"):
        choose(box_facts("fedora"), Wish())


LSPCI = """\
0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)
\tSubsystem: Gigabyte Technology Co., Ltd Device [1458:403b]
\tKernel driver in use: {first}
\tKernel modules: nouveau, nvidia_drm, nvidia
0000:01:00.1 Audio device [0403]: NVIDIA Corporation GA102 High Definition Audio Controller [10de:1aef] (rev a1)
\tKernel driver in use: snd_hda_intel
0000:02:00.0 3D controller [0302]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)
\tKernel driver in use: {second}
"""


def test_cards_are_read_with_the_driver_that_has_them():
    box = RecordedBox({"lspci": LSPCI.format(first="nvidia", second="NovaCore")})

    found = [(card["address"], card["driver"]) for card in nvidia_facts.cards(box)]

    assert found == [("0000:01:00.0", "nvidia"), ("0000:02:00.0", "NovaCore")]


@pytest.mark.parametrize(
    ("answer", "on"),
    [
        ("SecureBoot enabled\n", True),
        ("SecureBoot disabled\nPlatform is in Setup Mode\n", False),
        ((1, "", "EFI variables are not supported on this system\n"), False),
    ],
)
def test_secure_boot(answer, on):
    assert nvidia_facts.secure_boot(RecordedBox({"mokutil --sb-state": answer})) is on


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("nvidia/580.95.05, 6.1.0-30-amd64, x86_64: installed", ("580.95.05", "6.1.0-30-amd64", "installed")),
        ("nvidia/580.95.05: added", ("580.95.05", "", "added")),
        (
            "nvidia, 535.183.01, 5.15.0-91-generic, x86_64: built",
            ("535.183.01", "5.15.0-91-generic", "built"),
        ),
    ],
)
def test_what_dkms_says(line, entry):
    found = nvidia_facts.dkms(RecordedBox({"dkms status": f"{line}\n"}))

    assert [entry] == [(row["version"], row["kernel"], row["state"]) for row in found]


def test_debian_s_own_packages_name_their_module_otherwise():
    """A box with them was told that it had no module, with the module built and installed."""
    box = RecordedBox({
        "modinfo -k 6.1.0-50-amd64 -F version nvidia": (1, "", "modinfo: ERROR: Module nvidia not found.\n"),
        "modinfo -k 6.1.0-50-amd64 -F version nvidia-current": "535.261.03\n",
        "modinfo -k 6.1.0-50-amd64 -F signer nvidia-current": "DKMS module signing key\n",
        "dkms status": "nvidia-current/535.261.03, 6.1.0-50-amd64, x86_64: installed\n",
    })  # fmt: skip

    assert nvidia_facts.module(box, "6.1.0-50-amd64") == {
        "version": "535.261.03", "signer": "DKMS module signing key",
    }  # fmt: skip
    assert [row["state"] for row in nvidia_facts.dkms(box)] == ["installed"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n", "580.95.05"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n", "535.183.01"),
        ("", ""),
    ],
)
def test_the_loaded_version(tmp_path, monkeypatch, text, version):
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(nvidia_facts, "PROC_VERSION", str(tmp_path / "version"))

    assert nvidia_facts.loaded_version() == version


@pytest.mark.parametrize(
    ("kernel", "release", "flavour"),
    [
        ("6.8.0-60-generic", "24.04", "generic"),
        ("6.14.0-27-generic", "24.04", "generic-hwe-24.04"),
        ("5.15.0-91-lowlatency", "22.04", "lowlatency"),
        ("7.0.0-14-generic", "26.04", "generic"),
    ],
)
def test_the_flavour_of_ubuntu_s_kernel(kernel, release, flavour):
    names = [
        "linux-modules-nvidia-580-server-open-generic-hwe-24.04",
        "linux-modules-nvidia-580-server-open-generic",
    ]

    assert nvidia_facts.flavour(kernel, release, names) == flavour


def driver_state(**more):
    facts = {
        "distribution": "debian", "release": "12", "cards": [{"address": "0000:01:00.0", "driver": "nvidia"}],
        "module": {"version": "580.95.05", "signer": ""}, "loaded": "580.95.05", "running_kernel": "6.1.0-30-amd64",
        "next_kernel": "6.1.0-30-amd64", "secure_boot": False, "runfile": False, "available": list(VENDOR),
        **more.pop("facts", {}),
    }  # fmt: skip
    plan = {
        "source": "nvidia",
        "branch": 580,
        "packages": VENDOR[1:2],
        "why": "so",
        "dkms": True,
        "resolved": True,
    }
    packages = {"interrupted": False, "lists_s": 0, "now_s": 0}
    return {"facts": facts, "plan": plan | more.pop("plan", {}), "check": False, "foreign": [], "packages": packages,
            "built": {"so": True, "dkms": []}, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "text"),
    [
        pytest.param(driver_state(facts={"runfile": True}), "nvidia-uninstall", id="runfile"),
        pytest.param(driver_state(foreign=["nvidia-open"]), "do not mix", id="other-source"),
        pytest.param(driver_state(facts={"cards": []}), "no NVIDIA card", id="no-card"),
        pytest.param(
            driver_state(plan={"source": "stop", "why": "Secure Boot is on"}), "Secure Boot", id="stop"
        ),
        pytest.param(
            driver_state(plan={"resolved": False}, facts={"available": []}), "apt does not know", id="no-repo"
        ),
    ],
)
def test_the_driver_stops_with_what_to_do(state, text):
    with pytest.raises(ModuleError, match=text):
        nvidia_driver.difference(filled(nvidia_driver.MODULE), state)


def test_packages_without_a_module_mean_a_build():
    state = driver_state(built={"so": False, "dkms": []})

    assert whats(nvidia_driver.difference(filled(nvidia_driver.MODULE), state)) == [
        "build the nvidia module for 6.1.0-30-amd64"
    ]


def test_a_build_that_failed_is_told_though_apt_was_content(monkeypatch):
    monkeypatch.setattr(nvidia_facts, "build_log_tail", lambda: "make.log: error: implicit declaration")
    monkeypatch.setattr(nvidia_facts, "BOOT", "/nowhere")
    box = RecordedBox(
        {"dkms status": "nvidia/580.95.05: added\n", "dkms autoinstall": (11, ""), "modinfo": (1, "")}
    )
    change = nvidia_driver.Change(what="build", data={"build": True})

    with pytest.raises(ModuleError, match=r"Do not reboot before that is mended\nmake\.log"):
        nvidia_driver.apply({}, driver_state(), [change], box)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"loaded": "575.64"}, "loaded is 575.64, installed 580.95.05"),
        ({"loaded": "", "cards": [{"driver": "nouveau"}]}, "nouveau has the cards"),
        ({"next_kernel": "6.1.0-31-amd64"}, "kernel 6.1.0-31-amd64 is installed, 6.1.0-30-amd64 runs"),
        ({"module": {"version": ""}, "loaded": ""}, None),
    ],
)
def test_a_reboot_is_wanted_by_what_is_not_by_what_was_done(facts, reason):
    result = nvidia_driver.result({}, driver_state(facts=facts))

    assert result["reboot_required"] is (reason is not None)
    assert reason is None or reason in result["reboot_reasons"]


SPEC = """\
cdiVersion: 0.5.0
containerEdits:
  mounts:
    - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
      containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
devices:
  - name: "0"
    containerEdits:
      deviceNodes:
        - path: /dev/nvidia0
  - name: GPU-8f2c
  - name: all
kind: nvidia.com/gpu
"""


def test_a_cdi_file_tells_its_driver_and_devices():
    assert (cdi.version_of(SPEC), cdi.devices_of(SPEC)) == ("580.95.05", ["0", "GPU-8f2c", "all"])


@pytest.mark.parametrize(
    ("loaded", "generated", "by_hand", "wrong"),
    [
        ("580.95.05", "580.95.05", None, []),
        ("580.95.05", "575.64", None, ["stale"]),
        ("580.95.05", None, None, ["missing"]),
        ("580.95.05", "580.95.05", "535.1", ["by-hand"]),
        ("580.95.05", None, "580.95.05", []),
        ("580.95.05", None, "535.1", ["by-hand", "missing"]),
        ("", None, None, []),
    ],
)
def test_cdi_files_are_judged_from_the_loaded_driver(loaded, generated, by_hand, wrong):
    def spec(version):
        return None if version is None else {"version": version, "devices": []}

    assert cdi.judge(loaded, spec(generated), spec(by_hand)) == wrong


CARD = "NVIDIA GeForce RTX 3090"
SMI = (
    f"GPU-a, 0, {CARD}, 350.00, 100.00, 366.00, Disabled, 00000000:01:00.0, 1, 4, 16, 16, 3, 24576, 580.95.05\n"
    f"GPU-b, 1, {CARD}, 280.00, 100.0, 350.0, Enabled, 00000000:02:00.0, 1, 4, 1, 16, 3, 24576, 580.95.05\n"
)
COMMAND = "/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose"
UNIT = f"[Service]\nExecStart={COMMAND}\n"


def power_box(**more):
    return RecordedBox(
        {"nvidia-smi": SMI, "systemctl cat": UNIT, "systemctl is-enabled": (1, "disabled\n"), **more}
    )


def test_power_limits_go_by_uuid_and_stay_within_what_the_card_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia_power, "UNIT_FILE", str(tmp_path / "power"))
    arguments = filled(
        nvidia_power.MODULE, watts=400.0, limits={"GPU-B": 280.2}, persistence=False, boot=False
    )
    box = power_box()
    changes = nvidia_power.difference(arguments, nvidia_power.probe(arguments, box))

    assert whats(changes) == ["power limit of GPU-a: 350 W -> 366 W"]

    nvidia_power.apply(arguments, {}, changes, box)
    assert "nvidia-smi -i GPU-a -pl 366" in box.ran


def test_a_card_that_is_not_there_is_named():
    with pytest.raises(ModuleError, match="GPU-a, GPU-b"):
        nvidia_power.wanted_limits(
            filled(nvidia_power.MODULE, limits={"GPU-c": 300}), nvidia_cards.query(power_box())
        )


def test_persistence_overrides_the_driver_s_unit_and_wakes_the_sleeping_card(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia_power, "OVERRIDE", str(tmp_path / "override"))
    arguments = filled(nvidia_power.MODULE, boot=False)
    changes = nvidia_power.difference(arguments, nvidia_power.probe(arguments, power_box()))

    assert whats(changes) == [
        f"write {tmp_path / 'override'}", "start nvidia-persistenced.service at boot", "persistence mode of GPU-a",
    ]  # fmt: skip
    assert "--no-persistence-mode" not in changes[0].after
    assert (
        "ExecStart=\nExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose\n"
        in changes[0].after
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((18, "Failed to initialize NVML: Driver/library version mismatch\n"), "none must be made anew"),
        (
            (9, "it couldn't communicate with the NVIDIA driver."),
            "no NVIDIA driver is loaded",
        ),
        (None, "there is no nvidia-smi"),
    ],
)
def test_an_nvidia_smi_that_does_not_answer_says_why(answer, text):
    box = RecordedBox({} if answer is None else {"nvidia-smi": answer})
    with pytest.raises(ModuleError, match=text):
        nvidia_cards.query(box)


def rungs_of(lspci, smi):
    box = RecordedBox({"lspci": lspci, "nvidia-smi": smi})
    cards = nvidia_cards.query(box)
    return [
        gpu_ladder.bound(nvidia_facts.cards(box), 2),
        gpu_ladder.answers(cards, "", 2),
        gpu_ladder.link(cards),
    ]


def test_the_ladder_tells_nova_one_card_and_a_riser():
    bound, answers, link = rungs_of(LSPCI.format(first="nvidia", second="NovaCore"), SMI.splitlines()[1])

    assert (bound.ok, "NovaCore took the card" in bound.hint) == (False, True)
    assert (answers.ok, "Xid 79" in answers.hint) == (False, True)
    assert (link.ok, "riser" in link.hint) == (False, True)


def test_the_ladder_holds():
    smi = SMI.replace("4, 1, 16", "4, 8, 16")
    assert all(rung.ok for rung in rungs_of(LSPCI.format(first="nvidia", second="nvidia"), smi))


def said(*, count=2, equal=True, wrong=0, copies=1):
    rows = [{"card": 0, "equal": equal}] * copies
    return "noise\nRIGD " + json.dumps({"cuda": "13.0", "count": count, "copies": rows, "wrong": wrong})


@pytest.mark.parametrize(
    ("output", "cuda", "collective"),
    [
        pytest.param("", False, None, id="nothing-said"),
        pytest.param(said(count=1, copies=0, wrong=None), False, None, id="one-of-two"),
        pytest.param(said(equal=False), False, True, id="a-copy-comes-out-wrong"),
        pytest.param(said(wrong=None), True, False, id="the-collective-hangs"),
        pytest.param(said(wrong=7), True, False, id="the-sum-is-wrong"),
        pytest.param(said(), True, True, id="all-well"),
    ],
)
def test_what_the_image_computes_is_judged(output, cuda, collective):
    told = gpu_ladder.read_script(output)

    assert (cuda, collective) == (gpu_ladder.cuda(told, 2, "tail").ok, gpu_ladder.collective(told, "tail").ok)


def test_the_script_is_python():
    compile(gpu_ladder.SCRIPT, "script", "exec")


def test_every_row_of_the_table_says_why():
    assert all(row.why and (row.packages or row.source == nvidia_plan.STOP) for row in nvidia_plan.TABLE)
