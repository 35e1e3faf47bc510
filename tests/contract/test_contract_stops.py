"""Ends: what a killed process does to the others, to /health and to the exit code. These tests kill their engine."""

import asyncio
import contextlib
import signal
import time

import psutil

from rigd.adapters.vllm import AnswerKind, HealthKind

ASK_S = 5.0
EXIT_S = 120.0  # 3 s on a machine with nothing else to do


async def until_exit(engine, wait_until) -> int:
    await wait_until(lambda: not engine.alive, EXIT_S)
    return int(engine.process.returncode)


async def test_killed_core_fails_health_at_once_and_ends_the_server_with_code_0(engine, client, wait_until):
    await client.complete("The capital of France is", 2, 60)
    engine.core.kill()
    killed_s = time.monotonic()

    async def failing() -> bool:
        return (await client.health(ASK_S)).kind is HealthKind.FAILING

    await wait_until(failing, 10)
    health = await client.health(ASK_S)
    answer = await client.complete("Are you there?", 2, ASK_S)
    code = await until_exit(engine, wait_until)

    assert health.status == 503
    assert answer.kind is AnswerKind.HTTP_ERROR
    assert answer.status == 500
    assert code == 0
    assert time.monotonic() - killed_s < 30  # 3 s on a machine with nothing else to do
    assert "EngineDeadError: EngineCore encountered an issue." in engine.log.read_text(errors="replace")


async def test_killed_worker_takes_the_core_and_the_server_with_it(engine, client, wait_until):
    await client.complete("The capital of France is", 2, 60)
    engine.workers[-1].kill()

    async def failing() -> bool:
        # Failing for some seconds, then gone; a slow machine may only see that it is gone.
        return (await client.health(ASK_S)).kind in (HealthKind.FAILING, HealthKind.REFUSED)

    await wait_until(failing, 30)
    code = await until_exit(engine, wait_until)
    log = engine.log.read_text(errors="replace")

    assert code == 0
    # Who sees it first is a race: the executor, which watches its workers, or the core, which waits for one.
    assert "died unexpectedly (exit code: -9), shutting down executor." in log or "EngineDeadError" in log
    assert "EngineCore encountered a fatal error." in log or "EngineDeadError" in log


async def test_term_ends_the_whole_tree_with_code_0(engine, client, wait_until):
    await client.complete("The capital of France is", 2, 60)
    tree = engine.tree()
    engine.process.send_signal(signal.SIGTERM)
    code = await until_exit(engine, wait_until)

    def gone() -> bool:
        return not any(_running(process) for process in tree)

    assert code == 0
    assert await wait_until(gone, 10)


async def test_killed_server_leaves_core_and_workers_behind(engine, client, wait_until):
    await client.complete("The capital of France is", 2, 60)
    tree = engine.named("VLLM::")
    engine.process.kill()
    code = await until_exit(engine, wait_until)
    await asyncio.sleep(1)  # Long enough for an orderly end, if there were one.
    left = [process for process in tree if _running(process)]
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()

    assert code == -signal.SIGKILL
    assert len(left) == 3
    assert (await client.health(ASK_S)).kind is HealthKind.REFUSED


def _running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
