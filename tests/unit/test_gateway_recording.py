"""What is kept of a client's requests, where, and who may read it."""

import gzip
import json
import resource
import stat

import pytest

from rigd.gateway import recordings
from rigd.gateway.recorder import MOST_BYTES, Recorder
from rigd.gateway.recordings import RecordingError, forget, new_recording, write_prefix
from rigd.gateway.tap import End, Exchange

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def exchange(path="/v1/chat/completions", method="POST", encoding=""):
    return Exchange(number=1, method=method, path=path, encoding=encoding, begun_s=0.0)


async def pass_by(recorder, what, body, told=(), status=200):
    watcher = recorder.watch(what)
    for chunk in (body[:7], body[7:]):
        watcher.asked(chunk)
    watcher.asked_all()
    watcher.answered(status)
    for chunk in told:
        watcher.told(chunk)
    watcher.ended(End.DONE)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_bodies_are_kept_byte_for_byte_and_private(state_dirs):
    folder = new_recording("opencode", now_s=0)
    recorder = Recorder(folder)
    raw = b'{"odd":   "spacing", "messages": []}'

    await pass_by(recorder, exchange(), raw)
    await pass_by(recorder, exchange("/v1/messages"), json.dumps(BODY).encode())
    await recorder.finished()

    assert [(one.path.name, one.api) for one in recorder.kept] == [
        ("0001-chat.json", "chat"),
        ("0002-messages.json", "messages"),
    ]
    assert recorder.kept[0].path.read_bytes() == raw
    assert {mode(one.path) for one in recorder.kept} == {0o600}
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)


async def test_figures_come_from_the_answer_whose_text_is_not_kept(state_dirs):
    recorder = Recorder(new_recording("x", now_s=0))
    told = [
        b'data: {"choices":[{"delta":{"content":"a secret answer"}}]}\n\n',
        b'data: {"usage":{"prompt_tokens": 4023,"prompt_tokens_details":{"cached_tokens":3840}}}\n\ndata: [DONE]\n\n',
    ]

    await pass_by(recorder, exchange(), json.dumps(BODY).encode(), told)
    await recorder.finished()

    figures = recorder.kept[0].figures
    assert (figures.status, figures.prompt_tokens, figures.cached_tokens) == (200, 4023, 3840)
    assert figures.ttft_s > 0
    assert "secret answer" not in "".join(path.read_text() for path in recorder.folder.iterdir())


@pytest.mark.parametrize(
    ("told", "figures"),
    [
        (b'{"usage":{"input_tokens":183,"cache_read_input_tokens":3840,"output_tokens":4}}', (4023, 3840)),
        (b'{"usage":{"input_tokens":4023,"input_tokens_details":{"cached_tokens":3840}}}', (4023, 3840)),
        (b'{"usage":{"prompt_tokens":10,"total_tokens":14}}', (10, None)),
        (b"data: [DONE]", (None, None)),
    ],
    ids=["messages", "responses", "chat without details", "none"],
)
async def test_figures_are_read_in_every_apis_form(told, figures, state_dirs):
    recorder = Recorder(new_recording("x", now_s=0))

    await pass_by(recorder, exchange(), json.dumps(BODY).encode(), [told])
    await recorder.finished()

    kept = recorder.kept[0].figures
    assert (kept.prompt_tokens, kept.cached_tokens) == figures


async def test_other_requests_are_counted_only(state_dirs):
    recorder = Recorder(new_recording("x", now_s=0))

    await pass_by(recorder, exchange("/v1/models", "GET"), b"")
    await pass_by(recorder, exchange("/v1/embeddings"), b"{}")
    await recorder.finished()

    assert (recorder.kept, recorder.others) == ([], 2)


async def test_packed_bodies_are_unpacked_and_others_left_out_with_the_reason(state_dirs):
    recorder = Recorder(new_recording("x", now_s=0))

    await pass_by(recorder, exchange(encoding="gzip"), gzip.compress(json.dumps(BODY).encode()))
    await pass_by(recorder, exchange(encoding="zstd"), b"(packed)")
    await pass_by(recorder, exchange(), b"this is not JSON")
    await pass_by(recorder, exchange(), b"[1, 2, 3, 4, 5]")
    await pass_by(recorder, exchange(encoding="gzip"), gzip.compress(b" " * (MOST_BYTES + 10)))
    await pass_by(recorder, exchange(), b" " * (MOST_BYTES + 1))
    await recorder.finished()

    assert [one.recorded.body for one in recorder.kept] == [BODY]
    assert recorder.left_out == {"the body is no JSON object": 4, "the body is larger than 16 MiB": 1}


async def test_disk_that_is_full_is_told_and_nothing_else_happens(state_dirs):
    recorder = Recorder(new_recording("x", now_s=0))
    recorder.folder.rmdir()

    await pass_by(recorder, exchange(), json.dumps(BODY).encode())
    await recorder.finished()

    assert list(recorder.left_out) == ["the body cannot be written: No such file or directory"]


async def test_body_that_the_disk_has_no_room_for_leaves_nothing_and_the_next_one_is_kept(state_dirs):
    recorder = Recorder(new_recording("x", now_s=0))
    large = {"messages": [{"role": "user", "content": "x" * 200_000}]}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(
        resource.RLIMIT_FSIZE, (100_000, hard)
    )  # What is written beyond it fails in the middle.
    try:
        await pass_by(recorder, exchange(), json.dumps(large).encode())
        await pass_by(recorder, exchange(), json.dumps(BODY).encode())
        await recorder.finished()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert recorder.left_out == {"the body cannot be written: File too large": 1}
    assert [one.recorded.body for one in recorder.kept] == [BODY]
    assert [path.name for path in recorder.folder.iterdir()] == ["0001-chat.json"]


async def test_recording_that_is_full_says_so(state_dirs, monkeypatch):
    monkeypatch.setattr("rigd.gateway.recorder.MOST_TOTAL_BYTES", 100)
    recorder = Recorder(new_recording("x", now_s=0))

    for _ in range(3):
        await pass_by(recorder, exchange(), json.dumps(BODY).encode())
    await recorder.finished()

    assert (len(recorder.kept), recorder.left_out) == (1, {"the recording is full": 2})


def test_forget_deletes_everything_and_only_that(state_dirs):
    other = state_dirs.state / "store.db"
    other.write_text("kept")
    for number in range(2):
        (new_recording("x", now_s=number * 100) / "0001-chat.json").write_text("{}")

    gone = forget()

    assert (gone.recordings, gone.files) == (2, 2)
    assert list(state_dirs.state.iterdir()) == [other]
    assert forget().files == 0


def test_only_so_many_recordings_are_kept(state_dirs):
    folders = [new_recording("x", now_s=number) for number in range(recordings.KEPT + 3)]

    left = sorted(recordings.base().iterdir())
    assert len(left) == recordings.KEPT
    assert folders[-1] in left


def test_only_so_many_bytes_are_kept_the_youngest_of_them(state_dirs, monkeypatch):
    monkeypatch.setattr(recordings, "KEPT_BYTES", 250)
    for number in range(4):
        (new_recording("x", now_s=number) / "0001-chat.json").write_bytes(b"x" * 100)

    last = new_recording("x", now_s=10)

    kept = sorted(recordings.base().iterdir())
    assert len(kept) == 3
    assert kept[-1] == last


def test_state_folder_that_cannot_be_written_is_told(state_dirs, monkeypatch):
    (state_dirs.state / "prefix").write_text("a file where the folder should be")

    with pytest.raises(RecordingError, match="cannot make a folder for recordings"):
        new_recording("x", now_s=0)


def test_prefix_that_is_there_is_not_overwritten_unless_asked(tmp_path):
    path = tmp_path / "much/new/agents.json"

    assert write_prefix(path, {"a": 1}, replace=False) == "written"
    assert write_prefix(path, {"a": 1}, replace=False) == "unchanged"
    with pytest.raises(RecordingError, match="another prefix is there"):
        write_prefix(path, {"a": 2}, replace=False)
    assert json.loads(path.read_text()) == {"a": 1}
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o600, 0o700, 0o700)

    halves = {"text": json.loads('"\\ud83d cut"')}
    write_prefix(path.with_name("halves.json"), halves, replace=False)
    assert json.loads(path.with_name("halves.json").read_text()) == halves
    path.with_name("halves.json").unlink()

    path.chmod(0o640)
    assert write_prefix(path, {"a": 2}, replace=True) == "replaced"
    assert (json.loads(path.read_text()), mode(path)) == ({"a": 2}, 0o640)
    assert [entry.name for entry in path.parent.iterdir()] == ["agents.json"]
