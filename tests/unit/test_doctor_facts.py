"""What the doctor gathers on a box: tools that answer from a record, trees like a kernel's, nothing that hangs."""

import json
import os
import tempfile
import time
from pathlib import Path

import pytest
from provision_recorded import RecordedBox

from rigd.cli.main import main
from rigd.provision.connection.link import connect
from rigd.provision.connection.target import Target
from rigd.provision.target import (
    doctor_docker,
    doctor_facts,
    doctor_gpu,
    doctor_host,
    doctor_load,
    doctor_service,
)
from rigd.provision.target.contract import ModuleError
from rigd.provision.target.doctor_rights import Who, may

TOPO = """\
 \t\x1b[4mGPU0\tGPU1\x1b[0m
 GPU0\tX\tCNS
 GPU1\tCNS\tX

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
"""
SMI = "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |\n"
QUERY = (
    "GPU-1, 0, NVIDIA GeForce RTX 3090, 290.00, 100.00, 350.00, Enabled, 00000000:0A:00.0, 1, 4, 8, 8, 12, 24576,"
    " 580.95.05\n"
)
INFO = {
    "ServerVersion": "29.2.1",
    "Runtimes": {"runc": {}, "nvidia": {}},
    "CgroupDriver": "systemd",
    "SecurityOptions": ["name=seccomp"],
}


# --- all of it ---


def test_a_box_without_any_tool_is_facts_and_no_crash():
    facts = doctor_facts.gather(RecordedBox(), {"image": "x:1", "executable": "vllm", "paths": ["/nowhere"]})

    assert set(facts) == {"at_s", *doctor_facts.PARTS}
    assert not {name for name, part in facts.items() if part == {"error": "did not answer within 30 s"}}
    assert "nvidia-smi" in facts["smi"]["error"]
    assert (facts["tailscale"], facts["image"]["there"]) == ({"there": False}, False)
    json.dumps(facts)


def test_a_tool_that_hangs_costs_its_own_part_alone(monkeypatch):
    def hang(_box, _questions):
        time.sleep(30)

    monkeypatch.setitem(doctor_facts.PARTS, "smi", hang)
    began_s = time.monotonic()

    facts = doctor_facts.gather(RecordedBox(), {}, deadline_s=0.5)

    assert time.monotonic() - began_s < 5
    assert facts["smi"] == {"error": "did not answer within 0.5 s"}
    assert "kernel" in facts["system"]


def test_the_helper_gathers_the_same_as_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    link = connect(Target(name="localhost", local=True), blobs=lambda _digest: None)
    try:
        facts = link.helper().one("doctor", questions={"paths": [str(tmp_path)]}, deadline_s=60)["facts"]
    finally:
        link.close()

    assert facts["disks"][str(tmp_path)]["there"]
    assert facts["system"]["kernel"] == os.uname().release


# --- cards ---


@pytest.fixture
def bus(tmp_path):
    """Give a tree like /sys/bus/pci/devices: a card of ours, its sound, another maker's card."""

    def device(address, **files):
        place = tmp_path / address
        place.mkdir()
        for name, content in files.items():
            (place / name).write_text(f"{content}\n")
        return place

    resource = "0xf6000000 0xf6ffffff 0x40200\n0x7000000000 0x77ffffffff 0x14220c\n0x0 0x0 0x0"
    card = device(
        "0000:0a:00.0", vendor="0x10de", device="0x2204", resource=resource, numa_node="-1", max_link_width="16",
        current_link_width="8", current_link_speed="2.5 GT/s PCIe", max_link_speed="16.0 GT/s PCIe",
        **{"class": "0x030000"},
    )  # fmt: skip
    (tmp_path / "drivers" / "nvidia").mkdir(parents=True)
    (card / "driver").symlink_to(tmp_path / "drivers" / "nvidia")
    device("0000:0a:00.1", vendor="0x10de", **{"class": "0x040300"})
    device("0000:0b:00.0", vendor="0x1002", **{"class": "0x030000"})
    return tmp_path


def test_cards_are_read_from_the_bus(bus):
    (card,) = doctor_gpu.cards(RecordedBox(), {}, root=str(bus))

    assert (card["address"], card["driver"], card["width"], card["width_max"]) == (
        "0000:0a:00.0",
        "nvidia",
        8,
        16,
    )
    assert (card["speed"], card["speed_max"], card["bar_mib"]) == (2.5, 16.0, 32768)


def test_cuda_and_peer_access_are_read_from_nvidia_smi():
    box = RecordedBox({"nvidia-smi": SMI, "nvidia-smi --query-gpu": QUERY, "nvidia-smi topo": TOPO})

    found = doctor_gpu.smi(box, {})

    assert (found["cuda"], found["p2p"]) == ("13.0", ["CNS"])
    assert found["cards"][0]["power.limit"] == 290.0


@pytest.mark.parametrize(("said", "states"), [("", []), (TOPO.replace("\tCNS", "\tOK"), ["OK"])])
def test_peer_access_of_any_answer(said, states):
    assert doctor_gpu.p2p(said) == states


# --- Docker ---


def test_docker_s_settings_are_read():
    ps = {"Names": "vllm", "Ports": "127.0.0.1:8000->8000/tcp, [::1]:8000->8000/tcp, 9000/tcp"}
    box = RecordedBox({"docker info": json.dumps(INFO), "docker ps": json.dumps(ps), "dpkg-query": ""})

    found = doctor_docker.docker(box, {})

    assert (found["answers"], found["runtimes"]) == (True, ["nvidia", "runc"])
    assert found["published"] == [
        {"container": "vllm", "address": "127.0.0.1", "port": 8000},
        {"container": "vllm", "address": "::1", "port": 8000},
    ]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((1, "", "permission denied while trying to connect"), id="denied"),
        pytest.param(
            (0, json.dumps({"ServerErrors": ["permission denied"]}), ""), id="new-clients-say-so-in-json"
        ),
    ],
)
def test_a_docker_that_does_not_answer_says_why(answer):
    found = doctor_docker.docker(RecordedBox({"docker info": answer, "dpkg-query": ""}), {})

    assert (found["answers"], "permission denied" in found["problem"]) == (False, True)


def test_what_the_image_says_of_cuda_is_read():
    environment = [
        "PATH=/x",
        "CUDA_VERSION=13.0.1",
        "NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=unknown,driver>=535",
    ]
    image = [{"Size": 2**34, "Architecture": "amd64", "Config": {"Env": environment}}]
    box = RecordedBox({"docker image inspect vllm:1": json.dumps(image)})

    found = doctor_docker.image(box, {"image": "vllm:1"})

    assert (found["cuda"], found["size_gib"]) == ("13.0.1", 16.0)
    assert found["require"].startswith("cuda>=13.0")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, {"there": False}),
        ('{"features": {"cdi": true}, "x": 1}', {"keys": ["features", "x"], "features": {"cdi": True}}),
        ("{", {"there": True}),
        ("[]", {"error": "it is no object"}),
    ],
)
def test_daemon_json_is_read_or_said_to_be_wrong(tmp_path, content, wanted):
    path = tmp_path / "daemon.json"
    if content is not None:
        path.write_text(content)

    found = doctor_docker.daemon_json(str(path))

    assert wanted.items() <= found.items()
    assert ("error" in found) == (content in ("{", "[]"))


# --- host ---


def test_listening_sockets_are_read_from_the_kernel():
    four = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 1 1 0\n"
        "   1: 0100007F:1F40 0100007F:9999 01 00000000:00000000 00:00000000 00000000   998        0 2 1 0\n"
    )
    six = (
        "  sl  local_address                         remote_address                        st\n"
        "   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A"
        " 00000000:00000000 00:00000000 00000000     0        0 3 1 0\n"
        "   1: 00000000000000000000000001000000:2328 00000000000000000000000000000000:0000 0A"
        " 00000000:00000000 00:00000000 00000000  1000        0 4 1 0\n"
    )

    assert doctor_host.listening(four, six) == [
        {"address": "127.0.0.1", "port": 8000, "uid": 998},
        {"address": "::", "port": 22, "uid": 0},
        {"address": "::1", "port": 9000, "uid": 1000},
    ]


def test_updates_and_holds_are_read():
    dump = (
        'APT::Periodic::Unattended-Upgrade "1";\n'
        'Unattended-Upgrade::Package-Blacklist "";\nUnattended-Upgrade::Package-Blacklist:: "nvidia-";\n'
    )
    packages = "ii nvidia-headless-580\nrc nvidia-old\nii linux-image-generic\nii unattended-upgrades\n"
    box = RecordedBox({"apt-config dump": dump, "dpkg-query": packages, "apt-mark showhold": "libcuda1\n"})

    found = doctor_host.updates(box, {})

    assert (found["unattended"], found["blacklist"], found["held"]) == (True, ["nvidia-"], ["libcuda1"])
    assert found["driver_packages"] == ["nvidia-headless-580"]


def test_tailscale_s_state_is_read_and_a_dead_daemon_is_told():
    own = {
        "KeyExpiry": "2027-01-01T00:00:00Z",
        "DNSName": "rig.example.ts.net.",
        "TailscaleIPs": ["100.1.2.3"],
    }
    said = json.dumps({"BackendState": "Running", "Self": own, "Health": None})

    found = doctor_host.tailscale(RecordedBox({"tailscale status": said}), {})
    dead = doctor_host.tailscale(RecordedBox({"tailscale status": (1, "", "failed to connect")}), {})

    assert (found["state"], found["name"], found["expires"]) == (
        "Running",
        "rig.example.ts.net",
        own["KeyExpiry"],
    )
    assert (dead["state"], dead["problem"]) == ("", "failed to connect")


@pytest.mark.parametrize(("said", "synchronised"), [("NTP=yes\nNTPSynchronized=no\n", False), ("", None)])
def test_the_clock_is_asked(said, synchronised):
    assert doctor_host.clock(RecordedBox({"timedatectl": said}), {})["synchronised"] is synchronised


def test_rights_of_another_user_are_read_from_modes():
    stranger = Who(name="x", uid=54321, groups=frozenset({54321}))
    # Not tmp_path: other users may not even look into that.
    with tempfile.TemporaryDirectory(prefix="rigd-") as name:
        folder = Path(name) / "a"
        for place in (Path(name), folder):
            place.mkdir(exist_ok=True)
            place.chmod(0o755)

        assert may(str(folder), stranger, 4)
        assert not may(str(folder), stranger, 2)
        Path(name).chmod(0o700)
        assert not may(str(folder), stranger, 4)
        assert may(str(folder), Who(name="root", uid=0, groups=frozenset()), 2)


# --- a bare engine ---


def test_a_bare_engine_s_versions_are_read_without_running_it(tmp_path):
    site = tmp_path / "venv/lib/python3.12/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch/version.py").write_text("__version__ = '2.9.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    (site / "vllm-0.32.0.dist-info").mkdir()
    program = tmp_path / "venv/bin/vllm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)

    found = doctor_service.process(RecordedBox(), {"executable": str(program)})

    assert (found["python"], found["torch"], found["cuda"], found["vllm"]) == (
        "3.12",
        "2.9.0+cu130",
        "13.0",
        "0.32.0",
    )


def test_notes_on_peer_access_are_found_with_their_age(tmp_path):
    (tmp_path / "gpu_p2p_access_cache_for_0,1.json").write_text("{}")

    (note,) = doctor_service.caches(RecordedBox(), {"vllm_caches": [str(tmp_path), "/nowhere"]})

    assert note["made_s"] == pytest.approx(time.time(), abs=60)


# --- load ---


def test_links_are_not_loaded_while_the_cards_are_in_use():
    busy = QUERY.replace(" 12, 24576", " 20000, 24576")
    box = RecordedBox({"nvidia-smi --query-gpu": busy})

    assert "is in use" in doctor_load.load(box, {"image": "x:1"})["error"]
    assert not [line for line in box.ran if "docker run" in line]


def test_the_best_link_of_each_card_at_work_is_told(monkeypatch):
    speeds = iter([2.5, 16.0])
    seen = lambda *_: [{"address": "0000:0a:00.0", "width": 16.0, "speed": next(speeds, 8.0)}]  # noqa: E731
    monkeypatch.setattr(doctor_load, "cards", seen)
    monkeypatch.setattr(doctor_load, "EVERY_S", 0.01)

    class Slow(RecordedBox):
        def run(self, argv, **more):
            if argv[:2] == ["docker", "run"]:
                time.sleep(0.2)
            return super().run(argv, **more)

    box = Slow({"nvidia-smi --query-gpu": QUERY, "docker run": "COPIED 1\n", "docker rm": ""})

    found = doctor_load.load(box, {"image": "x:1"})

    assert [card["speed"] for card in found["cards"]] == [16.0]


def test_a_copy_that_fails_is_told():
    box = RecordedBox(
        {"nvidia-smi --query-gpu": QUERY, "docker run": (1, "", "no such image"), "docker rm": ""}
    )

    assert "no such image" in doctor_load.load(box, {"image": "x:1"})["error"]
    with pytest.raises(ModuleError):
        doctor_load.load(RecordedBox(), {"image": "x:1"})


# --- the command ---

RIG = """
name: box
engine:
  runtime: process
  version: 0.32.0
  model: /nowhere/model
  port: {port}
"""


def test_the_command_tells_what_is_in_the_way_and_ends_with_3(tmp_path, capsys, free_port):
    (tmp_path / "rig.yaml").write_text(RIG.format(port=free_port))

    code = main(["doctor", str(tmp_path / "rig.yaml")])

    said = capsys.readouterr().out
    assert code == 3
    assert "error    program        there is no program 'vllm' for the engine" in said
    assert "-> engine.process.executable" in said
    assert "not fit for rig box" in said.splitlines()[-1]


def test_the_command_s_json_holds_findings_and_facts(tmp_path, capsys, free_port):
    (tmp_path / "rig.yaml").write_text(RIG.format(port=free_port))

    main(["doctor", str(tmp_path / "rig.yaml"), "--json"])

    document = json.loads(capsys.readouterr().out)
    assert document["fit"] is False
    assert {"id", "severity", "sentence", "mend"} == set(document["findings"][0])
    assert document["facts"]["system"]["kernel"]


def test_a_rig_file_that_is_wrong_is_wrong_usage(tmp_path, capsys):
    (tmp_path / "rig.yaml").write_text("name: x\n")

    assert main(["doctor", str(tmp_path / "rig.yaml")]) == 2
    assert "engine" in capsys.readouterr().err
