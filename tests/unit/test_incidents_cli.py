"""`rigd incidents` and its routes, against the real API with a fake supervisor behind it."""

import asyncio
import json
import stat
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from api_fakes import FakeBackend, incident_document, serving

from rigd.cli.incidents import story
from rigd.client import Client, RefusedError
from rigd.settings import Settings

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
async def backend(tmp_path, state_dirs):
    made = FakeBackend(tmp_path)
    async with serving(made, Settings(socket=state_dirs.socket)):
        yield made


@pytest.fixture
def rigd(state_dirs):
    """Run `rigd WORDS` to its end."""

    async def run(*words: str) -> Ran:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rigd.cli", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=state_dirs.environ | {"PYTHONPATH": str(PROJECT), "TERM": "dumb", "COLUMNS": "100"},
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 20)
        return Ran(code=process.returncode, out=out.decode(), err=err.decode())

    return run


async def test_list_shows_id_class_sentence_and_start(backend, rigd):
    ran = await rigd("incidents")

    head, row = ran.out.splitlines()
    assert head.split()[:4] == ["ID", "WHEN", "START", "CLASS"]
    assert row.startswith("7 ")
    for words in ("worker_died", "recovered after 31 s", "A worker of the engine was killed."):
        assert words in row


async def test_empty_list_is_said(backend, rigd):
    backend.incidents.documents = []

    ran = await rigd("incidents")

    assert (ran.code, ran.out) == (0, "no incidents: nothing has failed, or what failed is too long ago\n")


async def test_list_and_story_are_json_too(backend, rigd):
    assert json.loads((await rigd("incidents", "--json")).out)["incidents"][0]["id"] == 7
    assert json.loads((await rigd("incidents", "7", "--json")).out)["class"] == "worker_died"


async def test_story_tells_what_happened_what_rigd_did_and_what_to_do(backend, rigd):
    ran = await rigd("incidents", "7")

    assert (ran.code, ran.err) == (0, "")
    for words in (
        "Incident 7: worker_died",
        "A worker of the engine was killed.",
        "VLLM::Worker_TP first, exit code 137",
        "Worker proc VllmWorker-1 died unexpectedly",
        "failure: The engine ended.",
        "2 x bearer tokens, replaced",
        "What to do next",
        "rigd logs --start 3",
    ):
        assert words in ran.out


async def test_story_of_what_is_not_there_ends_with_the_next_command(backend, rigd):
    ran = await rigd("incidents", "8")

    assert (ran.code, ran.out) == (1, "")
    assert "there is no incident 8" in ran.err
    assert "rigd incidents" in ran.err


async def test_bundle_is_written_private_and_says_what_is_inside(backend, rigd, tmp_path):
    path = tmp_path / "out.tar.gz"

    ran = await rigd("incidents", "7", "--bundle", str(path))

    assert ran.code == 0, ran.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["incident-7/CONTENTS.txt"]
    for words in ("engine.log", "Left out:", "2 x bearer tokens"):
        assert words in ran.out


async def test_bundle_never_overwrites(backend, rigd, tmp_path):
    path = tmp_path / "out.tar.gz"
    path.write_text("mine")

    ran = await rigd("incidents", "7", "--bundle", str(path))

    assert (ran.code, path.read_text()) == (2, "mine")
    assert "exists" in ran.err


async def test_bundle_that_cannot_be_written_is_an_error_with_a_hint(backend, rigd, tmp_path):
    ran = await rigd("incidents", "7", "--bundle", str(tmp_path / "missing/out.tar.gz"))

    assert ran.code == 1
    assert "No such file" in ran.err
    assert "->" in ran.err


async def test_bundle_without_an_incident_is_wrong_usage(backend, rigd, tmp_path):
    assert (await rigd("incidents", "--bundle", str(tmp_path / "out"))).code == 2


@pytest.mark.parametrize("path", ["/v1/incidents/99", "/v1/incidents/99/bundle", "/v1/incidents/nope"])
async def test_route_of_what_is_not_there_is_404(backend, state_dirs, path):
    client = Client(socket=str(state_dirs.socket))

    with pytest.raises(RefusedError) as refused:
        await asyncio.to_thread(client.content, path)

    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exit": None}, "by rigd: it still ran"),
        ({"exit": None, "start": 0}, "it never ran"),
        ({"outcome": "given up", "outcome_s": 2.0}, "given up after 2.0 s"),
        ({"overlay": [{"knob": "max_num_seqs", "old": 10, "new": 5}]}, "max_num_seqs 10 -> 5"),
        ({"sentence": "evil \x1b[31mred"}, "evil"),
    ],
)
def test_story_is_told_for_every_kind_of_end(changes, words):
    text = "\n".join(story(incident_document(**changes), now_s=2e9))

    assert words in text
    assert "\x1b" not in text
