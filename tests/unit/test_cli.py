"""The command line as a real process against the real API, with a fake supervisor behind it."""

import asyncio
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from api_fakes import FakeBackend, serving, status_document

from rigd.cli import main as entry
from rigd.cli.app import COMMANDS, MOUNTS
from rigd.cli.status import duration, parse, render
from rigd.settings import Settings
from rigd.supervise.decision import Reply
from rigd.supervise.observations import RequestKind

PROJECT = Path(__file__).resolve().parents[2]
SLOW_MODULES = (
    "typer",
    "rich",
    "pydantic",
    "httpx",
    "http.client",
    "asyncio",
    "dataclasses",
    "typing",
    "ssl",
)


@dataclass(frozen=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self):
        return json.loads(self.out)


@pytest.fixture
def backend(tmp_path):
    return FakeBackend(tmp_path)


@pytest.fixture
async def daemon(backend, state_dirs):
    async with serving(backend, Settings(socket=state_dirs.socket)):
        yield backend


@pytest.fixture
def spawn(state_dirs):
    """Start `rigd WORDS` without waiting for its end."""

    async def spawn(*words: str, **environ: str):
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rigd.cli", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=state_dirs.environ | {"PYTHONPATH": str(PROJECT), "TERM": "dumb", "COLUMNS": "100"} | environ,
        )  # fmt: skip

    return spawn


@pytest.fixture
def rigd(spawn):
    """Run `rigd WORDS` to its end."""

    async def run(*words: str, **environ: str) -> Ran:
        process = await spawn(*words, **environ)
        out, err = await asyncio.wait_for(process.communicate(), 20)
        return Ran(code=process.returncode, out=out.decode(), err=err.decode())

    return run


# --- status ---


async def test_status_shows_what_matters(daemon, rigd):
    ran = await rigd("status")

    assert (ran.code, ran.err) == (0, "")
    for words in (
        "box READY",
        "pid 4242",
        "http://127.0.0.1:8000",
        "agents  warm: 99.2%",
        "21,504 of 24,576 MiB",
    ):
        assert words in ran.out


async def test_status_json_is_one_document(daemon, rigd):
    assert (await rigd("status", "--json")).document["state"] == "ready"


async def test_status_imports_nothing_slow(daemon, state_dirs):
    code = (
        "import sys; from rigd.cli.main import main; code = main(['status', '--json']);"
        f"sys.exit(code or ','.join(sorted({set(SLOW_MODULES)!r} & set(sys.modules))) or 0)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(PROJECT)!r}); {code}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=state_dirs.environ,
    )  # fmt: skip
    _, err = await process.communicate()

    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize(
    "words", [("status",), ("logs",), ("stop",), ("wait", "ready"), ("status", "--watch")]
)
async def test_daemon_that_is_not_there_is_exit_4_and_says_what_to_do(rigd, words):
    ran = await rigd(*words)

    assert (ran.code, ran.out) == (4, "")
    assert "no rigd daemon answers at" in ran.err
    assert "rigd up RIG" in ran.err


@pytest.mark.parametrize("place", ["before", "after"])
async def test_socket_option_may_stand_before_or_after_the_command(daemon, rigd, state_dirs, place):
    option = ["--socket", str(state_dirs.socket)]
    for command in (["status"], ["events"]):
        words = [*option, *command] if place == "before" else [*command, *option]

        assert (await rigd(*words, RIGD_SOCKET="/nowhere")).code == 0


async def test_watch_tells_each_change_once(daemon, spawn):
    process = await spawn("status", "--watch")
    assert b"ready (every prefix proved)" in await process.stdout.readline()
    daemon.change(state="degraded", reason="canary lost")

    assert b"degraded (canary lost)" in await asyncio.wait_for(process.stdout.readline(), 10)
    process.send_signal(signal.SIGINT)
    assert b"Traceback" not in (await process.communicate())[1]
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["status"], ({}, False)),
        (["--socket", "/a", "status", "--json"], ({"socket": "/a"}, True)),
        (["status", "--url=http://b"], ({"url": "http://b"}, False)),
        (["status", "--watch"], None),
        (["status", "--socket"], None),
        (["status", "extra"], None),
        (["events"], None),
        (["--help"], None),
        ([], None),
    ],
)
def test_fast_path_takes_only_what_it_understands(words, asked):
    assert parse(words) == asked


TROUBLE = status_document(
    state="backoff",
    reason="start failed",
    retry_s=status_document()["now_s"] + 42,
    engine=None,
    live={"phase": "loading weights", "detail": "shard 3 of 8", "fraction": 0.375, "elapsed_s": 30, "eta_s": 50},
    failure={
        "kind": "oom", "sentence": "The GPU ran out of memory.\x1b[2J", "hint": "Lower max_num_seqs.",
        "at_s": status_document()["now_s"] - 5, "start": 3, "evidence": ["CUDA out of memory"],
    },
    attempts={"failed": 2, "limit": 5, "window_s": 3600},
    gave_up="attempts used up",
    store={"problem": "the disk is full"},
    configuration={"path": "/r.yaml", "digest": "new", "running_digest": "old", "changed": True},
    hint="rigd logs",
)  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["tries again in 4", "loading weights, [########............] 38%, for 30 s, about 50 s left, shard 3 of 8",
     "The GPU ran out of memory.", "| CUDA out of memory", "-> Lower max_num_seqs.", "2 of 5 failures",
     "gave up: attempts used up", "the disk is full", "older configuration (old): `rigd restart`", "rigd logs"],
)  # fmt: skip
def test_status_says_what_is_wrong(words):
    text = render(TROUBLE)

    assert words in text
    assert "\x1b" not in text


def test_status_of_nothing_known_is_still_shown():
    empty = dict.fromkeys(status_document()) | {"rig": "box", "state": "stopped", "now_s": 1.0}

    assert "box STOPPED" in render(empty)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.84, "0.8 s"),
        (59.9, "59 s"),
        (61, "1 min 1 s"),
        (7260, "2 h 1 min"),
        (90000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_durations_read_well(seconds, text):
    assert duration(seconds) == text


# --- acting ---


async def test_start_waits_until_ready_and_says_where(daemon, rigd):
    daemon.reply = Reply(request=1, ok=True, message="starting")
    daemon.after = [(0.0, {"state": "starting"}), (0.1, {"state": "backoff"}), (0.1, {"state": "ready"})]

    ran = await rigd("start")

    assert (ran.code, daemon.asked) == (0, [(RequestKind.START, True)])
    assert "ready after 59 s: tiny at http://127.0.0.1:8000" in ran.out


async def test_starting_twice_and_stopping_twice_are_sentences(daemon, rigd):
    ran = await rigd("start")
    assert (ran.code, ran.out) == (0, "already ready\n")

    daemon.change(state="stopped", desired="stopped")
    daemon.reply = Reply(request=1, ok=True, message="already stopped")
    ran = await rigd("stop")
    assert (ran.code, ran.out) == (0, "already stopped\n")


async def test_start_that_fails_for_good_is_exit_1_with_the_reason(daemon, rigd):
    daemon.after = [(0.0, {"state": "starting"}), (0.1, {"state": "failed", "failure": TROUBLE["failure"]})]

    ran = await rigd("start")

    assert (ran.code, ran.out) == (1, "")
    assert "failed: The GPU ran out of memory." in ran.err
    assert "Lower max_num_seqs." in ran.err


async def test_refusal_is_exit_1_with_the_hint(daemon, rigd):
    daemon.reply = Reply(request=1, ok=False, message="maintenance is on", hint="rigd maintenance off")

    ran = await rigd("restart")

    assert (ran.code, ran.out) == (1, "")
    assert "rigd: maintenance is on" in ran.err
    assert "rigd maintenance off" in ran.err


async def test_no_wait_returns_with_the_answer(daemon, rigd):
    daemon.reply = Reply(request=1, ok=True, message="stopping")
    daemon.after = [(0.0, {"state": "stopping", "desired": "stopped"})]

    assert (await rigd("stop", "--no-wait")).out == "stopping\n"


async def test_waiting_ends_at_its_deadline(daemon, rigd):
    daemon.after = [(0.0, {"state": "stopping", "desired": "stopped"})]

    ran = await rigd("stop", "--timeout", "0.2")

    assert (ran.code, "not done after 0.2 s: the engine is stopping" in ran.err) == (1, True)


async def test_restart_without_reading_the_file_again(daemon, rigd):
    await rigd("restart", "--no-reload")

    assert daemon.asked == [(RequestKind.RESTART, False)]


async def test_warm_tells_the_hits_of_this_warm_up(daemon, rigd):
    later = [{**daemon.document["warm"][0], "hit": 0.97, "at_s": daemon.document["now_s"] + 60}]
    daemon.after = [(0.2, {"warm": later})]

    assert (await rigd("warm")).out == "warm: agents 97.0%\n"


async def test_action_as_json_is_one_document(daemon, rigd):
    daemon.after = [(0.0, {"state": "maintenance"})]

    document = (await rigd("maintenance", "on", "--json")).document

    assert (document["ok"], document["status"]["state"]) == (True, "maintenance")


async def test_interrupted_waiting_says_that_the_request_stands(daemon, spawn, wait_until):
    daemon.after = [(0.0, {"state": "starting"})]
    process = await spawn("start")
    await wait_until(lambda: daemon.asked)
    await asyncio.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 10)

    assert (process.returncode, b"the request stands" in err, b"Traceback" in err) == (130, True, False)


async def test_daemon_that_goes_away_while_waiting_is_exit_4(backend, spawn, wait_until, state_dirs):
    backend.after = [(0.0, {"state": "starting"})]
    async with serving(backend, Settings(socket=state_dirs.socket)):
        process = await spawn("start")
        await wait_until(lambda: backend.asked and backend.subscribers)
        await asyncio.sleep(0.2)
    _, err = await asyncio.wait_for(process.communicate(), 10)

    assert process.returncode == 4, err


# --- reading ---


async def test_wait_for_what_is_so_is_exit_0(daemon, rigd):
    assert (await rigd("wait", "ready")).code == 0


async def test_wait_that_runs_out_is_exit_3_with_the_reason(daemon, rigd):
    ran = await rigd("wait", "stopped", "--timeout", "0.1")

    assert (ran.code, ran.out) == (3, "")
    assert "not stopped after 0.1 s, but ready" in ran.err


async def test_wait_on_a_failed_engine_is_exit_3_at_once(daemon, rigd):
    daemon.change(state="failed", failure=TROUBLE["failure"])

    ran = await rigd("wait", "ready", "--json")

    assert (ran.code, ran.document["reached"]) == (3, False)


async def test_wait_for_an_unknown_state_is_wrong_usage(daemon, rigd):
    ran = await rigd("wait", "redy")

    assert (ran.code, "states: stopped, starting" in ran.err) == (2, True)


async def test_logs_are_the_engines_lines(daemon, rigd):
    daemon.log_of(1).write_text("one\ntwo\nthree\n")

    assert (await rigd("logs", "--tail", "2")).out == "two\nthree\n"


async def test_logs_follow_until_interrupted(daemon, spawn):
    log = daemon.log_of(1)
    log.write_text("one\n")
    process = await spawn("logs", "--follow")
    assert await process.stdout.readline() == b"one\n"
    with log.open("a") as file:
        file.write("two\n")

    assert await asyncio.wait_for(process.stdout.readline(), 10) == b"two\n"
    process.send_signal(signal.SIGINT)
    assert (await process.communicate())[1] == b""


async def test_events_as_json_and_followed(daemon, rigd, spawn, wait_until):
    daemon.journal("it broke")
    assert [entry["message"] for entry in (await rigd("events", "--json")).document["events"]] == ["it broke"]

    process = await spawn("events", "--follow", "--json")
    await wait_until(lambda: daemon.subscribers)
    daemon.journal("it recovered")
    lines = [json.loads(await asyncio.wait_for(process.stdout.readline(), 10)) for _ in range(2)]
    process.kill()
    await process.communicate()

    assert [line["message"] for line in lines] == ["it broke", "it recovered"]


async def test_starts_are_a_table(daemon, rigd):
    ran = await rigd("starts")

    assert "START" in ran.out
    assert "running" in ran.out


async def test_reader_that_has_seen_enough_is_no_error(daemon, spawn):
    daemon.log_of(1).write_text("line\n" * 9000)
    process = await spawn("logs", "--tail", "9000")
    await process.stdout.readline()
    process._transport.get_pipe_transport(1).close()
    err = await asyncio.wait_for(process.stderr.read(), 10)
    await process.wait()

    assert (process.returncode, err) == (0, b"")


# --- usage ---


@pytest.mark.parametrize("name", [command.name for command in (*COMMANDS, *MOUNTS)])
async def test_every_command_explains_itself_with_an_example(rigd, name):
    ran = await rigd(name, "--help")

    assert ran.code == 0, ran.err
    assert f"rigd {name}" in ran.out
    if name not in (
        "rig",
        "engine",
        "sim",
        "overlay",
        "alerts",
        "provision",
    ):  # Groups: their commands have the examples.
        assert "Example" in ran.out


@pytest.mark.parametrize(
    "words", [("nope",), ("status", "--nope"), ("wait",), ("maintenance", "maybe"), ("logs", "-n", "x")]
)
async def test_wrong_usage_is_exit_2_without_a_traceback(rigd, words):
    ran = await rigd(*words)

    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err


async def test_version_is_told_by_the_word_and_by_the_option(rigd):
    assert (await rigd("--version")).out == (await rigd("version")).out


async def test_version_is_json_too(rigd):
    assert "version" in (await rigd("version", "--json")).document


def test_unforeseen_error_is_a_line_and_a_file(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def broken(_words):
        raise ZeroDivisionError("inner")

    monkeypatch.setattr("rigd.cli.status.parse", broken)

    assert entry.main(["status"]) == 1
    err = capsys.readouterr().err
    assert "this should not have happened: ZeroDivisionError: inner" in err
    (details,) = tmp_path.glob("rigd-error-*")
    assert "Traceback" in details.read_text()
    assert details.stat().st_mode & 0o077 == 0


def test_debug_shows_the_details(monkeypatch, capsys):
    monkeypatch.setenv("RIGD_DEBUG", "1")
    monkeypatch.setattr("rigd.cli.status.parse", lambda _words: 1 / 0)

    assert entry.main(["status"]) == 1
    assert "Traceback" in capsys.readouterr().err


async def test_up_with_a_missing_rig_file_is_wrong_usage(rigd):
    ran = await rigd("up", "/nonexistent/rig.yaml")

    assert (ran.code, "Traceback" in ran.err) == (2, False)


async def test_up_until_an_unknown_state_is_wrong_usage(rigd):
    ran = await rigd("up", "rig.yaml", "--until", "redy")

    assert (ran.code, "there is no state 'redy'" in ran.err) == (2, True)


async def test_wrong_settings_are_a_sentence(rigd):
    ran = await rigd("daemon", "rig.yaml", RIGD_LOG_JSON="perhaps")

    assert (ran.code, "RIGD_LOG_JSON" in ran.err) == (2, True)
