"""`rigd prefix` on the command line: what a person sees, exit codes, and bad input."""

import asyncio
import contextlib
import json
import os
import sys

import pytest
from gateway_engine import answer, engine

from rigd.cli.main import main
from rigd.cli.prefix_watch import watched
from rigd.errors import RigdError
from rigd.gateway.child import environment, filled, run_command
from rigd.gateway.target import rate_of_status, target_of
from rigd.prefix.hits import Rate

RULES = "".join(f"Rule {number}: item {number * 7919 % 10007} precedes it.\n" for number in range(60))


def body(day):
    return {"messages": [{"role": "system", "content": f"Today is 2026-07-{day}.\n{RULES.strip()}"}]}


@pytest.fixture
def two_days(tmp_path):
    files = [tmp_path / "monday.json", tmp_path / "tuesday.json"]
    for day, path in zip((11, 12), files, strict=True):
        path.write_text(json.dumps(body(day)))
    return [str(path) for path in files]


def test_two_days_name_the_block_the_cause_and_the_cost(two_days, capsys):
    code = main(["prefix", "lint", *two_days, "--rate", "100", "--block", "32"])

    out = capsys.readouterr().out
    assert code == 3
    assert "tokens counted from the text" in out
    assert "blocks of 32 (stated)" in out
    assert "block 0 (tokens 0 to 31): messages[0].content: date:" in out
    assert "2026-07-11" in out
    assert "are the same and are read again: 4.8 s" in out


def test_lint_as_json_is_one_document(two_days, capsys):
    main(["prefix", "lint", *two_days, "--json"])

    document = json.loads(capsys.readouterr().out)
    assert [one["difference"]["kind"] for one in document["comparisons"]] == ["date"]
    assert {one["kind"] for one in document["findings"]} == {"date", "dynamic before static"}


def test_clean_files_are_exit_code_0(tmp_path, capsys):
    path = tmp_path / "p.md"
    path.write_text(RULES)

    assert main(["prefix", "lint", str(path)]) == 0
    assert capsys.readouterr().out == "nothing in it moves\n"


def test_engine_that_does_not_answer_is_told_and_the_text_counted(two_days, capsys, free_port):
    code = main(["prefix", "lint", *two_days, "--url", f"http://127.0.0.1:{free_port}"])

    captured = capsys.readouterr()
    assert code == 3
    assert f"127.0.0.1:{free_port} does not answer: tokens are counted from the text" in captured.err
    assert "tokens counted from the text" in captured.out


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        ('{"messages": [', [], "cannot lint '{path}': not JSON: line 1, column 15"),
        ('{"a": 1}', [], "cannot lint '{path}': the JSON is no request body"),
        (None, [], "cannot lint '{path}': it does not exist"),
        ("{}", ["--rig", "a", "--url", "b"], "--rig and --url exclude each other"),
        ('{"messages": []}', ["--url", "ftp://x"], "'ftp://x' is no address of an engine"),
        ('{"messages": []}', ["--url", "box:8000"], "'box:8000' is no rig file and no address"),
        ('{"messages": []}', ["--rig", "no-such.yaml"], "cannot read the rig file 'no-such.yaml'"),
    ],
)
def test_bad_input_is_a_sentence_with_its_place(content, words, sentence, tmp_path, capsys):
    path = tmp_path / "body.json"
    if content is not None:
        path.write_text(content)

    code = main(["prefix", "lint", str(path), *words])

    captured = capsys.readouterr()
    assert code == 2
    assert sentence.format(path=path) in captured.err
    assert "Traceback" not in captured.err


def test_empty_folder_and_no_files_are_told(tmp_path, capsys):
    assert main(["prefix", "lint", str(tmp_path)]) == 2
    assert main(["prefix", "lint"]) == 2
    assert "there is no request body" in capsys.readouterr().err


def test_watch_of_nobody_says_so(capsys, free_port):
    code = main(["prefix", "lint", "--watch", f"http://127.0.0.1:{free_port}"])

    assert code == 1
    assert "does not answer with vLLM's counters" in capsys.readouterr().err


def test_capture_of_an_engine_that_does_not_answer_starts_nothing(state_dirs, tmp_path, capsys, free_port):
    mark = tmp_path / "ran"
    command = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]

    code = main(["prefix", "capture", "--to", f"http://127.0.0.1:{free_port}", "--", *command])

    assert code == 1
    assert "does not answer" in capsys.readouterr().err
    assert not mark.exists()
    assert not (state_dirs.state / "prefix").exists()


def test_capture_needs_a_command_that_is_there_and_a_folder_to_write_to(
    state_dirs, tmp_path, capsys, free_port
):
    to = f"http://127.0.0.1:{free_port}"
    (tmp_path / "file").write_text("mine")

    assert main(["prefix", "capture", "--to", to, "--", "no-such-client"]) == 2
    assert main(["prefix", "capture", "--to", to, "--write", str(tmp_path / "file"), "--", "true"]) == 2
    err = capsys.readouterr().err
    assert "cannot find the command 'no-such-client'" in err
    assert "it is no folder" in err
    assert (tmp_path / "file").read_text() == "mine"


def test_forget_says_what_is_gone(state_dirs, capsys):
    assert main(["prefix", "forget", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"recordings": 0, "files": 0, "bytes": 0}


def test_command_and_environment_name_the_pass_through():
    words = filled(["client", "--base={url}", "{root}", "{model}", "{other}"], url="http://h:1", model="m")
    environ = environment({"PATH": "/bin"}, url="http://h:1", model="m")

    assert words == ["client", "--base=http://h:1/v1", "http://h:1", "m", "{other}"]
    assert (environ["OPENAI_BASE_URL"], environ["ANTHROPIC_BASE_URL"]) == ("http://h:1/v1", "http://h:1")
    assert environ["PATH"] == "/bin"


async def test_command_that_runs_too_long_is_ended_and_others_say_how_they_ended():
    environ = {"PATH": os.environ["PATH"]}

    assert await run_command(["sleep", "30"], environ, 0.1) == "was ended after 0.1 s"
    assert await run_command(["sh", "-c", "exit 3"], environ, 5) == "ended with 3"
    assert await run_command(["sh", "-c", "kill -9 $$"], environ, 5) == "was ended by SIGKILL"


async def test_what_the_command_says_stays_out_of_a_piped_result(capfd):
    await run_command(["sh", "-c", "echo hello"], {"PATH": os.environ["PATH"]}, 5)
    assert capfd.readouterr() == ("", "hello\n")


def test_address_may_have_its_v1():
    assert target_of("http://rig:8000/v1/").base_url == "http://rig:8000"


def test_rate_is_of_the_longest_cold_prefix_of_this_rig():
    def warmed(name, sightings, tokens, cold_s):
        return {"prefix": name, "sightings": sightings, "prefix_tokens": tokens, "cold_ttft_s": cold_s}

    warm = [warmed("a", 2, 1000, 2.0), warmed("b", 3, 4000, 4.0), warmed("c", 1, 9000, 0.1)]

    assert rate_of_status({"rig": "r", "warm": warm}, "r") == Rate(
        tokens_per_s=1000, said_by="warming 'b', 4,000 tokens in 4.0 s"
    )
    assert rate_of_status({"rig": "other", "warm": warm}, "r") is None
    assert rate_of_status({"rig": "r", "warm": []}, "r") is None


METRICS = (
    b'vllm:prefix_cache_queries_total{engine="0"} %d.0\nvllm:prefix_cache_hits_total{engine="0"} %d.0\n'
    b'vllm:num_requests_running{engine="0"} 1.0\n'
)


async def test_watch_prints_a_row_for_what_was_asked(capsys):
    async def script(call):
        looks = len(behind.calls)
        await call.say(answer("200 OK", METRICS % (looks * 1000, looks * 900), b"connection: close"))

    async with engine(script) as behind:
        await watched(target_of(behind.url), 0.05, 0.2, as_json=True)

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows
    assert {(row["prompt_tokens"], row["hit_rate"], row["running"]) for row in rows} == {(1000, 0.9, 1)}


async def test_watch_waits_for_an_engine_that_goes_away_and_knows_that_it_was_restarted(capsys, wait_until):
    pages = [(9000, 8000), None, None, (100, 0), (1100, 900)]

    async def script(call):
        page = pages[min(len(behind.calls), len(pages)) - 1]
        if page is None:
            await call.say(answer("503 Service Unavailable", b"starting", b"connection: close"))
        else:
            await call.say(answer("200 OK", METRICS % page, b"connection: close"))

    async with engine(script) as behind:
        watching = asyncio.ensure_future(watched(target_of(behind.url), 0.02, None, as_json=True))
        await wait_until(lambda: len(behind.calls) > len(pages))
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    printed = capsys.readouterr()
    restarted, after = [json.loads(line) for line in printed.out.splitlines()]
    assert printed.err.count("does not answer; waiting for it") == 1
    assert "the engine was restarted" in restarted["note"]
    assert (after["prompt_tokens"], after["hit_rate"], after["usual"]) == (1000, 0.9, None)


async def test_watch_of_other_metrics_says_so():
    async def script(call):
        await call.say(answer("200 OK", b"llamacpp:prompt_tokens_total 5\n", b"connection: close"))

    async with engine(script) as behind:
        with pytest.raises(RigdError, match="does not answer with vLLM's counters"):
            await watched(target_of(behind.url), 0.02, None, as_json=True)
