"""Root's side: only what its own rig file allows, counted where the daemon cannot write, answered in a line."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from nvml_stub.build import build

from rigd.supervise.host_acts import DAY_S
from rigd.supervise.host_root import Ran, carry_out, read_request

NOW_S = 1_000_000.0
RIG = """
name: r
engine: {{runtime: process, model: m, version: 0.32.0, process: {{executable: [vllm]}}}}
host: {host}
"""
BUS = "0000:0a:00"
RESET = {"act": "reset-gpu", "card": BUS}
REBOOT = {"act": "reboot"}


class Host:
    """Root on a host whose programs only write down that they were called."""

    def __init__(self, folder: Path) -> None:
        self.rig, self.record = folder / "rig.yaml", folder / "record" / "acts.json"
        self.ran: list[tuple[str, ...]] = []
        self.ends = Ran(code=0, output="")
        self.allow("{allow_gpu_reset: true, allow_reboot: true, most_per_day: 2}")

    def allow(self, host: str) -> None:
        self.rig.write_text(RIG.format(host=host))

    def ask(self, request, *, now_s: float = NOW_S):
        def run(argv):
            self.ran.append(tuple(argv))
            return self.ends

        return carry_out(request, self.rig, record=self.record, run=run, now_s=now_s)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_reset_names_the_card_and_a_reboot_returns_at_once(host):
    assert host.ask(RESET).ok
    assert host.ask(REBOOT).ok

    assert host.ran == [
        ("nvidia-smi", "--gpu-reset", "-i", "0000:0a:00.0"),
        ("systemctl", "--no-block", "reboot"),
    ]


@pytest.mark.parametrize("request_", [RESET, REBOOT], ids=["reset", "reboot"])
def test_the_daemon_cannot_have_what_root_s_rig_file_does_not_allow(host, request_):
    host.allow("{}")

    answer = host.ask(request_)

    assert not answer.ok
    assert "does not allow it" in answer.message
    assert host.ran == []


def test_root_counts_for_itself_whatever_the_daemon_counted(host):
    host.ask(RESET)
    host.ask(REBOOT, now_s=NOW_S + 60)

    answer = host.ask(REBOOT, now_s=NOW_S + 120)

    assert not answer.ok
    assert "most_per_day is 2" in answer.message
    assert len(host.ran) == 2
    assert stat.S_IMODE(host.record.stat().st_mode) == 0o600
    assert host.ask(REBOOT, now_s=NOW_S + DAY_S + 1).ok


def test_what_cannot_be_counted_is_not_done(host, tmp_path):
    (tmp_path / "record").write_text("a file where the folder should be")

    assert not host.ask(REBOOT).ok
    assert host.ran == []


def test_a_program_that_fails_is_said_and_counted(host):
    host.ends = Ran(
        code=255, output="GPU Reset couldn't run because GPU 00000000:0A:00.0 is the primary GPU."
    )

    answer = host.ask(RESET)

    assert not answer.ok
    assert "primary GPU" in answer.message
    assert "reboot" in answer.hint
    assert json.loads(host.record.read_text()) == [NOW_S]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "junk",
        "[]",
        "{}",
        '{"act": "rm"}',
        '{"act": "stop-engine"}',
        '{"act": ["reboot"]}',
        '{"act": "reset-gpu", "card": "all; reboot"}',
        '{"act": "reset-gpu", "card": "--help"}',
        '{"act": "reset-gpu", "card": "0000:0a:00\\n"}',
        '{"act": "reset-gpu"}',
    ],
)
def test_a_strange_request_does_nothing(host, text):
    assert not host.ask(read_request(text)).ok
    assert host.ran == []


def test_a_broken_rig_file_allows_nothing(host):
    host.rig.write_text("name: [")

    answer = host.ask(REBOOT)

    assert not answer.ok
    assert "rigd rig validate" in answer.hint
    assert host.ran == []


# --- the command, on pretended cards ---


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def run(host, driver, tmp_path):
    """Give a function that runs `rigd host ...` on two pretended cards; `facts` is what is so with them."""
    facts = tmp_path / "facts"
    facts.write_text("")
    host.allow(
        '{gpus: [{power_limit_w: 290, persistence_mode: true}, {card: "0000:14:00.0", power_limit_w: 90}],'
        " temperature: {response: lower-power, lowered_power_w: 200}}"
    )

    def run(*words: str, stdin: str = "", folder: Path = driver):
        environ = os.environ | {"NVML_STUB": str(facts), "LD_LIBRARY_PATH": str(folder)}
        command = [sys.executable, "-m", "rigd.cli.main", "host", words[0], str(host.rig), *words[1:]]
        return subprocess.run(
            command, env=environ, input=stdin, capture_output=True, text=True, timeout=30, check=False
        )

    run.facts = facts
    return run


def test_cards_are_set_once_and_read_back(run):
    first, second = run("apply-gpu"), run("apply-gpu", "--json")

    assert first.returncode == 0, first.stderr
    assert "0000:0a:00: persistence mode on set (is on)" in first.stdout
    assert "0000:14:00: power limit 90 W set (is 100 W; the card allows 100 to 366 W)" in first.stdout
    assert run.facts.read_text().split("\n") == [
        "persistence 0 1",
        "limit 0 290000",
        "limit 1 100000",
        "",
    ]
    document = json.loads(second.stdout)
    assert document["ok"] is True
    assert [one["changed"] for one in document["settings"]] == [False, False, False]


@pytest.mark.parametrize(
    ("facts", "code"),
    [("", 3), ("persistence 0 1\nlimit 0 290000\nlimit 1 100000\n", 0)],
    ids=["differs", "is-so"],
)
def test_check_sets_nothing_and_says_by_its_code_whether_something_differs(run, facts, code):
    run.facts.write_text(facts)

    assert run("apply-gpu", "--check").returncode == code
    assert run.facts.read_text() == facts


def test_without_root_the_command_to_type_is_said(run):
    run.facts.write_text("unprivileged\n")

    ran = run("apply-gpu")

    assert ran.returncode == 1
    assert "only root may set it" in ran.stdout
    assert "sudo rigd host apply-gpu" in ran.stderr


def test_one_lost_card_does_not_keep_the_other_from_being_set(run):
    run.facts.write_text("lost 1\n")

    ran = run("apply-gpu")

    assert ran.returncode == 1
    assert "0000:0a:00: power limit 290 W set" in ran.stdout
    assert "0000:14:00.0: card there not set (no such card answers)" in ran.stdout


def test_without_a_driver_it_is_a_sentence(run, tmp_path):
    ran = run("apply-gpu", folder=tmp_path)

    assert ran.returncode == 1
    assert "cannot open NVML" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("act", "before", "milliwatts"), [("lower-power", 290000, 200000), ("restore-power", 200000, 290000)]
)
def test_a_hot_card_is_lowered_and_restored_on_request(run, act, before, milliwatts):
    run.facts.write_text(f"persistence 0 1\nlimit 0 {before}\n")

    ran = run("act", stdin=json.dumps({"act": act, "card": BUS}) + "\n")

    assert json.loads(ran.stdout)["ok"] is True
    assert run.facts.read_text().split("\n")[-2] == f"limit 0 {milliwatts}"


def test_a_missing_program_is_an_answer(tmp_path):
    assert shutil.which("no-such-program") is None
    from rigd.supervise.host_root import run_program  # noqa: PLC0415  (the only one that runs something)

    assert run_program(["no-such-program"]).code == -1
