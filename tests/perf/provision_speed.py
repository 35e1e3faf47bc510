"""Print how long the same 24 operations take with rigd, Ansible and pyinfra: `python tests/perf/provision_speed.py`.

Not a test: nothing fails here when a figure is bad. A box of the lab is booted, and reached over links of 0 and 20 ms
round trip (first: `python tests/lab/install.py box peers collections`). Each figure is the whole process, best and
median of its runs; `first` begins on a box that has none of it and no helper, `second` finds all done.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests/lab")]

import install  # noqa: E402  (of tests/lab)
import peers  # noqa: E402
from box import lab_box  # noqa: E402
from desks import Desk, desk_of  # noqa: E402
from slow_link import slow_link  # noqa: E402

ROUND_TRIPS_MS = (0, 20)
GOALS_S = {("second", 0): 0.6, ("second", 20): 1.2}
FILE_ROUND_TRIP_MS = 50
FILE_BYTES = 1_000_000
FILE_GOAL_S = 1.0
DEADLINE_S = 300
UNDO = (
    "rm -rf /srv/speed /etc/sysctl.d/60-speed.conf /run/rigd* /root/.cache/rigd*; userdel -r speedy;"
    " groupdel speeds; systemctl disable --now speed; true"
)
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - {name: folder 1, file: {path: /srv/speed, state: directory, mode: "0755"}}
    - {name: folder 2, file: {path: /srv/speed/a, state: directory, mode: "0755"}}
    - {name: folder 3, file: {path: /srv/speed/b, state: directory, mode: "0750"}}
    - {name: file 1, copy: {content: "one\\n", dest: /srv/speed/a/1, mode: "0644"}}
    - {name: file 2, copy: {content: "two\\n", dest: /srv/speed/a/2, mode: "0644"}}
    - {name: file 3, copy: {content: "three\\n", dest: /srv/speed/a/3, mode: "0600"}}
    - {name: file 4, copy: {content: "four\\n", dest: /srv/speed/b/4, mode: "0644"}}
    - {name: file 5, copy: {content: "five\\n", dest: /srv/speed/b/5, mode: "0644"}}
    - {name: file 6, copy: {content: "six\\n", dest: /srv/speed/b/6, mode: "0644"}}
    - {name: file 7, copy: {src: seven.txt, dest: /srv/speed/7, mode: "0644"}}
    - {name: template 1, template: {src: speed.j2, dest: /srv/speed/t1, mode: "0644"}}
    - {name: template 2, template: {src: speed.j2, dest: /srv/speed/t2, mode: "0644"}}
    - {name: line 1, lineinfile: {path: /srv/speed/lines, line: "added = 1", create: true, mode: "0644"}}
    - {name: line 2, lineinfile: {path: /srv/speed/lines, line: "added = 2", create: true, mode: "0644"}}
    - {name: line 3, lineinfile: {path: /srv/speed/lines, line: "added = 4", create: true, mode: "0644"}}
    - {name: link 1, file: {src: /srv/speed/a/1, dest: /srv/speed/link, state: link}}
    - {name: link 2, file: {src: /srv/speed/a/2, dest: /srv/speed/link2, state: link}}
    - {name: group, group: {name: speeds, system: true}}
    - {name: user, user: {name: speedy, groups: [speeds], shell: /bin/bash}}
    - {name: packages, package: {name: [sudo, procps, iproute2], state: present}}
    - {name: unit, systemd: {name: speed, enabled: true, state: started}}
    - {name: setting, copy: {content: "vm.swappiness = 10\\n", dest: /etc/sysctl.d/60-speed.conf, mode: "0644"}}
    - {name: command, command: touch /srv/speed/touched, args: {creates: /srv/speed/touched}}
    - {name: absent, file: {path: /srv/speed/none, state: absent}}
"""
DEPLOY = """
import io
from pyinfra import host
from pyinfra.operations import apt, files, server, systemd
from pyinfra.facts.files import File

def text(content, dest, mode):
    files.put(name=dest, src=io.StringIO(content), dest=dest, mode=mode)

files.directory(name="folder 1", path="/srv/speed", mode="755")
files.directory(name="folder 2", path="/srv/speed/a", mode="755")
files.directory(name="folder 3", path="/srv/speed/b", mode="750")
for dest, content in {"a/1": "one", "a/2": "two", "b/4": "four"}.items():
    text(f"{content}\\n", f"/srv/speed/{dest}", "644")
text("three\\n", "/srv/speed/a/3", "600")
text("five\\n", "/srv/speed/b/5", "644")
text("six\\n", "/srv/speed/b/6", "644")
files.put(name="file 7", src="seven.txt", dest="/srv/speed/7", mode="644")
files.template(name="template 1", src="speed.j2", dest="/srv/speed/t1", mode="644", name_of="box")
files.template(name="template 2", src="speed.j2", dest="/srv/speed/t2", mode="644", name_of="box")
files.line(name="line 1", path="/srv/speed/lines", line="added = 1", ensure_newline=True)
files.line(name="line 2", path="/srv/speed/lines", line="added = 2", ensure_newline=True)
files.line(name="line 3", path="/srv/speed/lines", line="added = 4", ensure_newline=True)
files.link(name="link 1", path="/srv/speed/link", target="/srv/speed/a/1")
files.link(name="link 2", path="/srv/speed/link2", target="/srv/speed/a/2")
server.group(name="group", group="speeds", system=True)
server.user(name="user", user="speedy", groups=["speeds"], shell="/bin/bash")
apt.packages(name="packages", packages=["sudo", "procps", "iproute2"])
systemd.service(name="unit", service="speed", enabled=True, running=True)
text("vm.swappiness = 10\\n", "/etc/sysctl.d/60-speed.conf", "644")
if not host.get_fact(File, path="/srv/speed/touched"):
    server.shell(name="command", commands=["touch /srv/speed/touched"])
files.file(name="absent", path="/srv/speed/none", present=False)
"""
UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
TEMPLATE = "# for {{ name_of | default('box') }}\n{% for n in range(3) %}n = {{ n }}\n{% endfor %}"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One of the three: runs the operations over a port of this machine; returns seconds, and how many changed."""

    run: Callable[[Desk, int], tuple[float, int]]
    runs: Mapping[str, int]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    parser.add_argument("--only", choices=[*TOOLS], action="append", help="leave the others out")
    parser.add_argument("--runs", type=int, help="runs of each kind (default: fewer of what is slow)")
    asked = parser.parse_args()
    with ExitStack() as stack:
        desk = prepared(stack)
        found = figures(desk, asked.only or [*TOOLS], asked.runs)
        found["1 MB over 50 ms"] = megabyte(desk)
    sys.stdout.write((json.dumps(found, indent=2) if asked.json else table(found)) + "\n")


def prepared(stack: ExitStack) -> Desk:
    """Boot a box; write the operations down in both languages."""
    box = stack.enter_context(lab_box())
    box.put("/etc/systemd/system/speed.service", UNIT)
    folder = Path(tempfile.mkdtemp(prefix="rigd-speed-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    for name, text in {
        "speed.yml": PLAYBOOK,
        "speed.py": DEPLOY,
        "speed.j2": TEMPLATE,
        "seven.txt": "seven\n",
    }.items():
        (folder / name).write_text(text)
    return desk_of(box, folder)


def figures(desk: Desk, names: list[str], runs: int | None) -> dict[str, dict[str, float]]:
    """Return "tool, round, link" -> best and median."""
    found: dict[str, dict[str, float]] = {}
    for round_trip_ms in ROUND_TRIPS_MS:
        with slow_link(desk.box.port, round_trip_s=round_trip_ms / 1000) as link:
            port = link.port if round_trip_ms else desk.box.port
            for name in names:
                for kind, took_s in times(desk, port, TOOLS[name], runs).items():
                    found[f"{name}, {kind} run, {round_trip_ms} ms"] = summed_up(took_s)
    return found


def times(desk: Desk, port: int, tool: Tool, runs: int | None) -> dict[str, list[float]]:
    """Return the seconds of each run of a tool, by kind."""
    tool.run(desk, port)  # Once to warm the file cache and the byte code.
    found: dict[str, list[float]] = {"second": [], "first": []}
    for kind, took_s in found.items():
        for _ in range(runs or tool.runs[kind]):
            if kind == "first":
                desk.box.run(UNDO, check=False)
            seconds, changed = tool.run(desk, port)
            assert bool(changed) is (kind == "first"), (kind, changed)
            took_s.append(seconds)
    return found


def summed_up(took_s: list[float]) -> dict[str, float]:
    return {"best_s": round(min(took_s), 2), "median_s": round(statistics.median(took_s), 2)}


def megabyte(desk: Desk) -> dict[str, float]:
    """Return how much longer a run over a slow link takes when it brings a file of 1 MB that does not compress."""
    (desk.folder / "large").write_bytes(os.urandom(FILE_BYTES))
    task = "    - {copy: {src: large, dest: /srv/large, mode: '0644'}}\n"
    playbook = f"- hosts: all\n  gather_facts: false\n  tasks:\n{task}"
    with slow_link(desk.box.port, round_trip_s=FILE_ROUND_TRIP_MS / 1000) as link:
        desk.apply(playbook, port=link.port)
        there = min(desk.apply(playbook, port=link.port).took_s for _ in range(3))
        took_s = []
        for _ in range(5):
            desk.box.run("rm /srv/large")
            took_s.append(desk.apply(playbook, port=link.port).took_s - there)
    return summed_up(took_s)


def by_rigd(desk: Desk, port: int) -> tuple[float, int]:
    ran = desk.apply(desk.folder / "speed.yml", port=port)
    assert ran.code == 0, (ran.events[-2:], ran.err)
    return ran.took_s, ran.recap.get("changed", 0)


def by_ansible(desk: Desk, port: int) -> tuple[float, int]:
    ran = peers.ansible(desk.folder / "speed.yml", desk.inventory(port), desk.folder,
                        "-e", "ansible_python_interpreter=/usr/bin/python3")  # fmt: skip
    assert ran.code == 0, ran.tasks[-1:]
    return ran.took_s, ran.recap["changed"]


def by_pyinfra(desk: Desk, port: int) -> tuple[float, int]:
    program = install.default_folder() / "peers/bin/pyinfra"
    words = ["127.0.0.1", "speed.py", "-y", "--port", str(port), "--user", "root", "--key", str(desk.box.key),
             "--data", "ssh_strict_host_key_checking=off"]  # fmt: skip
    began_s = time.monotonic()
    done = subprocess.run([str(program), *words], cwd=desk.folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "HOME": str(desk.folder)}, timeout=DEADLINE_S)  # fmt: skip
    took_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stdout + done.stderr
    changed = re.search(r"Grand total\s+\S*\s*(\d+|-)", done.stderr + done.stdout)
    assert changed, done.stdout + done.stderr
    return took_s, int(changed[1].replace("-", "0"))


TOOLS = {
    "rigd": Tool(run=by_rigd, runs={"second": 9, "first": 5}),
    "pyinfra": Tool(run=by_pyinfra, runs={"second": 3, "first": 3}),
    "ansible": Tool(run=by_ansible, runs={"second": 2, "first": 2}),
}


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the figures for a person, with the goals, and how many times longer the others take."""
    lines = [f"{'seconds, whole process':40} {'best':>7} {'median':>7}   goal   times rigd's median"]
    for name, values in found.items():
        tool, _, rest = name.partition(", ")
        ours = found.get(f"rigd, {rest}", {}).get("median_s")
        ratio = f"{values['median_s'] / ours:.1f}" if ours and tool != "rigd" else ""
        kind, _, link = rest.partition(" run, ")
        goal = GOALS_S.get((kind, int(link.split()[0]))) if tool == "rigd" else None
        goal = FILE_GOAL_S if name.startswith("1 MB") else goal
        lines.append(
            f"{name:40} {values['best_s']:7.2f} {values['median_s']:7.2f}   {goal or '':<6} {ratio}".rstrip()
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
