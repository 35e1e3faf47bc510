"""How the engine's own parser is found, asked and understood."""

import sys
from pathlib import Path

import pytest

from rigd.adapters.process import Answer
from rigd.runtime import check


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "vllm"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("first_lines", "found"),
    [
        pytest.param("#!/venv/bin/python3\nimport vllm\n", ("/venv/bin/python3",), id="pip"),
        pytest.param("#!/usr/bin/env python3\n", ("/usr/bin/env", "python3"), id="env"),
        pytest.param(
            "#!/bin/sh\n'''exec' /a/very/long/python \"$0\" \"$@\"\n' '''\n",
            ("/a/very/long/python",),
            id="long",
        ),
        pytest.param("#!/bin/bash\nexec vllm\n", (), id="shell-wrapper"),
        pytest.param("\x7fELF", (), id="binary"),
    ],
)
def test_the_interpreter_is_the_programs_own(tmp_path, first_lines, found):
    assert check.interpreter_of(script(tmp_path, first_lines)) == found


def test_a_python_is_its_own_interpreter():
    assert check.interpreter_of(Path(sys.executable)) == (sys.executable,)


def test_the_probe_is_given_what_follows_serve():
    command = check.probe_command(("vllm", "serve", "/models/m", "-tp", "2"), ("python3",), model="/models/m")

    assert command[:2] == ("python3", "-c")
    assert command[3:] == ("/models/m", "-tp", "2")


def test_the_double_checks_its_own_arguments():
    command = (sys.executable, "-m", "rigd.sim", "m", "--port", "1")

    assert check.probe_command(command, (), model="m") == (*command, "--check-arguments")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        pytest.param(
            Answer(code=0, stdout='noise\n{"accepted": true, "message": ""}\n', stderr=""),
            (True, ""),
            id="yes",
        ),
        pytest.param(
            Answer(code=2, stdout='{"accepted": false, "message": "bad flag"}\n', stderr="x"),
            (False, "bad flag"),
            id="no",
        ),
        pytest.param(
            Answer(code=3, stdout='{"accepted": null, "message": "no vLLM"}\n', stderr=""),
            (None, "no vLLM"),
            id="nobody",
        ),
        pytest.param(
            Answer(code=2, stdout="", stderr="usage: ...\nerror: x\n"),
            (False, "x"),
            id="double",
        ),
        pytest.param(Answer(code=0, stdout="", stderr=""), (True, ""), id="double-accepts"),
    ],
)
def test_answers_are_understood(answer, verdict):
    assert check.verdict(answer) == verdict


@pytest.mark.parametrize(
    "answer",
    [
        Answer(code=1, stdout="", stderr="Traceback"),
        Answer(code=None, stdout="", stderr=""),
        Answer(code=127, stdout="{broken", stderr=""),
    ],
    ids=["crash", "deadline", "garbage"],
)
def test_what_is_no_answer_refuses_nothing(answer):
    assert check.verdict(answer)[0] is None
