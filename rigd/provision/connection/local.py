"""The machine that rigd runs on: the same helper, as a thread of this process over two pipes."""

import contextlib
import os
import threading

from rigd.provision.connection.client import BlobSource, Helper
from rigd.provision.target import frames
from rigd.provision.target import helper as served

_READY_LIMIT_BYTES = 4096


class PipeStream:
    """The two pipes to the helper's thread."""

    def __init__(self, source: int, sink: int) -> None:
        """Read from one descriptor and write to the other; both are closed with the stream."""
        self._source = source
        self._sink = sink
        self._closing = threading.Lock()
        self._closed = False

    def receive(self) -> bytes:
        """Return the next bytes; none at the end."""
        return os.read(self._source, 262144)

    def send(self, data: bytes) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._sink, left) :]

    def close(self) -> None:
        """End the helper's input; the reading end goes with the helper's answer to that."""
        with self._closing:
            if not self._closed:
                self._closed = True
                os.close(self._sink)

    def last_words(self) -> str:
        """Return nothing: what this process says is on its own stderr."""
        return ""


def start_in_process(*, host: str, blobs: BlobSource) -> Helper:
    """Start a helper in this process, with this process's rights."""
    requests_out, requests_in = os.pipe()
    events_out, events_in = os.pipe()
    far = PipeStream(requests_out, events_in)

    def serve() -> None:
        served.Helper(far.receive, far.send).serve()
        # The controller reads the end of the stream from this.
        with contextlib.suppress(OSError):
            far.close()
        os.close(requests_out)

    near = PipeStream(events_out, requests_in)
    threading.Thread(target=serve, name=f"helper of {host}", daemon=True).start()
    reader = frames.Reader(near.receive)
    reader.skip_past(frames.READY, limit_bytes=_READY_LIMIT_BYTES)
    return Helper(near, reader, host=host, blobs=blobs, beats=False)
