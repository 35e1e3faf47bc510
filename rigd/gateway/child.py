"""The client's own command, run with the address of the pass-through in its environment and its words."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence

from rigd.errors import UsageError

STDOUT, STDERR = 1, 2
GRACE_S = 5.0
"""From TERM to KILL, when the command has to be ended."""

WITH_V1 = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "CODEX_OSS_BASE_URL", "LOCAL_ENDPOINT", "RIGD_CAPTURE_URL")
"""Variables that clients take the address from, with `/v1` at its end."""
WITHOUT_V1 = ("ANTHROPIC_BASE_URL",)
"""The same, without it."""


def filled(command: Sequence[str], *, url: str, model: str) -> list[str]:
    """Return the command with `{url}` (with /v1), `{root}` (without) and `{model}` filled in."""
    values = {"{url}": f"{url}/v1", "{root}": url, "{model}": model}
    words = list(command)
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    return words


def environment(environ: Mapping[str, str], *, url: str, model: str) -> dict[str, str]:
    """Return the environment of the command: ours, and where the engine is."""
    named = dict.fromkeys(WITH_V1, f"{url}/v1") | dict.fromkeys(WITHOUT_V1, url)
    return {**environ, **named, "RIGD_CAPTURE_MODEL": model}


def check_command(command: Sequence[str]) -> None:
    """Raise `UsageError` for a command that is not there, before anything begins."""
    if shutil.which(command[0]) is None:
        raise UsageError(
            f"cannot find the command '{command[0]}'", hint="what follows -- is run as it is, without a shell"
        )


async def run_command(command: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> str:
    """Run a command on this terminal and return how it ended, in words. Ctrl-C is the command's."""
    try:
        # What it says is not our result: a pipe behind our stdout gets the result alone.
        stdout = None if os.isatty(STDOUT) else STDERR
        process = await asyncio.create_subprocess_exec(*command, env=dict(environ), stdout=stdout)
    except OSError as error:
        raise UsageError(f"cannot run '{command[0]}'") from error
    with _interrupts_left_to(process):
        try:
            async with asyncio.timeout(timeout_s):
                code = await process.wait()
        except TimeoutError:
            await _end(process)
            return f"was ended after {timeout_s:g} s"
        except asyncio.CancelledError:
            await _end(process)
            raise
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with {code}"


async def until_interrupted(timeout_s: float) -> str:
    """Wait for Ctrl-C or TERM, for clients that are started elsewhere."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    try:
        async with asyncio.timeout(timeout_s):
            await told.wait()
    except TimeoutError:
        return f"was ended after {timeout_s:g} s"
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return "was ended"


@contextlib.contextmanager
def _interrupts_left_to(process: asyncio.subprocess.Process) -> Iterator[None]:
    """Let Ctrl-C reach the command alone, which the terminal tells by itself; hand TERM on to it."""
    loop = asyncio.get_running_loop()

    def hand_on() -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()

    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, hand_on)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(GRACE_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
