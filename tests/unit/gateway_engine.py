"""A scripted engine: a plain TCP server that says what a test wants, when it wants, and notes what it hears."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

Script = Callable[["Call"], Awaitable[None]]


@dataclass(kw_only=True)
class Call:
    """One connection to the engine, once its request's head is read."""

    head: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """The other side went away."""

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
        }

    @property
    def line(self) -> str:
        return self.head.decode("latin-1").split("\r\n", 1)[0]

    async def body(self) -> bytes:
        return await self.reader.readexactly(int(self.headers.get("content-length", 0)))

    async def say(self, text: bytes) -> None:
        self.writer.write(text)
        await self.writer.drain()

    async def chunk(self, text: bytes) -> None:
        await self.say(b"%x\r\n%s\r\n" % (len(text), text))

    async def until_closed(self) -> None:
        while await self.reader.read(4096):
            pass
        self.closed.set()


@dataclass(kw_only=True)
class Engine:
    """The server, and the calls that it got."""

    url: str
    calls: list[Call]


@contextlib.asynccontextmanager
async def engine(script: Script) -> AsyncIterator[Engine]:
    """Run a scripted engine on a free port."""
    calls: list[Call] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            call = Call(head=await reader.readuntil(b"\r\n\r\n"), reader=reader, writer=writer)
            calls.append(call)
            await script(call)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Engine(url=f"http://127.0.0.1:{port}", calls=calls)
    finally:
        server.close()


def answer(status: str, body: bytes, *headers: bytes) -> bytes:
    """Return a whole HTTP answer."""
    head = [f"HTTP/1.1 {status}".encode(), b"content-length: %d" % len(body), *headers]
    return b"\r\n".join([*head, b"", body])
