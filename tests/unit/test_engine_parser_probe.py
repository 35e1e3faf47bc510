"""The probe that the engine's Python runs, against small stand-ins for the places where vLLM keeps its parser."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rigd.engine import parser_probe_source

PARSER = """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
CLI_ARGS = """
def make_arg_parser(parser):
    print("noise on stdout")
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--chat-template")
    return parser
def validate_parsed_serve_args(args):
    if args.chat_template:
        raise ValueError("The supplied chat template does not exist")
"""
ENGINE = """
__version__ = "0.99.0"
class AsyncEngineArgs:
    @classmethod
    def from_cli_args(cls, args):
        made = cls()
        made.args = args
        return made
    def create_engine_config(self):
        if self.args.max_num_seqs == 7:
            raise ValueError("1 validation error for VllmConfig\\n  Value error, heads (4) must be divisible by 7. "
                             "[type=value_error, input_value=1]\\n    For further information visit x")
        if self.args.max_num_seqs == 8:
            raise OSError("couldn't connect to the hub")
        if self.args.max_num_seqs == 9:
            raise RuntimeError("a fault of its own")
"""


@pytest.fixture(
    params=["vllm/entrypoints/launchers", "vllm/entrypoints/openai"], ids=["new-place", "old-place"]
)
def engine(tmp_path, request) -> Path:
    """Return a folder with a stand-in for vLLM's packages."""
    files = {
        "vllm/__init__.py": ENGINE,
        "vllm/utils/argparse_utils.py": PARSER,
        f"{request.param}/cli_args.py": CLI_ARGS,
        "vllm/platforms.py": "class current_platform:\n    device_type = 'cpu'\n",
        "vllm/tool_parsers.py": "class ToolParserManager:\n    tool_parsers = {'hermes': 1}\n    lazy_parsers = {}\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def ask(folder: Path, *argv: str) -> tuple[int, dict[str, object]]:
    """Return the probe's exit code and the only line of its stdout."""
    done = subprocess.run(
        [sys.executable, "-c", parser_probe_source(), *argv],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PYTHONPATH": str(folder)},
        cwd="/",
    )
    (line,) = done.stdout.splitlines()
    return done.returncode, json.loads(line)


@pytest.mark.parametrize(
    ("argv", "accepted", "message"),
    [
        pytest.param(["m", "--max-num-seqs", "4"], True, "", id="accepted"),
        pytest.param(["m", "--bogus"], False, "unrecognized arguments: --bogus", id="unknown-flag"),
        pytest.param(
            ["m", "--max-num-seqs", "x"],
            False,
            "argument --max-num-seqs: invalid int value: 'x'",
            id="wrong-value",
        ),
        pytest.param(
            ["m", "--max-num-seq", "4"],
            False,
            "--max-num-seq is an abbreviation; write --max-num-seqs",
            id="abbreviation",
        ),
        pytest.param(
            ["m", "--chat-template", "/x"],
            False,
            "The supplied chat template does not exist",
            id="own-checks",
        ),
        pytest.param(
            ["m", "--tool-call-parser", "x"],
            False,
            "--tool-call-parser 'x' is none of hermes",
            id="parser-name",
        ),
        pytest.param(
            ["m", "--max-num-seqs", "7"], False, "heads (4) must be divisible by 7.", id="configuration"
        ),
        pytest.param(
            ["m", "--max-num-seqs", "8"],
            True,
            "engine configuration not tried: the model's files are not here",
            id="files-elsewhere",
        ),
        pytest.param(
            ["m", "--max-num-seqs", "9"],
            True,
            "engine configuration not tried: RuntimeError",
            id="engine-fault",
        ),
        pytest.param(
            ["/nowhere/model"],
            True,
            "engine configuration not tried: the folder /nowhere/model is not visible from here",
            id="folder-elsewhere",
        ),
    ],
)
def test_verdicts(engine, argv, accepted, message):
    code, verdict = ask(engine, *argv)

    assert (verdict["accepted"], verdict["message"]) == (accepted, message)
    assert code == (0 if accepted else 2)
    assert verdict["version"] == "0.99.0"


def test_without_vllm_nobody_was_asked(tmp_path):
    code, verdict = ask(tmp_path, "m")

    assert (code, verdict["accepted"]) == (3, None)
    assert "no vLLM can be imported here" in str(verdict["message"])


def test_a_vllm_with_its_parser_elsewhere_was_not_asked(tmp_path):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")

    code, verdict = ask(tmp_path, "m")

    assert (code, verdict["accepted"]) == (3, None)
