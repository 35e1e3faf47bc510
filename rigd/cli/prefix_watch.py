"""`rigd prefix lint --watch`: the hit rate of live traffic, a row for each interval in which prompts were read."""

import asyncio
import time

from rigd.adapters.vllm_metrics import Counters
from rigd.cli import prefix_output
from rigd.cli.console import print_line, print_text, say
from rigd.errors import ExitCode, RigdError
from rigd.gateway.target import ASK_TIMEOUT_S, Target, engine_client
from rigd.prefix.watch import Row, Sample, Watch


async def watched(target: Target, every_s: float, duration_s: float | None, *, as_json: bool) -> int:
    """Print rows until Ctrl-C, or for `duration_s`; an engine that goes away is waited for."""
    asked = engine_client(target)
    until_s = None if duration_s is None else time.monotonic() + duration_s
    watch, silent = Watch(), False
    try:
        first = await asked.counters(ASK_TIMEOUT_S)
        if first is None:
            raise RigdError(
                f"the engine at {target.base_url} does not answer with vLLM's counters",
                hint="--watch takes the engine's own address, for example http://127.0.0.1:8000",
            )
        if not as_json:
            print_text(prefix_output.WATCH_HEAD)
        _tell(watch.add(_sample(first)), as_json=as_json)
        while until_s is None or time.monotonic() < until_s:
            rest_s = every_s if until_s is None else min(every_s, max(0.0, until_s - time.monotonic()))
            await asyncio.sleep(rest_s)
            counters = await asked.counters(ASK_TIMEOUT_S)
            if counters is None:
                if not silent:
                    say(f"rigd: the engine at {target.base_url} does not answer; waiting for it")
                silent = True
                continue
            silent = False
            _tell(watch.add(_sample(counters)), as_json=as_json)
    finally:
        await asked.aclose()
    return int(ExitCode.DONE)


def _tell(row: Row | None, *, as_json: bool) -> None:
    if row is not None and as_json:
        print_line(prefix_output.row_document(row))
    elif row is not None:
        print_text(prefix_output.row_text(row))


def _sample(counters: Counters) -> Sample:
    return Sample(
        at_s=time.time(),
        queries=counters.prefix_queries,
        hits=counters.prefix_hits,
        prompts=counters.prompt_tokens,
        running=counters.running,
        kv_usage=counters.kv_usage,
    )
