"""Ask the engine's own argument parser: the probe is a script that the engine's Python runs.

It imports the engine, feeds the arguments to its parser and prints one JSON line: accepted, message, version.
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from rigd.adapters.process import Answer
from rigd.engine import parser_probe_source

NO_ENGINE_CODE = 3
"""Exit code of the probe where no vLLM can be imported."""
CHECK_FLAG = "--check-arguments"
"""The double's own flag: parse, say so, exit 0 or 2."""
_MESSAGE_LIMIT = 2000
_REFUSED_CODE = 2
"""What argparse exits with."""


def is_double(command: Sequence[str]) -> bool:
    """Whether the command is the engine double, which checks its own arguments."""
    return "rigd.sim" in command or tuple(command[1:2]) == ("sim",)


def interpreter_of(program: Path) -> tuple[str, ...]:
    """Return the Python that runs the program, from its first line; empty when it is no Python script."""
    try:
        with program.open("rb") as file:
            first = file.readline(1024)
            second = file.readline(1024)
    except OSError:
        return ()
    if not first.startswith(b"#!"):
        return (str(program),) if program.name.startswith("python") else ()
    words = tuple(shlex.split(first[2:].decode(errors="replace")))
    if words and Path(words[0]).name == "sh" and second.startswith(b"'''exec' "):
        # Installers wrap interpreters whose path is too long for a first line.
        words = tuple(shlex.split(second[len(b"'''exec' ") :].decode(errors="replace")))[:1]
    if any("python" in Path(word).name for word in words):
        return words
    return ()


def probe_command(command: Sequence[str], interpreter: Sequence[str], *, model: str) -> tuple[str, ...]:
    """Return what asks the parser about `command`: the double itself, or the probe in the engine's Python."""
    if is_double(command):
        return (*command, CHECK_FLAG)
    return (*interpreter, "-c", parser_probe_source(), *_arguments(command, model))


def _arguments(command: Sequence[str], model: str) -> tuple[str, ...]:
    """Return what follows `vllm serve`: the model comes first of all arguments."""
    for begin in (model, "serve"):
        if begin in command:
            return tuple(command[command.index(begin) + (begin != model) :])
    return tuple(command[1:])


def verdict(answer: Answer) -> tuple[bool | None, str]:
    """Return whether the parser accepts the configuration (None: it could not be asked), and its words."""
    for line in reversed(answer.stdout.splitlines()):
        if line.startswith("{"):
            try:
                said = json.loads(line)
                accepted = None if said["accepted"] is None else bool(said["accepted"])
                return accepted, str(said.get("message", ""))[-_MESSAGE_LIMIT:]
            except (ValueError, KeyError, TypeError):
                continue
    words = (answer.stderr.strip() or answer.stdout.strip())[-_MESSAGE_LIMIT:]
    if answer.code is None:
        return None, f"the engine's parser gave no answer in time: {words}"
    if answer.code == NO_ENGINE_CODE:
        return None, words or "no vLLM can be imported there"
    if answer.code in (0, _REFUSED_CODE):
        # argparse says `usage: ...` and then, after `PROGRAM: error: `, the sentence that matters.
        return answer.code == 0, words.rpartition("error: ")[2].strip()
    return None, f"asking the engine's parser ended with exit code {answer.code}: {words}"
