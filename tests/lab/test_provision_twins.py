"""The same task files by rigd and by Ansible on twin boxes: same outcomes in three rounds, same boxes after them."""

import concurrent.futures
import contextlib
import hashlib
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers
import pytest
import small_archive
import test_provision_files_like_ansible
import yaml
from box import Box, free_port, lab_box
from desks import Desk, desk_of

from rigd.provision.target import modules

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
"""Three rounds of each tool: Ansible takes seconds a task where the machine is shared."""

SITE = Path(__file__).parent / "twins/site.yml"
AREAS = ("commands", "files", "packages", "sources", "units", "accounts", "jobs", "kernel", "looks")
ROUNDS = ("check", "first", "second")
ARCHIVE = "/srv/archive"
"""What stands here is of the test's own making."""
SEEN = r"""
import hashlib, json, os, subprocess
found = {}
for top in ("/etc", "/srv", "/home", "/var/spool/cron", "/usr/local", "/usr/share/rigd-one", "/mnt", "/opt"):
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            what = [oct(stat.st_mode), stat.st_uid, stat.st_gid]
            if os.path.islink(path):
                what.append(os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    # cron writes down when and from which file a table was read.
                    content = b"\n".join(row for row in file.read().split(b"\n") if b"installed on" not in row)
                what.append(content.decode() if len(content) < 4000 and content.isascii() else
                            hashlib.sha256(content).hexdigest())
            found[path] = what
def said(*argv):
    return subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()
for name, argv in {
    "packages": ["dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n"],
    "unit files": ["systemctl", "list-unit-files", "--no-legend", "--no-pager"],
    "units": ["systemctl", "list-units", "--type=service,timer", "--state=active", "--plain", "--no-legend",
              "--no-pager"],
    "mounts": ["findmnt", "-rn", "-t", "tmpfs", "-o", "TARGET,FSTYPE,OPTIONS"],
    "names": ["hostname"],
    "held": ["apt-mark", "showhold"],
    "by hand": ["apt-mark", "showmanual"],
}.items():
    for row in said(*argv):
        found[name + ": " + (row.split() or [""])[0]] = row
print(json.dumps(found))
"""


ON_PURPOSE: Mapping[str, Mapping[str, str]] = {
    "check": {
        "command by words in a folder with input": "what cannot be foretold is skipped, and its folder not asked for",
        "command that reads only": "a command that says it changes nothing runs in check mode, too",
        "wait for a port": "check mode looks once",
        "wait for a file's text": "check mode looks once",
        "lists read": "reading the lists is no change",
        "file from a server that it does not have": "no server is asked for a file that is not there yet",
        "unit that is not there": "an earlier task may bring it",
        "module of the kernel that is not there": "a package may bring it",
    },
    "first": {"lists read": "reading the lists is no change"},
    "second": {"lists read": "reading the lists is no change"},
}
"""Round -> task whose outcome is not Ansible's -> why. `rigd provision modules NAME` and `left-out` say it, too."""
OTHERWISE = {
    "/etc/ssh/": "each has its own port",
    "/etc/machine-id": "each boot of a fresh root makes its own",
    "/etc/machine-info": "the name for people to read is left alone",
    "/etc/timezone": "Debian's file is kept in step with the zone",
    "/etc/apt/trusted.gpg.d/twin.gpg": "the same key, written without gpg and its backup",
    "units: web.service": "each has its own port",
    "units: systemd-hostnamed.service": "names and zones are set without these",
    "units: systemd-timedated.service": "names and zones are set without these",
}
"""Path or other thing of a box that is not as Ansible leaves it -> why."""
Results = dict[str, tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one of the two did: outcome and result of each task in each round, and the box after it."""

    outcomes: Mapping[str, Results]
    boxes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Twins:
    """What both did."""

    ours: Side
    theirs: Side


@pytest.fixture(scope="module")
def twins(need_parts: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    need_parts("twins", "collections", "peers")
    work = tmp_path_factory.mktemp("debs")
    small_archive.build(work / "archive", work / "trees")
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context(box_with(work / "archive")) for _ in range(2)]
        # Of short names: the sockets of ssh's connections have room for 107 bytes.
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rigd-"))) for _ in range(2)]
        desks = [desk_of(box, folder) for box, folder in zip(boxes, folders, strict=True)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            yield Twins(*pool.map(played, (by_rigd, by_ansible), desks))


@contextlib.contextmanager
def box_with(archive: Path) -> Iterator[Box]:
    """Boot a twin with the small archive for its only source, and a server of its files."""
    with lab_box("twins") as box:
        shutil.copytree(archive, box.root / ARCHIVE.lstrip("/"))
        box.put("/etc/apt/sources.list", "# of the lab\n")
        box.put("/etc/apt/sources.list.d/small.list", f"deb [trusted=yes] file:{ARCHIVE} ./\n")
        box.run("apt-get -q update; mkdir -p /srv/other /srv/files; cp /srv/archive/Packages /srv/other")
        yield box


def played(tool: Callable[[Desk, Path, bool], Results], desk: Desk) -> Side:
    """Have a tool go over its box three times."""
    port = free_port()
    desk.box.run(f"systemd-run -q --unit=web python3 -m http.server -d {ARCHIVE} {port} --bind 127.0.0.1")
    variables = desk.folder / "variables.json"
    variables.write_text(json.dumps({
        "web_port": port, "archive": str(tar(desk.folder)), "key": armored_key(desk.box),
        "packages_sha256": hashlib.sha256((desk.box.root / ARCHIVE[1:] / "Packages").read_bytes()).hexdigest(),
    }))  # fmt: skip
    outcomes, boxes = {}, {"before": seen(desk.box)}
    for name in ROUNDS:
        began_s = time.monotonic()
        outcomes[name] = tool(desk, variables, name == "check")
        print(f"{tool.__name__}, {name}: {len(outcomes[name])} tasks in {time.monotonic() - began_s:.1f} s")
        boxes[name] = seen(desk.box)
    return Side(outcomes=outcomes, boxes=boxes)


def seen(box: Box) -> dict[str, Any]:
    return json.loads(box.run(f"python3 - <<'END'\n{SEEN}END"))


def tar(folder: Path) -> Path:
    path = folder / "small.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(SITE.parent / "files/plain.txt", "from-archive")
    return path


def armored_key(box: Box) -> str:
    keyring = "/usr/share/keyrings/debian-archive-removed-keys.gpg"
    gpg = f"gpg --no-default-keyring --keyring {keyring}"
    keys = f"{gpg} --list-keys --with-colons 2>/dev/null"
    newest = f"$({keys} | grep -A1 ^pub | grep ^fpr | tail -1 | cut -d: -f10)"
    return box.run(f"{{ {gpg} --armor --export {newest}; }} 2>/dev/null; rm -rf /root/.gnupg")


def by_rigd(desk: Desk, variables: Path, check: bool) -> Results:
    work = desk.check if check else desk.apply
    ran = work(SITE, "--extra-vars", f"@{variables}")
    assert ran.events, ran.err
    found = {}
    for name, event in ran.tasks.items():
        found[name] = (event["outcome"], event["result"])
    return found


def by_ansible(desk: Desk, variables: Path, check: bool) -> Results:
    more = ["-e", f"@{variables}", "-e", "ansible_python_interpreter=/usr/bin/python3"]
    done = peers.ansible(
        SITE, desk.inventory(desk.box.port), desk.folder, *more, *(["--check"] if check else [])
    )
    return {name: (peers.outcome(result), result) for name, result in done.tasks}


@pytest.mark.parametrize("turn", ROUNDS)
@pytest.mark.parametrize("area", AREAS)
def test_outcomes_are_ansibles(twins: Twins, area: str, turn: str) -> None:
    names = [task["name"] for task in yaml.safe_load((SITE.parent / f"{area}.yml").read_text())]
    ours, theirs = twins.ours.outcomes[turn], twins.theirs.outcomes[turn]
    differing = {name: (ours[name], theirs[name]) for name in names if ours[name][0] != theirs[name][0]}
    if turn == "check":
        # Where Ansible's check mode fails, or cannot tell, ours may foretell what the first run then does.
        first = twins.ours.outcomes["first"]
        foretold = {
            name
            for name, (our, their) in differing.items()
            if our[0] == first[name][0] or (their[0] == "failed" and "failed" not in (our[0], first[name][0]))
        }
        differing = {name: both for name, both in differing.items() if name not in foretold}

    assert {name: both for name, both in differing.items() if name not in ON_PURPOSE[turn]} == {}


@pytest.mark.parametrize("turn", ["first", "second"])
def test_boxes_are_the_same(twins: Twins, turn: str) -> None:
    assert different(twins.ours.boxes[turn], twins.theirs.boxes[turn], apart_from=tuple(OTHERWISE)) == {}


def test_check_mode_changes_nothing(twins: Twins) -> None:
    assert different(twins.ours.boxes["before"], twins.ours.boxes["check"]) == {}


def different(
    one: Mapping[str, Any], other: Mapping[str, Any], *, apart_from: tuple[str, ...] = ()
) -> dict[str, tuple[Any, Any]]:
    return {
        path: (one.get(path), other.get(path))
        for path in sorted(one.keys() | other.keys())
        if one.get(path) != other.get(path) and not path.startswith(apart_from)
    }


def test_every_module_that_ansible_has_is_compared() -> None:
    tasks = [task for area in AREAS for task in yaml.safe_load((SITE.parent / f"{area}.yml").read_text())]
    used = {key.rpartition(".")[2] for task in tasks for key in task if "." in key}
    used |= {param.values[0].module for param in test_provision_files_like_ansible.CASES}
    names = {
        name for name in modules.short_names() if not modules.module_of(name).names[0].startswith("rigd.")
    }

    assert names - used == set()
