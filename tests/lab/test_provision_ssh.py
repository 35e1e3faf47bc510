"""Connections to a real box: who gets in as whom, what a cut leaves behind, and how long it all takes."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import install
import pytest
from box import Box, lab_box
from slow_link import slow_link

from rigd.provision.connection import client
from rigd.provision.connection.link import Link, connect
from rigd.provision.connection.ssh import SshDoor
from rigd.provision.connection.target import BecomeError, HostUnreachableError, Target
from rigd.provision.target import facts

pytestmark = [pytest.mark.lab, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

PROJECT = Path(__file__).resolve().parents[2]
PASSWORD = "correct horse, battery"
USERS = f"""
set -e
for name in easy asked plain; do
    useradd --create-home --shell /bin/bash $name
    install -d -m 700 -o $name /home/$name/.ssh
    install -m 600 -o $name /root/.ssh/authorized_keys /home/$name/.ssh/
done
echo 'asked:{PASSWORD}' | chpasswd
echo 'plain:{PASSWORD}' | chpasswd
echo 'easy ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/easy
echo 'asked ALL=(ALL) ALL' > /etc/sudoers.d/asked
echo 'echo a greeting from the shell' >> /home/easy/.bashrc
sed -i '1i echo a greeting from the shell' /home/easy/.bashrc
"""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The box, and an ssh configuration of the test's own."""

    box: Box
    folder: Path
    config: Path
    known: Path

    def target(self, user: str = "root", **fields: Any) -> Target:
        base = Target(
            name="box", address=self.box.host, port=self.box.port, user=user, ssh_config=self.config,
            connect_timeout_s=10,
        )  # fmt: skip
        return replace(base, **fields)


@pytest.fixture(scope="module", params=["box", "trixie"], ids=["debian-12", "debian-13"])
def users(request: pytest.FixtureRequest, need_parts: Callable[..., None]) -> Iterator[Box]:
    """Give a box of each release with users: sudo without a password, with one, and none."""
    need_parts(request.param, "box")
    with lab_box(request.param) as box:
        box.run(USERS)
        yield box


@pytest.fixture
def sudo_rs(users: Box) -> Iterator[str]:
    """Put sudo-rs in the place of sudo, as Ubuntu 26.04 has it; where there is none, the old one stays."""
    users.run("apt-get -q update && apt-get -qy install sudo-rs", check=False, timeout_s=180)
    if not (users.root / "usr/lib/cargo/bin/sudo").exists():
        yield "sudo"
        return
    users.run("mv /usr/bin/sudo /usr/bin/sudo.c && cp -a /usr/lib/cargo/bin/sudo /usr/bin/sudo")
    yield "sudo-rs"
    users.run("mv /usr/bin/sudo.c /usr/bin/sudo")


@pytest.fixture
def ground(users: Box, tmp_path: Path) -> Ground:
    known = tmp_path / "known_hosts"
    public = (users.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
    known.write_text(f"[{users.host}]:{users.port} {public[0]} {public[1]}\n")
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n  IdentityFile {users.key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
    )
    return Ground(box=users, folder=tmp_path, config=config, known=known)


@pytest.fixture
def reach() -> Iterator[Callable[..., Link]]:
    """Give links that are closed afterwards."""
    links: list[Link] = []

    def open_link(target: Target, **blobs: bytes) -> Link:
        links.append(connect(target, blobs=blobs.get))
        return links[-1]

    yield open_link
    for link in links:
        link.close()


def command(text: str) -> dict[str, Any]:
    return {"id": text, "module": "shell", "arguments": {"cmd": text}}


def said_by(link: Link, user: str | None, text: str) -> str:
    event = link.helper(user).one("apply", task=command(text), deadline_s=60)
    assert event["event"] == "applied", event
    return str(event["facts"]["stdout"])


# --- who gets in ---


def test_root_needs_no_sudo(ground, reach):
    link = reach(ground.target())

    assert link.helper("root") is link.helper()
    assert (
        said_by(link, None, "id -un; echo $HOME") == "root\n/root" or said_by(link, None, "id -un") == "root"
    )


def test_root_becomes_anybody_without_sudo(ground, reach):
    link = reach(ground.target())

    assert said_by(link, "easy", "id -un; id -Gn; echo $HOME").split() == ["easy", "easy", "/home/easy"]
    assert said_by(link, "nobody", "id -un").strip() == "nobody"


def test_a_user_becomes_root_and_others_by_sudo_and_a_shell_may_greet(ground, reach):
    link = reach(ground.target("easy"))

    assert said_by(link, None, "id -un").strip() == "easy"
    assert said_by(link, "root", "id -un; echo $HOME").split() == ["root", "/root"]
    assert said_by(link, "plain", "id -un; echo $HOME").split() == ["plain", "/home/plain"]
    assert said_by(link, "root", "echo $SSH_CONNECTION").split()[-1] == str(ground.box.port)


def test_sudo_with_the_password(ground, reach):
    link = reach(ground.target("asked", become_password=PASSWORD))

    assert said_by(link, "root", "id -un").strip() == "root"
    # Neither the processes nor the log of sudo know it.
    assert PASSWORD not in ground.box.run("ps axwwe -o args; journalctl --no-pager")


def test_a_wrong_password_is_a_sentence_and_soon(ground, reach):
    started_s = time.monotonic()

    with pytest.raises(BecomeError, match="does not let 'asked' become 'root' with the password given"):
        reach(ground.target("asked", become_password="wrong")).helper("root")

    assert time.monotonic() - started_s < 10


def test_sudo_rs_with_and_without_a_password(ground, reach, sudo_rs):
    assert said_by(reach(ground.target("easy")), "root", "id -un; echo $HOME").split() == ["root", "/root"]
    assert (
        said_by(reach(ground.target("asked", become_password=PASSWORD)), "root", "id -un").strip() == "root"
    )
    with pytest.raises(BecomeError, match="does not let 'asked' become 'root' with the password given"):
        reach(ground.target("asked", become_password="wrong")).helper("root")


def test_a_missing_password_is_a_sentence(ground, reach):
    with pytest.raises(BecomeError, match="sudo on 'box' wants the password of 'asked'") as caught:
        reach(ground.target("asked")).helper("root")

    assert "--ask-become-pass" in caught.value.hint


def test_a_user_without_rights_is_a_sentence(ground, reach):
    with pytest.raises(BecomeError, match="does not let 'plain' become 'root'"):
        reach(ground.target("plain", become_password=PASSWORD)).helper("root")


def test_a_box_without_sudo_is_a_sentence(ground, reach):
    ground.box.run("mv /usr/bin/sudo /usr/bin/sudo.away")
    try:
        with pytest.raises(BecomeError, match="there is no sudo"):
            reach(ground.target("easy")).helper("root")
    finally:
        ground.box.run("mv /usr/bin/sudo.away /usr/bin/sudo")


def test_a_key_that_the_box_does_not_know_is_a_sentence(ground, reach, tmp_path):
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    ground.config.write_text(
        f"Host *\n IdentityFile {key}\n IdentitiesOnly yes\n UserKnownHostsFile {ground.known}\n"
    )

    with pytest.raises(HostUnreachableError, match="it takes none of our keys"):
        reach(ground.target()).helper()


# --- whether it is the right box ---


def test_an_unknown_box_is_refused_then_stored_on_request(ground, reach):
    ground.known.unlink()

    with pytest.raises(
        HostUnreachableError, match="is not known: nobody has said yet that its key SHA256:"
    ) as caught:
        reach(ground.target()).helper()
    assert "--accept-new" in caught.value.hint
    assert not ground.known.exists()

    reach(ground.target(accept_new=True)).helper()
    assert ground.known.read_text().startswith(f"[127.0.0.1]:{ground.box.port} ssh-ed25519 ")
    reach(ground.target()).helper()


def test_a_changed_key_is_never_taken(ground, reach, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    public = (tmp_path / "other.pub").read_text().split()
    ground.known.write_text(f"[127.0.0.1]:{ground.box.port} {public[0]} {public[1]}\n")

    with pytest.raises(
        HostUnreachableError, match="it was installed anew, or somebody stands in between"
    ) as caught:
        reach(ground.target(accept_new=True)).helper()

    assert f"ssh-keygen -f {ground.known} -R '[127.0.0.1]:{ground.box.port}'" in caught.value.hint


def test_a_box_behind_another(ground, reach):
    with ground.config.open("a") as file:
        file.write(
            f"Host inner\n  HostName 127.0.0.1\n  Port {ground.box.port}\n  User easy\n  ProxyJump outer\n"
        )
        file.write(f"Host outer\n  HostName 127.0.0.1\n  Port {ground.box.port}\n  User plain\n")

    link = reach(Target(name="inner", ssh_config=ground.config))

    assert said_by(link, None, "id -un").strip() == "easy"
    # Debian 13 calls it `sshd-session`.
    assert ground.box.run("ps ax -o args | grep -E '^sshd(-session)?: plain'")


def test_another_connection_is_tried_through_the_gateway(ground):
    with ground.config.open("a") as file:
        file.write(f"Host inner\n  HostName 127.0.0.1\n  Port {ground.box.port}\n  User easy\n")
        file.write("  ProxyJump outer\n")
        file.write(f"Host outer\n  HostName 127.0.0.1\n  Port {ground.box.port}\n  User plain\n")
    door = SshDoor(Target(name="inner", ssh_config=ground.config))
    try:
        assert door.knock()
    finally:
        door.close()


def test_the_gateway_must_be_known_too(ground, reach):
    with ground.config.open("a") as file:
        file.write(f"Host inner\n  HostName 127.0.0.1\n  Port {ground.box.port}\n  ProxyJump outer\n")
        file.write(f"Host outer\n  HostName localhost\n  Port {ground.box.port}\n  User root\n")

    with pytest.raises(HostUnreachableError, match="host 'outer' is not known"):
        reach(Target(name="inner", user="root", ssh_config=ground.config)).helper()


# --- what is cut ---


CONTROLLER = """
import json, sys
from pathlib import Path
from rigd.provision.connection import client
from rigd.provision.connection.link import connect
from rigd.provision.connection.target import Target
fields = json.loads(sys.argv[1])
link = connect(Target(**fields | {"ssh_config": Path(fields["ssh_config"])}), blobs=lambda digest: None)
helper = link.helper("root")
task = {"id": "1", "module": "shell", "arguments": {"cmd": "sleep 4321 & sleep 4321"}}
print("started", flush=True)
list(helper.request("apply", task=task))
"""


def running(box: Box, pattern: str) -> list[str]:
    # The brackets keep the search from finding itself.
    return box.run(f"pgrep -fa '[{pattern[0]}]{pattern[1:]}'", check=False).splitlines()


@pytest.mark.parametrize("user", ["root", "easy"])
def test_kill_9_of_our_side_leaves_nothing_on_the_box(ground, block_until, user):
    fields = {"name": "box", "address": "127.0.0.1", "port": ground.box.port, "user": user,
              "ssh_config": str(ground.config)}  # fmt: skip
    ours = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, json.dumps(fields)], cwd=PROJECT, start_new_session=True
    )
    try:
        block_until(lambda: len(running(ground.box, "sleep 4321")) >= 2, 20)
    finally:
        os.killpg(ours.pid, signal.SIGKILL)
        ours.wait()
    killed_s = time.monotonic()

    block_until(lambda: not running(ground.box, "sleep 4321"), 10)
    block_until(lambda: not running(ground.box, "rigd-helper"), 10)
    print(f"kill -9 as {user}: nothing left after {time.monotonic() - killed_s:.1f} s")


def test_a_link_cut_in_the_middle_is_told_and_leaves_nothing(ground, reach, block_until):
    with slow_link(ground.box.port, round_trip_s=0) as line:
        ground.known.write_text(ground.known.read_text().replace(f":{ground.box.port}", f":{line.port}"))
        link = reach(ground.target(port=line.port))
        events = link.helper().request("apply", task=command("echo here; sleep 4322"))
        cutter = _cut_when(lambda: running(ground.box, "sleep 4322"), line.cut)

        with pytest.raises(HostUnreachableError, match="the link to 'box' is cut") as caught:
            list(events)

        cutter.join()
    assert caught.value.temporary
    block_until(lambda: not running(ground.box, "sleep 4322"), 10)


def test_a_cable_pulled_out_is_noticed_on_both_ends(ground, reach, block_until, monkeypatch):
    monkeypatch.setattr(client, "BEAT_S", 0.5)
    with slow_link(ground.box.port, round_trip_s=0) as line:
        ground.known.write_text(ground.known.read_text().replace(f":{ground.box.port}", f":{line.port}"))
        link = reach(ground.target(port=line.port))
        events = link.helper().request("apply", task=command("sleep 4323"))
        cutter = _cut_when(lambda: running(ground.box, "sleep 4323"), line.freeze)

        with pytest.raises(HostUnreachableError, match="the link to 'box' is cut"):
            list(events)

        cutter.join()
        block_until(lambda: not running(ground.box, "sleep 4323"), 10)


def test_a_helper_that_is_killed_is_told_and_another_started(ground, reach):
    link = reach(ground.target())
    helper = link.helper()
    ground.box.run(f"kill -9 {helper.hello['pid']}", check=False)

    with pytest.raises(HostUnreachableError, match="is cut"):
        list(helper.request("batch", tasks=[command("true")], deadline_s=10))

    assert link.helper() is not helper
    assert said_by(link, None, "echo again").strip() == "again"


def test_a_broken_helper_on_the_box_is_replaced(ground, reach):
    reach(ground.target()).helper()
    ground.box.run("for file in $(find /run/rigd-helper -name helper.py); do echo 'broken(' > $file; done")

    assert reach(ground.target()).helper().hello["user"] == "root"


def test_a_box_that_reboots_is_waited_for(ground, reach):
    # Systemd in the box cannot start it anew, so the boot is only pretended to be another one.
    link = reach(ground.target())
    boot_id = link.helper().hello["boot_id"]

    assert link.wait_until_back(old_boot_id="another", deadline_s=20)["boot_id"] == boot_id
    with pytest.raises(HostUnreachableError, match="it answers, but has not rebooted"):
        link.wait_until_back(old_boot_id=boot_id, deadline_s=0)


def test_a_box_without_python_gets_it_where_that_is_allowed(ground, reach):
    ground.box.run("mkdir -p /root/away && mv /usr/bin/python3* /root/away/")
    try:
        with pytest.raises(HostUnreachableError, match="there is no Python there"):
            reach(ground.target("easy")).helper("root")
        told: list[str] = []
        link = connect(ground.target("easy", bootstrap=True), blobs=lambda _digest: None, tell=told.append)
        try:
            ground.box.run("mkdir -p /opt/shims; printf '#!/bin/sh\\n[ $1 = -q ] && cp -a /root/away/* /usr/bin/\\n' "
                           "> /usr/local/bin/apt-get; chmod 755 /usr/local/bin/apt-get")  # fmt: skip
            assert link.helper("root").hello["user"] == "root"
        finally:
            link.close()
        assert told[0].startswith("installing Python on box")
    finally:
        ground.box.run("rm -f /usr/local/bin/apt-get; cp -an /root/away/* /usr/bin/")


# --- how long it takes ---


def test_the_second_run_finds_the_helper_and_is_quick(ground, reach):
    reach(ground.target()).helper()
    tasks = [
        {"id": str(number), "module": "stat", "arguments": {"path": "/etc/passwd"}} for number in range(24)
    ]
    for delay_s in (0.0, 0.02):
        with slow_link(ground.box.port, round_trip_s=delay_s) as line:
            ground.known.write_text(ground.known.read_text() + ground.known.read_text().splitlines()[0].replace(
                f":{ground.box.port}", f":{line.port}") + "\n")  # fmt: skip
            started_s = time.monotonic()
            link = reach(ground.target(port=line.port))
            helper = link.helper()
            ready_s = time.monotonic()
            events = list(helper.request("batch", tasks=tasks))
            ended_s = time.monotonic()
        assert [event["event"] for event in events] == ["probed"] * 24
        print(f"{delay_s * 1000:.0f} ms: connected and helper started in {ready_s - started_s:.2f} s, "
              f"24 probes in {(ended_s - ready_s) * 1000:.0f} ms")  # fmt: skip
        assert ended_s - started_s < 3.0


def test_a_megabyte_over_50_ms_takes_less_than_a_second(ground, reach):
    content = os.urandom(1 << 20)
    digest = hashlib.sha256(content).hexdigest()
    with slow_link(ground.box.port, round_trip_s=0.05) as line:
        ground.known.write_text(ground.known.read_text().replace(f":{ground.box.port}", f":{line.port}"))
        link = reach(ground.target(port=line.port), **{digest: content})
        helper = link.helper()
        task = {
            "id": "1",
            "module": "copy",
            "arguments": {
                "dest": "/root/big",
                "src": "big",
                "entries": [{"path": "", "sha256": digest, "name": "big"}],
            },
        }
        started_s = time.monotonic()
        event = helper.one("apply", task=task, deadline_s=60)
        took_s = time.monotonic() - started_s
    assert event["event"] == "applied", event
    print(f"1 MiB over 50 ms: {took_s:.2f} s")
    assert took_s < 1.0
    assert ground.box.run("sha256sum /root/big").split()[0] == digest


# --- what is known of it ---


def test_facts_are_the_same_as_ansible_s(ground, reach, need_parts):
    need_parts("peers")
    ansible = install.default_folder() / "peers/bin/ansible"
    inventory = (
        f"box ansible_host=127.0.0.1 ansible_port={ground.box.port} ansible_user=easy "
        f"ansible_ssh_private_key_file={ground.box.key} ansible_python_interpreter=/usr/bin/python3 "
        f"ansible_ssh_common_args='-F none -o UserKnownHostsFile={ground.known}'"
    )
    (ground.folder / "inventory").write_text(inventory)
    said = subprocess.run(
        [ansible, "box", "-i", ground.folder / "inventory", "-m", "setup", "--become"],
        capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C.UTF-8"},
    ).stdout  # fmt: skip
    theirs = json.loads(said.partition("=>")[2])["ansible_facts"]

    ours = reach(ground.target("easy")).helper("root").facts()

    moving = {"env", "date_time", "loadavg", "uptime_seconds", "memfree_mb", "memory_mb", "swapfree_mb", "python",
              "mounts", "lsb", "interfaces", "all_ipv4_addresses", "all_ipv6_addresses", "cmdline"}  # fmt: skip
    same = facts.known() & {name.removeprefix("ansible_") for name in theirs} - moving
    assert {name: ours[name] for name in same} == {name: theirs[f"ansible_{name}"] for name in same}
    assert set(ours["date_time"]) == set(theirs["ansible_date_time"])
    for name in ("interfaces", "all_ipv4_addresses", "all_ipv6_addresses"):
        assert sorted(ours[name]) == sorted(theirs.get(f"ansible_{name}", ours[name]))
    assert {one["mount"] for one in ours["mounts"]} == {one["mount"] for one in theirs["ansible_mounts"]}
    print(f"{len(same)} facts are the same as Ansible's")


def _cut_when(condition: Callable[[], object], act: Callable[[], None]) -> Any:
    def wait() -> None:
        until_s = time.monotonic() + 20
        while not condition() and time.monotonic() < until_s:
            time.sleep(0.1)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread
