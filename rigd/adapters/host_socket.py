"""Asks root's one-shot on the host's socket for one act: a JSON line each way.

systemd holds the socket and starts the one-shot for each connection; the socket's mode says who may ask. The daemon
so needs neither root nor any way to become it.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOCKET = Path("/run/rigd-host.sock")
ANSWER_LIMIT = 65536


class HostUnreachableError(Exception):
    """Nobody answers on the socket, or may be asked by this user."""


class AnswerBrokenOffError(HostUnreachableError):
    """The request was taken, and no answer came: whether it was done is not known."""


def reachable(path: Path = SOCKET) -> bool:
    """Return whether this user may ask."""
    return path.is_socket() and os.access(path, os.W_OK)


async def ask(
    request: Mapping[str, Any],
    *,
    path: Path = SOCKET,
    deadline_s: float,
    stop: asyncio.Event | None = None,
    limit: int = ANSWER_LIMIT,
) -> dict[str, Any]:
    """Return the answer. Raises `HostUnreachableError`, and its `AnswerBrokenOffError` once the request was sent.

    `stop`: when it is set, a second line asks for an early answer. `limit`: bytes of the longest answer.
    """
    sent = False
    try:
        async with asyncio.timeout(deadline_s):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=limit)
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                await writer.drain()
                sent = True
                asking = None if stop is None else asyncio.create_task(_ask_to_stop(writer, stop))
                try:
                    line = await reader.readline()
                finally:
                    if asking is not None:
                        asking.cancel()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        answer = json.loads(line)
    except TimeoutError as error:
        broken = AnswerBrokenOffError if sent else HostUnreachableError
        raise broken(f"{path} did not answer within {deadline_s:.0f} s") from error
    except (OSError, ValueError) as error:
        broken = AnswerBrokenOffError if sent else HostUnreachableError
        raise broken(f"{path}: {getattr(error, 'strerror', None) or 'it gave no answer'}") from error
    if not isinstance(answer, dict):
        raise AnswerBrokenOffError(f"{path}: it gave no answer")
    return answer


async def _ask_to_stop(writer: asyncio.StreamWriter, stop: asyncio.Event) -> None:
    await stop.wait()
    with contextlib.suppress(OSError):
        writer.write(b"stop\n")
        await writer.drain()
