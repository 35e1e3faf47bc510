"""The whole journey: from a bare box, by one command and over a reboot, to a warm engine in a real container.

Then the power goes, and it comes back by itself.
"""

import concurrent.futures
import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import install
import pytest
import yaml
from box import Box, BoxError, booted
from desks import Desk, Ran, ran_by
from image_registry import Registry, registry
from own_network import own_network
from provisioned import PLAYBOOKS
from test_provision_site import changed, told

from rigd.errors import ExitCode

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

READY_S = 90
POLL_S = 0.1
IMAGE = "engine:v0.32.0"
NOT_IN_THE_IMAGE = ("./boot", "./dev", "./proc", "./sys", "./usr/share", "./var/cache", "./var/lib/apt")
RIG = """
name: home
engine:
  runtime: docker
  version: 0.32.0
  model: /models/double
  served_model_name: double
  port: 8000
  arguments: {{tensor_parallel_size: 2, enable_prefix_caching: true, enable_prompt_tokens_details: true}}
  docker:
    image: {registry}/{image}
    container: engine
    gpus: none
    ipc: host
    mounts:
      - {{source: /srv/models, target: /models, read_only: true}}
      - {{source: /opt/rigd, target: /opt/rigd, read_only: true}}
    entrypoint: [/opt/rigd/bin/python, -m, rigd.sim, --sim-profile, fast]
prefixes:
  - {{name: agent, files: [prompts/agent.md]}}
gates:
  disk_free_gib: 1
"""


@dataclass(frozen=True, kw_only=True)
class Laptop(Desk):
    """Where the one command is typed; it knows the box by its address, and the key from its ssh settings."""

    registry: Registry

    def prepare(self) -> None:
        """Write what a person would: rig file, a prompt beside it, the box's variables."""
        (self.folder / ".ssh").mkdir(mode=0o700)
        (self.folder / ".ssh/config").write_text(f"Host {self.box.host}\n  IdentityFile {self.box.key}\n")
        (self.folder / "rig.yaml").write_text(RIG.format(registry=self.registry.address, image=IMAGE))
        (self.folder / "prompts").mkdir()
        shutil.copy(PLAYBOOKS.parent / "configs/prompts/agent.md", self.folder / "prompts")
        given = {
            "preflight_free_gib": 2,
            "docker_source": "distribution",
            "docker_daemon": {"insecure-registries": [self.registry.address]},
            "disks_folders": [{"path": "/srv/models/double"}],
            "rigd_rig_file": str(self.folder / "rig.yaml"),
            "rigd_rig_files": [str(self.folder / "prompts")],
        }
        (self.folder / "home.yml").write_text(yaml.safe_dump(given))

    def site(self, verb: str, *more: str) -> Ran:
        """Apply or check the site."""
        words = [sys.executable, "-m", "rigd.cli.main", "provision", verb, str(PLAYBOOKS / "site.yml"), "--host",
                 self.box.target, "-e", f"@{self.folder / 'home.yml'}", "--accept-new", "--json"]  # fmt: skip
        return ran_by([*words, *more], self.environ)

    def wheel_of(self, box: Box) -> str:
        """Return the laptop's own copy of the rigd that the box has; the project may change while this test runs."""
        return str(self.folder / "state/wheels" / box.run("ls /opt/rigd/wheels").strip())


@pytest.fixture(params=[("box", "root"), ("trixie", "trixie")], ids=["debian-12", "debian-13-bare"])
def laptop(request, need_parts, tmp_path) -> Iterator[Laptop]:
    """Give a bare box at the end of a cable, a registry that has the engine's image, and the laptop beside it."""
    part, image = request.param
    need_parts(part, "box", "docker", "wheels")
    lab = install.default_folder()
    with own_network() as network, booted(lab / part, lab / "box_key", 22, network) as box:
        # A disk that dpkg need not wait for after each file.
        box.put("/etc/dpkg/dpkg.cfg.d/lab", "force-unsafe-io\n")
        if part == "trixie":
            shutil.copytree(lab / "wheels", box.root / "srv/wheels")
            box.put("/etc/pip.conf", "[global]\nno-index = true\nfind-links = /srv/wheels\n")
        with registry(network.near, IMAGE, lab / image, tmp_path, leave_out=NOT_IN_THE_IMAGE) as images:
            made = Laptop(box=box, folder=tmp_path, registry=images)
            made.prepare()
            yield made
        # An orderly end would wait for the engine's container, which outlives Docker.
        box.cut_power()


def status(box: Box) -> dict[str, Any]:
    """Return what the daemon says over ssh."""
    return dict(json.loads(box.run("rigd status --json")))


def until_ready(box: Box) -> None:
    """Wait until it serves; say why it does not."""
    try:
        box.run(f"rigd wait ready --timeout {READY_S}", timeout_s=READY_S + 20)
    except BoxError as error:
        said = box.run("rigd status; journalctl -u rigd -u docker -o cat -n 60", check=False)
        raise AssertionError(f"{error}\n{said}") from error


def over_its_reboot(box: Box, running: "concurrent.futures.Future[Ran]") -> None:
    """Let the box come up again when it goes down; a run that ends without a reboot is told."""
    while box.process.poll() is None and not running.done():
        time.sleep(POLL_S)
    assert not running.done(), told(running.result())
    box.boot_again()


def boot_id(box: Box) -> str:
    return box.run("cat /proc/sys/kernel/random/boot_id")


def containers(box: Box) -> list[str]:
    """Return the containers that run, by their ids."""
    return box.run("docker ps --quiet --no-trunc --filter name=^engine$").split()


def test_from_a_bare_box_to_a_warm_engine_and_back_after_a_power_cut(laptop):
    box = laptop.box
    # As a fresh machine has it after its first updates.
    box.run("echo libc6 > /run/reboot-required.pkgs; ! command -v docker && ! id rigd")

    foretold = laptop.site("check")
    assert foretold.code == ExitCode.NOT_SO, told(foretold)
    assert not box.run("command -v docker", check=False), "a check has changed something"

    began_s = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(laptop.site, "apply")
        over_its_reboot(box, running)
        ran = running.result()
    assert ran.code == 0, told(ran)
    until_ready(box)
    to_ready_s = time.monotonic() - began_s

    assert ran.tasks["The box reboots"]["outcome"] == "changed"
    first = status(box)
    assert first["state"] == "ready"
    assert [(warm["prefix"], warm["proved"]) for warm in first["warm"]] == [("agent", True)]
    engine = containers(box)
    assert len(engine) == 1
    before = boot_id(box)

    box.cut_power()
    box.process.wait(10)
    began_s = time.monotonic()
    box.boot_again()
    to_boot_s = time.monotonic() - began_s
    until_ready(box)
    to_ready_again_s = time.monotonic() - began_s

    again = status(box)
    assert boot_id(box) != before
    assert again["state"] == "ready"
    assert [(warm["prefix"], warm["proved"]) for warm in again["warm"]] == [("agent", True)]
    assert again["engine"]["start"] > first["engine"]["start"]
    assert len(containers(box)) == 1
    assert containers(box) != engine
    assert len(laptop.registry.pulled) == 1, "the image was fetched again"

    left = laptop.site("check", "-e", f"rigd_source={laptop.wheel_of(box)}")
    assert changed(left) == []
    assert left.code == 0, told(left)
    print(
        f"\nforetold in {foretold.took_s:.1f} s; from the command to ready and warm {to_ready_s:.1f} s,"
        f" of which the run {ran.took_s:.1f} s; after the power cut: up {to_boot_s:.1f} s,"
        f" ready and warm {to_ready_again_s:.1f} s; nothing left to do in {left.took_s:.1f} s"
    )
