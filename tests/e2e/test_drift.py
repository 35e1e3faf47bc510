"""The host held against a playbook by a real daemon: by the real `rigd provision`, and by a pretended one-shot."""

import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SOON_S = 60
PLAYBOOK = """
- name: Small box
  hosts: all
  gather_facts: false
  tasks:
    - name: A file that rigd may mend
      ansible.builtin.copy: {{dest: {folder}/mended, content: "as it should be\\n"}}
      tags: mend
    - name: A file that is a person's
      ansible.builtin.copy: {{dest: {folder}/kept, content: "as it should be\\n"}}
"""


def use(rig, **drift) -> None:
    """Let the rig file ask for something else, and the daemon that runs take it up."""
    rig.settings["host"] = {"drift": drift}
    rig.write()
    rig.act("restart", reload=True)


def seen(rig) -> dict[str, Any]:
    return rig.status()["drift"] or {}


def told(rig, kind: str, after_s: float = 0.0) -> list[dict[str, Any]]:
    return [one for one in rig.events() if one["kind"] == kind and one["at_s"] >= after_s]


def certain(rig, *tasks: str) -> bool:
    found = {one["task"] for one in seen(rig).get("differences", ()) if one["certain"]}
    return found == set(tasks)


# --- the real thing ---


@pytest.fixture(scope="module")
def rig(make_rig):
    under_test = make_rig(("double", "process"))
    under_test.environ |= {
        "RIGD_DRIFT_SETTLE_S": "0.5",
        "RIGD_PROVISION_SOCKET": str(under_test.folder / "nobody.sock"),
    }
    (under_test.folder / "site.yml").write_text(PLAYBOOK.format(folder=under_test.folder))
    return under_test


def well(rig) -> None:
    for name in ("mended", "kept"):
        (rig.folder / name).write_text("as it should be\n")


def test_a_host_as_its_playbook_says_is_looked_at_and_nothing_is_told(rig):
    well(rig)
    rig.ready()
    use(rig, playbook="site.yml", every_s=2)

    rig.until(lambda: seen(rig).get("checked_s"), SOON_S, "it is looked")

    assert (seen(rig)["differences"], seen(rig)["problem"]) == ([], "")
    assert told(rig, "drift") == []


def test_a_difference_is_told_once_and_its_end_once_and_nothing_is_applied_unasked(rig):
    well(rig)
    rig.ready()
    engine = rig.status()["engine"]["id"]
    use(rig, playbook="site.yml", every_s=1)
    began_s = time.time()
    (rig.folder / "kept").write_text("by hand\n")

    rig.until(lambda: certain(rig, "A file that is a person's"), SOON_S, "it is certain")
    looked_s = seen(rig)["checked_s"]
    rig.until(lambda: (seen(rig)["checked_s"] or 0) > looked_s + 2, SOON_S, "it is looked again")
    (entry,) = told(rig, "drift", began_s)
    assert "1 task differs: A file that is a person's" in entry["message"]
    assert (rig.folder / "kept").read_text() == "by hand\n"

    well(rig)
    rig.until(lambda: told(rig, "drift-over", began_s), SOON_S, "its end is told")
    assert rig.status()["engine"]["id"] == engine


def test_what_the_rig_file_allows_is_applied_when_the_engine_rests_and_no_more(rig):
    well(rig)
    rig.ready()
    began_s = time.time()
    use(rig, playbook="site.yml", every_s=1, apply=["mend"], idle_s=1)
    with rig.request_in_flight():
        for name in ("mended", "kept"):
            (rig.folder / name).write_text("by hand\n")
        rig.until(
            lambda: certain(rig, "A file that rigd may mend", "A file that is a person's"), SOON_S, "certain"
        )
        allowed = {one["task"]: one["allowed"] for one in seen(rig)["differences"]}
        assert allowed == {"A file that rigd may mend": True, "A file that is a person's": False}
        busy_until_s = time.monotonic() + 3
        while rig._running() and time.monotonic() < busy_until_s:
            assert (rig.folder / "mended").read_text() == "by hand\n"
    rig.act("restart", reload=False)  # Ends the long request, too.
    rig.wait("ready")

    rig.until(lambda: told(rig, "drift-apply", began_s)[1:], 40, "it is applied")

    assert (rig.folder / "mended").read_text() == "as it should be\n"
    assert (rig.folder / "kept").read_text() == "by hand\n"
    states = [one["data"]["state"] for one in told(rig, "drift-apply", began_s)]
    assert states == ["intended", "done"]
    rig.until(lambda: certain(rig, "A file that is a person's"), SOON_S, "the other stays told")


def test_nothing_is_looked_at_in_maintenance(rig):
    well(rig)
    rig.ready()
    use(rig, playbook="site.yml", every_s=0.5)
    rig.until(lambda: seen(rig).get("checked_s"), SOON_S, "it is looked")
    rig.act("maintenance", on=True)
    rig.until(lambda: seen(rig)["running"] is None, SOON_S, "the last look is over")
    before_s = seen(rig)["checked_s"]

    time.sleep(3)

    assert seen(rig)["checked_s"] == before_s
    rig.act("maintenance", on=False)
    rig.until(lambda: seen(rig)["checked_s"] > before_s, SOON_S, "it is looked again")
    rig.wait("ready")


def test_a_playbook_that_cannot_be_read_is_told_once_with_what_helps(rig):
    rig.ready()
    began_s = time.time()
    (rig.folder / "wrong.yml").write_text("- hosts: all\n  tasks:\n    - coppy: {dest: /x}\n")
    use(rig, playbook="wrong.yml", every_s=1)

    (entry,) = rig.until(lambda: told(rig, "drift-trouble", began_s), SOON_S, "it is told")

    assert "coppy" in entry["message"]
    assert "coppy" in seen(rig)["problem"]
    well(rig)
    use(rig, playbook="site.yml", every_s=1)
    rig.until(lambda: told(rig, "drift-trouble-over", began_s), SOON_S, "its end is told")


def test_a_person_may_have_it_looked_at_once(rig):
    well(rig)
    rig.ready()
    use(rig, playbook="site.yml", every_s=3600)
    rig.until(lambda: seen(rig).get("checked_s") and not seen(rig)["running"], SOON_S, "it is looked")
    (rig.folder / "kept").write_text("by hand\n")

    rig.client.post("/v1/drift/look", {})

    rig.until(lambda: seen(rig)["differences"], 5, "it is looked again, and an hour early")
    well(rig)


# --- a one-shot that is a script ---


class OneShot:
    """Answers on the socket as root's one-shot does, with what it is told to."""

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[str, socket.socket], dict[str, Any]] = lambda _act, _peer: {"ok": True}
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                with peer, contextlib.suppress(OSError):
                    act = json.loads(peer.makefile().readline())["act"]
                    self.asked.append(act)
                    answer = self.answer(act, peer)
                    peer.sendall(json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        self._server.close()


@pytest.fixture(scope="module")
def asking(make_rig):
    """Give a rig whose daemon asks a one-shot, and that one-shot."""
    under_test = make_rig(("double", "process"))
    path = under_test.folder / "provision.sock"
    under_test.environ |= {"RIGD_DRIFT_SETTLE_S": "0.5", "RIGD_PROVISION_SOCKET": str(path)}
    under_test.settings["host"] = {
        "drift": {"playbook": "site.yml", "every_s": 1, "apply": ["a"], "idle_s": 1}
    }
    shot = OneShot(path)
    yield under_test, shot
    shot.close()


DIFFERS = {"ok": True, "differences": [{"task": "t", "place": "site.yml:3", "what": "w", "allowed": True}]}


def test_an_apply_is_stopped_when_the_engine_has_work(asking):
    rig, shot = asking
    stopped = threading.Event()

    def answer(act: str, peer: socket.socket) -> dict[str, Any]:
        if act == "check":
            return DIFFERS
        peer.settimeout(60)
        said = peer.recv(100)
        stopped.set()
        return {
            "ok": False,
            "stopped": True,
            "message": "it was stopped before its end",
            "hint": said.decode(),
        }

    shot.answer = answer
    rig.ready()
    rig.until(lambda: "apply" in shot.asked, SOON_S, "it is applied")

    with rig.request_in_flight():
        rig.until(stopped.is_set, 15, "it is stopped")

    rig.until(lambda: told(rig, "drift-apply")[1:], 10, "and that is told")
    assert told(rig, "drift-apply")[1]["data"]["state"] == "stopped"


def test_an_answer_that_breaks_off_costs_a_later_look_and_no_alarm(asking):
    rig, shot = asking

    def answer(_act: str, peer: socket.socket) -> dict[str, Any]:
        peer.shutdown(socket.SHUT_RDWR)
        return {}

    shot.answer = answer
    rig.ready()
    before = len(shot.asked)
    use(rig, playbook="other.yml", every_s=1)

    rig.until(lambda: len(shot.asked) > before, SOON_S, "it is asked")

    rig.until(lambda: seen(rig)["running"] is None, SOON_S, "the answer is in")
    assert rig.daemon.poll() is None
    assert rig.status()["state"] == "ready"
    assert told(rig, "drift-trouble") == []
