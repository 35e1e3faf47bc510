"""The run journal: what a broken run left is found again, whatever line was the last."""

import json
import stat

import pytest

from rigd.provision.run.journal import KEPT_RUNS, Runs, task_in_play

PLAY = "0:site"


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


def begin(runs, *, digest="d", past=None):
    return runs.begin(playbook="site.yml", digest=digest, hosts=["box"], past=past)


def left_by(runs, digest="d"):
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
    for _ in range(KEPT_RUNS + 5):
        begin(runs).close()

    assert len(list(runs.all())) == KEPT_RUNS


def test_list_tells_state_and_what_is_pending(runs):
    journal = begin(runs)
    journal.notified("box", PLAY, ["restart"])
    journal.end("failed", {})

    [info] = runs.all()

    assert (info.state, dict(info.pending)) == ("failed", {"box": ("restart",)})
    assert all(json.loads(line) for line in journal.path.read_text().splitlines())
