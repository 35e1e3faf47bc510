"""`rigd clients`: what each client is told, and what happens to the file that is there."""

import json
import stat
import tomllib
from pathlib import Path

import pytest

from rigd.cli import clients, clients_write
from rigd.cli.main import main
from rigd.clients.versions import KNOWN, doubt

RIG = str(Path(__file__).resolve().parents[2] / "configs" / "rig-a-qwen3.6-27b-docker.yaml")
MODEL = "qwen3.6-27b"


@pytest.fixture(autouse=True)
def no_program(monkeypatch):
    monkeypatch.setattr(clients, "_installed", lambda program: None)


def run(capsys, *words, code=0):
    """Run the command and return its stdout."""
    done = main(["clients", *map(str, words)])
    out, err = capsys.readouterr()
    assert done == code, err
    return out if code == 0 else err


def written(capsys, client, folder, *more):
    return json.loads(run(capsys, client, RIG, "--offline", "--write", folder, "--yes", "--json", *more))


def told(capsys, client, *more):
    """Return what a client would be told: the document, and its first file as text."""
    document = json.loads(run(capsys, client, RIG, "--offline", "--json", *more))
    return document, document["files"][0]["text"]


def test_opencode_is_told_each_channels_limits_under_its_own_keys(capsys):
    document, text = told(capsys, "opencode")
    file = json.loads(text)

    limits = {
        name.removeprefix("rig-a-"): provider["models"][MODEL]["limit"]
        for name, provider in file["provider"].items()
    }
    assert limits == {
        "primary": {"context": 208192, "input": 200000, "output": 8192},
        "coder": {"context": 69632, "input": 65536, "output": 4096},
        "utility": {"context": 17408, "input": 16384, "output": 1024},
    }
    assert file["agent"]["explore"]["model"] == f"rig-a-coder/{MODEL}"
    assert file["agent"]["compaction"]["model"] == file["model"] == f"rig-a-primary/{MODEL}"
    assert file["agent"]["title"]["model"] == file["small_model"] == f"rig-a-utility/{MODEL}"
    assert document["agents"]["general"] == "coder"


@pytest.mark.parametrize("client", ["opencode", "kilo"])
def test_a_guard_beside_the_file_knows_the_channels_and_no_limit_of_its_own(capsys, client):
    guard = told(capsys, client)[0]["files"][1]

    assert guard["path"] == "plugin/rigd-rig-a.js"
    assert 'const PROVIDERS = ["rig-a-primary", "rig-a-coder", "rig-a-utility"]\n' in guard["text"]
    assert "200000" not in guard["text"]


@pytest.mark.parametrize(("rate", "waits_s"), [(1000, 400), (928, 440), (100, 4000), (100_000, 300)], ids=str)
def test_timeouts_are_above_the_worst_cold_prefill_of_the_channel(capsys, rate, waits_s):
    _, text = told(capsys, "opencode", "--rate", rate)

    options = json.loads(text)["provider"]["rig-a-primary"]["options"]

    assert options["headerTimeout"] == options["chunkTimeout"] == waits_s * 1000
    assert options["chunkTimeout"] > 200_000 / rate * 1000
    assert options["timeout"] > options["headerTimeout"]


def test_the_key_is_a_reference_in_every_client(capsys):
    assert '"{file:/etc/rigd/rig-a.key}"' in told(capsys, "opencode")[1]
    assert '"{env:RIG_A_API_KEY}"' in told(capsys, "opencode", "--host", "box")[1]
    assert '"$OWN"' in told(capsys, "pi", "--key", "env:OWN")[1]
    assert '"printenv OWN"' in told(capsys, "claude-code", "--key", "env:OWN")[1]
    assert 'command = "printenv"\nargs = ["OWN"]' in told(capsys, "codex", "--key", "env:OWN")[1]
    assert 'OPENAI_API_KEY="$OWN"' in told(capsys, "openai-env", "--key", "env:OWN")[1]
    assert "apiKey" not in told(capsys, "opencode", "--key", "none")[1]


def test_a_key_given_as_text_is_refused_and_not_repeated(capsys):
    err = run(capsys, "opencode", RIG, "--key", "sk-very-secret", code=2)
    assert "sk-very-secret" not in err
    assert "--key env:NAME" in err


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("box", "http://box:8320/v1"),
        ("box.tail1234.ts.net", "http://box.tail1234.ts.net:8320/v1"),
        ("100.64.0.7:9000", "http://100.64.0.7:9000/v1"),
        ("https://box.ts.net", "https://box.ts.net/v1"),
        ("http://[fd7a::1]:1/v1", "http://[fd7a::1]:1/v1"),
    ],
)
def test_the_address_is_the_one_that_the_client_reaches_the_box_by(capsys, host, url):
    assert told(capsys, "opencode", "--host", host)[0]["base_url"] == url


@pytest.mark.parametrize("host", ["", "a b:c", "ftp://x", "http://u:p@x", "http://x/y"])
def test_what_is_no_address_is_refused(capsys, host):
    assert "is no host" in run(capsys, "opencode", RIG, "--offline", "--host", host, code=2)


def test_a_loopback_engine_is_told_of_where_a_host_is_named(capsys):
    assert "listens on 127.0.0.1 only" in told(capsys, "opencode", "--host", "box")[0]["notes"][0]


def test_pi_claude_code_and_codex_have_their_limits(capsys):
    pi = json.loads(told(capsys, "pi")[1])["providers"]["rig-a-coder"]["models"][0]
    claude = json.loads(told(capsys, "claude-code")[1])["env"]
    codex = told(capsys, "codex")[0]["files"]
    profile = tomllib.loads(codex[2]["text"])

    assert (pi["contextWindow"], pi["maxTokens"]) == (69632, 4096)
    assert claude["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "8192"
    assert claude["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "200000"
    assert codex[2]["path"] == "rig-a-coder.config.toml"
    assert (profile["model_context_window"], profile["model_auto_compact_token_limit"]) == (69632, 65536)


def test_priority_is_sent_only_where_the_engine_schedules_by_it(capsys, tmp_path):
    rig = tmp_path / "rig.yaml"
    text = Path(RIG).read_text().replace("parallel: 2}", "parallel: 2, priority: 5}")
    text = text.replace("config: shapes", f"config: {Path(RIG).parent}/shapes")
    for policy, expected in (("", None), ("    extra: {scheduling-policy: priority}\n", 5)):
        rig.write_text(text.replace("    dtype: float16\n", f"    dtype: float16\n{policy}"))
        out = json.loads(run(capsys, "opencode", rig, "--offline", "--json"))["files"][0]["text"]
        model = json.loads(out)["provider"]["rig-a-coder"]["models"][MODEL]
        assert model.get("options", {}).get("priority") == expected


def test_an_agent_can_be_given_another_channel(capsys):
    document, _ = told(capsys, "opencode", "--agent", "explore=utility", "--agent", "security=coder")
    assert (document["agents"]["explore"], document["agents"]["security"]) == ("utility", "coder")
    assert "no channel 'nope'" in run(capsys, "opencode", RIG, "--offline", "--agent", "plan=nope", code=2)


def test_a_rig_without_channels_is_refused_with_what_to_do(capsys):
    rig = Path(RIG).parent / "cpu-lab.yaml"
    assert "channels" in run(capsys, "opencode", rig, "--offline", code=2)


# --- the file that is there ---

MINE = """{
  // my own box
  "theme": "tokyonight", // keep
  "model": "cloud/big",
  "provider": {
    "cloud": { "options": { "apiKey": "sk-secret-of-mine" } }, /* paid */
    "rig-a-coder": { "options": { "chunkTimeout": 9000000 } },
    "rig-a-gone": {},
    "rig-a-utility": { "models": { "old-name": {} } },
  },
}
"""


def test_a_file_that_is_there_keeps_comments_and_choices_and_gets_a_backup(capsys, tmp_path):
    path = tmp_path / "opencode.jsonc"
    path.write_text(MINE)
    path.chmod(0o640)

    file, _ = written(capsys, "opencode", tmp_path)["files"]
    again = written(capsys, "opencode", tmp_path)

    text = path.read_text()
    kept = [line for line in MINE.splitlines() if line.strip() not in ("", "}", "},")]
    assert all(line in text for line in kept if "rig-a-coder" not in line and "rig-a-utility" not in line)
    assert '"chunkTimeout": 9000000' in text
    assert "sk-secret-of-mine" not in json.dumps(file["diff"])
    assert Path(file["backup"]).read_text() == MINE
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(Path(file["backup"]).stat().st_mode) == 0o640
    assert any("stays 'cloud/big'" in note for note in file["notes"])
    assert any("rig-a-gone is of no channel" in note for note in file["notes"])
    assert any("models.old-name is not what the engine serves" in note for note in file["notes"])
    assert (again["files"][0]["changed"], again["files"][0]["backup"]) == (False, None)
    assert path.read_text() == text


@pytest.mark.parametrize("client", ["opencode", "kilo", "pi", "claude-code", "codex", "openai-env"])
def test_the_second_run_changes_nothing(capsys, tmp_path, client):
    first = written(capsys, client, tmp_path / "new")
    second = written(capsys, client, tmp_path / "new")
    assert {file["written"] for file in first["files"]} == {True}
    assert {file["changed"] for file in second["files"]} == {False}


def test_another_measured_rate_leaves_timeouts_that_are_long_enough(capsys, tmp_path):
    written(capsys, "opencode", tmp_path, "--rate", "1000")
    assert not written(capsys, "opencode", tmp_path, "--rate", "900")["files"][0]["changed"]
    assert written(capsys, "opencode", tmp_path, "--rate", "300")["files"][0]["changed"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{\n  "provider": {,\n}', "line 2, column 16"),
        (
            '{\n  "providers": {}\n}',
            "line 2, column 3: providers is no key that the client reads; `provider` is",
        ),
        ('{"provider": {"x": {"models": {"m": {"contextWindow": 5}}}}}', "`limit.context` is read"),
        ('{"provider": []}', "line 1, column 14: provider is no object"),
        ("[1]", "is no object"),
    ],
    ids=["syntax", "unknown top", "unknown limit", "wrong kind", "no object"],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_place_and_stays(capsys, tmp_path, text, says):
    path = tmp_path / "opencode.json"
    path.write_text(text)

    err = run(capsys, "opencode", RIG, "--offline", "--write", tmp_path, "--yes", code=2)

    assert says in err
    assert str(path) in err
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("opencode.json", text)]


def test_unknown_keys_stay_where_a_person_says_so(capsys, tmp_path):
    (tmp_path / "opencode.json").write_text('{"mine": [1, 2]} // end\n')
    written(capsys, "opencode", tmp_path, "--keep-unknown")
    text = (tmp_path / "opencode.json").read_text()
    assert text.startswith('{"mine": [1, 2], ')
    assert text.endswith("} // end\n")


def test_one_bad_file_of_two_stops_both(capsys, tmp_path):
    (tmp_path / "settings.json").write_text("{,}")
    run(capsys, "pi", RIG, "--offline", "--write", tmp_path, "--yes", code=2)
    assert [one.name for one in tmp_path.iterdir()] == ["settings.json"]


def test_nothing_is_written_where_nobody_can_be_asked(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(clients_write.sys.stdin, "isatty", lambda: False, raising=False)
    err = run(capsys, "opencode", RIG, "--offline", "--write", tmp_path / "new", code=2)
    assert "--yes" in err
    assert not (tmp_path / "new").exists()


def test_a_person_sees_the_diff_and_may_say_no(capsys, tmp_path, monkeypatch):
    (tmp_path / "opencode.json").write_text("{}\n")
    monkeypatch.setattr(clients_write.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(clients_write.typer, "confirm", lambda *_, **__: False)
    assert main(["clients", "opencode", RIG, "--offline", "--write", str(tmp_path)]) == 1
    assert '+  "provider": {' in capsys.readouterr().out
    assert (tmp_path / "opencode.json").read_text() == "{}\n"


def test_a_linked_file_is_changed_where_it_lies(capsys, tmp_path):
    real = tmp_path / "dotfiles" / "opencode.jsonc"
    real.parent.mkdir()
    real.write_text("{}\n")
    link = tmp_path / "config" / "opencode.jsonc"
    link.parent.mkdir()
    link.symlink_to(real)
    written(capsys, "opencode", link.parent)
    assert link.is_symlink()
    assert "rig-a-primary" in real.read_text()


def test_only_the_newest_backups_are_kept(capsys, tmp_path):
    for number in range(8):
        (tmp_path / "opencode.jsonc").write_text(f'{{"username": "{number}"}}')
        written(capsys, "opencode", tmp_path)
    backups = [one.read_text() for one in tmp_path.iterdir() if "rigd-backup" in one.name]
    assert sorted(backups) == [f'{{"username": "{number}"}}' for number in range(3, 8)]


# --- versions ---


@pytest.mark.parametrize("client", [name for name in KNOWN if KNOWN[name].tried])
def test_tried_versions_are_known_and_far_ones_are_not(client):
    assert doubt(client, KNOWN[client].tried) is None
    assert "older" in doubt(client, "0.0.1")
    assert "newer" in doubt(client, "99.0.0")


def test_an_unknown_version_is_printed_for_but_not_written_for(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "_installed", lambda program: "2.4.0")
    assert "newer than what rigd knows" in told(capsys, "opencode")[0]["notes"][0]
    err = run(capsys, "opencode", RIG, "--offline", "--write", tmp_path, "--yes", code=2)
    assert f"--client-version {KNOWN['opencode'].tried}" in err
    written(capsys, "opencode", tmp_path, "--client-version", KNOWN["opencode"].tried)
