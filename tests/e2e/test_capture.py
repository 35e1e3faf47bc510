"""A client's requests are recorded, what they share is warmed after a start, and its next first turn hits it.

Another client is another row in `CLIENTS`: its command, and how it is asked a question.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import agent_client
import httpx
import install
import opencode_client
import pytest
from rigs import DOUBLE, REAL

from rigd.client import Client
from rigd.prefix.anthropic import as_chat

AGENT = str(Path(agent_client.__file__))
OPENCODE = str(Path(opencode_client.__file__))
PROGRAMS = str(install.default_folder() / "clients/node_modules/.bin")
CLIENTS: dict[str, Callable[..., list[str]]] = {
    "agents": lambda rig, *questions: [sys.executable, AGENT, "{url}", "{model}", "builder", *questions],
    "opencode": lambda rig, *questions: [
        sys.executable, OPENCODE, PROGRAMS, "{root}", str(rig.path), str(rig.folder / "opencode"), *questions
    ],
}  # fmt: skip
"""How each client is run; `{url}`, `{root}` and `{model}` are filled in by the capture."""
PARTS = {"opencode": "clients"}
"""What of the lab a client needs."""
TARGET = 0.95


def capture(rig, *words, write=None, **environ):
    """Run `rigd prefix capture` on the rig, with more in the environment, and return its document."""
    options = ["--write", str(write), "--replace"] if write is not None else []
    argv = [
        sys.executable,
        "-m",
        "rigd.cli.main",
        "prefix",
        "capture",
        "--to",
        str(rig.path),
        "--json",
        *options,
    ]
    done = subprocess.run(
        [*argv, "--", *words],
        env={**rig.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def linted(rig, *paths):
    """Run `rigd prefix lint` on what the rig's engine got; return its exit code and its document."""
    argv = [sys.executable, "-m", "rigd.cli.main", "prefix", "lint", "--json", "--rig", str(rig.path)]
    done = subprocess.run(
        [*argv, *map(str, paths)], env=rig.environ, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module", params=[DOUBLE[0], REAL[0]])
def rig(request, make_rig):
    made = make_rig(request.param)
    made.settings["prefixes"] = []
    made.settings["channels"] = [{"name": "primary", "context": 24000, "output": 512}]
    if made.faults is not None:  # A double whose prefill takes its time: what is saved can be seen.
        made.settings["engine"]["arguments"]["extra"] |= {"sim-profile": "rig-b", "sim-speed": 20}
        made.settings["engine"]["arguments"]["max_model_len"] = 32768
    made.settings["engine"]["arguments"] |= {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
    yield made
    made.close()
    made.daemon = None


def fresh_engine(rig):
    """Stop the engine and start another: nothing is cached but what is warmed."""
    rig.act("stop")
    rig.wait("stopped", deadline_s=60)
    rig.act("start", reload=True)
    return rig.wait("ready", deadline_s=rig.boot_s)


def largest(captured):
    """Return the kind of request with the longest prompts: clients have small ones for titles beside it."""
    return max(captured["kinds"], key=lambda kind: kind["first_turn_tokens"])


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=[pytest.mark.lab] if name in PARTS else []) for name in CLIENTS]
)
def test_captured_prefix_is_warmed_and_the_next_first_turn_hits_it(rig, client, need_parts):
    if client in PARTS:
        need_parts(PARTS[client])
    command = CLIENTS[client]
    rig.ready()
    if client in PARTS:
        fresh_engine(rig)  # Nothing of another client's prompts is cached.

    captured = capture(
        rig, *command(rig, "What is here?", "Write a test.", "Fix it."), write=rig.folder / "prompts"
    )
    kind = largest(captured)
    cold = kind["requests"][0]

    rig.settings["prefixes"] = [{"name": kind["name"], "request": f"prompts/{kind['name']}.json"}]
    rig.write()
    status = fresh_engine(rig)
    (turn,) = largest(capture(rig, *command(rig, "A question that nobody asked before.")))["requests"]

    (warmth,) = status["warm"]
    share = turn["cached_tokens"] / turn["prompt_tokens"]
    print(
        f"\nshared {kind['shared_tokens']:,} tokens, promised {kind['first_turn_hit_tokens']:,}; "
        f"first turn: {turn['cached_tokens']:,} of {turn['prompt_tokens']:,} cached ({share:.1%}), "
        f"first token after {turn['ttft_s']:.3f} s; cold {cold['ttft_s']:.3f} s"
    )
    assert (len(kind["requests"]), kind["conversations"], kind["counted_by"]) == (3, 3, "engine")
    assert f"request: prompts/{kind['name']}.json" in captured["yaml"]
    assert (cold["status"], cold["cached_tokens"] or 0) == (200, 0)
    assert warmth["proved"]
    assert share >= TARGET
    assert turn["ttft_s"] < cold["ttft_s"]
    assert abs(turn["cached_tokens"] - kind["first_turn_hit_tokens"]) <= captured["cache"]["block_tokens"]


def test_keys_are_kept_nowhere_and_bodies_go_with_one_command(rig):
    rig.ready()
    captured = capture(rig, sys.executable, AGENT, "{url}", "{model}", "greeter", "Say hello.")
    folder = Path(captured["folder"])
    bodies = [path for path in folder.rglob("*") if path.is_file()]

    kept = [path for path in rig.folder.rglob("*") if path.is_file()]
    assert [path for path in kept if agent_client.KEY.encode() in path.read_bytes()] == []
    assert {path.stat().st_mode & 0o777 for path in bodies} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700

    argv = [sys.executable, "-m", "rigd.cli.main", "prefix", "forget", "--json"]
    gone = json.loads(subprocess.run(argv, env=rig.environ, capture_output=True, check=True).stdout)

    assert gone["files"] >= len(bodies)
    assert not folder.exists()
    assert Client(socket=rig.environ["RIGD_SOCKET"]).get("/v1/status")["state"] == "ready"


def test_lint_counts_with_the_engines_own_tokens_and_its_rate(rig, tmp_path):
    rig.ready()
    rules = agent_client.RULES.splitlines()
    paths = []
    for day in (11, 12):
        text = "\n".join([*rules[:100], f"Today is 2026-07-{day}.", *rules[100:]])
        body = {
            "model": "recorded elsewhere",
            "messages": [{"role": "system", "content": text}, {"role": "user", "content": "And now?"}],
        }
        rig.chat(body["messages"])
        paths.append(tmp_path / f"{day}.json")
        paths[-1].write_text(json.dumps(body))

    code, document = linted(rig, *paths)

    (found,) = document["comparisons"]
    print(
        f"\ntoken {found['shared_tokens']:,} of {found['prompt_tokens']:,}, block {found['first_differing_block']} "
        f"of {found['block_tokens']}, {found['read_again_tokens']:,} read again: {found['read_again_s']} s "
        f"({document['rate']['said_by']})"
    )
    assert (code, found["counted_by"], found["difference"]["kind"]) == (3, "engine", "date")
    assert "2026-07-12" in found["difference"]["later"]
    assert found["first_differing_block"] == found["shared_tokens"] // found["block_tokens"] > 0
    assert found["read_again_tokens"] > found["prompt_tokens"] / 2
    assert found["read_again_s"] > 0


@pytest.mark.lab
def test_two_days_that_opencode_recorded_name_the_block_the_date_and_the_cost(rig, need_parts):
    need_parts(PARTS["opencode"])
    rig.ready()
    command = CLIENTS["opencode"](rig, "What is here?")
    # 26 hours lie between these two zones: whenever this runs, it is another day in each of them.
    days = [capture(rig, *command, TZ=zone) for zone in ("Etc/GMT+12", "Etc/GMT-14")]
    recorded = [
        Path(day["folder"]) / max(largest(day)["requests"], key=lambda one: one["prompt_tokens"])["file"]
        for day in days
    ]

    code, document = linted(rig, *recorded)

    (found,) = document["comparisons"]
    difference = found["difference"]
    print(
        f"\nOpenCode's '{difference['earlier']}' became '{difference['later']}': token {found['shared_tokens']:,} of "
        f"{found['prompt_tokens']:,}, block {found['first_differing_block']} of {found['block_tokens']}; "
        f"{found['read_again_tokens']:,} tokens are read again: {found['read_again_s']} s "
        f"({document['rate']['said_by']})"
    )
    assert (code, found["counted_by"], difference["kind"]) == (3, "engine", "date")
    assert difference["path"].startswith("messages[0].content")
    assert found["first_differing_block"] == found["shared_tokens"] // found["block_tokens"] > 0
    assert found["read_again_tokens"] > found["prompt_tokens"] / 4
    assert found["read_again_s"] > 0
    assert "date" in {one["kind"] for one in document["findings"] if one["level"] == "warning"}


@pytest.mark.parametrize("rig", [REAL[0]], indirect=True)
def test_anthropic_request_has_the_tokens_of_the_chat_completion_that_it_becomes(rig):
    rig.ready()
    body = {
        "model": rig.model,
        "max_tokens": 1,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cch=4ad4c38"},
            {"type": "text", "text": "You are an agent."},
            {"type": "text", "text": agent_client.RULES[:2000]},
        ],
        "tools": [{"name": "sh", "description": "Run a command.", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is here?"}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "sh", "input": {"command": "ls"}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "README.md"}],
            },
        ],
    }

    usage = httpx.post(f"{rig.url}/v1/messages", json=body, timeout=120).raise_for_status().json()["usage"]
    chat = {key: value for key, value in as_chat(body).items() if key in ("messages", "tools")}
    tokens = httpx.post(f"{rig.url}/tokenize", json={"model": rig.model, **chat}, timeout=120).json()["count"]

    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    asked = sum(usage.get(name, 0) for name in names)
    print(f"\n/v1/messages: {asked} prompt tokens; as a chat completion: {tokens}")
    assert asked == tokens
