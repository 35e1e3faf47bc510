"""A slow link: a TCP relay that holds back every byte for half of a round trip each way, and can be cut."""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator

CHUNK_BYTES = 65536


class SlowLink:
    """Relays connections of one port to another; `cut()` ends them as a dead router does not: with a reset."""

    def __init__(self, port: int, *, round_trip_s: float) -> None:
        self._to = ("127.0.0.1", port)
        self._delay_s = round_trip_s / 2
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._frozen = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections at once, and take no new ones."""
        with contextlib.suppress(OSError):
            # Closing alone does not wake the thread that waits for the next one.
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Pass nothing on any more, and say so to nobody: a cable pulled out."""
        self._frozen.set()

    def close(self) -> None:
        """End all."""
        self.cut()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(self._to)
                except OSError:
                    near.close()  # Nobody listens there now.
                    continue
                self._sockets += [near, far]
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._relay(near, far)
                self._relay(far, near)

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        held: queue.Queue[tuple[float, bytes]] = queue.Queue()

        def take() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(CHUNK_BYTES)
                except OSError:
                    data = b""
                held.put((time.monotonic() + self._delay_s, data))

        def give() -> None:
            while True:
                due_s, data = held.get()
                time.sleep(max(0.0, due_s - time.monotonic()))
                if self._frozen.is_set():
                    continue
                with contextlib.suppress(OSError):
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)

        for work in (take, give):
            threading.Thread(target=work, daemon=True).start()


@contextlib.contextmanager
def slow_link(port: int, *, round_trip_s: float) -> Iterator[SlowLink]:
    """Give a slow link to a port of this machine."""
    link = SlowLink(port, round_trip_s=round_trip_s)
    try:
        yield link
    finally:
        link.close()
