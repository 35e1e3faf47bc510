"""A run that is killed at every boundary there is, then started again: same end, handlers run, one reboot asked."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from provisioning import Bench

from rigd.provision.run.journal import JournalError

PLAYBOOK = """
- name: box
  hosts: all
  vars: {dir: "%(folder)s/w"}
  tasks:
    - {name: folder, file: {path: "{{ dir }}", state: directory}}
    - name: config
      copy: {content: "config", dest: "{{ dir }}/config"}
      notify: restart
    - name: lines
      lineinfile: {path: "{{ dir }}/lines", line: "{{ item }}", create: true}
      loop: [a, b, c]
      notify: topic
    - name: driver
      copy: {content: "driver", dest: "{{ dir }}/driver"}
      register: driver
    - name: once
      command: "touch {{ dir }}/once"
      args: {creates: "{{ dir }}/once"}
      notify: restart
    - meta: flush_handlers
    - name: reboot
      reboot:
      when: driver is changed
    - name: guarded
      block:
        - name: fails
          command: "false"
      rescue:
        - {name: mend, copy: {content: "mended", dest: "{{ dir }}/mended"}, notify: late}
      always:
        - {name: tidy, copy: {content: "tidy", dest: "{{ dir }}/tidy"}}
    - include_tasks: more.yml
      loop: [1, 2]
  handlers:
    - {name: restart, shell: "echo restart >> {{ dir }}/handlers"}
    - {name: reload, listen: topic, shell: "echo reload >> {{ dir }}/handlers"}
    - {name: late, shell: "echo late >> {{ dir }}/handlers"}
"""
MORE = """
- {name: more, copy: {content: "{{ item }}", dest: "{{ dir }}/more{{ item }}"}, notify: late}
"""
SHARDS = 12
"""Runs are killed at each boundary by turns of that many tests, so that none is slow."""


class Killed(BaseException):
    """What a test throws where SIGKILL would end the process."""


class Boundaries:
    """Counts the places where a run can be killed, and kills at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.count = 0
        self._at = at

    def __call__(self, _where: str) -> None:
        self.count += 1
        if self.count == self._at:
            raise Killed


def bench_in(folder: Path) -> Bench:
    bench = Bench(folder)
    bench.write("site.yml", PLAYBOOK % {"folder": folder})
    bench.write("more.yml", MORE)
    return bench


def state_of(bench: Bench) -> dict[str, str]:
    found = {path.name: path.read_text() for path in sorted((bench.folder / "w").iterdir())}
    found["handlers"] = ",".join(sorted(set(found["handlers"].split())))
    return found


def run(bench: Bench, boundaries: Boundaries) -> None:
    bench.box.fault = boundaries
    bench.run(fault=boundaries)


def end_state(folder: Path, at: int, *, reboots_meanwhile: bool) -> tuple[dict[str, str], int]:
    """Kill a run at a boundary, start it again until it ends, and return what is left and the reboots asked."""
    bench = bench_in(folder)
    with pytest.raises(Killed):
        run(bench, Boundaries(at))
    if bench.box.pending and reboots_meanwhile:
        bench.box.power_cycle()
    found = bench.run()
    assert found.code == 0
    assert not found.recap["box"]["failed"]
    return state_of(bench), bench.box.reboots


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[dict[str, str], int]:
    """Give what an undisturbed run leaves, and at how many boundaries one can be killed."""
    bench = bench_in(tmp_path_factory.mktemp("whole"))
    boundaries = Boundaries()
    run(bench, boundaries)
    assert bench.box.reboots == 1
    return state_of(bench), boundaries.count


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch):
    """Wait for no disk: processes die here, machines do not."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)


def test_there_are_boundaries_around_every_change(whole):
    wanted, count = whole

    assert wanted["handlers"] == "late,reload,restart"
    assert count > 60


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("reboots", [True, False], ids=["box reboots meanwhile", "gone on with at once"])
def test_run_killed_at_every_boundary_comes_to_the_same_end(tmp_path, whole, shard, reboots):
    wanted, count = whole

    for at in range(1 + shard, count, SHARDS):
        found = end_state(tmp_path / str(at), at, reboots_meanwhile=reboots)
        assert found == (wanted, 1), f"killed at boundary {at}"


def test_second_run_after_the_end_is_a_new_one(tmp_path):
    bench = bench_in(tmp_path)
    bench.run()
    handled = (tmp_path / "w/handlers").read_text()

    found = bench.run()

    assert (found.recap["box"]["changed"], bench.box.reboots) == (0, 1)
    assert (tmp_path / "w/handlers").read_text() == handled


def test_fresh_forgets_the_broken_run(tmp_path):
    bench = bench_in(tmp_path)
    with pytest.raises(Killed):
        run(bench, Boundaries(8))
    bench.box.fault = Boundaries()

    found = bench.run(fresh=True)

    assert not any("going on" in text for text in found.notes())


def test_failed_run_still_owes_its_handlers_and_pays_when_mended(tmp_path):
    bench = Bench(tmp_path)
    bench.playbook(
        """
        - {name: config, copy: {content: x, dest: "{{ here }}/config"}, notify: restart}
        - {name: wants, command: "test -e {{ here }}/mended", changed_when: false}
        """,
        handlers='- {name: restart, shell: "echo x >> {{ here }}/restarted"}\n',
    )
    failed = bench.run()
    assert failed.code == 1
    assert not (tmp_path / "restarted").exists()
    (tmp_path / "mended").touch()

    found = bench.run()

    assert found.code == 0
    assert (tmp_path / "restarted").read_text() == "x\n"
    assert any("handlers still to run" in text for text in found.notes())


def test_run_that_begins_at_a_later_task_leaves_the_rest_owed(tmp_path):
    bench = Bench(tmp_path)
    text = """
    - hosts: all
      tasks:
        - {name: config, copy: {content: x, dest: "HERE/config"}, notify: restart}
        - {name: wants, command: "test -e HERE/mended"}
      handlers: [{name: restart, shell: "echo x >> HERE/restarted"}]
    - hosts: all
      tasks: [{name: later, command: "true"}]
    """
    bench.write("site.yml", text.replace("HERE", str(tmp_path)))
    bench.run()
    bench.run(start_at="later")
    (tmp_path / "mended").touch()

    found = bench.run()

    assert found.code == 0
    assert (tmp_path / "restarted").read_text() == "x\n"


def test_handler_that_the_playbook_no_longer_has_is_told_and_dropped(tmp_path):
    bench = Bench(tmp_path)
    tasks = (
        '- {name: config, copy: {content: x, dest: "{{ here }}/config"}, notify: old}\n- {command: "false"}\n'
    )
    bench.play(tasks, handlers="- {name: old, debug: {msg: old}}\n")

    found = bench.play("- {name: config, command: 'true'}\n")
    again = bench.run()

    assert any("no longer in the playbook: old" in text for text in found.notes())
    assert not any("old" in text for text in again.notes())


def test_link_cut_in_the_middle_of_a_task_is_unreachable_and_gone_on_with(tmp_path):
    bench = bench_in(tmp_path)

    def cut(where: str) -> None:
        if where == "after apply" and (tmp_path / "w/config").exists():
            bench.box.gone = True

    bench.box.fault = cut
    lost = bench.run()
    bench.box.fault, bench.box.gone = Boundaries(), False

    found = bench.run()

    assert lost.code == 4
    assert found.code == 0
    assert state_of(bench)["handlers"] == "late,reload,restart"


def test_process_that_is_killed_for_real_is_gone_on_with(tmp_path, block_until):
    bench = Bench(tmp_path)
    playbook = bench.playbook(
        """
        - {name: config, copy: {content: x, dest: "{{ here }}/config"}, notify: restart}
        - name: long
          shell: "touch {{ here }}/here; test -e {{ here }}/go || sleep 60"
        """,
        handlers='- {name: restart, shell: "echo x >> {{ here }}/restarted"}\n',
    )
    command = [sys.executable, "-m", "rigd.cli.main", "provision", "apply", str(playbook), "--json"]
    environ = {
        **os.environ,
        "RIGD_STATE_DIR": str(tmp_path / "state"),
        "RIGD_LOCK_FILE": str(tmp_path / "lock"),
    }
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        block_until((tmp_path / "here").exists)
        process.send_signal(signal.SIGKILL)
    (tmp_path / "go").touch()

    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "restarted").read_text() == "x\n"


def test_journal_that_cannot_be_written_ends_the_run_whatever_its_tasks_ignore(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.playbook("""
        - block:
            - {name: one, copy: {content: x, dest: "{{ here }}/one"}, ignore_errors: true}
            - {name: two, copy: {content: x, dest: "{{ here }}/two"}, ignore_errors: true}
          rescue:
            - {name: mend, copy: {content: x, dest: "{{ here }}/mended"}}
        """)

    def full(kind: str) -> None:
        if kind == "started":
            raise JournalError("cannot write the journal", hint="make room")

    found = bench.run(fault=full)

    assert (found.code, found.counts) == (1, {"failed": 1})
    assert "cannot write the journal (make room)" in found.text()
    assert not list(tmp_path.glob("[otm]*e*"))


LOST = {
    "condition": '{name: one, copy: {content: x, dest: "{{ here }}/x"}, when: ansible_kernel == "x"}',
    "value": '{name: one, debug: {msg: "{{ ansible_kernel }}"}}',
    "loop": '{name: one, debug: {msg: "{{ item }}"}, loop: ["{{ ansible_kernel }}"]}',
    "name": '{name: "one {{ ansible_kernel }}", command: "true"}',
}


@pytest.mark.parametrize("task", LOST.values(), ids=LOST)
def test_host_that_is_gone_when_a_fact_is_wanted_is_unreachable_whatever_is_ignored(tmp_path, task):
    bench = Bench(tmp_path)
    bench.box.gone = True

    found = bench.play(f"""
        - block:
            - {{ignore_errors: true, {task[1:]}
          rescue:
            - {{name: rescued, debug: {{msg: x}}}}
        """)

    assert (found.code, found.counts) == (4, {"unreachable": 1})
