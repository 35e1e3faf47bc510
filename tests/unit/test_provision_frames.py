"""Frames: what one end packs the other reads, however it is cut; what is no frame is refused."""

import json
from collections.abc import Callable

import pytest

from rigd.provision.target import frames


def chunks(data: bytes, size: int) -> Callable[[], bytes]:
    """Give a stream in pieces of `size` bytes, then its end."""
    parts = iter([data[at : at + size] for at in range(0, len(data), size)])
    return lambda: next(parts, b"")


@pytest.mark.parametrize("size", [1, 3, 7, 4096])
def test_frames_survive_any_cut(size):
    data = frames.pack({"request": "hello", "id": 1}) + frames.pack({"request": "blob"}, b"\0\xff" * 5000)
    reader = frames.Reader(chunks(data, size))

    first, second, end = reader.read(), reader.read(), reader.read()

    assert first == ({"request": "hello", "id": 1}, b"")
    assert second == ({"request": "blob", "bytes": 10_000}, b"\0\xff" * 5000)
    assert end is None


def test_what_came_before_the_first_words_is_dropped_and_what_follows_kept():
    noise = b"Welcome to Ubuntu\n\x1b[0mlast login\n"
    reader = frames.Reader(chunks(noise + frames.READY + frames.pack({"event": "hello"}), 5))

    dropped = reader.skip_past(frames.READY, limit_bytes=1000)

    assert dropped == noise
    assert reader.read() == ({"event": "hello"}, b"")


def test_words_that_never_come_are_not_awaited_for_ever():
    reader = frames.Reader(lambda: b"noise" * 100)

    assert reader.skip_past(frames.READY, limit_bytes=1000) is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"password\n", id="text"),
        pytest.param(b"\x00\x00\x00\x03abc", id="no-json"),
        pytest.param(b"\x00\x00\x00\x02[]", id="no-object"),
        pytest.param(frames.pack({"a": 1})[:-1], id="cut-in-the-header"),
        pytest.param(frames.pack({"a": 1}, b"12345")[:-2], id="cut-in-the-payload"),
        pytest.param(b"\x00\x00", id="cut-in-the-length"),
        pytest.param(b"\x00\x00\x00\x0c" + json.dumps({"bytes": -1}).encode(), id="negative-payload"),
    ],
)
def test_what_is_no_frame_is_refused(data):
    reader = frames.Reader(chunks(data, 100))

    with pytest.raises(frames.FrameError):
        reader.read()
