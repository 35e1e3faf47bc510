"""`rigd host drift` and the status's section: what differs, since when, and a look that is asked for."""

import asyncio
import json
import time

import pytest
from api_fakes import FakeBackend, serving
from typer.testing import CliRunner

from rigd.cli.host import app
from rigd.cli.status import render
from rigd.errors import RigdError
from rigd.settings import Settings

NOW_S = time.time()
DIFFERENCE = {
    "task": "Docker's settings",
    "place": "docker.yml:7",
    "what": "live-restore",
    "allowed": True,
    "certain": True,
    "since_s": NOW_S - 60,
}
DRIFT = {
    "playbook": "site.yml", "checked_s": NOW_S - 60, "tried_s": NOW_S - 60, "next_s": NOW_S, "running": None,
    "this_boot": True, "problem": "", "hint": "", "applied_s": None, "reboot": False, "more": 0, "differences": [],
}  # fmt: skip


class Drifting(FakeBackend):
    """Says what it is told to say, and looks when it is asked."""

    said = DRIFT
    refusal = None

    def status(self):
        return {**super().status(), "now_s": NOW_S, "drift": self.said}

    def look_at_drift(self):
        if self.refusal is None:
            self.said = {**self.said, "tried_s": NOW_S + 1, "checked_s": NOW_S, "differences": []}
        return self.refusal


@pytest.fixture
async def served(tmp_path, state_dirs):
    backend = Drifting(tmp_path)
    async with serving(backend, Settings(socket=state_dirs.socket)):
        yield backend, str(state_dirs.socket)


async def run(*words):
    return await asyncio.to_thread(CliRunner().invoke, app, ["drift", *words], standalone_mode=False)


@pytest.mark.parametrize(
    ("drift", "code", "said"),
    [
        pytest.param(DRIFT, 0, "as site.yml says (looked 1 min 0 s ago)", id="as-it-says"),
        pytest.param({**DRIFT, "differences": [DIFFERENCE]}, 3, "rigd may apply it", id="differs"),
        pytest.param({**DRIFT, "problem": "apt is locked", "hint": "wait"}, 1, "-> wait", id="trouble"),
        pytest.param({**DRIFT, "checked_s": None}, 1, "not looked yet", id="not-yet"),
        pytest.param({**DRIFT, "running": "apply"}, 0, "being applied now", id="under-way"),
        pytest.param(None, 0, "names no playbook", id="no-playbook"),
    ],
)
async def test_what_differs_is_shown(served, drift, code, said):
    backend, socket = served
    backend.said = drift

    ran = await run("--socket", socket)

    assert said in ran.stdout
    assert ran.return_value == code


async def test_a_look_that_is_asked_for_is_waited_for(served):
    backend, socket = served
    backend.said = {**DRIFT, "differences": [DIFFERENCE]}

    ran = await run("--check", "--json", "--socket", socket)

    assert json.loads(ran.stdout)["drift"]["tried_s"] == NOW_S + 1
    assert ran.return_value == 0


async def test_a_look_that_is_refused_says_why(served):
    backend, socket = served
    backend.refusal = "maintenance is on: rigd keeps its hands off"

    ran = await run("--check", "--socket", socket)

    assert isinstance(ran.exception, RigdError)
    assert "hands off" in str(ran.exception)


def test_the_status_has_a_section_where_the_rig_file_names_a_playbook(tmp_path):
    backend = Drifting(tmp_path)
    backend.said = {**DRIFT, "differences": [DIFFERENCE], "more": 3}

    lines = render(backend.status()).splitlines()

    assert any(line.startswith("  drift     4 differ from site.yml") for line in lines)
    backend.said = None
    assert "drift" not in render(backend.status())
