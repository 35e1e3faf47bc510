"""The firewall for real: a box whose kernel filters, set up over the very ssh that it could cut."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import install
import peers
import pytest
import yaml
from box import Box, booted
from desks import Desk, desk_of
from own_network import Network, own_network
from provisioned import PLAYBOOKS
from test_provision_site import changed, told

from rigd.provision.target import ufw_files, ufw_guard

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

NAMED, UNNAMED = 8124, 8123
"""Ports of the box that somebody listens at; the playbook names one of them."""
TAILNET = ("100.101.0.1", "100.101.0.2")
ANSWER_S = 1.0
"""A dropped packet is answered by nobody."""
WANTED = {"firewall_enabled": True, "firewall_allow": [{"port": NAMED}]}
BLIND = "-A ufw-before-input -p tcp --dport 22 --syn -j DROP"
"""A line of before.rules, which no look at ufw's own rules shows: new ssh sessions are dropped, and they alone."""
SHUT_BY_HAND = f"sed -i '/^# End required lines/a {BLIND}' /etc/ufw/before.rules"
SOONER = "[Timer]\nOnActiveSec=\nOnActiveSec=8\n"
"""The real timer, for whoever does not want to wait for two minutes."""
AS_NEW = """
ufw --force reset
rm -rf /etc/ufw/*.rules.2* /etc/systemd/system/*rollback* /run/rigd-ufw
cp -p /root/before.rules /etc/ufw/before.rules
"""


@dataclass(frozen=True, kw_only=True)
class Walled(Desk):
    """A desk, its box at the end of a cable, and a second cable that the box takes for its tailnet."""

    def comes_in(self, port: int, address: str | None = None) -> bool:
        """Return whether a new connection from here gets through to a port that somebody listens at."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((address or self.box.host, port), ANSWER_S),
        ):
            return True
        return False

    def do(self, *tasks: str) -> str:
        """Return a playbook of these tasks, each with its own words for a name; the run goes on where one fails."""
        listed = [
            {"name": task, "community.general.ufw": yaml.safe_load(task), "ignore_errors": True}
            for task in tasks
        ]
        return yaml.safe_dump([{"hosts": "box", "gather_facts": False, "tasks": listed}], width=200)

    def given(self) -> list[str]:
        """Return the words of the command line for the playbook's variables."""
        path = self.folder / "wanted.yml"
        path.write_text(yaml.safe_dump(WANTED))
        return ["-e", f"@{path}"]

    def rules(self) -> str:
        """Return all that ufw has written down, and whether it filters."""
        return self.box.at_console(f"cat {' '.join(ufw_files.ALL)}; ufw status verbose || true")


@contextlib.contextmanager
def walled(folder: Path) -> Iterator[Walled]:
    """Boot a box in a network of its own, with two ports to try."""
    lab = install.default_folder()
    with own_network(world=False) as network, booted(lab / "twins", lab / "box_key", 22, network) as box:
        box.put("/etc/apt/sources.list", "# none: the package is there\n")
        box.at_console("cp -p /etc/ufw/before.rules /root/before.rules")
        plug_tailnet(network)
        listen(box)
        yield Walled(**vars(desk_of(box, folder)))


def plug_tailnet(network: Network) -> None:
    """Lay a second cable; the box knows its end by the name of Tailscale's."""
    for words in (
        f"link add {network.name}t type veth peer name tailscale0 netns {network.name}",
        f"addr add {TAILNET[0]}/30 dev {network.name}t",
        f"link set {network.name}t up",
        f"-n {network.name} addr add {TAILNET[1]}/30 dev tailscale0",
        f"-n {network.name} link set tailscale0 up",
    ):
        subprocess.run(["ip", *words.split()], check=True, capture_output=True, timeout=20)


def listen(box: Box) -> None:
    for port in (NAMED, UNNAMED):
        box.at_console(f"systemd-run -q --unit=web{port} python3 -m http.server {port} -d /srv")


@pytest.fixture(scope="module")
def one_wall(need_parts: Callable[..., None]) -> Iterator[Walled]:
    need_parts("twins", "box")
    folder = Path(tempfile.mkdtemp(prefix="rigd-desk-"))
    try:
        with walled(folder) as wall:
            yield wall
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def wall(one_wall: Walled, block_until: Callable[..., None]) -> Walled:
    """Give the box with its firewall as new: installed, off, no rules, both ports open."""
    one_wall.box.at_console(AS_NEW)
    for port in (NAMED, UNNAMED):
        block_until(lambda port=port: one_wall.comes_in(port), deadline_s=15)
    return one_wall


# --- the playbook ---


def test_the_playbook_shuts_all_but_ssh_the_tailnet_and_what_is_named(wall, block_until):
    assert wall.comes_in(UNNAMED, TAILNET[1])

    first = wall.apply(PLAYBOOKS / "firewall.yml", *wall.given())
    assert first.code == 0, told(first)
    open_ports = {port for port in (22, NAMED, UNNAMED) if wall.comes_in(port)}
    assert open_ports == {22, NAMED}
    assert wall.comes_in(UNNAMED, TAILNET[1]), "the tailnet may come in by every port"
    assert wall.box.run("echo still here").strip() == "still here"

    second = wall.apply(PLAYBOOKS / "firewall.yml", *wall.given())
    assert (second.code, changed(second)) == (0, []), told(second)
    left = wall.check(PLAYBOOKS / "firewall.yml", *wall.given())
    assert (left.code, changed(left)) == (0, []), told(left)
    wall.box.at_console(f"! test -e {ufw_guard.FOLDER}")
    print(f"\nfirst run {first.took_s:.1f} s, second {second.took_s:.1f} s, check {left.took_s:.1f} s")

    wall.box.cut_power()
    wall.box.boot_again()
    plug_tailnet(wall.box.network)
    listen(wall.box)
    block_until(lambda: wall.comes_in(UNNAMED, TAILNET[1]), deadline_s=15)
    assert {port for port in (22, NAMED, UNNAMED) if wall.comes_in(port)} == {22, NAMED}, "after a reboot"


def test_ansible_runs_the_playbook_to_the_same_end(wall, need_parts):
    need_parts("peers", "collections")
    inventory = wall.inventory(wall.box.port)
    more = [*wall.given(), "-e", "ansible_python_interpreter=/usr/bin/python3"]
    before = wall.rules()
    astray = peers.ansible(
        PLAYBOOKS / "firewall.yml", inventory, wall.folder, *more, "-e", "firewall_ssh_port=2222"
    )
    assert astray.code != 0
    assert "set firewall_ssh_port to 22" in astray.tasks[-1][1]["msg"]
    assert wall.rules() == before

    first = peers.ansible(PLAYBOOKS / "firewall.yml", inventory, wall.folder, *more)
    second = peers.ansible(PLAYBOOKS / "firewall.yml", inventory, wall.folder, *more)

    assert first.code == second.code == 0
    assert second.recap["changed"] == 0, [name for name, result in second.tasks if result.get("changed")]
    assert {port for port in (22, NAMED, UNNAMED) if wall.comes_in(port)} == {22, NAMED}
    left = wall.check(PLAYBOOKS / "firewall.yml", *wall.given())
    assert (left.code, changed(left)) == (0, []), "rigd finds something left to do where Ansible is done"
    print(f"\nansible-playbook {first.took_s:.1f} s, again {second.took_s:.1f} s")


def test_without_a_rule_for_it_the_session_that_switches_it_on_is_let_in_again(wall):
    ran = wall.apply(wall.do("{state: enabled}"))

    assert changed(ran) == ["{state: enabled}"], told(ran)
    assert wall.comes_in(22)
    assert not wall.comes_in(UNNAMED)
    assert "22/tcp" in wall.box.run("ufw status")


# --- what would cut ---


def test_what_would_cut_this_ssh_is_refused_before_anything_changes(wall):
    near = wall.box.network.near
    wall.box.at_console("ufw allow 22/tcp; ufw --force enable")
    before = wall.rules()
    cutting = {
        "{rule: deny, insert: 1, port: '22'}": "by `deny in from any to any port 22`",
        "{rule: deny, port: '22', proto: tcp}": "by `deny in from any to any port 22 proto tcp`",
        "{rule: reject, insert: 1, direction: in, interface: host0}": "by `reject in on host0 from any to any`",
        f"{{rule: deny, insert: 1, from: {near}/32}}": f"by `deny in from {near} to any`",
        f"{{rule: deny, insert: 1, to: {wall.box.host}, port: '20:30', proto: tcp}}": "port 20:30 proto tcp`",
        "{rule: allow, delete: true, port: '22', proto: tcp}": "alone lets it in",
    }

    ran = wall.apply(wall.do(*cutting))

    said = {name: str(event["result"]["msg"]) for name, event in ran.tasks.items()}
    assert set(said) == set(cutting)
    for wish, why in cutting.items():
        assert f"would cut the ssh session from {near}" in said[wish], said[wish]
        assert why in said[wish]
    assert wall.rules() == before


def test_a_rule_that_waits_for_the_firewall_is_refused_when_it_goes_on(wall):
    wish = "{state: enabled}"
    ran = wall.apply(wall.do("{rule: deny, port: '22', proto: tcp}", wish))

    assert "would cut" in ran.tasks[wish]["result"]["msg"]
    assert wall.comes_in(22)
    assert "inactive" in wall.box.run("ufw status")


def test_what_cuts_in_spite_of_all_foresight_is_put_back_at_once_and_told(wall):
    wish = "{state: enabled}"
    wall.box.at_console(SHUT_BY_HAND)

    ran = wall.apply(wall.do(wish))

    said = ran.tasks[wish]["result"]["msg"]
    assert f"lets no new ssh session from {wall.box.network.near} in, so it was put back as it was" in said
    assert wall.comes_in(22)
    assert "inactive" in wall.box.run("ufw status")
    print(f"\nput back and told after {ran.took_s:.1f} s")


def test_where_nobody_is_left_to_tell_the_timer_puts_back_what_was(wall, block_until):
    box, wish = wall.box, "{default: reject, direction: incoming}"
    box.at_console(f"ufw allow 22/tcp; ufw allow {NAMED}; ufw --force enable; {SHUT_BY_HAND}")
    box.put(f"/etc/systemd/system/{ufw_guard.UNIT}.timer.d/sooner.conf", SOONER)
    before = wall.rules()
    assert wall.comes_in(22)

    with subprocess.Popen(wall.command(wall.do(wish)), env=wall.environ, stdout=subprocess.DEVNULL) as rigd:
        block_until(lambda: not wall.comes_in(22), deadline_s=30)
        rigd.kill()
    began_s = time.monotonic()
    block_until(lambda: wall.rules() == before and wall.comes_in(22), deadline_s=30)
    print(f"\nopen again {time.monotonic() - began_s:.1f} s after rigd was killed")

    assert {port for port in (22, NAMED, UNNAMED) if wall.comes_in(port)} == {22, NAMED}
    box.at_console("cp -p /root/before.rules /etc/ufw/before.rules")
    again = wall.apply(wall.do(wish))
    assert changed(again) == [wish], told(again)
    assert "put back as it was, since for 120 s" in again.tasks[wish]["result"]["warnings"][0]
    assert wall.comes_in(22)


def test_a_run_that_died_before_it_looked_is_confirmed_by_the_next(wall, block_until):
    box, wish = wall.box, "{state: enabled}"
    box.at_console(SHUT_BY_HAND)
    with subprocess.Popen(wall.command(wall.do(wish)), env=wall.environ, stdout=subprocess.DEVNULL) as rigd:
        block_until(lambda: not wall.comes_in(22), deadline_s=30)
        rigd.kill()
    # Whoever sits at the box mends what was in the way.
    box.at_console("cp -p /root/before.rules /etc/ufw/before.rules; ufw --force disable; ufw --force enable")

    again = wall.apply(wall.do(wish))

    assert again.tasks[wish]["outcome"] == "changed", told(again)
    [change] = again.tasks[wish]["result"]["changes"]
    assert change == "see whether ssh comes in after a change that was broken off", told(again)
    assert "gone" in box.at_console(f"test -e {ufw_guard.TIMER_FILE} || echo gone")
    assert "Status: active" in box.run("ufw status")
