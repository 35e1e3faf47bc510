"""`rigd classify`: what is this log? The supervisor's own classifier, for a person with a file in hand."""

import gzip
import io
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer
from rich.console import Console
from rich.markup import escape

from rigd.errors import UsageError
from rigd.supervise.classify import UNKNOWN, Diagnosis, Retry, diagnose, document

LONGEST_LINE = 64 * 1024
"""Bytes of a line that are read; the rest of it is skipped, so that one endless line costs no memory."""
SNIFFED = 8192
BINARY_SHARE = 0.1
"""Share of control characters from which on a file is no text."""

RETRY_TEXT = {
    Retry.YES: "yes, a few times",
    Retry.NEVER: "no, it fails the same way each time",
    Retry.CONDITIONAL: "only after what is said above",
}
NEXT_COMMANDS = {
    "arguments": "vllm serve --help=all",
    "chat_template": "rigd rig show RIG",
    "client": "rigd status",
    "compile_cache": "mv ~/.cache/vllm/torch_compile_cache ~/.cache/vllm/torch_compile_cache.aside && rigd restart",
    "configuration": "rigd rig validate RIG",
    "disk": "df -h",
    "docker.ipc": "df -h /dev/shm",
    "drafter": "rigd engine check RIG",
    "driver": "nvidia-smi",
    "engine": "rigd restart",
    "gpu": "nvidia-smi",
    "gpu_memory": "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
    "hardware": "sudo dmesg --level=err,warn",
    "hf_token": "hf auth whoami",
    "host": "sudo dmesg --level=err,warn",
    "host_memory": "free -h",
    "image": "rigd engine check RIG",
    "kernel_command_line": "cat /proc/cmdline",
    "network": "curl -sSI https://huggingface.co",
    "nvidia_container_toolkit": "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    "orphans": "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
    "port": "ss -ltnp",
    "tool_call_parser": "rigd rig show RIG",
}
"""What to type for the first step, where it is no setting of the engine."""

MAGIC = {
    b"LPKSHHRH": ("a binary systemd journal", "journalctl --file FILE -o short | rigd classify"),
    b"(\xb5/\xfd": ("compressed with zstd", "zstdcat FILE | rigd classify"),
    b"\xfd7zXZ": ("compressed with xz", "xzcat FILE | rigd classify"),
    b"\xff\xfe": ("UTF-16 text", "iconv -f utf-16 -t utf-8 FILE | rigd classify"),
}


def classify(
    file: Annotated[
        str, typer.Argument(help="Log to read: an engine's, Docker's, the kernel's; - is stdin.")
    ] = "-",
    *,
    exit_code: Annotated[int | None, typer.Option("--exit-code", help="How the engine ended.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Say what a log shows: class, evidence lines, remedy, does retrying help."""
    with ExitStack() as stack:
        stream = _opened(file, stack)
        try:
            diagnosis = diagnose(bounded_lines(stream), exit_code=exit_code)
        except (OSError, EOFError) as error:
            raise UsageError(
                f"cannot read the log '{file}' to its end", hint="check that the file is whole"
            ) from error
    if as_json:
        sys.stdout.write(json.dumps(document(diagnosis), indent=2, ensure_ascii=False) + "\n")
    else:
        _show(diagnosis)


def bounded_lines(stream: BinaryIO) -> Iterator[str]:
    """Give the lines of a stream as text, each cut at `LONGEST_LINE` bytes."""
    while piece := stream.readline(LONGEST_LINE):
        yield piece.decode("utf-8", errors="replace")
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(LONGEST_LINE)


def _opened(file: str, stack: ExitStack) -> BinaryIO:
    """Open the file, or stdin for `-`; a compressed log is read as what it holds."""
    if file == "-":
        if sys.stdin.isatty():
            raise UsageError(
                "cannot classify without a log",
                hint="name a file, or pipe one: docker logs NAME 2>&1 | rigd classify",
            )
        stdin = sys.stdin.buffer
        if not isinstance(stdin, io.BufferedReader):
            stdin = io.BufferedReader(cast("io.RawIOBase", stdin))
        return _decoded(file, stdin, stack)
    path = Path(file)
    if path.is_dir():
        raise UsageError(f"cannot read the log '{file}': it is a folder", hint="name one log file in it")
    try:
        stream = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        raise UsageError(
            f"cannot find the log '{file}'", hint="check the path, or pipe the log: `... | rigd classify`"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot read the log '{file}'", hint="check its permissions, or use sudo"
        ) from error
    return _decoded(file, stream, stack)


def _decoded(file: str, stream: io.BufferedReader, stack: ExitStack) -> BinaryIO:
    """Return the stream, unpacked if it is compressed; refuse what is no text."""
    beginning = stream.peek(SNIFFED)[:SNIFFED]
    if beginning.startswith(b"\x1f\x8b"):
        return cast("BinaryIO", stack.enter_context(gzip.GzipFile(fileobj=stream)))
    _check_text("the input" if file == "-" else file, beginning)
    return stream


def _check_text(file: str, beginning: bytes) -> None:
    """Refuse what is no text, and say what to do with it."""
    for magic, (what, command) in MAGIC.items():
        if beginning.startswith(magic):
            raise UsageError(
                f"cannot read the log '{file}': it is {what}", hint=command.replace("FILE", file)
            )
    strange = sum(byte < 32 and byte not in b"\t\n\r\x1b\x08\x0c" for byte in beginning)  # noqa: PLR2004  (control characters)
    if strange > BINARY_SHARE * len(beginning):
        raise UsageError(
            f"cannot read the log '{file}': it is binary, not text",
            hint="name the engine's log, or a kernel log as text",
        )


def _show(diagnosis: Diagnosis) -> None:
    """Print the diagnosis for a person."""
    console = Console(highlight=False, soft_wrap=True)
    colour = "yellow" if diagnosis.kind == UNKNOWN else "bold red"
    console.print(f"[{colour}]{diagnosis.kind}[/]  [dim]({diagnosis.phase})[/]")
    console.print(escape(diagnosis.sentence))
    if diagnosis.evidence:
        console.print("\nevidence", style="dim")
    for item in diagnosis.evidence:
        place = f"line {item.line_number}" if item.line_number else "from the runtime"
        console.print(f"  [cyan]{place}[/]: {escape(item.text[:200])}")
    console.print(f"\n[bold]what to do[/]      {escape(diagnosis.remedy)}")
    for step in diagnosis.steps:
        value = "" if step.value is None else f" {step.value}"
        console.print(f"  [dim]-[/] {escape(step.knob)}: {escape(step.change)}{escape(value)}")
    if diagnosis.kind == UNKNOWN and not diagnosis.steps:
        return
    console.print(f"[bold]retrying helps[/]  {RETRY_TEXT[diagnosis.retry]}")
    console.print(f"[bold]next[/]            {escape(next_command(diagnosis))}")


def next_command(diagnosis: Diagnosis) -> str:
    """Return the one command to type next."""
    if not diagnosis.steps:
        return "rigd status" if diagnosis.kind == UNKNOWN else "rigd incidents"
    step = diagnosis.steps[0]
    if (
        step.knob == "model"
        and isinstance(model := diagnosis.captured.get("model"), str)
        and "/" in model[:1]
    ):
        return f"ls -l {model}"
    if step.knob == "port" and step.value is not None:
        return f"ss -ltnp 'sport = :{step.value}'"
    if step.knob in NEXT_COMMANDS:
        return NEXT_COMMANDS[step.knob]
    if step.change in {"set", "halve"} and step.value is not None and "." not in step.knob:
        value = str(step.value).lower() if isinstance(step.value, bool) else step.value
        return f"rigd set {step.knob} {value}"
    return "rigd rig show RIG"
