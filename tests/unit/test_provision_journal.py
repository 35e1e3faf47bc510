"""The run journal: what a broken run left is found again, whatever line was the last."""

import errno
import json
import os
import stat
import time

import pytest

from rigd.errors import RigdError
from rigd.provision.run.journal import KEPT_RUNS, JournalError, Runs
from rigd.provision.run.past import task_in_play

PLAY = "0:site"


class Mortal(Runs):
    """Runs whose processes can be killed."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self._writers = []

    def begin(self, **what):
        self._writers.append(super().begin(**what))
        return self._writers[-1]

    def kill(self) -> None:
        while self._writers:
            self._writers.pop().close()


@pytest.fixture
def runs(tmp_path):
    found = Mortal(tmp_path)
    yield found
    found.kill()


def begin(runs, *, digest="d", past=None):
    return runs.begin(playbook="site.yml", digest=digest, hosts=["box"], past=past)


def left_by(runs, digest="d"):
    runs.kill()
    past = runs.broken_run(digest)
    assert past is not None
    return past.of("box")


def test_task_that_was_begun_and_not_done_counts_as_changed_and_owes_its_handlers(runs):
    begin(runs).started("box", PLAY, "t#0", name="config", handlers=["restart"])

    left = left_by(runs)

    assert left.changed == {task_in_play(PLAY, "t#0")}
    assert left.pending == {PLAY: ["restart"]}


def test_task_that_turned_out_unchanged_owes_nothing(runs):
    journal = begin(runs)
    journal.started("box", PLAY, "t#0", name="config", handlers=["restart"])
    journal.done("box", PLAY, "t#0", changed=False)

    left = left_by(runs)

    assert left.changed == set()
    assert not any(left.pending.values())


def test_handler_is_owed_until_it_has_run(runs):
    journal = begin(runs)
    journal.started("box", PLAY, "t#0", name="config", handlers=["restart", "reload"])
    journal.done("box", PLAY, "t#0", changed=True, handlers=["restart", "reload"])
    journal.handled("box", PLAY, ["restart"])

    assert left_by(runs).pending == {PLAY: ["reload"]}


def test_handler_that_is_notified_by_a_task_without_apply_is_owed(runs):
    begin(runs).notified("box", PLAY, ["restart"])

    assert left_by(runs).pending == {PLAY: ["restart"]}


@pytest.mark.parametrize(
    ("states", "asked", "over"),
    [
        (["wanted"], False, False),
        (["wanted", "asked"], True, False),
        (["wanted", "asked", "over"], True, True),
    ],
)
def test_reboot_is_remembered_with_the_boot_before_it(runs, states, asked, over):
    journal = begin(runs)
    for state in states:
        journal.reboot("box", "t", boot_id="b1", state=state)

    reboot = left_by(runs).reboots["t"]

    assert (reboot.boot_id, reboot.asked, reboot.over) == ("b1", asked, over)


def test_run_that_came_to_its_end_is_not_gone_on_with(runs):
    journal = begin(runs)
    journal.started("box", PLAY, "t#0", name="config", handlers=[])
    journal.end("done", {})

    assert runs.broken_run("d") is None


def test_failed_run_is_gone_on_with(runs):
    journal = begin(runs)
    journal.notified("box", PLAY, ["restart"])
    journal.end("failed", {})

    assert left_by(runs).pending == {PLAY: ["restart"]}


def test_another_command_does_not_find_it(runs):
    begin(runs, digest="one").notified("box", PLAY, ["restart"])

    assert runs.broken_run("other") is None


def test_what_was_left_passes_through_a_second_broken_run(runs):
    first = begin(runs)
    first.started("box", PLAY, "t#0", name="config", handlers=["restart"])
    first.reboot("box", "r", boot_id="b1", state="asked")
    runs.kill()
    begin(runs, past=runs.broken_run("d"))

    left = left_by(runs)

    assert left.pending == {PLAY: ["restart"]}
    assert left.changed == {task_in_play(PLAY, "t#0")}
    assert left.reboots["r"].asked


def test_line_that_a_power_cut_tore_is_left_out(runs):
    journal = begin(runs)
    journal.notified("box", PLAY, ["restart"])
    with journal.path.open("a") as file:
        file.write('{"kind": "handled", "host": "bo')

    assert left_by(runs).pending == {PLAY: ["restart"]}


def test_files_are_private(runs):
    journal = begin(runs)

    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_old_runs_are_removed(runs):
    for number in range(KEPT_RUNS + 5):
        begin(runs, digest=str(number))

    assert len(list(runs.all())) == KEPT_RUNS


def test_list_tells_state_and_what_is_pending(runs):
    journal = begin(runs)
    journal.notified("box", PLAY, ["restart"])
    journal.end("failed", {})

    [info] = runs.all()

    assert (info.state, dict(info.pending)) == ("failed", {"box": ("restart",)})
    assert all(json.loads(line) for line in journal.path.read_text().splitlines())


def test_same_command_does_not_run_twice_at_a_time(runs):
    begin(runs)

    with pytest.raises(RigdError, match="at work already"):
        begin(runs)
    begin(runs, digest="another")

    assert [info.state for info in runs.all()] == ["running", "running"]
    assert runs.broken_run("d") is None
    runs.kill()
    assert [info.state for info in runs.all()] == ["broken", "broken"]


def test_newest_run_is_the_last_although_the_clock_was_set_back(runs, monkeypatch):
    begin(runs).notified("box", PLAY, ["restart"])
    runs.kill()
    monkeypatch.setattr(time, "strftime", lambda *_: "20010101-000000")
    begin(runs).end("done", {})

    assert [info.state for info in runs.all()] == ["done", "broken"]
    assert runs.broken_run("d") is None


DAMAGE = {
    "zeros": b"\0" * 40,
    "torn": b'{"kind": "done", "host": "b',
    "other bytes": b"\xff\xfe",
    "no mapping": b"[1, 2]",
    "no kind": b"{}",
    "kind of another kind": b'{"kind": 7}',
    "field gone": b'{"kind": "notified", "host": "box", "handlers": ["x"]}',
    "field of another kind": b'{"kind": "notified", "host": "box", "play": "p", "handlers": 3}',
    "end without state": b'{"kind": "end"}',
}


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE)
def test_damaged_line_is_counted_and_the_others_are_read(runs, line):
    journal = begin(runs)
    journal.notified("box", PLAY, ["restart"])
    with journal.path.open("ab") as file:
        file.write(line + b"\n")
    journal.notified("box", PLAY, ["reload"])
    runs.kill()

    past = runs.broken_run("d")

    assert (past.damaged, past.of("box").pending) == (1, {PLAY: ["restart", "reload"]})


def test_journal_without_its_first_line_is_listed_and_is_of_no_command(runs):
    journal = begin(runs)
    runs.kill()
    journal.path.write_bytes(b"\0" * 50 + b"\n")

    [info] = runs.all()

    assert (info.state, info.past.damaged) == ("unreadable", 1)
    assert runs.broken_run("d") is None


def test_full_disk_is_told_and_what_it_tore_stays_the_end(runs, monkeypatch):
    journal = begin(runs)
    real = os.write

    def full(file, data):
        if len(data) > 10:
            return real(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(JournalError, match="cannot write the journal"):
            journal.notified("box", PLAY, ["restart"])
    with pytest.raises(JournalError):
        journal.notified("box", PLAY, ["reload"])

    assert left_by(runs).pending == {}


def test_folder_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(JournalError, match="cannot keep a journal in"):
        begin(Runs(tmp_path / "file"))
