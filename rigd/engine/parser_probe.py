"""Ask vLLM's own parser about an argument list. Run by the ENGINE's Python, so: standard library only, no rigd.

    ENGINE_PYTHON -c SOURCE MODEL --flag ...       (what would follow `vllm serve`)

prints one JSON line {"accepted", "message", "version", "stage"} on stdout, everything else goes to stderr.
Exit code 0: accepted; 2: refused; 3: there is no vLLM here to ask. Needs no GPU and loads no weights.

Three stages, each cheap once vLLM is imported:
  arguments  the parser of `vllm serve`, and its own checks of what it parsed
  names      tool and reasoning parsers, which vLLM looks up only when the engine is already loading
  engine     the engine's configuration, for a model whose files are here: heads against ranks, lengths, drafts
The last one is left out where the platform or the model's files cannot be seen from here, such as in a container
made for asking only; that is no refusal.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ACCEPTED, REFUSED, NOBODY = 0, 2, 3
SERVE_ARGUMENTS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
FLEXIBLE_PARSER = ("vllm.utils.argparse_utils", "vllm.utils")
TOOL_PARSERS = ("vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers")
FILES_NOT_HERE = ("HFValidationError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "OSError",
                  "FileNotFoundError", "PermissionError", "RepositoryNotFoundError", "GatedRepoError",
                  "EntryNotFoundError", "ConnectionError", "ImportError", "ModuleNotFoundError")  # fmt: skip
REFUSALS = (ValueError, TypeError, KeyError, AssertionError, NotImplementedError)


class _RefusedError(Exception):
    """The engine's own words for why it would not start with these arguments."""


def _first(modules: Sequence[str], name: str) -> Any:
    """Return attribute `name` of the first module that this vLLM has; they moved between versions."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def _sentence(error: BaseException) -> str:
    """Return what matters of an exception: the sentence inside pydantic's frame, not the frame."""
    text = str(error).strip()
    framed = re.search(r"^\s*Value error, (.+?)(?: \[type=|$)", text, re.DOTALL | re.MULTILINE)
    if framed:
        return framed.group(1).strip()
    plain = re.search(r"validation errors? for \w+\n(\S+)\n\s+(.+?) \[type=", text, re.DOTALL)
    if plain:
        return plain.group(1) + ": " + plain.group(2).strip()
    return text.split("\n    For further information")[0] or type(error).__name__


def _parse(argv: Sequence[str]) -> Any:
    """Return vLLM's parsed arguments; refuse as `vllm serve` would."""
    make_arg_parser = _first(SERVE_ARGUMENTS, "make_arg_parser")
    validate = _first(SERVE_ARGUMENTS, "validate_parsed_serve_args")
    flexible = _first(FLEXIBLE_PARSER, "FlexibleArgumentParser")
    if make_arg_parser is None or flexible is None:
        raise LookupError("this vLLM keeps its argument parser in a place that the probe does not know")
    parser = make_arg_parser(flexible(prog="vllm serve"))
    known = {option for action in parser._actions for option in action.option_strings}  # noqa: SLF001  (argparse lists its options nowhere else)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            parsed = parser.parse_args(list(argv))
    except SystemExit as error:
        last = [line for line in said.getvalue().splitlines() if line.strip()]
        sentence = last[-1].split("error: ", 1)[-1] if last else "exit code " + str(error.code)
        raise _RefusedError(sentence) from None
    for item in argv:  # argparse takes any clear abbreviation; the next version may make it unclear
        option = item.split("=", 1)[0].replace("_", "-")
        if option.startswith("--") and option not in known and "." not in option and "+" not in option:
            near = sorted(name for name in known if name.startswith(option))
            if near:
                raise _RefusedError(option + " is an abbreviation; write " + " or ".join(near[:3]))
    if getattr(parsed, "model_tag", None) is not None:
        parsed.model = parsed.model_tag
    if validate is not None:
        try:
            validate(parsed)
        except REFUSALS as error:
            raise _RefusedError(_sentence(error)) from error
    return parsed


def _names(parsed: Any) -> None:
    """Refuse a tool or reasoning parser that this vLLM does not have."""
    for option, plugin, modules, manager in (
        ("tool_call_parser", "tool_parser_plugin", TOOL_PARSERS, "ToolParserManager"),
        ("reasoning_parser", "reasoning_parser_plugin", ("vllm.reasoning",), "ReasoningParserManager"),
    ):
        wanted = getattr(parsed, option, None)
        registry = _first(modules, manager)
        if not wanted or getattr(parsed, plugin, None) or registry is None:
            continue
        names = set()
        for list_names in ("list_registered", "list_reasoning_parsers"):
            if hasattr(registry, list_names):
                names.update(getattr(registry, list_names)())
        for table in ("tool_parsers", "reasoning_parsers", "lazy_parsers"):
            names.update(getattr(registry, table, None) or ())
        if names and wanted not in names:
            flag = "--" + option.replace("_", "-")
            raise _RefusedError(flag + " " + repr(wanted) + " is none of " + ", ".join(sorted(names)))


def _configure(parsed: Any) -> str:
    """Build the engine's configuration; return why that was left out, or an empty text."""
    platform = _first(("vllm.platforms",), "current_platform")
    if not getattr(platform, "device_type", ""):
        return "engine configuration not tried: no device is visible from here"
    model = str(parsed.model)
    if model.startswith("/") and not Path(model).is_dir():
        return "engine configuration not tried: the folder " + model + " is not visible from here"
    try:
        _first(("vllm", "vllm.engine.arg_utils"), "AsyncEngineArgs").from_cli_args(
            parsed
        ).create_engine_config()
    except Exception as error:
        chain = [cause.__name__ for cause in type(error).__mro__]
        if any(name in FILES_NOT_HERE for name in chain) or "couldn't connect" in str(error):
            return "engine configuration not tried: the model's files are not here"
        if isinstance(error, REFUSALS):
            raise _RefusedError(_sentence(error)) from error
        return "engine configuration not tried: " + type(error).__name__
    return ""


def ask(argv: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Return the verdict as a dictionary, and the exit code."""
    verdict: dict[str, Any] = {"accepted": None, "message": "", "version": "", "stage": "arguments"}
    try:
        verdict["version"] = str(getattr(importlib.import_module("vllm"), "__version__", ""))
        parsed = _parse(argv)
        verdict["stage"] = "names"
        _names(parsed)
        verdict["stage"] = "engine"
        verdict["message"] = _configure(parsed)
    except ImportError as error:
        verdict["message"] = "no vLLM can be imported here: " + str(error)
        return verdict, NOBODY
    except LookupError as error:
        verdict["message"] = str(error)
        return verdict, NOBODY
    except _RefusedError as refusal:
        verdict["accepted"] = False
        verdict["message"] = " ".join(str(refusal).split())[:2000]
        return verdict, REFUSED
    except Exception as error:  # noqa: BLE001  (as above)
        verdict["message"] = (
            "the parser could not be asked: " + type(error).__name__ + ": " + str(error)[:500]
        )
        return verdict, NOBODY
    verdict["accepted"] = True
    return verdict, ACCEPTED


def main() -> None:
    """Keep stdout for the verdict alone: libraries print what they like to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    verdict, code = ask(sys.argv[1:])
    out.write(json.dumps(verdict) + "\n")
    out.flush()
    os._exit(code)  # imported libraries may hold threads that would keep this process


if __name__ == "__main__":
    main()
