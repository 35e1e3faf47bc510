"""`rigd budget`: what the KV pool holds, and whether the channels of a rig fit into it."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from rigd import client
from rigd.adapters.model_files import find_config, read_text, weights_bytes
from rigd.budget.figure import Figure, Source
from rigd.budget.memory import card_memory
from rigd.budget.model_config import ConfigError, read_shape
from rigd.budget.readback import LogSays, read_log
from rigd.budget.reckoning import Given, reckon
from rigd.budget.shape import ModelShape
from rigd.cli.budget_document import as_document
from rigd.cli.budget_output import show
from rigd.cli.console import print_json, say
from rigd.cli.options import Json
from rigd.cli.rig import RigPath, opened
from rigd.engine.spec import LaunchSpec
from rigd.errors import ExitCode, RigdError, UsageError
from rigd.rig.load import LoadedRig

ASK_S = 2.0
LOG_TAIL_BYTES = 64 * 2**20
WEIGHTS_ERROR = 0.03
"""Norms and the like lie on every card."""
CPU_FLAG = "avx512_bf16"

Config = Annotated[
    Path | None, typer.Option("--config", metavar="PATH", help="The model's config.json, or its folder.")
]
Card = Annotated[
    str | None,
    typer.Option(
        "--card", metavar="NAME|GIB", help="Memory of each card: `RTX 3090`, or GiB as CUDA reports."
    ),
]
Hit = Annotated[
    float | None,
    typer.Option(
        "--hit", metavar="RATE", min=0.0, max=1.0, help="Share of prompt tokens found in the cache."
    ),
]
Log = Annotated[
    Path | None, typer.Option("--log", metavar="FILE", help="A log of the engine, to read its pool from.")
]
FitToo = Annotated[
    bool, typer.Option("--fit", help="Also the longest context and the most sequences, and why not more.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Ask no daemon and no engine.")]


def budget(
    rig: RigPath,
    *,
    config: Config = None,
    card: Card = None,
    hit: Hit = None,
    log: Log = None,
    fit: FitToo = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Reckon the KV pool, and hold the channels of the rig file against it.

    Exit code 0: they fit; 3: they do not, and the smallest change that would; 1: the pool is not known.
    """
    loaded, spec, warnings = opened(rig)
    for finding in warnings:
        if finding.key.startswith(("channels", "budget")):
            say(f"{loaded.place(finding.key)}: warning: {finding}")
    shape, where, weights = _model(loaded, spec, config)
    given = Given(
        shape=shape,
        shape_from=where,
        weights=weights,
        card=card_memory(card) if card is not None else None,
        measured=None if offline or log is not None else _measured(loaded, spec),
        log=_log(log) if log is not None else LogSays(),
        wide_cpu=_wide_cpu(),
        hit_rate=hit,
    )
    found = reckon(loaded.rig, given)
    if as_json:
        print_json(as_document(found))
    else:
        show(found, loaded.rig, with_fit=fit)
    if found.used is None:
        raise RigdError(
            f"cannot say what fits on '{loaded.rig.name}': the size of its KV pool is not known",
            hint="start it once and use --log FILE; or say budget.pool_tokens; or --config, --card and weights",
        )
    if found.plan is not None and not found.plan.holds:
        raise typer.Exit(int(ExitCode.NOT_SO))


# --- the model's files ---


def _model(
    loaded: LoadedRig, spec: LaunchSpec, named: Path | None
) -> tuple[ModelShape | None, str, Figure | None]:
    """Return the model's shape, where it is from (or why there is none), and its weights on each card."""
    path = _named_config(loaded, named) or _found_config(spec)
    if path is None:
        return (
            None,
            f"the model's shape: no config.json of '{spec.model}' on this box (--config names one)",
            None,
        )
    try:
        shape = read_shape(read_text(path), str(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot reckon the KV pool from '{path}': {reason}",
            hint="--config names the model's config.json",
        ) from None
    ranks = loaded.rig.engine.arguments.tensor_parallel_size or 1
    total = weights_bytes(path.parent)
    weights = None
    if total is not None:
        each = total // ranks
        note = f"the weights in {path.parent}, over {ranks} card{'s' if ranks > 1 else ''}"
        weights = Figure(value=each, source=Source.READ, note=note, error=round(each * WEIGHTS_ERROR))
    return shape, str(path), weights


def _named_config(loaded: LoadedRig, named: Path | None) -> Path | None:
    """Return the config.json that a person named; it must be there."""
    if named is None and loaded.rig.budget.config is None:
        return None
    place, key = named, "--config"
    if place is None:
        place = loaded.path.absolute().parent / Path(loaded.rig.budget.config or "").expanduser()
        key = f"{loaded.place('budget.config')}: budget.config"
    path = find_config(str(place), caches=())
    if path is None:
        raise UsageError(
            f"{key}: there is no config.json at '{place}'", hint="name the file, or the folder that holds it"
        )
    return path


def _found_config(spec: LaunchSpec) -> Path | None:
    """Return the config.json where the engine finds its model, seen from the box."""
    mounts = () if spec.container is None else spec.container.mounts
    for mount in mounts:
        inside = spec.model.removeprefix(mount.target.rstrip("/") + "/")
        if inside != spec.model and (path := find_config(str(Path(mount.source) / inside), caches=())):
            return path
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("HOME") or "/") / ".cache/huggingface")
    caches = [Path(mount.source) for mount in mounts] if spec.container is not None else [Path(home)]
    return find_config(spec.model, caches=caches)


def _wide_cpu() -> bool:
    """Whether this CPU has the instructions by which vLLM chooses the format of recurrent states."""
    try:
        return CPU_FLAG in Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].split()
    except OSError:
        return False


# --- what the engine said ---


def _log(path: Path) -> LogSays:
    """Return what a log says. Raises `UsageError` when it says nothing of a pool."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - LOG_TAIL_BYTES, 0))
            says = read_log(file.read(LOG_TAIL_BYTES).decode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(f"cannot read the log '{path}': {error.strerror}") from error
    if says == LogSays():
        raise UsageError(
            f"the log '{path}' says nothing of a KV pool",
            hint="a log of a whole start has the line `KV cache size`; `rigd logs --start N > FILE` writes one",
        )
    return says


def _measured(loaded: LoadedRig, spec: LaunchSpec) -> Figure | None:
    """Return the pool of the engine that runs, from the daemon, else from the engine itself; None: nobody says."""
    try:
        status = client.connect(os.environ).get("/v1/status", timeout_s=ASK_S)
    except RigdError:
        return asyncio.run(_asked_engine(spec))
    health = status.get("health")
    tokens = health.get("pool_tokens") if isinstance(health, dict) else None
    if status.get("rig") != loaded.rig.name or not isinstance(tokens, int):
        return None
    return Figure(value=tokens, source=Source.READ, note="the running engine, from the daemon's status")


async def _asked_engine(spec: LaunchSpec) -> Figure | None:
    """Return the pool that the engine at the rig's own address counts, if it serves the rig's model."""
    from rigd.adapters.vllm import VllmClient  # noqa: PLC0415  (only without a daemon)

    engine = VllmClient(spec.base_url, model=spec.served_model_name, api_key=None)
    try:
        if spec.served_model_name not in (await engine.models(ASK_S) or ()):
            return None
        counters = await engine.counters(ASK_S)
    finally:
        await engine.aclose()
    if counters is None or counters.pool_tokens is None:
        return None
    return Figure(
        value=counters.pool_tokens, source=Source.READ, note=f"the running engine's metrics ({spec.base_url})"
    )
