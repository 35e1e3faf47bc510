"""A tap that keeps request bodies on disk, and of the answers only their figures."""

import asyncio
import gzip
import io
import json
import re
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.gateway.recordings import write_new
from rigd.gateway.tap import End, Exchange
from rigd.prefix.sources import Recorded

MOST_REQUESTS = 2000
MOST_BYTES = 16 << 20
"""Largest body that is kept; larger ones go on, and are counted."""
MOST_TOTAL_BYTES = 512 << 20
USAGE_TAIL = 4096
"""Bytes at an answer's end in which its usage is looked for."""

APIS: Mapping[str, str] = {
    "/chat/completions": "chat",
    "/completions": "completion",
    "/responses": "responses",
    "/messages": "messages",
}
"""Ends of the paths whose bodies hold prompts, and what the files are named after."""

_FIGURE = re.compile(
    rb'"(prompt_tokens|cached_tokens|input_tokens|cache_read_input_tokens|cache_creation_input_tokens)"\s*:\s*(\d+)'
)


@dataclass(kw_only=True)
class Figures:
    """What became of a recorded request."""

    status: int | None = None
    ttft_s: float | None = None
    """Until the first piece of the answer."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """The engine's own figures, where the client asked for them."""
    end: End | None = None


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One recorded request."""

    recorded: Recorded
    path: Path
    api: str
    figures: Figures


class Recorder:
    """Keeps what passes by, within limits; the disk's part is done by a thread, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: list[Kept] = []
        self.left_out: dict[str, int] = {}
        """Requests that were not kept, by reason."""
        self.others = 0
        """Requests that hold no prompt, such as lists of models."""
        self.statuses: dict[int, int] = {}
        """Answers by status."""
        self._total = 0
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recorder")

    def watch(self, exchange: Exchange) -> "_Recording":
        """Return who watches this exchange."""
        api = next((api for end, api in APIS.items() if exchange.path.endswith(end)), None)
        if exchange.method != "POST":
            api = None
        if api is None:
            self.others += 1
        return _Recording(self, exchange, api)

    def keep(self, exchange: Exchange, api: str, raw: bytes, figures: Figures) -> None:
        """Write a body soon."""
        self._writer.submit(self._keep, exchange.encoding, api, raw, figures)

    def leave_out(self, reason: str) -> None:
        """Count a request that is not kept."""
        self._writer.submit(self._leave_out, reason)

    async def finished(self) -> None:
        """Wait until everything is on disk; nothing is kept after it."""
        await asyncio.to_thread(self._writer.shutdown)

    def _leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def _keep(self, encoding: str, api: str, raw: bytes, figures: Figures) -> None:
        path = self.folder / f"{len(self.kept) + 1:04d}-{api}.json"
        try:
            content = _decoded(raw, encoding)
            body = _object(content)
            if len(self.kept) >= MOST_REQUESTS or self._total + len(content) > MOST_TOTAL_BYTES:
                self._leave_out("the recording is full")
                return
            write_new(path, content)
        except (ValueError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError):
            self._leave_out("the body is no JSON object")
        except OSError as error:
            self._leave_out(f"the body cannot be written: {error.strerror}")
        else:
            self._total += len(content)
            recorded = Recorded(name=path.name, body=body)
            self.kept.append(Kept(recorded=recorded, path=path, api=api, figures=figures))


class _Recording:
    """Watches one exchange."""

    def __init__(self, recorder: Recorder, exchange: Exchange, api: str | None) -> None:
        self._recorder = recorder
        self._exchange = exchange
        self._api = api
        self._body = bytearray()
        self._figures = Figures()
        self._tail = b""

    def asked(self, chunk: bytes) -> None:
        if self._api is None:
            return
        self._body += chunk
        if len(self._body) > MOST_BYTES:
            self._api = None
            self._body.clear()
            self._recorder.leave_out(f"the body is larger than {MOST_BYTES >> 20} MiB")

    def asked_all(self) -> None:
        if self._api is not None:
            self._recorder.keep(self._exchange, self._api, bytes(self._body), self._figures)
        self._body.clear()

    def answered(self, status: int) -> None:
        statuses = self._recorder.statuses
        statuses[status] = statuses.get(status, 0) + 1
        self._figures.status = status

    def told(self, chunk: bytes) -> None:
        if self._api is None:
            return
        if self._figures.ttft_s is None:
            self._figures.ttft_s = time.monotonic() - self._exchange.begun_s
        self._tail = (self._tail + chunk)[-USAGE_TAIL:]

    def ended(self, end: End) -> None:
        self._figures.end = end
        self._figures.prompt_tokens, self._figures.cached_tokens = _usage(self._tail)


def _object(content: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises `ValueError` for anything else."""
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004  (what came in is wrong, not who calls)
    return value


def _decoded(raw: bytes, encoding: str) -> bytes:
    """Return a body as it was before the client packed it. Raises `ValueError` for a packing unknown here."""
    match encoding:
        case "" | "identity":
            return raw
        case "gzip" | "x-gzip":
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
                return _bounded(file.read(MOST_BYTES + 1))
        case "deflate":
            return _bounded(zlib.decompressobj().decompress(raw, MOST_BYTES + 1))
        case _:
            raise ValueError(f"packed with {encoding}")


def _bounded(content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise ValueError("too large")
    return content


def _usage(tail: bytes) -> tuple[int | None, int | None]:
    """Return prompt tokens and cached ones, as an answer's last figures say.

    Anthropic's `input_tokens` leaves out what was cached; OpenAI's responses count it in, and say `cached_tokens`.
    """
    last = {name.decode(): int(value) for name, value in _FIGURE.findall(tail)}
    read = last.get("cache_read_input_tokens")
    cached = last.get("cached_tokens", read)
    asked = last.get("prompt_tokens", last.get("input_tokens"))
    if asked is not None and "prompt_tokens" not in last:
        asked += (read or 0) + last.get("cache_creation_input_tokens", 0)
    return asked, cached
