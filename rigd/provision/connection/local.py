"""The machine that rigd runs on: the same helper, as a thread of this process, or as another user through sudo."""

import contextlib
import os
import pwd
import subprocess
import threading
from typing import Any

from rigd.errors import UsageError
from rigd.provision.connection.client import BlobSource, Helper
from rigd.provision.connection.link import Tell
from rigd.provision.connection.start import Ended, start_helper
from rigd.provision.connection.target import HostUnreachableError, Target
from rigd.provision.target import frames
from rigd.provision.target import helper as served

_READY_LIMIT_BYTES = 4096
_CHUNK_BYTES = 262144
_LAST_WORDS_BYTES = 4096
_END_DEADLINE_S = 8.0


class LocalLink:
    """A `Link` to this machine."""

    def __init__(self, target: Target, *, blobs: BlobSource, tell: Tell) -> None:
        """Start nothing yet."""
        self.target = target
        self._blobs = blobs
        self._tell = tell
        self._door = LocalDoor()
        self._helpers: dict[str, Helper] = {}

    def helper(self, user: str | None = None) -> Helper:
        """Return the helper that runs as `user`."""
        name = user or self._door.login
        known = self._helpers.get(name)
        if known is None or not known.alive:
            known = (
                start_in_process(host=self.target.name, blobs=self._blobs)
                if name == self._door.login
                else start_helper(self._door, self.target, name, blobs=self._blobs)
            )
            self._helpers[name] = known
        return known

    def reset(self) -> None:
        """End the helpers; the next request starts them anew."""
        self.close()

    def wait_until_back(self, *, old_boot_id: str | None, deadline_s: float) -> dict[str, Any]:  # noqa: ARG002  (nothing to wait for)
        """Return the hello at once: whoever asks runs on the machine itself."""
        hello = self.helper().hello
        if old_boot_id is not None and hello["boot_id"] == old_boot_id:
            raise UsageError(
                "this machine cannot wait for its own reboot", hint="rigd provision resume, after it"
            )
        return hello

    def close(self) -> None:
        """End all helpers."""
        for helper in self._helpers.values():
            helper.close()
        self._helpers.clear()


class LocalDoor:
    """A `Door` to this machine."""

    def __init__(self) -> None:
        """Find out who we are."""
        uid = os.geteuid()
        try:
            self.login = pwd.getpwuid(uid).pw_name
        except KeyError:
            self.login = str(uid)

    def open(self, argv: list[str]) -> "ProcessStream":
        """Start a process in a session of its own, so that a ^C here is not its."""
        return ProcessStream(argv)

    def run(self, argv: list[str], *, stdin: bytes = b"", deadline_s: float) -> Ended:
        """Run a process to its end."""
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                capture_output=True,
                timeout=deadline_s,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise HostUnreachableError(f"'{argv[0]}' did not end within {deadline_s:g} s") from error
        except OSError as error:
            raise HostUnreachableError(f"cannot run '{argv[0]}'") from error
        return Ended(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def knock(self) -> None:
        """Tell nothing: from here nobody sees whether others come in."""


class ProcessStream:
    """The streams of a child process."""

    def __init__(self, argv: list[str]) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._reading = threading.Lock()
        self._words = bytearray()
        self._listening = threading.Thread(target=self._listen, name=f"stderr of {argv[0]}", daemon=True)
        self._listening.start()

    def receive(self) -> bytes:
        """Return the next bytes; none at the end."""
        with self._reading:
            if self._process.stdout is None or self._process.stdout.closed:
                return b""
            if chunk := os.read(self._process.stdout.fileno(), _CHUNK_BYTES):
                return chunk
            self._process.stdout.close()
            return b""

    def send(self, data: bytes) -> None:
        """Send all of it."""
        if self._process.stdin is None or self._process.stdin.closed:
            raise BrokenPipeError
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process's input, and take its end off its own thread: it ends what it runs first."""
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        threading.Thread(target=self._bury, name="end of a helper", daemon=True).start()

    def last_words(self) -> str:
        """Return the end of what it said on stderr."""
        self._listening.join(0.5)
        return self._words.decode(errors="replace")

    def _listen(self) -> None:
        if self._process.stderr is not None:
            with self._process.stderr as stderr:
                while chunk := os.read(stderr.fileno(), _CHUNK_BYTES):
                    self._words += chunk
                    del self._words[:-_LAST_WORDS_BYTES]

    def _bury(self) -> None:
        try:
            self._process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(PermissionError):
                self._process.kill()
        with self._reading:
            if self._process.stdout is not None:
                self._process.stdout.close()


class PipeStream:
    """Two pipes to a thread of this process."""

    def __init__(self, source: int, sink: int) -> None:
        """Read from one descriptor and write to the other."""
        self._source = source
        self._sink = sink
        self._closing = threading.Lock()
        self._closed = False

    def receive(self) -> bytes:
        """Return the next bytes; none at the end, which closes this side of it."""
        if self._source < 0:
            return b""
        chunk = os.read(self._source, _CHUNK_BYTES)
        if not chunk:
            os.close(self._source)
            self._source = -1
        return chunk

    def send(self, data: bytes) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            if self._closed:
                raise BrokenPipeError
            left = left[os.write(self._sink, left) :]

    def close(self) -> None:
        """End the other side's input."""
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
        far.close()

    near = PipeStream(events_out, requests_in)
    threading.Thread(target=serve, name=f"helper of {host}", daemon=True).start()
    reader = frames.Reader(near.receive)
    reader.skip_past(frames.READY, limit_bytes=_READY_LIMIT_BYTES)
    return Helper(near, reader, host=host, blobs=blobs, beats=False)
