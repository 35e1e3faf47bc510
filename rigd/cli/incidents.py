"""`rigd incidents`: what went wrong, as a list, as a story for the person at midnight, as a bundle for others."""

import io
import os
import tarfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd.cli import options
from rigd.cli.console import print_json, print_table, print_text, say
from rigd.cli.status import clock, duration, printable
from rigd.client import Client
from rigd.errors import ExitCode, RigdError, UsageError

BUNDLE_TIMEOUT_S = 60.0
STORY_LOG_LINES = 20
SENTENCE_WIDTH = 100
MIB = 2**20


def incidents(
    context: typer.Context,
    number: Annotated[
        int | None, typer.Argument(metavar="[ID]", min=1, help="The one to tell; all are listed without.")
    ] = None,
    *,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="FILE", help="Write the incident to a new tar.gz, for a bug report."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Most that are listed.")] = 20,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Tell what went wrong: what happened, what rigd saw and did, what to do next."""
    client = options.daemon(context, socket, url)
    if number is None:
        if bundle is not None:
            raise UsageError("which incident?", hint=f"rigd incidents ID --bundle {bundle}")
        return _list(client, limit, as_json=as_json)
    if bundle is not None:
        return _write_bundle(client, number, bundle, as_json=as_json)
    document = client.get(f"/v1/incidents/{number}", timeout_s=BUNDLE_TIMEOUT_S)
    if as_json:
        print_json(document)
    else:
        for line in story(document, now_s=time.time()):
            print_text(line)
    return int(ExitCode.DONE)


def _list(client: Client, limit: int, *, as_json: bool) -> int:
    document = client.get("/v1/incidents", {"limit": limit})
    if as_json:
        print_json(document)
        return int(ExitCode.DONE)
    if not document["incidents"]:
        print_text("no incidents: nothing has failed, or what failed is too long ago")
        return int(ExitCode.DONE)
    rows = [_row(entry) for entry in document["incidents"]]
    print_table(("ID", "WHEN", "START", "CLASS", "WENT ON", "WHAT"), rows)
    return int(ExitCode.DONE)


def _row(entry: dict[str, Any]) -> list[object]:
    sentence = printable(entry["sentence"])
    return [
        entry["id"],
        clock(entry["at_s"], time.time()),
        entry["start"] or "none",
        printable(entry["class"]),
        _went_on(entry),
        sentence if len(sentence) <= SENTENCE_WIDTH else sentence[: SENTENCE_WIDTH - 3] + "...",
    ]


def story(document: dict[str, Any], *, now_s: float) -> list[str]:
    """Return an incident as lines for a person."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(document["at_s"]))
    ago = duration(max(0.0, now_s - document["at_s"]))
    versions = ", ".join(
        f"{name} {printable(value)}" for name, value in document["versions"].items() if value
    )
    lines = [
        f"Incident {document['id']}: {printable(document['class'])}",
        f"  {printable(document['sentence'])}",
        "",
        f"  when       {at}, {ago} ago",
        f"  rig        {printable(document['rig']['name'])}, "
        + (f"start {document['start']}" if document["start"] else "nothing was launched"),
        f"  ended      {_exit(document)}",
        f"  went on    {_went_on(document)}",
        f"  versions   {versions}",
    ]
    if document["overlay"]:
        changes = [f"{step['knob']} {step['old']} -> {step['new']}" for step in document["overlay"]]
        lines.append(f"  changed    {printable(', '.join(changes))} (on top of the rig file)")
    if document["evidence"]:
        lines += ["", "The log says", *[f"  {printable(line)}" for line in document["evidence"]]]
    lines += ["", "What rigd saw and did", *[_event(entry) for entry in document["trail"]]]
    if document["log"]:
        shown = document["log"][-STORY_LOG_LINES:]
        lines += ["", "The end of the engine's log", *[f"  {printable(line)}" for line in shown]]
    if document["parts"]:
        lines += ["", "Kept", *[_part(part) for part in document["parts"]]]
    lines += ["", "Left out", *[f"  {printable(text)}" for text in document["left_out"]]]
    lines += ["", "What to do next", *[f"  {printable(step)}" for step in document["next"]]]
    return lines


def _exit(document: dict[str, Any]) -> str:
    gone = document.get("exit")
    if gone is None:
        return "by rigd: it still ran" if document["start"] else "it never ran"
    who = f"{printable(gone['member'])} first" if gone.get("member") else "by itself"
    code = "" if gone.get("code") is None else f", exit code {gone['code']}"
    oom = ", killed for memory" if gone.get("oom_killed") else ""
    return f"{who}{code}{oom}"


def _went_on(entry: dict[str, Any]) -> str:
    after_s = entry.get("outcome_s")
    outcome = printable(entry.get("outcome") or "open")
    return outcome if after_s is None else f"{outcome} after {duration(after_s)}"


def _event(entry: dict[str, Any]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(entry["at_s"]))
    return f"  {at}  {printable(entry['kind'])}: {printable(entry['message'])}"


def _part(part: dict[str, Any]) -> str:
    return f"  {part['name']:<14} {part['bytes']:>9,} bytes{' (cut)' if part['cut'] else ''}"


def _write_bundle(client: Client, number: int, path: Path, *, as_json: bool) -> int:
    if path.exists():
        raise UsageError(f"the file '{path}' exists, and is left as it is", hint="name a new file")
    content = client.content(f"/v1/incidents/{number}/bundle", timeout_s=BUNDLE_TIMEOUT_S)
    try:
        # Exclusive: also a file that has come meanwhile is left as it is.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise RigdError(
            f"cannot write the bundle '{path}'", hint="name a file in a folder with room"
        ) from error
    inside = _inside(content)
    if as_json:
        print_json({"file": str(path), "bytes": len(content), "contents": inside})
        return int(ExitCode.DONE)
    print_text(f"{path}: {len(content) / MIB:.2f} MiB")
    print_text(printable_lines(inside))
    say("Read it before you hand it on: rigd leaves out what it knows to be private, and cannot know all.")
    return int(ExitCode.DONE)


def _inside(content: bytes) -> str:
    """Return the bundle's own note of its contents."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            note = next((entry for entry in archive if entry.name.endswith("/CONTENTS.txt")), None)
            file = None if note is None else archive.extractfile(note)
            return "" if file is None else file.read().decode("utf-8", "replace")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise RigdError("what came from the daemon is no bundle", hint="rigd version; rigd status") from error


def printable_lines(text: str) -> str:
    """Return a text of many lines without control characters."""
    return "\n".join(printable(line) for line in text.splitlines())
