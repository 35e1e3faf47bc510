"""A fresh box as the playbooks' tests want it, and its state as lines that two boxes can be compared by."""

import concurrent.futures
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import install
import yaml
from box import lab_box
from desks import Desk, Ran

POLL_S = 0.2
PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
FOREIGN = json.dumps(
    {"bridge": "none", "iptables": False, "ip-forward": False, "ip-masq": False, "storage-driver": "vfs"}
)
"""Somebody else's keys of daemon.json: Docker runs with them in a box that may not touch the network."""
RIG = """
name: box
engine:
  runtime: process
  version: 0.32.0
  model: /srv/models/double
  served_model_name: double
  port: {port}
  arguments: {{tensor_parallel_size: 2, max_model_len: 8192, enable_prefix_caching: true}}
  process:
    executable: [/opt/rigd/bin/python, -m, rigd.sim, --sim-profile, fast]
supervision:
  probe_interval_s: 0.5
  stop_grace_s: 2
gates:
  disk_free_gib: 0.1
"""
SUDO_USER = """
set -e
command -v sudo >/dev/null
useradd --create-home --shell /bin/bash op
install -d -m 700 -o op /home/op/.ssh
install -m 600 -o op /root/.ssh/authorized_keys /home/op/.ssh/
echo 'op ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/op
"""
STATE = r"""
cd /
find etc usr/local opt/rigd/wheels -xdev \
  \( -path etc/ssl -o -path etc/ssh -o -path etc/alternatives -o -name '*.cache' \) -prune \
  -o -type f -printf '%p %m %u %g ' -exec sha256sum {} \; -o -type l -printf '%p -> %l\n' | sed 's/  .*//' | sort
dpkg-query -W -f 'package ${Package} ${Version}\n'
getent passwd | cut -d: -f1,6,7 | sed 's/^/user /'
echo "groups $(id -Gn rigd)"
systemctl list-unit-files --state=enabled --no-legend | awk '{print "enabled", $1}'
systemctl is-active docker containerd rigd | sed 's/^/active /'
echo "boots to $(systemctl get-default)"
"""


@dataclass(frozen=True, kw_only=True)
class Fresh(Desk):
    """A fresh box, and the laptop's side of it."""

    user: str = "root"
    variables: dict[str, Any] = field(default_factory=dict)

    def inventory(self, port: int) -> Path:
        path = self.folder / "hosts.ini"
        words = {"host": "127.0.0.1", "port": port, "user": self.user, "ssh_private_key_file": self.box.key}
        path.write_text("box " + " ".join(f"ansible_{name}={value}" for name, value in words.items()) + "\n")
        return path

    def given(self, **more: Any) -> list[str]:
        """Return the words of the command line that give the box's variables."""
        path = self.folder / "box.yml"
        path.write_text(yaml.safe_dump(self.variables | more))
        return ["-e", f"@{path}"]

    def do(self, name: str, **more: Any) -> Ran:
        """Apply one of the playbooks."""
        return self.apply(PLAYBOOKS / f"{name}.yml", *self.given(**more))

    def do_over_a_reboot(self, name: str, **more: Any) -> Ran:
        """Apply one of the playbooks, and let the box come up again when it goes down for a reboot."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = pool.submit(self.do, name, **more)
            while not running.done() and self.box.process.poll() is None:
                concurrent.futures.wait([running], timeout=POLL_S)
            if not running.done():
                self.box.boot_again()
            return running.result()

    def foretell(self, name: str, **more: Any) -> Ran:
        """Check one of the playbooks."""
        return self.check(PLAYBOOKS / f"{name}.yml", *self.given(**more))

    def state(self) -> set[str]:
        """Return files, packages, users and units of the box, one a line."""
        return set(self.box.run(STATE).splitlines())


@contextlib.contextmanager
def fresh(part: str, *, user: str = "root", **variables: Any) -> Iterator[Fresh]:
    """Boot a copy of a part of the lab, and take it down afterwards."""
    lab = install.default_folder()
    folder = Path(tempfile.mkdtemp(prefix="rigd-desk-"))
    try:
        with lab_box(part) as box:
            # A disk that dpkg need not wait for after each file.
            box.put("/etc/dpkg/dpkg.cfg.d/lab", "force-unsafe-io\n")
            box.put("/etc/docker/daemon.json", FOREIGN)
            if part == "trixie":
                shutil.copytree(lab / "wheels", box.root / "srv/wheels")
                box.put("/etc/pip.conf", "[global]\nno-index = true\nfind-links = /srv/wheels\n")
            if user != "root":
                box.run(SUDO_USER)
            (folder / ".ssh").mkdir(mode=0o700)
            given = {"docker_source": "distribution", "preflight_free_gib": 2, **variables}
            yield Fresh(box=box, folder=folder, user=user, variables=given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
