"""Runs that are broken on purpose, and boxes in trouble: same end state, handlers run, one reboot; or a sentence."""

import concurrent.futures
import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import breaking
import pytest
import small_archive
from box import lab_box
from breaking import AFTER_REBOOT, END, WAYS, Story
from desks import Desk, Event, desk_of

pytestmark = pytest.mark.lab

Stories = dict[tuple[str, int], Story]
"""Way and boundary -> how it went."""


@pytest.fixture(scope="module")
def stories(need_parts: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Stories:
    """Break runs in every way at every boundary; each way has a box of its own, and all go on side by side."""
    need_parts("box")
    folders = {way: tmp_path_factory.mktemp("desk") for way in WAYS}
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(len(WAYS)) as pool:

        def all_of(way: str) -> Stories:
            desk = desk_in(stack, folders[way])
            breaks = WAYS[way].breaks
            return {(way, at): breaking.broken_at(desk, at, breaks) for at in WAYS[way].boundaries}

        found: Stories = {}
        for part in pool.map(all_of, WAYS):
            found |= part
        return found


def desk_in(stack: contextlib.ExitStack, folder: Path) -> Desk:
    box = stack.enter_context(lab_box())
    breaking.prepare(box)
    return desk_of(box, folder)


@pytest.mark.parametrize(("way", "at"), [(way, at) for way in WAYS for at in WAYS[way].boundaries])
def test_broken_run_comes_to_the_same_end(stories: Stories, way: str, at: int) -> None:
    story = stories[way, at]
    # A power cut may be the reboot that the run wanted; nothing else may stand for it, and nothing asks twice.
    reboots = ("", END["reboots"]) if way == "power cut" else (END["reboots"],)

    # Nothing is under way right after the reboot, and where the box is there again it is reached anew, unseen.
    assert story.broken == WAYS[way].code or (story.broken, at) == (0, AFTER_REBOOT)
    assert {**story.left, "reboots": END["reboots"]} == END, [run.events for run in story.rest]
    assert story.left.get("reboots", "") in reboots
    assert story.rebooted
    # The box of a busy machine may be late to answer; then it is unreachable, and asked again.
    assert {run.code for run in story.rest[:-1]} <= {4}, [run.failures or run.err for run in story.rest]
    assert story.rest[-1].code == 0


# --- a box in trouble ---

TROUBLES = """
- name: troubles
  hosts: all
  ignore_errors: true
  tasks:
    - {name: no room for a file, copy: {content: "{{ 'x' * 2000000 }}", dest: /srv/small/large}}
    - {name: what was there stays, shell: cat /srv/small/there, changed_when: false}
    - {name: no room for packages, apt: {name: rigd-large}}
    - {name: archive away, apt: {update_cache: true, update_cache_retries: 1}}
    - {name: held, apt: {name: rigd-one, state: latest}}
    - {name: others would go, apt: {name: rigd-rival}}
    - {name: asks, apt: {name: rigd-asks}}
    - {name: breaks, apt: {name: rigd-broken}}
    - {name: half configured, shell: dpkg -s rigd-broken | grep ^Status, changed_when: false}
    - {name: after it, apt: {name: rigd-mailer}}
"""
SAID = {
    "no room for a file": "no space is left on its disk; free some, nothing was changed",
    "no room for packages": "the disk of the box is full",
    "archive away": "cannot be reached",
    "held": "rigd-one is held",
    "others would go": "would also remove rigd-two",
    "breaks": "could not be set up",
}
WISHES = [
    "file: {path: /, state: absent}",
    "file: {path: /etc, state: absent}",
    "file: {path: //etc/../etc/, state: absent}",
    "file: {path: /srv/small, state: absent}",
    "file: {path: /srv/above, state: absent}",
    "mount: {path: /, state: absent}",
    "user: {name: root, state: absent}",
    "apt: {name: dpkg, state: absent}",
    "copy: {content: x, dest: /}",
]
"""What nobody means; each is refused, and the box is none the worse."""


@pytest.fixture(scope="module")
def troubled(need_parts: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Give a box with a full disk, a held package, and a source that is not there beside one that is."""
    need_parts("box")
    work = tmp_path_factory.mktemp("debs")
    with contextlib.ExitStack() as stack:
        desk = desk_in(stack, tmp_path_factory.mktemp("desk"))
        box = desk.box
        small_archive.build(box.root / "srv/archive", work)
        box.run("rm -f /etc/apt/sources.list")
        box.put("/etc/apt/sources.list.d/small.list", "deb [trusted=yes] file:/srv/archive ./\n")
        box.run("apt-get -q update; apt-get -qq -y install rigd-one=1.0 rigd-two; apt-mark hold rigd-one")
        box.run("mkdir -p /srv/small /srv/above/inner; mount -t tmpfs -o size=1m tmpfs /srv/small")
        box.run("mount -t tmpfs tmpfs /srv/above/inner; echo there > /srv/small/there")
        yield desk


@pytest.fixture(scope="module")
def trouble(troubled: Desk) -> dict[str, Event]:
    troubled.box.put("/etc/apt/sources.list.d/gone.list", "deb [trusted=yes] http://127.0.0.1:9 ./\n")
    ran = troubled.apply(TROUBLES)
    troubled.box.run("rm /etc/apt/sources.list.d/gone.list")
    assert ran.events, ran.err
    return ran.tasks


@pytest.mark.parametrize("task", SAID)
def test_trouble_is_a_sentence(trouble: dict[str, Event], task: str) -> None:
    assert trouble[task]["outcome"] == "failed", trouble[task]
    assert SAID[task] in trouble[task]["result"]["msg"]


def test_what_could_not_be_done_is_told_until_it_is_mended(trouble: dict[str, Event], troubled: Desk) -> None:
    assert trouble["what was there stays"]["result"]["stdout"] == "there"
    assert trouble["asks"]["outcome"] == "changed"  # With no answer, as its script allows.
    assert "rigd-broken" in trouble["after it"]["result"]["msg"]

    mended = troubled.apply(
        "- hosts: all\n  tasks:\n"
        "    - {name: away, apt: {name: rigd-broken, state: absent, purge: true}}\n"
        "    - {name: after it, apt: {name: rigd-mailer}}\n"
    )

    assert (mended.code, mended.recap["ok"]) == (0, 2)
    assert troubled.box.run("dpkg --audit") == ""


def test_lock_that_is_let_go_is_waited_for_and_its_holder_told(troubled: Desk) -> None:
    lock = (
        "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); open('/run/held', 'w')"
    )
    until_told = "for _ in range(600): os.path.exists('/run/told') and exit(); time.sleep(0.1)"
    source = f"import fcntl, os, time\n{lock}\n{until_told}\n"
    troubled.box.put("/srv/holder.py", source)
    troubled.box.run(
        "systemd-run -q --unit=holder python3 /srv/holder.py; until test -e /run/held; do sleep 0.1; done"
    )
    playbook = "- hosts: all\n  tasks:\n    - {name: package, apt: {name: rigd-config}}\n"

    told, ends = "", []
    command = troubled.command(playbook)
    with subprocess.Popen(command, env=troubled.environ, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        for line in running.stdout:
            event = json.loads(line)
            if not told and event["event"] == "progress" and "lock" in event["text"]:
                told = event["text"]
                troubled.box.run("touch /run/told")
            if event["event"] == "result":
                ends.append(event["result"].get("msg", ""))

    assert "python3" in told
    assert len(ends) == 1
    assert "lock" not in ends[0]  # It went on, to whatever end the box's packages allow.


@pytest.mark.parametrize("wish", WISHES)
def test_what_nobody_means_is_refused(wishes: dict[str, Event], wish: str) -> None:
    assert wishes[wish]["outcome"] == "failed"


@pytest.fixture(scope="module")
def wishes(troubled: Desk) -> dict[str, Event]:
    rows = [f"    - {{name: {json.dumps(wish)}, {wish}}}\n" for wish in WISHES]
    ran = troubled.apply("- hosts: all\n  ignore_errors: true\n  tasks:\n" + "".join(rows))
    assert ran.events, ran.err
    troubled.box.run(
        "test -x /usr/bin/env && test -s /etc/passwd && mountpoint -q /srv/above/inner && dpkg -s dpkg"
    )
    return ran.tasks


# --- secrets ---

SECRET = "correct-horse-battery-staple"
SECRETS = """
- name: secrets
  hosts: all
  no_log: true
  ignore_errors: true
  vars: {secret: "%s"}
  tasks:
    - {name: user, user: {name: keeper, password: "{{ secret }}", update_password: always}}
    - {name: template, template: {src: secret.j2, dest: /srv/secret, mode: "0600"}, notify: told}
    - {name: line, lineinfile: {path: /srv/secret, line: "again = {{ secret }}"}}
    - name: loop
      copy: {content: "{{ item }}", dest: /srv/secret-in-loop, mode: "0600"}
      loop: ["{{ secret }}"]
    - {name: server, uri: {url: "http://127.0.0.1:9/", url_username: me, url_password: "{{ secret }}"}}
    - {name: fetched, get_url: {url: "http://me:{{ secret }}@127.0.0.1:9/x", dest: /srv/x, mode: "0600"}}
    - name: source
      apt_repository: {repo: "deb http://me:{{ secret }}@127.0.0.1:9/ ./", update_cache_retries: 1}
    - {name: environment, command: sleep 0.3, environment: {TOKEN: "{{ secret }}"}, changed_when: true}
    - {name: refused, copy: {content: "{{ secret }}", dest: /srv/secret, validate: "/bin/false %%s"}}
    - {name: no number, debug: {msg: "{{ secret | int / 0 }}"}}
    - {name: no such file, copy: {src: "{{ secret }}", dest: /srv/y}}
    - {name: "named {{ secret }}", command: "true"}
    - {name: asks, pause: {prompt: "{{ secret }}", seconds: 0}}
    - {name: asserted, assert: {that: ["secret == 'other'"], fail_msg: "{{ secret }}"}}
  handlers:
    - {name: told, command: "true", args: {stdin: "{{ secret }}"}}
"""
WATCH = """
import os, pathlib, sys, time
READ = "cmdline", "environ"
secret, seen = sys.stdin.readline().strip().encode(), set()
until = time.monotonic() + 60
print("watching", flush=True)
while time.monotonic() < until and not pathlib.Path("/srv/enough").exists():
    for path in [f"/proc/{pid}/{name}" for pid in filter(str.isdigit, os.listdir("/proc")) for name in READ]:
        try:
            if secret in (line := pathlib.Path(path).read_bytes()) and b"TOKEN=" not in line:
                seen.add(line)
        except OSError:
            pass
    time.sleep(0.002)
print(seen or "none")
"""


def test_secrets_of_modules_are_nowhere(troubled: Desk) -> None:
    (troubled.folder / "templates").mkdir(exist_ok=True)
    (troubled.folder / "templates/secret.j2").write_text("secret = {{ secret }}\n")
    troubled.box.put("/srv/watch.py", WATCH)
    command = [*troubled.box.ssh, "python3 /srv/watch.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdin is not None
        assert watch.stdout is not None
        watch.stdin.write(SECRET + "\n")
        watch.stdin.flush()
        watch.stdout.readline()
        ran = troubled.apply(SECRETS % SECRET, "--diff")
        troubled.box.run("touch /srv/enough")
        seen = watch.stdout.read()

    assert {"user", "loop", "source", "asserted", "told"} <= ran.tasks.keys(), ran.err
    assert seen.strip() == "none"
    assert SECRET not in json.dumps(ran.events) + ran.err
    journals = list((troubled.folder / "state/runs").iterdir())
    assert journals
    assert not any(SECRET in path.read_text() for path in journals)
    assert SECRET not in troubled.box.run("journalctl -b -o cat --no-pager", check=False)
