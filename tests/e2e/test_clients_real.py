"""The real clients with the files that `rigd clients` writes: they take them, and what arrives fits the channel."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import install
import pytest
from other_apis import ANSWER, other_apis
from rigs import DOUBLE, REAL

from rigd.clients.versions import KNOWN, version_in

pytestmark = pytest.mark.lab

CHANNELS = {
    "primary": {"context": 20000, "output": 512},
    "coder": {"context": 14000, "output": 256, "parallel": 2},
    "utility": {"context": 12000, "output": 128, "parallel": 2},
}
SMALLER = 0.45
"""Share of the contexts on the real engine, whose tokens are longer, and which reads on a CPU."""
MODEL_LEN = 32768
MOST_TURNS = 8
PROJECT_PATH = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
RUN_DEADLINE_S = 240
LINES = 500
"""Of a question of which `primary` holds a few, with OpenCode's own prompt."""


@pytest.fixture(scope="module", params=[DOUBLE[0], REAL[0]])
def rig(request, make_rig, need_parts):
    need_parts("clients")
    made = make_rig(request.param)
    made.settings["prefixes"] = []
    made.settings["channels"] = [{"name": name, **rest} for name, rest in CHANNELS.items()]
    if made.faults is None:
        for channel in made.settings["channels"]:
            channel["context"] = round(channel["context"] * SMALLER)
        made.settings["supervision"]["stall_deadline_s"] = 120
        # Codex asks for no limit, and random weights need not come to an end: the engine limits what nobody does.
        made.settings["engine"]["arguments"]["extra"] = {
            "override-generation-config": '{"max_new_tokens": 64}'
        }
    made.settings["engine"]["arguments"] |= {
        "max_model_len": MODEL_LEN,
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
    }
    made.ready()
    return made


@pytest.fixture
def home(tmp_path, need_parts):
    """Give the environment of a person who has the clients, and nothing else of them."""
    need_parts("clients")
    programs = install.default_folder() / "clients/node_modules/.bin"
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    (tmp_path / "work").mkdir()
    return {
        **kept,
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "OWN_KEY": "sk-of-a-test",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "PI_OFFLINE": "1",
    }


def run(words, environ, *, ok=True):
    """Run a program in the person's folder and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words],
        env=environ,
        cwd=Path(environ["HOME"]) / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0 or not ok, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def written(client, rig_file, folder, environ, *more):
    """Write a client's file into a folder, as a person would."""
    words = [sys.executable, "-m", "rigd.cli.main", "clients", client, rig_file, "--write", folder, "--yes"]
    return run([*words, "--offline", *more], {**environ, **PROJECT_PATH})


def recording(rig, port, environ, *words, ok=True):
    """Run a client through the recording pass-through; return what both printed."""
    argv = [sys.executable, "-m", "rigd.cli.main", "prefix", "capture", "--to", rig.path, "--listen", port]
    project = {**PROJECT_PATH, "RIGD_SOCKET": rig.environ["RIGD_SOCKET"]}
    own = {"XDG_STATE_HOME": f"{environ['HOME']}/state", "RIGD_STATE_DIR": f"{environ['HOME']}/state"}
    return run([*argv, "--json", "--", *words], {**environ, **project, **own}, ok=ok)


def captured(rig, port, environ, *words):
    """Run a client and return the bodies of its prompts, the document, and the figures of each prompt."""
    said = recording(rig, port, environ, *words)
    document = json.loads(said[said.index("{\n") : said.rindex("\n}\n") + 2])
    bodies = [json.loads(path.read_text()) for path in sorted(Path(document["folder"]).glob("*-chat.json"))]
    figures = {one["file"]: one for kind in document["kinds"] for one in kind["requests"]}
    return bodies, document, figures


@pytest.mark.parametrize("client", [name for name in KNOWN if KNOWN[name].program])
def test_the_versions_that_are_tried_are_those_that_are_said_to_be(client, home):
    said = version_in(run([KNOWN[client].program, "--version"], home))
    assert said == KNOWN[client].tried


def test_opencode_starts_lists_the_channels_and_answers_within_their_limits(rig, home, free_port):
    folder = Path(home["HOME"]) / ".config/opencode"
    written("opencode", rig.path, folder, home, "--host", f"http://127.0.0.1:{free_port}")
    name = rig.settings["name"]

    listed = run(["opencode", "models"], home).split()
    bodies, document, figures = captured(rig, free_port, home, "opencode", "run", "say hello")

    assert {f"{name}-{channel}/{rig.model}" for channel in CHANNELS} <= set(listed)
    assert set(document["statuses"]) == {"200"}
    asked = {bool(body.get("tools")): body["max_tokens"] for body in bodies}
    print(
        f"\nOpenCode's first prompt: {max(one['prompt_tokens'] for one in figures.values()):,} tokens; {asked}"
    )
    assert asked[True] == CHANNELS["primary"]["output"]
    assert asked.get(False, CHANNELS["utility"]["output"]) == CHANNELS["utility"]["output"]


def remember(lines):
    """Return a long message that never repeats itself."""
    return "Remember: " + " ".join(f"item {n} precedes {n * 7919 % 10007}." for n in range(lines))


def test_opencode_sums_up_a_conversation_before_it_exceeds_its_channel(rig, home, free_port):
    folder = Path(home["HOME"]) / ".config/opencode"
    written("opencode", rig.path, folder, home, "--host", f"http://127.0.0.1:{free_port}")

    question = remember(round(LINES * (SMALLER if rig.faults is None else 1)))
    tokens, summaries, statuses = [], 0, set()
    for turn in range(MOST_TURNS):
        words = ["opencode", "run", *(["-c"] if turn else []), question]
        bodies, document, figures = captured(rig, free_port, home, *words)
        tokens += [one["prompt_tokens"] for one in figures.values() if one["prompt_tokens"]]
        summaries += sum("conversation so far" in json.dumps(body["messages"][-1]) for body in bodies)
        statuses |= set(document["statuses"])
        if summaries:
            break

    print(f"\nprompts of {min(tokens):,} to {max(tokens):,} tokens; summed up in turn {turn + 1}")
    assert statuses == {"200"}
    assert summaries > 0
    assert max(tokens) <= rig.settings["channels"][0]["context"]


@pytest.mark.parametrize(
    ("lines", "more_than"), [(3000, 0), (4800, MODEL_LEN)], ids=["than-its-channel", "than-the-engine-takes"]
)
def test_opencode_refuses_a_first_prompt_that_is_longer(rig, home, free_port, lines, more_than):
    folder = Path(home["HOME"]) / ".config/opencode"
    written("opencode", rig.path, folder, home, "--host", f"http://127.0.0.1:{free_port}")

    said = recording(rig, free_port, home, "opencode", "run", remember(lines), ok=False)

    context = rig.settings["channels"][0]["context"]
    found = re.findall(rf"-primary: its maximum context length is {context} tokens, .* has (\d+)", said)
    assert max(map(int, found)) > more_than, said
    assert "no prompt came by (the client ended with 1" in said


def test_kilo_lists_the_channels_answers_and_refuses_what_is_longer(rig, home):
    written("kilo", rig.path, Path(home["HOME"]) / ".config/kilo", home)
    listed = run(["kilo", "models"], home).split()
    said = run(["kilo", "run", "say hello"], home)
    refused = run(["kilo", "run", remember(3000)], home, ok=False)
    assert {f"{rig.settings['name']}-{channel}/{rig.model}" for channel in CHANNELS} <= set(listed)
    assert rig.model in said
    assert (
        f"-primary: its maximum context length is {rig.settings['channels'][0]['context']} tokens" in refused
    )


def test_pi_lists_the_channels_and_answers_within_its_limit(rig, home, free_port):
    folder = Path(home["HOME"]) / ".pi/agent"
    written("pi", rig.path, folder, home, "--host", f"http://127.0.0.1:{free_port}")

    listed = run(["pi", "--list-models", rig.settings["name"]], home)
    bodies, document, _ = captured(rig, free_port, home, "pi", "-p", "say hello")

    assert all(f"{rig.settings['name']}-{channel}" in listed for channel in CHANNELS)
    assert set(document["statuses"]) == {"200"}
    assert {body["max_tokens"] for body in bodies} == {CHANNELS["primary"]["output"]}


# --- the clients that speak other interfaces than the double does ---


@pytest.mark.parametrize("rig", [REAL[0]], indirect=True)
def test_claude_code_and_codex_are_answered_by_the_real_engine(rig, home):
    home = {**home, "CODEX_HOME": f"{home['HOME']}/.codex"}
    written("claude-code", rig.path, Path(home["HOME"]) / ".claude", home)
    written("codex", rig.path, Path(home["CODEX_HOME"]), home)
    profile = f"{rig.settings['name']}-primary"

    claude = run(["claude", "-p", "say hello"], home, ok=False)
    codex = run(["codex", "exec", "--skip-git-repo-check", "--profile", profile, "say hello"], home)

    # The weights are random: most answers are cut off, which Claude Code tells in these words.
    cut_off = f"exceeded the {CHANNELS['primary']['output']} output token maximum"
    assert cut_off in claude or "API Error" not in claude
    assert f"provider: {rig.settings['name']}" in codex
    assert "tokens used" in codex


@pytest.fixture
def den(tmp_path):
    """Give a rig file for clients that only need one to be told of."""
    path = tmp_path / "den.yaml"
    settings = {
        "name": "den",
        "engine": {
            "runtime": "process",
            "version": "0.32.0",
            "model": "some/model",
            "served_model_name": "small",
        },
        "channels": [{"name": name, **rest} for name, rest in CHANNELS.items()],
    }
    path.write_text(json.dumps(settings))
    return path


def test_claude_code_takes_its_file_and_asks_within_the_limit(den, home):
    with other_apis() as engine:
        where = f"http://127.0.0.1:{engine.port}"
        written(
            "claude-code", den, Path(home["HOME"]) / ".claude", home, "--host", where, "--key", "env:OWN_KEY"
        )
        said = run(["claude", "-p", "say hello"], home)
        asked = engine.prompts("/v1/messages")

    assert ANSWER in said
    assert {(one.body["model"], one.body["max_tokens"]) for one in asked} == {
        ("small", CHANNELS["primary"]["output"])
    }
    assert {one.key for one in asked} == {"Bearer sk-of-a-test"}
    assert "billing" not in json.dumps([one.body.get("system") for one in asked])


def test_codex_takes_its_files_to_the_letter_and_asks_through_a_profile(den, home):
    home = {**home, "CODEX_HOME": f"{home['HOME']}/.codex"}
    words = [
        "codex",
        "exec",
        "--skip-git-repo-check",
        "--strict-config",
        "--profile",
        "den-coder",
        "say hello",
    ]
    with other_apis() as engine:
        where = f"http://127.0.0.1:{engine.port}"
        written("codex", den, Path(home["CODEX_HOME"]), home, "--host", where, "--key", "env:OWN_KEY")
        said = run(words, home)
        asked = engine.prompts("/v1/responses")

    assert ANSWER in said
    assert [(one.body["model"], one.key) for one in asked] == [("small", "Bearer sk-of-a-test")]


@pytest.mark.parametrize(
    ("client", "words"),
    [("opencode", ["opencode", "agent", "list"]), ("kilo", ["kilo", "agent", "list"])],
    ids=["opencode", "kilo"],
)
def test_the_agent_pack_is_found_by_the_client(client, words, home):
    argv = [sys.executable, "-m", "rigd.cli.main", "clients", "agents", ".", "--for", client, "--yes"]
    run(argv, {**home, **PROJECT_PATH})
    said = run(words, home)
    assert "coordinator (primary)" in said
    assert "coder (subagent)" in said
    assert "reviewer (subagent)" in said
