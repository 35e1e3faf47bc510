"""Print what the recording pass-through adds to each answer: `python tests/perf/pass_through.py [--json]`.

Not a test: nothing fails here when a figure is bad. An engine of a few lines answers at once, so that what is
measured is the way alone; the pass-through is the real command, `rigd prefix capture`, whose client is this script
again. Direct and passed-through requests take turns.
"""

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

RUNS = 300
AT_ONCE = 50
PIECES = 200
PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
METRICS = b'vllm:num_requests_running{engine="0"} 0.0\nvllm:prefix_cache_queries_total{engine="0"} 0.0\n'
PROMPTS = {"2 KB": 2_000, "400 KB": 400_000, "8 MB": 8_000_000}
"""Lengths of prompts: a short one, one of about 100,000 tokens, and more than any."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    parser.add_argument("--runs", type=int, default=RUNS, help="requests of each kind")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=2, metavar=("DIRECT", "THROUGH"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.engine:
        asyncio.run(engine())
    elif asked.client:
        direct, through = asked.client
        sys.stderr.write(json.dumps(measured(direct, through, asked.runs)) + "\n")
    else:
        show(captured(asked.runs), as_json=asked.json)


def captured(runs: int) -> dict[str, dict[str, float]]:
    """Run the capture with this script as its client, and return what that measured."""
    script = [sys.executable, __file__]
    with (
        tempfile.TemporaryDirectory(prefix="rigd-figures-") as folder,
        subprocess.Popen([*script, "--engine"], stdout=subprocess.PIPE, text=True) as behind,
    ):
        try:
            assert behind.stdout is not None
            url = behind.stdout.readline().strip()
            words = [sys.executable, "-m", "rigd.cli.main", "prefix", "capture", "--to", url, "--"]
            client = [*script, "--runs", str(runs), "--client", url, "{root}"]
            done = subprocess.run(
                [*words, *client],
                env={**os.environ, "RIGD_STATE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            )
        finally:
            behind.terminate()
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("{"))
    figures: dict[str, dict[str, float]] = json.loads(line)
    return figures


def show(figures: dict[str, dict[str, float]], *, as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    for group, values in figures.items():
        sys.stdout.write(f"{group}\n")
        for name, value in values.items():
            sys.stdout.write(f"  {name.ljust(20)} {value:9.2f} ms\n")


def measured(direct: str, through: str, runs: int) -> dict[str, dict[str, float]]:
    """Return all figures in groups, in milliseconds."""
    found = {}
    for name, length in PROMPTS.items():
        few = max(10, runs // (1 + length // 100_000))
        found[f"first byte, prompt of {name}, median of {few}"] = compared(direct, through, length, few)
    found[f"{PIECES} pieces to the last byte, median of {runs // 3}"] = compared(
        direct, through, 2_000, runs // 3, whole=True
    )
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found[f"first byte, {AT_ONCE} at once, median"] = {
            way: statistics.median(
                pool.map(lambda _, url=url: answered(connected(url), 2_000, whole=False), range(AT_ONCE * 4))
            )
            for way, url in {"direct": direct, "passed through": through}.items()
        }
    return {
        group: {**both, "added": both["passed through"] - both["direct"]} for group, both in found.items()
    }


def compared(direct: str, through: str, length: int, runs: int, *, whole: bool = False) -> dict[str, float]:
    """Return the medians of both ways; one connection each, kept open as clients keep them."""
    ways = {"direct": connected(direct), "passed through": connected(through)}
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs + 1):
        for way, connection in ways.items():
            took[way].append(answered(connection, length, whole=whole))
    return {way: statistics.median(values[1:]) for way, values in took.items()}


def connected(url: str) -> http.client.HTTPConnection:
    """Return a connection to an address."""
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)


def answered(connection: http.client.HTTPConnection, length: int, *, whole: bool) -> float:
    """Ask once and return the milliseconds to the answer's first byte, or to its last."""
    body = json.dumps({"messages": [{"role": "system", "content": "x" * length}]}).encode()
    began_s = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read(1)
    first_s = time.perf_counter()
    answer.read()
    return ((time.perf_counter() if whole else first_s) - began_s) * 1000


async def engine() -> None:
    """Answer with pieces at once, on a free port whose address is printed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0
            )
            await reader.readexactly(length)
            if not head.startswith(b"POST /v1/chat"):
                body = METRICS if b"/metrics" in head.split(b"\r\n")[0] else b"{}"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                continue
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            for _ in range(PIECES):
                writer.write(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


if __name__ == "__main__":
    main()
