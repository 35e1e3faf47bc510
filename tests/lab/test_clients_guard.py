"""The guard that OpenCode and Kilo load beside their file, by itself: what it lets go on, and how it refuses."""

import json
import subprocess

import install
import pytest

from rigd.clients.opencode import opencode
from rigd.clients.plan import make_plan
from rigd.rig.schema import Rig

pytestmark = pytest.mark.lab

LIMIT = 100
HARNESS = """
import { RigdGuard } from "./guard.mjs"
const [counts, requests] = JSON.parse(process.argv[2])
const asked = []
globalThis.fetch = async (address, init) => {
  asked.push(String(address))
  if (!String(address).endsWith("/tokenize")) return new Response("{}")
  const count = counts.shift()
  return count === null ? new Response("no", { status: 500 }) : new Response(JSON.stringify({ count }))
}
const models = { small: { limit: { input: 100 } } }
const provider = (url) => ({ options: { baseURL: url }, models })
const config = { provider: { "den-big": provider("http://box/v1"), other: provider("http://cloud/v1") } }
await (await RigdGuard()).config(config)
const answers = []
for (const [session, length] of requests) {
  const body = JSON.stringify({ model: "small", messages: [{ role: "user", content: "x".repeat(length) }] })
  const headers = { "x-session-id": session }
  const send = config.provider["den-big"].options.fetch
  const answer = await send("http://box/v1/chat", { method: "POST", headers, body })
  answers.push([answer.status, (await answer.json()).error?.code ?? null])
}
console.log(JSON.stringify({ answers, asked, other: config.provider.other.options.fetch ?? null }))
"""
PASSED, OVERFLOW, FINAL = [200, None], [400, "context_length_exceeded"], [400, "refused"]


@pytest.fixture
def guard(tmp_path, need_parts):
    """Give what runs the guard: tokens that the engine counts, in order, and (session, bytes) of requests."""
    need_parts("clients")
    rig = Rig.model_validate(
        {
            "name": "den",
            "engine": {"runtime": "process", "version": "0.32.0", "model": "some/model"},
            "channels": [{"name": "big", "context": LIMIT, "output": 10}],
        }
    )
    plan = make_plan(rig, model="small", root_url="http://box", key=None, rate=None, rate_from="")
    (tmp_path / "guard.mjs").write_text(opencode(plan)[1].text)
    (tmp_path / "harness.mjs").write_text(HARNESS)
    node = install.default_folder() / "clients/node_modules/.bin/node"

    def run(counts, requests):
        words = [node, tmp_path / "harness.mjs", json.dumps([counts, requests])]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize(
    ("counts", "requests", "answers"),
    [
        pytest.param([], [("a", 10)], [PASSED], id="fewer bytes than tokens allowed, so not counted"),
        pytest.param([LIMIT], [("a", 400)], [PASSED], id="as long as the channel"),
        pytest.param([LIMIT + 1], [("a", 400)], [OVERFLOW], id="a token more"),
        pytest.param([None], [("a", 400)], [PASSED], id="the engine cannot count"),
        pytest.param([101] * 3, [("a", 400)] * 3, [OVERFLOW, FINAL, OVERFLOW], id="every second is final"),
        pytest.param([101] * 2, [("a", 400), ("b", 400)], [OVERFLOW] * 2, id="another session is another"),
        pytest.param(
            [101, 50, 101], [("a", 400)] * 3, [OVERFLOW, PASSED, OVERFLOW], id="what fits again begins anew"
        ),
    ],
)
def test_a_prompt_is_held_against_its_channel(guard, counts, requests, answers):
    found = guard(counts, requests)

    assert found["answers"] == answers
    assert found["asked"].count("http://box/tokenize") == len(counts)
    assert found["asked"].count("http://box/v1/chat") == answers.count(PASSED)


def test_other_providers_are_left_alone(guard):
    assert guard([], [])["other"] is None
