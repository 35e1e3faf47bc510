"""A host over ssh: one connection, one channel of it for each helper, and back again after a reboot."""

import contextlib
import shlex
import threading
import time
from typing import Any

import paramiko
from fabric import Connection

from rigd.provision.connection import opening
from rigd.provision.connection.bootstrap import install_python
from rigd.provision.connection.client import BlobSource, Helper
from rigd.provision.connection.knocking import knock
from rigd.provision.connection.link import Tell
from rigd.provision.connection.start import Ended, NoPythonError, start_helper
from rigd.provision.connection.target import PYTHON, HostUnreachableError, Target

KEEPALIVE_S = 15
CHANNEL_DEADLINE_S = 30.0
KNOCK_DEADLINE_S = 4.0
REBOOT_POLL_S = 2.0
REFUSED_S = 60.0
"""How long a host may refuse us on its way down or up, where sshd ends in the middle of a login, in seconds."""
_CHUNK_BYTES = 262144
_LAST_WORDS_BYTES = 4096
_TICK_S = 1.0


class SshLink:
    """A `Link` to a host over ssh: one connection, and a helper on it for each user."""

    def __init__(self, target: Target, *, blobs: BlobSource, tell: Tell) -> None:
        """Send nothing yet."""
        self.target = target
        self._blobs = blobs
        self._tell = tell
        self._door: SshDoor | None = None
        self._helpers: dict[str, Helper] = {}
        self._closed = threading.Event()

    def helper(self, user: str | None = None) -> Helper:
        """Return the helper that runs as `user`, over the present connection or a new one."""
        door = self._open_door()
        name = user or door.login
        known = self._helpers.get(name)
        if known is None or not known.alive:
            known = self._start(door, name)
            self._helpers[name] = known
        return known

    def reset(self) -> None:
        """Drop the connection and every helper."""
        for helper in self._helpers.values():
            helper.close()
        self._helpers.clear()
        if self._door is not None:
            self._door.close()
            self._door = None

    def wait_until_back(self, *, old_boot_id: str | None, deadline_s: float) -> dict[str, Any]:
        """Connect again and again until a helper answers from another boot than the old one."""
        until_s = time.monotonic() + deadline_s
        said = "it never answered"
        refused_s: float | None = None
        while True:
            self.reset()
            try:
                hello = self.helper().hello
            except HostUnreachableError as error:
                now_s = time.monotonic()
                refused_s = None if error.temporary else now_s if refused_s is None else refused_s
                if refused_s is not None and now_s - refused_s >= REFUSED_S:
                    raise
                said = str(error)
            else:
                if hello["boot_id"] != old_boot_id:
                    return hello
                said = "it answers, but has not rebooted"
            if time.monotonic() > until_s:
                raise HostUnreachableError(
                    f"host '{self.target.name}' did not come back within {deadline_s:g} s: {said}",
                    hint="look at its console; the same command goes on where it was", temporary=True,
                )  # fmt: skip
            if self._closed.wait(REBOOT_POLL_S):
                raise HostUnreachableError(
                    f"host '{self.target.name}' is no longer waited for", temporary=True
                )

    def close(self) -> None:
        """End all helpers and the connection, from any thread; whoever waits for the host waits no longer."""
        self._closed.set()
        self.reset()

    def _open_door(self) -> "SshDoor":
        if self._door is None or not self._door.alive:
            self.reset()
            self._door = SshDoor(self.target)
        return self._door

    def _start(self, door: "SshDoor", user: str) -> Helper:
        try:
            return start_helper(door, self.target, user, blobs=self._blobs)
        except NoPythonError:
            if not self.target.bootstrap or self.target.python != PYTHON:
                raise
        install_python(door, self.target, tell=self._tell)
        return start_helper(door, self.target, user, blobs=self._blobs)


class SshDoor:
    """A `Door` over one ssh connection."""

    def __init__(self, target: Target) -> None:
        """Connect."""
        self._target = target
        self._connection = opening.configured(target)
        self.login: str = self._connection.user
        try:
            opening.open_it(self._connection, target)
        except BaseException:
            self.close()
            raise
        transport = self._connection.client.get_transport()
        if transport is None:
            raise HostUnreachableError(f"the connection to '{target.name}' ended at once", temporary=True)
        transport.set_keepalive(KEEPALIVE_S)
        self._transport = transport

    @property
    def alive(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return bool(self._transport.is_active())

    def open(self, argv: list[str]) -> "ChannelStream":
        """Start a process on the host."""
        try:
            channel = self._transport.open_session(timeout=CHANNEL_DEADLINE_S)
            channel.exec_command(shlex.join(argv))
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HostUnreachableError(
                f"the link to '{self._target.name}' is cut",
                hint="run the same command again: it goes on where it was", temporary=True,
            ) from error  # fmt: skip
        return ChannelStream(channel)

    def run(self, argv: list[str], *, stdin: bytes = b"", deadline_s: float) -> Ended:
        """Run a process on the host to its end."""
        stream = self.open(argv)
        watch = threading.Timer(deadline_s, stream.close)
        watch.daemon = True
        watch.start()
        try:
            with contextlib.suppress(OSError):
                stream.send(stdin)
            stream.end_input()
            output = b"".join(iter(stream.receive, b""))
            return Ended(rc=stream.exit_code(), stdout=output, stderr=stream.last_words().encode())
        finally:
            watch.cancel()
            stream.close()

    def knock(self) -> bool:
        """Return whether a new connection by the same way is greeted."""
        return knock(self._connection, deadline_s=min(KNOCK_DEADLINE_S, self._target.connect_timeout_s))

    def close(self) -> None:
        """Close the connection, and those of its gateways."""
        connection = self._connection
        while isinstance(connection, Connection):
            with contextlib.suppress(Exception):
                # Fabric's own close leaves a connection open whose login failed.
                connection.client.close()
            connection = connection.gateway


class ChannelStream:
    """The streams of a process on the host."""

    def __init__(self, channel: paramiko.Channel) -> None:
        """Serve a channel whose command was started."""
        self._channel = channel
        self._words = bytearray()
        channel.settimeout(_TICK_S)

    def receive(self) -> bytes:
        """Return the next bytes; none at the end. What comes on stderr is kept aside, lest it fill the window."""
        while True:
            self._listen()
            try:
                return self._channel.recv(_CHUNK_BYTES)
            except TimeoutError:
                if self._channel.closed:
                    return b""

    def send(self, data: bytes) -> None:
        """Send all of it."""
        at = 0
        while at < len(data):
            try:
                sent = self._channel.send(data[at : at + _CHUNK_BYTES])
            except TimeoutError:
                # The window is full: the other side is busy, or the link is cut, which the beats find out.
                continue
            if not sent:
                raise BrokenPipeError
            at += sent

    def end_input(self) -> None:
        """Let the process read the end of its input."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def exit_code(self) -> int:
        """Return the exit code of a process that has ended; -1 where none came."""
        return self._channel.recv_exit_status() if self._channel.status_event.wait(_TICK_S) else -1

    def close(self) -> None:
        """End the process's input and the channel."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()

    def last_words(self) -> str:
        """Return the end of what the process said on stderr."""
        self._listen()
        return self._words.decode(errors="replace")

    def _listen(self) -> None:
        while self._channel.recv_stderr_ready():
            self._words += self._channel.recv_stderr(_CHUNK_BYTES)
            del self._words[:-_LAST_WORDS_BYTES]
