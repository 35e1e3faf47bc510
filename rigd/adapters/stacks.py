"""Stacks of running Python processes through py-spy, where it is installed. Reads memory; never stops the process."""

import asyncio
import contextlib
import shutil
import sys
from pathlib import Path

OUTPUT_BYTES = 128 * 1024
"""Most of one process's stacks that is kept."""


def program() -> str | None:
    """Return py-spy: the one beside our Python, else the one on PATH; None where there is none."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


async def dump(pid: int, *, deadline_s: float) -> str:
    """Return the stacks of one process, or in a line why there are none; never later than the deadline."""
    found = program()
    if found is None:
        return "py-spy is not installed"
    try:
        process = await asyncio.create_subprocess_exec(
            found,
            "dump",
            "--nonblocking",
            "--pid",
            str(pid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        return f"py-spy cannot be started: {error.strerror}"
    stream = process.stdout
    try:
        async with asyncio.timeout(deadline_s):
            content = b"" if stream is None else await _read(stream)
    except TimeoutError:
        return f"py-spy did not answer within {deadline_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # One that is stuck in the kernel is left to it; the event loop reaps it when it ends.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await process.wait()
    return content.decode("utf-8", "replace").strip()


async def _read(stream: asyncio.StreamReader) -> bytes:
    parts = bytearray()
    while len(parts) < OUTPUT_BYTES and (part := await stream.read(OUTPUT_BYTES)):
        parts += part
    return bytes(parts[:OUTPUT_BYTES])
