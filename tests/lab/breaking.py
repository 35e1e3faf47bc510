"""A run that is broken at a task boundary, in one of several ways, and gone on with until it comes to its end.

The run is held (SIGSTOP) at the boundary while it is broken: else it would be over before the box or the link is.
"""

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from box import Box
from desks import Desk, Ran
from slow_link import SlowLink, slow_link

PLAYBOOK = """
- name: story
  hosts: all
  tasks:
    - {name: config, copy: {content: "config", dest: /srv/config, mode: "0644"}, notify: restart}
    - name: lines
      lineinfile: {path: /srv/lines, line: "{{ item }}", create: true, mode: "0644"}
      loop: [a, b]
      notify: topic
    - {name: driver, copy: {content: "driver", dest: /srv/driver, mode: "0644"}, register: driver}
    - name: reboot
      reboot: {reboot_command: /usr/local/sbin/reboots, reboot_timeout: 60}
      when: driver is changed
    - name: once
      command: cp /proc/sys/kernel/random/boot_id /srv/booted
      args: {creates: /srv/booted}
      notify: restart
    - {name: last, copy: {content: "last", dest: /srv/last, mode: "0644"}, notify: late}
  handlers:
    - {name: restart, shell: echo restart >> /srv/handlers}
    - {name: reload, listen: topic, shell: echo reload >> /srv/handlers}
    - {name: late, shell: echo late >> /srv/handlers}
"""
TASKS = 6
AFTER_REBOOT = 4
SOFT_REBOOT = """#!/bin/sh
# To a run over ssh this is a reboot: nobody comes in any more, its sessions die, what lay in /run is gone; then the
# kernel names another boot, and only then sshd listens again.
echo reboot >> /srv/reboots
systemctl stop ssh
pkill -9 -f 'sshd: root'
rm -rf /run/rigd*
cat /proc/sys/kernel/random/uuid > /run/boot
umount /proc/sys/kernel/random/boot_id
mount --bind /run/boot /proc/sys/kernel/random/boot_id
systemctl start ssh
"""
END = {
    "config": "config", "lines": "a\nb\n", "driver": "driver", "last": "last", "reboots": "reboot\n",
    "handlers": "late,reload,restart",
}  # fmt: skip
TRIES = 4


@dataclass(frozen=True, kw_only=True)
class Story:
    """How it went: what the broken run ended with, the runs after it, and what is on the box."""

    broken: int
    """The exit code; of a signal, less than 0."""
    rest: list[Ran]
    left: dict[str, str]
    rebooted: bool
    """Whether what was to come after the reboot came after one."""


Break = Callable[[Desk, SlowLink, subprocess.Popen[str]], None]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One of the ways in which a run is broken."""

    breaks: Break
    first: int
    """Boundary from which on there is something to break: 0 is before the first task, 1 after it."""
    code: int
    """What the broken run ends with; of a signal, less than 0."""

    @property
    def boundaries(self) -> range:
        """Return the boundaries to break a run at."""
        return range(self.first, TASKS + 1)


def link_cut(_desk: Desk, link: SlowLink, _run: subprocess.Popen[str]) -> None:
    link.cut()


def helper_killed(desk: Desk, _link: SlowLink, _run: subprocess.Popen[str]) -> None:
    desk.box.run("pkill -9 -f '[h]elper-[0-9a-f]+'", check=False)


def rigd_killed(_desk: Desk, _link: SlowLink, run: subprocess.Popen[str]) -> None:
    run.send_signal(signal.SIGKILL)


def power_cut(desk: Desk, _link: SlowLink, _run: subprocess.Popen[str]) -> None:
    desk.box.cut_power()
    desk.box.boot_again()


WAYS = {
    "link cut": Way(breaks=link_cut, first=0, code=4),
    "helper killed": Way(breaks=helper_killed, first=1, code=4),
    "rigd killed": Way(breaks=rigd_killed, first=0, code=-signal.SIGKILL),
    "power cut": Way(breaks=power_cut, first=1, code=4),
}


def prepare(box: Box) -> None:
    """Have the box reboot in half a second, as far as a run over ssh can tell."""
    box.put("/usr/local/sbin/reboots", SOFT_REBOOT, mode=0o755)


def broken_at(desk: Desk, boundary: int, breaks: Break) -> Story:
    """Break a run after so many tasks have ended; run the same command until it is done; tell, and tidy up."""
    before = desk.box.run("rm -rf /srv/*; cat /proc/sys/kernel/random/boot_id")
    with slow_link(desk.box.port, round_trip_s=0) as link:
        code = _broken(desk, link, boundary, breaks)
    rest: list[Ran] = []
    with slow_link(desk.box.port, round_trip_s=0) as link:
        while len(rest) < TRIES and (not rest or rest[-1].code != 0):
            rest.append(desk.apply(PLAYBOOK, port=link.port))
    left = {path.name: path.read_text() for path in (desk.box.root / "srv").iterdir()}
    left["handlers"] = ",".join(sorted(set(left.get("handlers", "").split())))
    after = left.pop("booted", before)
    return Story(broken=code, rest=rest, left=left, rebooted=after != before)


def _broken(desk: Desk, link: SlowLink, boundary: int, breaks: Break) -> int:
    command = desk.command(PLAYBOOK, port=link.port)
    with subprocess.Popen(
        command, env=desk.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdout is not None
        ended = 0
        for line in run.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == ("play" if boundary == 0 else "result"):
                ended += event["event"] == "result"
                if ended == boundary:
                    run.send_signal(signal.SIGSTOP)
                    breaks(desk, link, run)
                    run.send_signal(signal.SIGCONT)
                    break
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.communicate(timeout=90)
        run.kill()
    return int(run.returncode)
