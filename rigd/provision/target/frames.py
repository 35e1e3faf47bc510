"""Frames between the controller and the helper: four bytes of length, a JSON header, and bytes if the header says so.

00 00 00 1e {"request":"hello","id":1,...}     "bytes": n in the header: n bytes follow it
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

PROTOCOL = 1
"""Raised when a header changes its meaning. Both ends come from one package, so they differ only by mistake."""
READY = b"RIGD-HELPER READY\n"
"""The helper's first words: whatever a login shell printed before them is skipped."""
SYNC = b"RIGD-HELPER GO\n"
"""The controller's first words: whatever stood on the helper's input before them (a password that sudo did
not ask for) is thrown away."""
HEADER_LIMIT_BYTES = 64 << 20
PAYLOAD_LIMIT_BYTES = 1 << 30

Header = Mapping[str, Any]
Receive = Callable[[], bytes]
"""Gives the next bytes as they come; none at the end."""


class FrameError(Exception):
    """The stream holds something that is no frame, or ends inside one."""


def pack(header: Header, payload: bytes = b"") -> bytes:
    """Return a frame as bytes."""
    fields = {**header, "bytes": len(payload)} if payload else header
    text = json.dumps(fields, separators=(",", ":"), default=str).encode()
    return struct.pack(">I", len(text)) + text + payload


class Reader:
    """Reads frames from a stream of chunks."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._held = bytearray()

    def skip_past(self, words: bytes, *, limit_bytes: int) -> bytes | None:
        """Drop everything up to and with `words`; return what was dropped, None if they never came."""
        while (at := self._held.find(words)) < 0:
            chunk = self._receive()
            if not chunk or len(self._held) > limit_bytes:
                return None
            self._held += chunk
        dropped = bytes(self._held[:at])
        del self._held[: at + len(words)]
        return dropped

    def held(self) -> bytes:
        """Return what came and was not read yet; for messages."""
        return bytes(self._held)

    def read(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the next header and payload; None at the end of the stream."""
        if not self._fill(4):
            return None
        (size,) = struct.unpack(">I", self._take(4))
        if size > HEADER_LIMIT_BYTES:
            raise FrameError("what came is no frame")
        header = self._json(self._exactly(size))
        wanted = header.get("bytes", 0)
        if not 0 <= wanted <= PAYLOAD_LIMIT_BYTES:
            raise FrameError("what came is no frame")
        return header, self._exactly(wanted)

    @staticmethod
    def _json(text: bytes) -> dict[str, Any]:
        try:
            header = json.loads(text)
        except ValueError as error:
            raise FrameError("what came is no frame") from error
        if not isinstance(header, dict):
            raise FrameError("what came is no frame")
        return header

    def _fill(self, size: int) -> bool:
        """Have `size` bytes in hand; False if the stream ended cleanly before the first of them."""
        while len(self._held) < size:
            chunk = self._receive()
            if not chunk:
                if self._held:
                    raise FrameError("the stream ended inside a frame")
                return False
            self._held += chunk
        return True

    def _exactly(self, size: int) -> bytes:
        if size and not self._fill(size):
            raise FrameError("the stream ended inside a frame")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken
