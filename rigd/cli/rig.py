"""`rigd rig`: is a rig file right, what may stand in one, and what does it come to."""

import enum
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from rigd.cli.console import print_json, print_text
from rigd.cli.options import Json, examples
from rigd.engine.command import describe_secret
from rigd.engine.launch import launch_spec
from rigd.engine.spec import LaunchSpec
from rigd.engine.versions import version_findings
from rigd.errors import ExitCode
from rigd.rig.findings import Finding, errors
from rigd.rig.load import LoadedRig, RigFileError, load
from rigd.rig.schema import PrivateUrl, Rig, SecretRef

app = typer.Typer(help="The rig file: what is wrong with it, what may stand in it, what it comes to.")

RigPath = Annotated[Path, typer.Argument(metavar="RIG", help="Path of the rig file.", show_default=False)]
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def opened(path: Path) -> tuple[LoadedRig, LaunchSpec, tuple[Finding, ...]]:
    """Return a rig file, what it launches and its warnings. Raises `RigFileError` with every mistake."""
    loaded = load(path)
    found = version_findings(loaded.rig)
    if wrong := errors(found):
        raise loaded.refusal(wrong)
    home = Path(os.environ.get("HOME") or "/")
    spec = launch_spec(loaded.rig, rig_folder=path.absolute().parent, home=home)
    return loaded, spec, (*loaded.warnings, *found)


@app.command(epilog=examples("rigd rig validate configs/example.yaml"))
def validate(rig: RigPath, *, as_json: Json = False) -> None:
    """Check a rig file: every mistake at once, each with its line, key and what to write instead.

    Exit code 0: it can be used (warnings are told); 2: it cannot.
    """
    try:
        loaded, spec, warnings = opened(rig)
    except RigFileError as error:
        if not as_json:
            raise
        print_json({"valid": False, "file": str(rig), "errors": _faults(error), "warnings": []})
        raise typer.Exit(int(ExitCode.USAGE)) from None
    if as_json:
        told = [_finding(finding, loaded) for finding in warnings]
        print_json({"valid": True, "file": str(rig), "digest": spec.digest, "errors": [], "warnings": told})
        return
    for finding in warnings:
        print_text(f"{loaded.place(finding.key)}: warning: {finding}")
    doubts = f", {len(warnings)} warning{'s' if len(warnings) > 1 else ''}" if warnings else ""
    print_text(f"{rig} is valid (rig {loaded.rig.name}, vLLM {spec.version}, {spec.runtime.value}{doubts})")


def _faults(error: RigFileError) -> list[dict[str, Any]]:
    return [
        {"line": fault.place.line, "column": fault.place.column, "key": fault.key, "message": fault.sentence}
        for fault in error.faults
    ]


def _finding(finding: Finding, loaded: LoadedRig) -> dict[str, Any]:
    return {
        "place": loaded.place(finding.key),
        "key": finding.key,
        "message": finding.sentence,
        "hint": finding.hint,
    }


@app.command(epilog=examples("rigd rig schema > rig.schema.json"))
def schema(*, as_json: Json = False) -> None:
    """Print the JSON schema of rig files, for editors that complete and check while one types.

    In a rig file, `# yaml-language-server: $schema=rig.schema.json` on the first line switches it on.
    """
    del as_json  # it is JSON either way
    print_json(json_schema())


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a rig file, each key with its meaning."""
    described = Rig.model_json_schema(mode="validation")
    return {"$schema": SCHEMA_DIALECT, "title": "rigd rig file", **described}


@app.command(epilog=examples("rigd rig show configs/example.yaml"))
def show(rig: RigPath, *, as_json: Json = False) -> None:
    """Print the effective settings; what rigd assumes is marked as default. Secrets stay references."""
    loaded, spec, _ = opened(rig)
    if as_json:
        print_json(
            {
                "file": str(rig),
                "digest": spec.digest,
                "settings": loaded.rig.model_dump(mode="json", exclude_none=True),
                "from_file": sorted(key for key, _, given in settings(loaded.rig) if given),
            }
        )
        return
    console = Console(highlight=False, soft_wrap=True)
    rows = settings(loaded.rig)
    width = max(len(key) for key, _, _ in rows)
    for key, value, given in rows:
        mark = "" if given else "  [dim](default)[/]"
        console.print(f"{escape(key.ljust(width))}  {escape(_shown(value))}{mark}")
    console.print(f"{'digest'.ljust(width)}  {spec.digest}")


def settings(model: BaseModel, above: str = "", *, given: bool = True) -> list[tuple[str, Any, bool]]:
    """Return (key, value, whether the file says so) for each setting that has a value."""
    rows: list[tuple[str, Any, bool]] = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        key = f"{above}.{name}" if above else name
        here = given and name in model.model_fields_set
        rows += _rows(key, value, given=here)
    return rows


def _rows(key: str, value: Any, *, given: bool) -> list[tuple[str, Any, bool]]:
    if value is None or value in ((), {}):
        return []
    if isinstance(value, BaseModel) and not isinstance(value, SecretRef):
        return settings(value, key, given=given)
    if isinstance(value, tuple) and any(isinstance(item, (BaseModel, PrivateUrl)) for item in value):
        return [
            row for place, item in enumerate(value) for row in _rows(f"{key}[{place}]", item, given=given)
        ]
    if isinstance(value, dict):
        return [row for name, item in value.items() for row in _rows(f"{key}.{name}", item, given=given)]
    return [(key, value, given)]


def _shown(value: Any) -> str:
    if isinstance(value, SecretRef):
        return f"*** ({describe_secret(value)})"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, PrivateUrl):
        return str(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)
