"""`rigd provision` and `rigd facts`: what they print, and their exit codes."""

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from provisioning import Bench

from rigd.cli.main import main


@dataclass(frozen=True, kw_only=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def rigd(tmp_path, monkeypatch, capsys):
    """Run `rigd WORDS` in this process, with a state folder of its own."""
    monkeypatch.setenv("RIGD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RIGD_LOCK_FILE", str(tmp_path / "lock"))

    def run(*words: str) -> Ran:
        code = main(words)
        out, err = capsys.readouterr()
        return Ran(returncode=code, stdout=out, stderr=err)

    return run


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


TASKS = '- {name: write, copy: {content: x, dest: "{{ here }}/a"}, notify: h}\n'
HANDLERS = '- {name: h, command: "test -e {{ here }}/mended"}\n'


def test_check_apply_check_and_the_list_of_runs(bench, rigd, tmp_path):
    playbook = str(bench.playbook(TASKS, handlers="- {name: h, debug: {msg: x}}\n"))

    before = rigd("provision", "check", playbook, "--diff")
    applied = rigd("provision", "apply", playbook)
    after = rigd("provision", "check", playbook, "--json")
    runs = json.loads(rigd("provision", "runs", "--json").stdout)["runs"]

    assert (before.returncode, applied.returncode, after.returncode) == (3, 0, 0)
    assert "+x" in before.stdout
    assert "changed: [localhost]" in applied.stdout
    last = json.loads(after.stdout.splitlines()[-1])
    assert (last["event"], last["hosts"]["localhost"]["changed"]) == ("recap", 0)
    assert [(run["state"], run["changed"]) for run in runs] == [("done", 1)]
    assert "write" not in (tmp_path / "state/runs").iterdir().__next__().name


def test_owed_handlers_are_listed_until_they_have_run(bench, rigd, tmp_path):
    playbook = str(
        bench.playbook(TASKS + "- {name: bad, command: 'test -e {{ here }}/mended'}\n", handlers=HANDLERS)
    )
    rigd("provision", "apply", playbook)
    owed = rigd("provision", "handlers")
    (tmp_path / "mended").touch()

    again = rigd("provision", "apply", playbook)

    assert "h        localhost" in owed.stdout
    assert again.returncode == 0, again.stdout
    assert "no handler is owed" in rigd("provision", "handlers").stdout


def test_faults_of_a_playbook_are_a_list_with_places(bench, rigd):
    playbook = str(bench.playbook("- {name: x, copi: {dest: /x}}\n- {command: 'true', wen: true}\n"))

    ran = rigd("provision", "apply", playbook)

    assert ran.returncode == 2
    assert "site.yml:4:" in ran.stderr
    assert "site.yml:5:" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_second_run_on_the_same_box_waits_for_nobody_and_says_who_works(bench, rigd, tmp_path, block_until):
    playbook = str(bench.playbook('- {name: long, shell: "touch {{ here }}/here; sleep 30"}\n'))
    other = str(bench.write("other.yml", "- {hosts: all, tasks: [{command: 'true'}]}\n"))
    environ = {**os.environ, "RIGD_STATE_DIR": str(tmp_path / "s"), "RIGD_LOCK_FILE": str(tmp_path / "lock")}
    command = [sys.executable, "-m", "rigd.cli.main", "provision", "apply", playbook]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        block_until((tmp_path / "here").exists)
        ran = rigd("provision", "apply", other)
        began_s = time.monotonic()
        process.terminate()
        time.sleep(0.2)  # Two signals at once may come as one.
        process.terminate()
        code = process.wait(20)

    assert ran.returncode == 1
    assert "another run is at work on 'localhost': run of site.yml" in ran.stdout
    assert code in (1, 130)
    assert time.monotonic() - began_s < 15


def test_modules_and_what_is_left_out_are_documented(rigd):
    page = rigd("provision", "modules", "copy")
    everything = json.loads(rigd("provision", "modules", "--json").stdout)["modules"]
    left = json.loads(rigd("provision", "left-out", "--json").stdout)["left_out"]

    assert "ansible.builtin.copy" in page.stdout
    assert "dest" in page.stdout
    assert len(everything) > 30
    assert all(entry["summary"] for entry in everything), [e["name"] for e in everything if not e["summary"]]
    assert {"keyword", "module"} <= {entry["what"] for entry in left}
    assert "left out" in rigd("provision", "modules", "docker_container").stderr
    assert "copy" in rigd("provision", "modules", "copi").stderr


def test_facts_of_this_machine(rigd):
    ran = rigd("facts", "--json", "--fact", "kernel", "--fact", "ansible_hostname")

    found = json.loads(ran.stdout)
    assert found["kernel"] == os.uname().release
    assert "hostname" in found


def test_become_password_comes_from_a_private_file(bench, rigd, tmp_path):
    playbook = str(bench.playbook("- {name: x, command: 'true'}\n"))
    (tmp_path / "pw").write_text("x\n")
    (tmp_path / "pw").chmod(0o644)

    ran = rigd("provision", "apply", playbook, "--become-password-file", str(tmp_path / "pw"))

    assert ran.returncode == 2
    assert "chmod 600" in ran.stderr


def test_resume_without_a_waiting_run_says_so(rigd):
    assert "nothing to go on with" in rigd("provision", "resume").stderr


def test_password_is_asked_at_a_terminal_alone(bench, rigd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))

    ran = rigd("provision", "apply", str(bench.playbook(TASKS)), "-K")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--become-password-file" in ran.stderr


def test_facts_of_a_host_that_answers_are_shown_beside_one_that_does_not(rigd, tmp_path):
    (tmp_path / "hosts").write_text(
        "here ansible_connection=local\ngone ansible_host=127.0.0.1 ansible_port=1\n"
    )

    ran = rigd("facts", "-i", str(tmp_path / "hosts"), "--fact", "kernel")

    assert ran.returncode == 4
    assert json.loads(ran.stdout) == {"here": {"kernel": os.uname().release}}
    assert "cannot reach 'gone'" in ran.stderr


def test_damaged_journal_is_told_in_the_list(bench, rigd, tmp_path):
    rigd("provision", "apply", str(bench.playbook(TASKS, handlers="- {name: h, debug: {msg: x}}\n")))
    [journal] = (tmp_path / "state/runs").iterdir()
    journal.write_bytes(journal.read_bytes() + b"\0\0\n")

    ran = rigd("provision", "runs")

    assert "1 lines that cannot be read" in ran.stderr
    assert "done" in ran.stdout
