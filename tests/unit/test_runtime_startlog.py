"""The folder of a start: private, bounded, readable whatever the engine wrote into its log."""

import os
import stat

import pytest

from rigd.runtime import startlog


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path):
    made = startlog.folder_of(tmp_path / "state", 123)
    startlog.prepare(made)
    return made


def test_folder_and_log_are_private(tmp_path, folder):
    assert folder == tmp_path / "state/starts/000123"
    assert [mode(folder), mode(folder.parent), mode(folder / "engine.log")] == [0o700, 0o700, 0o600]


def test_a_log_over_its_limit_is_cut_while_it_is_written(folder):
    log = folder / "engine.log"
    writer = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.write(writer, b"old line\n" * 200)

    assert startlog.limit(log, 1000)

    os.write(writer, b"new line\n")
    os.close(writer)
    assert log.read_text() == "new line\n"
    assert (folder / "engine.log.1").stat().st_size == 1000
    assert mode(folder / "engine.log.1") == 0o600
    assert startlog.tail(folder, 24) == "old line\nnew line\n"


def test_a_log_within_its_limit_is_left_alone(folder):
    (folder / "engine.log").write_bytes(b"x" * 1000)

    assert not startlog.limit(folder / "engine.log", 1000)


def test_the_newest_starts_are_kept(tmp_path):
    for number in (1, 2, 10, 11):
        startlog.prepare(startlog.folder_of(tmp_path, number))

    assert startlog.prune(tmp_path, 2) == (1, 2)
    assert startlog.starts(tmp_path) == (11, 10)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(b"plain\n", "plain\n", id="plain"),
        pytest.param(b"\xff\xfe broken \xc3(\n", "\ufffd\ufffd broken \ufffd(\n", id="not-utf8"),
        pytest.param(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\n", "red x\n", id="terminal-sequences"),
        pytest.param(b"10%\r20%\r\n", "10%\n20%\n", id="progress-bar"),
        pytest.param(b"nul \x00 bell \x07\n", "nul \ufffd bell \ufffd\n", id="control-characters"),
    ],
)
def test_output_is_made_readable(folder, written, read):
    (folder / "engine.log").write_bytes(written)

    assert startlog.tail(folder, 1000) == read


def test_a_tail_begins_with_a_whole_line(folder):
    (folder / "engine.log").write_bytes(b"first line\nsecond line\n")

    assert startlog.tail(folder, 15) == "second line\n"


def test_a_log_that_is_not_there_reads_as_empty(tmp_path):
    assert startlog.tail(tmp_path / "nowhere", 1000) == ""


def test_following_ends_at_its_deadline_and_splits_endless_lines(folder):
    (folder / "engine.log").write_bytes(b"first\n" + b"y" * (startlog.MAX_LINE + 1))

    lines = list(startlog.follow(folder, deadline_s=0.0, from_end_bytes=1_000_000))

    assert [len(line) for line in lines] == [5, startlog.MAX_LINE + 1]


@pytest.mark.parametrize(
    ("text", "code"), [("0\n", 0), ("137\n", 137), ("1", None), ("", None), ("?\n", None)], ids=repr
)
def test_an_exit_code_counts_only_when_it_is_written_whole(folder, text, code):
    (folder / "exit").write_text(text)

    assert startlog.exit_code(folder) == code
