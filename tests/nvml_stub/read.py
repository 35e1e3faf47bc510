"""Read the pretended cards through the real bindings, once for each line on stdin; one JSON line each."""

import asyncio
import json
import sys
from dataclasses import asdict

from rigd.adapters.gpu import GpuReader


async def main() -> None:
    """Answer until stdin ends; the reader is the same all along, as in the daemon."""
    reader = GpuReader()
    while line := await asyncio.to_thread(sys.stdin.readline):
        readings = await reader.read(deadline_s=float(line))
        sys.stdout.write(json.dumps(asdict(readings)) + "\n")
        sys.stdout.flush()
    await reader.close()


asyncio.run(main())
