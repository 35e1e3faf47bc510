"""The engine that is meant, by its rig file or its address, and what it says about itself."""

import asyncio
import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rigd import client
from rigd.adapters.vllm import VllmClient
from rigd.adapters.vllm_metrics import Counters
from rigd.engine.launch import launch_spec
from rigd.errors import RigdError, UsageError
from rigd.prefix.anthropic import as_chat
from rigd.prefix.hits import Cache, Rate, shared_length
from rigd.prefix.sources import Recorded
from rigd.rig.load import load
from rigd.runtime.secrets import resolve_api_key

ASK_TIMEOUT_S = 5.0
TOKENIZE_TIMEOUT_S = 60.0
TOKENIZE_AT_ONCE = 4
LEAST_PREFILLED = 2000
"""Prompt tokens that an engine must have read before its rate says anything."""
LEAST_WARMED = 500
"""Tokens of a warmed prefix whose cold reading says something about the rate."""
BLOCK_DEFAULT = 16
"""vLLM's own block on cards, where nothing says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One engine."""

    base_url: str
    """Scheme, host and port."""
    model: str = ""
    """Name that it serves under; empty until it is asked."""
    api_key: str | None = field(default=None, repr=False)
    rig: str | None = None
    """Name of the rig, where a rig file was given."""
    folder: Path | None = None
    """The rig file's folder."""
    block: int | None = None
    """Tokens of a block, where the rig file says."""
    speculative: bool = False


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What an engine says about itself."""

    target: Target
    reachable: bool
    cache: Cache
    rate: Rate | None
    counters: Counters | None = None


def target_of(to: str) -> Target:
    """Return the engine at an address, or of a rig file. Raises `UsageError`."""
    if to.startswith(("http://", "https://")):
        return Target(base_url=to.rstrip("/").removesuffix("/v1"))
    if "://" in to:
        raise UsageError(f"'{to}' is no address of an engine", hint="for example http://127.0.0.1:8000")
    if re.fullmatch(r"[\w.-]+:\d+(/v1)?/?", to) and not Path(to).exists():
        raise UsageError(
            f"'{to}' is no rig file and no address of an engine", hint=f"did you mean http://{to}?"
        )
    loaded = load(Path(to))
    home = Path(os.environ.get("HOME") or "/")
    spec = launch_spec(loaded.rig, rig_folder=loaded.folder.absolute(), home=home)
    key = None
    with contextlib.suppress(
        RigdError
    ):  # What is asked here needs no key; the daemon's may not be ours to read.
        key = resolve_api_key(spec)
    arguments = loaded.rig.engine.arguments
    return Target(
        base_url=spec.base_url,
        model=spec.served_model_name,
        api_key=key,
        rig=loaded.rig.name,
        folder=loaded.folder,
        block=arguments.block_size,
        speculative=arguments.speculative is not None,
    )


async def ask(target: Target, *, rate: float | None, block: int | None = None) -> Answers:
    """Ask an engine what it is; `rate` (tokens a second) and `block` are what a person states."""
    asked = engine_client(target)
    try:
        counters = await asked.counters(ASK_TIMEOUT_S)
        names = await asked.models(ASK_TIMEOUT_S) if counters is not None else None
        model = target.model or next(iter(names or ()), "")
        tools_first = counters is not None and await _tools_first(asked, model)
    finally:
        await asked.aclose()
    known = replace(target, model=model)
    return Answers(
        target=known,
        reachable=counters is not None,
        cache=replace(_cache(target, counters, block), tools_first=tools_first),
        rate=_stated(rate) or await asyncio.to_thread(_warmed_rate, target) or _measured_rate(counters),
        counters=counters,
    )


def assumed(*, rate: float | None, block: int | None) -> tuple[Cache, Rate | None]:
    """Return what holds where no engine was named."""
    said_by = "stated" if block else "assumed"
    return Cache(block=block or BLOCK_DEFAULT, said_by=said_by), _stated(rate)


def engine_client(target: Target) -> VllmClient:
    """Return a client of the engine itself; close it."""
    return VllmClient(target.base_url, model=target.model, api_key=target.api_key)


async def tokenized(target: Target, recorded: Sequence[Recorded]) -> dict[str, tuple[int, ...]]:
    """Return the engine's own tokens of the requests that it can be asked about, by name."""
    found: dict[str, tuple[int, ...]] = {}
    turn = asyncio.Semaphore(TOKENIZE_AT_ONCE)
    asked = engine_client(target)

    async def one(request: Recorded) -> None:
        async with turn:
            tokens = await asked.tokenize(with_model(as_chat(request.body), target.model), TOKENIZE_TIMEOUT_S)
        if tokens is not None:
            found[request.name] = tokens

    try:
        await asyncio.gather(*(one(request) for request in recorded if _can_be_asked(request.body)))
    finally:
        await asked.aclose()
    return found


def with_model(body: dict[str, Any], model: str) -> dict[str, Any]:
    """Return a body under the name that the engine serves: recorded ones may carry another."""
    return {**body, "model": model or body.get("model")}


def _can_be_asked(body: dict[str, Any]) -> bool:
    messages, prompt = body.get("messages"), body.get("prompt")
    return (isinstance(messages, list) and bool(messages)) or isinstance(prompt, str)


async def _tools_first(asked: VllmClient, model: str) -> bool:
    """Return whether the template writes tools before the system text: another tool then shows sooner."""

    async def tokens(system: str, tool: str) -> tuple[int, ...]:
        body = {
            "model": model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": "?"}],
            "tools": [
                {"type": "function", "function": {"name": tool, "description": tool, "parameters": {}}}
            ],
        }
        return await asked.tokenize(body, ASK_TIMEOUT_S) or ()

    usual = await tokens("alpha", "alpha")
    other_tool, other_system = await tokens("alpha", "omega"), await tokens("omega", "alpha")
    if not (usual and other_tool and other_system):
        return False
    return shared_length(usual, other_tool) < shared_length(usual, other_system)


def _cache(target: Target, counters: Counters | None, block: int | None) -> Cache:
    if counters is not None and (step := counters.hit_step):
        return Cache(
            block=block or step,
            speculative=counters.speculative or target.speculative,
            hybrid=counters.hybrid,
            said_by="stated" if block else f"the engine at {target.base_url}",
        )
    said = block or target.block
    said_by = "stated" if block else "the rig file" if target.block else "assumed"
    return Cache(block=said or BLOCK_DEFAULT, speculative=target.speculative, said_by=said_by)


def _stated(rate: float | None) -> Rate | None:
    return None if rate is None else Rate(tokens_per_s=rate, said_by="stated")


def _measured_rate(counters: Counters | None) -> Rate | None:
    """Return what the engine measured over all requests that it has answered."""
    if counters is None or counters.prefilled_tokens < LEAST_PREFILLED or counters.prefill_s <= 0:
        return None
    tokens = int(counters.prefilled_tokens)
    return Rate(
        tokens_per_s=counters.prefilled_tokens / counters.prefill_s,
        said_by=f"measured by the engine over {tokens:,} tokens",
    )


def _warmed_rate(target: Target) -> Rate | None:
    """Return what the rig's daemon saw when it warmed a cold prefix; None without one on this box."""
    if target.rig is None:
        return None
    try:
        status = client.connect(os.environ).get("/v1/status", timeout_s=ASK_TIMEOUT_S)
    except (RigdError, OSError):
        return None
    return rate_of_status(status, target.rig)


def rate_of_status(status: dict[str, Any], rig: str) -> Rate | None:
    """Return the rate at which a daemon's longest cold prefix was read. One sighting alone was warm already."""
    if status.get("rig") != rig:
        return None
    cold = [
        result
        for result in status.get("warm") or ()
        if result.get("sightings", 0) > 1
        and (result.get("cold_ttft_s") or 0) > 0
        and result.get("prefix_tokens", 0) >= LEAST_WARMED
    ]
    if not cold:
        return None
    longest = max(cold, key=lambda result: int(result["prefix_tokens"]))
    tokens, took_s = int(longest["prefix_tokens"]), float(longest["cold_ttft_s"])
    return Rate(
        tokens_per_s=tokens / took_s,
        said_by=f"warming '{longest['prefix']}', {tokens:,} tokens in {took_s:.1f} s",
    )
