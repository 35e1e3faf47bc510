"""`rigd engine`: what a rig file would launch, and whether the engine's own parser takes it."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rigd.cli.console import print_json, print_text, say
from rigd.cli.options import Json, examples
from rigd.cli.rig import RigPath, opened
from rigd.engine.command import compose_file, describe_secret, shell_command
from rigd.engine.spec import LaunchSpec
from rigd.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rigd.runtime.base import CheckReport

app = typer.Typer(
    help="The engine that a rig file launches: command, compose file, the engine's own opinion."
)


@app.command(epilog=examples("rigd engine command configs/rig-b-qwen3.8-27b-process.yaml"))
def command(rig: RigPath, *, as_json: Json = False) -> None:
    """Print the command that launches the engine, ready to paste. Secrets are names of variables, never values."""
    loaded, spec, warnings = opened(rig)
    for finding in warnings:
        say(f"{loaded.place(finding.key)}: warning: {finding}")
    if as_json:
        print_json(as_document(spec))
        return
    print_text(shell_command(spec))


@app.command(epilog=examples("rigd engine compose configs/rig-a-qwen3.6-27b-docker.yaml > compose.yaml"))
def compose(rig: RigPath, *, as_json: Json = False) -> None:
    """Print a compose file with the same container, for a box without rigd. Nothing restarts it there."""
    _, spec, _ = opened(rig)
    if spec.container is None:
        raise UsageError(
            f"cannot make a compose file of '{rig}': its engine is a bare process",
            hint=f"`rigd engine command {rig}` prints its command",
        )
    text = compose_file(spec)
    if as_json:
        from ruamel.yaml import YAML  # noqa: PLC0415  (only here)

        print_json(YAML(typ="safe", pure=True).load(text))
        return
    print_text(text.rstrip("\n"))


@app.command(epilog=examples("rigd engine check configs/cpu-lab.yaml"))
def check(rig: RigPath, *, as_json: Json = False) -> None:
    """Ask the engine's own parser, without a GPU and without touching a running engine.

    Exit code 0: accepted; 3: refused; 1: it could not be asked.
    """
    loaded, spec, warnings = opened(rig)
    report = asyncio.run(_ask(spec, loaded.rig.supervision.deadlines.check_s, loaded.rig.logs.max_mib))
    if as_json:
        print_json(
            {
                "accepted": report.accepted,
                "message": report.message,
                "took_s": round(report.took_s, 3),
                "digest": spec.digest,
                "warnings": [str(finding) for finding in warnings],
            }
        )
    else:
        _tell(rig, spec, report)
    raise typer.Exit(int(_CODES[report.accepted]))


_CODES = {True: ExitCode.DONE, False: ExitCode.NOT_SO, None: ExitCode.FAILED}


def _tell(rig: Path, spec: LaunchSpec, report: "CheckReport") -> None:
    words = {
        True: f"the engine accepts '{rig}' ({spec.digest}, asked in {report.took_s:.1f} s)",
        False: f"the engine refuses '{rig}'",
        None: f"the engine of '{rig}' could not be asked",
    }[report.accepted]
    print_text(f"{words}{': ' + report.message if report.message else ''}")
    if report.accepted is False:
        say(f"  -> change the setting; `rigd engine command {rig}` shows the whole command")


async def _ask(spec: LaunchSpec, deadline_s: float, log_max_mib: float) -> "CheckReport":
    from rigd.runtime.factory import make_runtime  # noqa: PLC0415  (Docker's SDK is slow to import)
    from rigd.settings import Settings  # noqa: PLC0415

    settings = Settings()
    runtime = make_runtime(
        spec.rig,
        spec,
        state_dir=settings.state_dir,
        runtime_dir=settings.runtime_dir,
        log_max_mib=log_max_mib,
    )
    try:
        return await runtime.check(spec, deadline_s=deadline_s)
    finally:
        await runtime.close()


def as_document(spec: LaunchSpec) -> dict[str, Any]:
    """Return a specification as JSON carries it; secrets as words that say where they are."""
    return {
        "rig": spec.rig,
        "runtime": spec.runtime.value,
        "version": spec.version,
        "digest": spec.digest,
        "url": spec.base_url,
        "argv": list(spec.argv),
        "environment": dict(spec.environment),
        "secrets": {name: describe_secret(ref) for name, ref in spec.secrets},
        "working_directory": spec.working_directory,
        "inherit_environment": list(spec.inherit_environment),
        "container": None if spec.container is None else asdict(spec.container),
        "command": shell_command(spec),
    }
