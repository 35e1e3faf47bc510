"""`rigd prefix`: what moves in prompts and what it costs, and what a client's requests share."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd.cli import prefix_output
from rigd.cli.console import print_json, print_text, say
from rigd.cli.options import HOUR_S, Json, examples
from rigd.cli.prefix_watch import watched
from rigd.errors import ExitCode, RigdError, UsageError
from rigd.gateway import recordings
from rigd.gateway.capture import Captured, capture
from rigd.gateway.files import Sources, read_sources
from rigd.gateway.target import (
    Answers,
    Target,
    ask,
    assumed,
    target_of,
    tokenized,
)
from rigd.prefix.common import yaml_lines
from rigd.prefix.finding import Finding, Level
from rigd.prefix.hits import Cache, Rate
from rigd.prefix.lint import lint_body, lint_order, lint_prompt
from rigd.prefix.sequence import MOST_REQUESTS, Comparison, compare

app = typer.Typer(
    help="Prompts: what in them moves, what it costs, and what a client's requests share.",
    epilog=examples("rigd prefix lint AGENTS.md", "rigd prefix capture --to rig.yaml -- opencode"),
)

LONGEST_S = 12 * HOUR_S
PortOption = Annotated[
    int,
    typer.Option(
        "--listen", metavar="PORT", min=0, max=65535, help="Port on 127.0.0.1; 0: any that is free."
    ),
]


@app.command(
    epilog=examples(
        "rigd prefix lint AGENTS.md prompts/*.md",
        "rigd prefix lint monday.json tuesday.json --rig rig.yaml",
        "rigd prefix lint --watch http://127.0.0.1:8000",
    )
)
def lint(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Prompt files, request bodies (.json, .jsonl), or folders of them, in order."),
    ] = None,
    *,
    rig: Annotated[
        str | None, typer.Option("--rig", metavar="RIG", help="Ask the engine of this rig.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Ask the engine at this address.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="TOKENS_PER_S", min=1, help="How fast prompts are read.")
    ] = None,
    block: Annotated[
        int | None, typer.Option("--block", metavar="TOKENS", min=1, help="Tokens of a KV block.")
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option("--watch", metavar="URL", help="Show the live hit rate of an engine (URL or rig file)."),
    ] = None,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.2, help="With --watch.")] = 5.0,
    duration: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0.2, help="With --watch: end after this.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say what in prompts and requests moves, where two requests part ways, and what it costs.

    Tokens are the engine's own where one is named and answers, else counted from the text. Exit code 0: nothing
    that costs; 3: there are warnings.
    """
    if rig is not None and url is not None:
        raise UsageError("--rig and --url exclude each other", hint="give one of them")
    if watch is not None:
        if files:
            raise UsageError("--watch takes no files", hint="leave out one of the two")
        return asyncio.run(watched(target_of(watch), every, duration, as_json=as_json))
    if not files:
        raise UsageError(
            "cannot lint without files", hint="name prompt files or request bodies, or --watch URL"
        )
    sources = read_sources(files)
    to = rig or url
    return asyncio.run(_linted(sources, target_of(to) if to else None, rate, block, as_json=as_json))


async def _linted(
    sources: Sources, target: Target | None, rate: float | None, block: int | None, *, as_json: bool
) -> int:
    cache, known_rate = assumed(rate=rate, block=block)
    tokens: dict[str, tuple[int, ...]] = {}
    notice = ""
    if len(sources.requests) > MOST_REQUESTS:
        notice = f"of {len(sources.requests):,} requests the first {MOST_REQUESTS} are compared"
    if target is not None:
        answers = await ask(target, rate=rate, block=block)
        cache, known_rate = answers.cache, answers.rate
        if answers.reachable:
            asked = sources.requests[:MOST_REQUESTS]
            tokens = await tokenized(answers.target, asked)
            if without := len(asked) - len(tokens):
                notice = (
                    f"the engine at {target.base_url} gave no tokens of {without} of {len(asked)} requests: "
                )
                notice += "those are counted from the text"
        else:
            notice = f"the engine at {target.base_url} does not answer: tokens are counted from the text"
    findings = (
        *(finding for prompt in sources.prompts for finding in lint_prompt(prompt)),
        *lint_order(sources.prompts),
        *(
            finding
            for request in sources.requests
            for finding in lint_body(request, tools_first=cache.tools_first)
        ),
    )
    comparisons = (
        *compare([one for one in sources.requests if one.name in tokens], tokens, cache, known_rate),
        *compare([one for one in sources.requests if one.name not in tokens], {}, cache, known_rate),
    )
    _tell(_unique(findings), comparisons, cache, known_rate, notice, as_json=as_json)
    costly = any(one.level is Level.WARNING for one in findings) or any(
        not one.difference.expected for one in comparisons
    )
    return int(ExitCode.NOT_SO if costly else ExitCode.DONE)


def _unique(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return what is found at a place once: a sequence of requests brings the same system prompt again and again."""
    seen: dict[tuple[str, str, int, int], Finding] = {}
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for one in findings:
        place = one.path or one.source
        counts[(one.source, one.kind, place, one.line)] += 1
        seen.setdefault((one.kind, place, one.line, counts[(one.source, one.kind, place, one.line)]), one)
    return tuple(seen.values())


def _tell(
    findings: tuple[Finding, ...],
    comparisons: tuple[Comparison, ...],
    cache: Cache,
    rate: Rate | None,
    notice: str,
    *,
    as_json: bool,
) -> None:
    if as_json:
        document: dict[str, Any] = {
            "findings": [one.document() for one in findings],
            "comparisons": [one.document() for one in comparisons],
            "cache": prefix_output.cache_document(cache),
            "rate": prefix_output.rate_document(rate),
            "notice": notice or None,
        }
        print_json(document)
        return
    if notice:
        say(f"rigd: {notice}")
    for line in prefix_output.findings_text(findings, rate):
        print_text(line)
    for line in prefix_output.comparisons_text(comparisons, cache, rate):
        print_text(line)
    if not findings and not comparisons:
        print_text("nothing in it moves")


@app.command(
    "capture",
    epilog=examples(
        "rigd prefix capture --to rig.yaml --write prompts -- opencode run 'say hello'",
        "rigd prefix capture --to http://127.0.0.1:8000 -- python client.py {url}",
    ),
)
def capture_command(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="What to run, after --. {url} becomes the address with /v1, {root} without, {model} the model."
        ),
    ] = None,
    *,
    to: Annotated[str, typer.Option("--to", metavar="RIG|URL", help="The engine: its rig file or address.")],
    listen: PortOption = 0,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Keep the prefixes here, for the rig file.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over prefixes that are there.")] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="TOKENS_PER_S", min=1, help="How fast prompts are read.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Longest run of the command.")
    ] = LONGEST_S,
    as_json: Json = False,
) -> int:
    """Run a client through a recording pass-through, and write what its requests share as a prefix to warm.

    Bodies stay on this box in private files; headers, and the keys in them, are never kept. The command finds the
    pass-through in OPENAI_BASE_URL, ANTHROPIC_BASE_URL and RIGD_CAPTURE_URL. Without a command it records until
    Ctrl-C. `rigd prefix forget` deletes all recordings.
    """
    if write is not None and write.exists() and not write.is_dir():
        raise UsageError(f"cannot write prefixes to '{write}': it is no folder")
    found = asyncio.run(
        capture(
            target_of(to),
            port=listen,
            command=command or (),
            timeout_s=timeout,
            rate=rate,
            now_s=time.time(),
            say=lambda text: say(f"rigd: {text}"),
        )
    )
    if not found.recorder.kept:
        raise _nothing(found)
    folder = write or found.folder / "prefixes"
    written, errors = _written(found, folder, replace=replace)
    yaml = yaml_lines({name: _named_in_rig(path, found.answers) for name, path in written.items()})
    if as_json:
        print_json(prefix_output.capture_document(found, written, yaml, [str(error) for error in errors]))
    else:
        for line in prefix_output.capture_text(found, written, yaml, kept=write is not None):
            print_text(line)
    for error in errors:
        say(f"rigd: {error}")
        if error.hint:
            say(f"  -> {error.hint}")
    return int(ExitCode.FAILED if errors else ExitCode.DONE)


def _written(found: Captured, folder: Path, *, replace: bool) -> tuple[dict[str, Path], list[RigdError]]:
    """Write every prefix that can be written; return the files and what stood in the way of the others."""
    written: dict[str, Path] = {}
    errors: list[RigdError] = []
    for shared in found.shared:
        if shared.body is None:
            continue
        path = folder / f"{shared.name}.json"
        try:
            recordings.write_prefix(path, shared.body, replace=replace)
        except RigdError as error:
            errors.append(error)
        else:
            written[shared.name] = path
    return written, errors


def _named_in_rig(path: Path, answers: Answers) -> str:
    """Return a file as the rig file may name it: from its own folder where it lies below that."""
    absolute, folder = path.resolve(), answers.target.folder
    if folder is not None and absolute.is_relative_to(folder.resolve()):
        return str(absolute.relative_to(folder.resolve()))
    return str(absolute)


def _nothing(found: Captured) -> RigdError:
    others, left = found.recorder.others, found.recorder.left_out
    if left:
        reasons = ", ".join(f"{count}: {reason}" for reason, count in left.items())
        return RigdError(
            f"cannot find a prefix: no request could be kept ({reasons}); the client {found.ended}"
        )
    hint = "tell the client its address: {url} in the command, or RIGD_CAPTURE_URL where its file takes variables"
    seen = f", {others} other requests" if others else ""
    return RigdError(f"cannot find a prefix: no prompt came by (the client {found.ended}{seen})", hint=hint)


@app.command("forget", epilog=examples("rigd prefix forget"))
def forget_command(*, as_json: Json = False) -> int:
    """Delete every recorded request body, and the prefixes that were not kept with --write."""
    gone = recordings.forget()
    if as_json:
        print_json({"recordings": gone.recordings, "files": gone.files, "bytes": gone.size_bytes})
    else:
        print_text(
            f"deleted {gone.recordings} recordings: {gone.files} files, {gone.size_bytes / 1024:,.0f} KiB"
        )
    return int(ExitCode.DONE)
