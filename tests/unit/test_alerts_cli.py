"""`rigd alerts`: what is said of who is told, and of a test message."""

import asyncio
import json
import time

import pytest
from api_fakes import FakeBackend, serving
from receiver import REFUSE, Receiver
from typer.testing import CliRunner

from rigd.cli.alerts import app
from rigd.client import Client
from rigd.settings import Settings

NOW_S = time.time()
DOCUMENT = {
    "now_s": NOW_S,
    "receivers": [
        {
            "name": "env:PHONE",
            "waiting": 0,
            "sent_s": NOW_S - 5,
            "refusals": 0,
            "detail": "",
            "again_s": None,
        },
        {
            "name": "json://example.org/***",
            "waiting": 2,
            "sent_s": None,
            "refusals": 3,
            "detail": "error=500",
            "again_s": NOW_S + 8,
        },
    ],
    "problems": [
        {
            "subject": "engine",
            "kind": "failed",
            "since_s": NOW_S - 60,
            "sentence": "It does not fit.",
            "class": "cuda_oom_kv",
            "told": True,
            "remind_s": NOW_S + 3600,
        }
    ],
    "notes": [{"at_s": NOW_S, "due_s": NOW_S + 60, "kind": "degraded", "title": "degraded"}],
    "quiet_until_s": NOW_S + 600,
    "storage_problem": None,
}


class TellingBackend(FakeBackend):
    """Has receivers."""

    def alerts(self):
        return DOCUMENT

    async def test_alerts(self):
        return {
            "results": [
                {"name": "env:PHONE", "url": "ntfys://ntfy.sh/***", "ok": True, "detail": ""},
                {
                    "name": "json://example.org/***",
                    "url": "json://example.org/***",
                    "ok": False,
                    "detail": "no",
                },
            ]
        }


@pytest.fixture
async def served(tmp_path, state_dirs):
    async with serving(TellingBackend(tmp_path), Settings(socket=state_dirs.socket)):
        yield str(state_dirs.socket)


async def run(*words):
    return await asyncio.to_thread(CliRunner().invoke, app, list(words), standalone_mode=False)


async def test_show_says_who_is_told_what_is_open_and_what_waits(served):
    ran = await run("show", "--socket", served)

    for words in (
        "env:PHONE", "never", "refused 3 times, again in", "error=500", "open (told): It does not fit.",
        "degraded", "quiet hours until",
    ):  # fmt: skip
        assert words in ran.stdout
    assert ran.return_value == 0


async def test_show_json_is_the_daemons_document(served):
    assert json.loads((await run("show", "--json", "--socket", served)).stdout) == DOCUMENT


async def test_test_says_what_came_of_each_and_fails_where_one_refused(served):
    ran = await run("test", "--socket", served)

    assert ran.stdout.splitlines() == [
        "env:PHONE (ntfys://ntfy.sh/***): taken",
        "json://example.org/***: refused: no",
    ]
    assert ran.return_value == 1


async def test_tests_are_a_change_and_showing_is_not(served):
    client = Client(socket=served)
    assert (await asyncio.to_thread(client.post, "/v1/alerts/test"))["results"][0]["ok"]
    assert (await asyncio.to_thread(client.get, "/v1/alerts"))["receivers"]


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def rig_file(folder, *urls):
    path = folder / "rig.yaml"
    engine = {"runtime": "process", "version": "0.32.0", "model": "org/model"}
    path.write_text(json.dumps({"name": "box", "engine": engine, "alerts": {"urls": urls}}))
    return str(path)


async def test_test_works_from_a_rig_file_without_a_daemon(receiver, tmp_path):
    rig = rig_file(tmp_path, receiver.url, {"env": "NO_SUCH_VARIABLE"})
    ran = await run("test", "--rig", rig)

    assert receiver.titles == ["box: test"]
    first, second = ran.stdout.splitlines()
    assert first.endswith("/***: taken")
    assert "NO_SUCH_VARIABLE" in second
    assert ran.return_value == 1
    receiver.answer = REFUSE
    document = json.loads((await run("test", "--json", "--rig", rig)).stdout)
    assert [result["ok"] for result in document["results"]] == [False, False]
    assert "password-in-url" not in str(document)


async def test_rig_that_tells_nobody_says_what_to_add(tmp_path):
    ran = await run("test", "--rig", rig_file(tmp_path))

    assert (ran.return_value, "add `alerts:`" in ran.stderr) == (1, True)
