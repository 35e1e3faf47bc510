"""Each failure of a real daemon's engine leaves an incident: the right class, the trail, the log, no secret."""

import contextlib
import io
import json
import os
import signal
import stat
import subprocess
import tarfile

import pytest
from driver import CORE
from rigs import DOUBLE

from rigd.adapters import stacks
from rigd.supervise.incident import TOTAL_BYTES

API_KEY, PROMPT = "planted-api-key-71", "these are planted private words"


@pytest.fixture(scope="module", params=DOUBLE)
def rig(request, make_rig):
    made = make_rig(request.param)
    made.environ["BOX_KEY"] = API_KEY
    made.settings["engine"].setdefault("environment", {})["SOME_PASSWORD"] = {"env": "BOX_KEY"}
    return made


def listed(rig):
    return rig.client.get("/v1/incidents", {"limit": 100})["incidents"]


def next_incident(rig, before, deadline_s=30):
    """Return the whole incident that came after those listed before, once its engine serves again."""
    known = {entry["id"] for entry in before}

    def found():
        fresh = [entry for entry in listed(rig) if entry["id"] not in known]
        return fresh[-1] if fresh and fresh[-1]["complete"] and fresh[-1]["outcome"] != "open" else None

    entry = rig.until(found, deadline_s, "an incident of the failure")
    return rig.client.get(f"/v1/incidents/{entry['id']}")


def part(rig, number, name):
    return (rig.folder / f"state/incidents/{number:06d}" / name).read_text()


def test_killed_engine_leaves_its_story(rig):
    rig.ready()
    before = listed(rig)

    rig.members()[CORE].kill()

    found = next_incident(rig, before)
    assert (found["class"], found["outcome"]) == ("worker_died", "recovered")
    assert found["exit"]["member"].startswith("VLLM::")
    kinds = [entry["kind"] for entry in found["trail"]]
    assert kinds.index("failure") < kinds.index("stopped") < kinds.index("backoff")
    assert kinds[-1] == "ready"
    assert found["log"]
    assert "vllm:num_requests_running" in part(rig, found["id"], "metrics.txt")
    assert "VLLM::" in part(rig, found["id"], "processes.txt")
    assert json.loads(part(rig, found["id"], "spec.json"))["argv"]
    assert found["versions"]["vllm"] == rig.settings["engine"]["version"]


def test_frozen_engine_leaves_its_stacks(rig):
    rig.ready()
    before = listed(rig)

    rig.members()[CORE].suspend()

    found = next_incident(rig, before)
    assert (found["class"], found["exit"]) == ("engine_stalled", None)
    assert stacks.program() is not None, "py-spy comes with the dev extra"
    text = part(rig, found["id"], "stacks.txt")
    # Reading another process needs a privilege that a test user may lack; then its refusal is what is kept.
    assert "VLLM::EngineCor" in text
    if os.geteuid() == 0:
        assert "Core.run" in text
    assert found["evidence_s"] < 3.5


def test_garbage_leaves_an_incident_of_its_class(rig):
    rig.ready()
    before = listed(rig)

    rig.fault(garbage=True)
    rig.until(lambda: len(listed(rig)) > len(before), 30, "garbage is an incident")
    rig.fault()

    assert next_incident(rig, before)["class"] == "garbage_output"


def test_planted_secrets_are_in_no_file_and_all_files_are_private(rig):
    rig.ready()
    before = listed(rig)
    with (rig.folder / f"state/starts/{rig.status()['engine']['start']:06d}/engine.log").open("a") as log:
        log.write(f"it said {API_KEY}\n")
        log.write(f"INFO 11-30 02:33:11 [logger.py:41] Received request a: prompt: '{PROMPT}', params: X\n")
    rig.members()["api"].kill()
    number = next_incident(rig, before)["id"]

    content = rig.client.content(f"/v1/incidents/{number}/bundle")

    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        texts = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}
    assert f"incident-{number}/engine.log" in texts
    for name, text in texts.items():
        assert API_KEY not in text, name
        assert PROMPT not in text, name
    assert "it said ***" in texts[f"incident-{number}/engine.log"]
    for path in (rig.folder / "state/incidents").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_flood_of_log_lines_keeps_the_incident_small(rig):
    rig.ready()
    before = listed(rig)
    log = rig.folder / f"state/starts/{rig.status()['engine']['start']:06d}/engine.log"
    with log.open("a") as file:
        file.write("INFO 11-30 02:33:11 [core.py:1] a flood that goes on and on and on\n" * 150_000)

    rig.members()[CORE].kill()

    number = next_incident(rig, before, deadline_s=60)["id"]
    folder = rig.folder / f"state/incidents/{number:06d}"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= TOTAL_BYTES


def test_daemon_killed_while_it_collects_is_followed_by_one_that_finishes(rig):
    rig.ready()
    before = listed(rig)
    rig.members()[CORE].suspend()
    rig.until(lambda: rig.status()["state"] == "stopping", rig.stall_s + 10, "the freeze is noticed")

    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()
    rig.ready()

    rig.until(
        lambda: not list((rig.folder / "state/incidents").glob("*.partial")), 20, "nothing half is left"
    )
    known = {entry["id"] for entry in before}
    fresh = rig.until(
        lambda: [entry for entry in listed(rig) if entry["id"] not in known],
        20,
        "the failure has its incident",
    )
    assert len({entry["key"] for entry in fresh}) == len(fresh)
    for entry in fresh:
        assert entry["class"]
        assert rig.client.get(f"/v1/incidents/{entry['id']}")["next"]


def test_port_that_stays_taken_is_an_incident_without_an_engine(make_rig):
    import socket  # noqa: PLC0415  (this test alone)

    made = make_rig(("double", "process"))
    made.settings["supervision"]["deadlines"]["gates_s"] = 1
    made.settings["supervision"]["ladder"] = {"wait_s": 2}
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", made.settings["engine"]["port"]))
        taken.listen()
        made.start_daemon()
        made.wait("failed", deadline_s=40)
        entry = made.until(lambda: listed(made), 10, "an incident")[0]

    assert (entry["class"], entry["engine"]) == ("port_in_use", None)


@pytest.fixture
def full_disk(make_rig):
    """Give a rig whose state lies on a disk of four megabytes, and what fills it."""
    if os.geteuid() != 0:
        pytest.skip("not root here: `sudo` runs the test that mounts a small disk")
    rig = make_rig(("double", "process"))
    state = rig.folder / "state"
    state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "small", state], check=True)
    rig.settings["gates"]["disk_free_gib"] = 0
    yield rig, state / "ballast"
    rig.close()
    rig.daemon = None
    subprocess.run(["umount", "--lazy", state], check=True)


@pytest.mark.lab
def test_full_disk_never_keeps_an_engine_from_coming_back(full_disk):
    rig, ballast = full_disk
    before = rig.ready()["engine"]["id"]
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 512):
            pass

    rig.members()[CORE].kill()

    rig.until(lambda: rig.status()["state"] != "ready", 10, "the end is noticed")
    ballast.unlink()
    assert rig.wait("ready")["engine"]["id"] != before
