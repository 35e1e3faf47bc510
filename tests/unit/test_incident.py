"""What an incident holds: parts within their limits, the trail around it, how it went on; folders on disk."""

import io
import os
import stat
import tarfile

import pytest

from rigd.adapters import kernel_tail, stacks
from rigd.adapters.incident_files import DAY_S, IncidentFiles
from rigd.supervise import incident

AT_S = 1000.0


def event(at_s, kind, **data):
    return {"id": int(at_s), "at_s": at_s, "kind": kind, "message": kind, "data": data}


# --- limits ---


def test_all_parts_together_stay_within_the_limit():
    assert sum(part.limit_bytes for part in incident.PARTS) <= incident.TOTAL_BYTES


@pytest.mark.parametrize("part", incident.PARTS, ids=lambda part: part.name)
def test_flooding_text_is_cut_at_a_line_within_its_parts_limit(part):
    text = "".join(f"line {number} of many, with ünicode\n" for number in range(150_000))

    content, cut = incident.bounded(part.name, text)

    assert cut
    assert len(content) <= part.limit_bytes
    lines = content.decode().splitlines()
    assert "cut here" in lines[0 if part.keep_end else -1]
    kept = lines[1:] if part.keep_end else lines[:-1]
    assert all(line.startswith("line ") and line.endswith("ünicode") for line in kept)
    assert ("line 149999 of many, with ünicode" in lines) == part.keep_end


def test_text_within_its_limit_stays_whole():
    assert incident.bounded("engine.log", "all of it\n") == (b"all of it\n", False)


def test_kernel_lines_that_explain_broken_engines_come_first():
    lines = ["eth0: link up", "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", "usb 1-1: new"]

    text = incident.kernel_text(lines).splitlines()

    assert text[1] == lines[1]
    assert text[-3:] == lines


# --- the trail and how it went on ---

STORY = [
    event(900, "launched"),
    event(950, "ready"),
    event(1000, "failure"),
    event(1001, "stopped", processes=4),
    event(1002, "backoff"),
    event(1003, "launched"),
    event(1030, "ready"),
    event(1100, "degraded"),
]


def test_trail_ends_when_the_engine_serves_again():
    trail = incident.trail_of(STORY, AT_S)

    assert [entry["at_s"] for entry in trail] == [900, 950, 1000, 1001, 1002, 1003, 1030]


def test_trail_ends_at_the_next_failure():
    trail = incident.trail_of([*STORY[:6], event(1010, "failure"), event(1020, "ready")], AT_S)

    assert trail[-1]["at_s"] == 1003


def test_trail_is_limited_on_both_sides():
    long = [event(number, "noise") for number in range(500, 1500)]

    assert len(incident.trail_of(long, AT_S)) == incident.BEFORE_ENTRIES + incident.AFTER_ENTRIES


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        ([], ("open", None)),
        ([event(1001, "stopped", processes=4)], ("open", None)),
        ([event(1030, "ready")], ("recovered", 30.0)),
        ([event(1030, "degraded")], ("serving, degraded", 30.0)),
        ([event(1030, "degraded"), event(1040, "ready")], ("recovered", 40.0)),
        ([event(1002, "gave-up")], ("given up", 2.0)),
        ([event(1002, "stopped", to="stopped")], ("stopped as asked", 2.0)),
        ([event(1002, "backoff"), event(1003, "launched")], ("open", None)),
    ],
)
def test_outcome_is_read_from_what_followed(after, outcome):
    assert incident.outcome_of([event(950, "ready"), event(1000, "failure"), *after], AT_S) == outcome


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ([event(1030, "ready")], True),
        ([event(1002, "gave-up")], True),
        ([event(1002, "stopped", to="stopped")], True),
        ([event(1030, "degraded")], False),
        ([event(1002, "backoff")], False),
        ([event(1000 + number, "noise") for number in range(incident.AFTER_ENTRIES)], True),
    ],
)
def test_trail_is_told_once_nothing_more_belongs_to_it(after, told):
    assert incident.told([event(900, "launched"), *after], AT_S) == told


def test_trail_is_read_back_and_a_broken_line_is_left_out():
    text = incident.trail_text(STORY) + '{"half": \n[]\n'

    assert incident.trail_from(text) == STORY


@pytest.mark.parametrize(
    ("outcome", "start", "words"),
    [
        ("given up", 3, ["fix it", "rigd start", "rigd logs --start 3", "--bundle"]),
        ("recovered", 3, ["fix it", "serves again", "rigd logs --start 3"]),
        ("open", 0, ["fix it", "rigd status --watch", "--bundle"]),
    ],
)
def test_next_steps_begin_with_the_remedy(outcome, start, words):
    steps = incident.next_steps({"id": 7, "start": start, "hint": "fix it", "outcome": outcome})

    assert steps[0] == "fix it"
    assert all(any(word in step for step in steps) for word in words)


# --- folders ---


@pytest.fixture
def files(tmp_path):
    return IncidentFiles(tmp_path)


def made(files, *, finish=True):
    number = files.begin()
    files.write(number, "incident.json", b"{}")
    if finish:
        files.finish(number)
    return number


def test_folders_and_files_are_private(files):
    number = made(files)

    folder = files.folder / f"{number:06d}"
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "incident.json").stat().st_mode) == 0o600


def test_numbers_go_up_and_are_never_given_twice(files):
    first, second = made(files), made(files, finish=False)
    assert files.numbers() == (first,)

    third = made(files)

    assert (first, second, third) == (1, 2, 3)
    files.prune(keep=1, keep_days=0, now_s=1e12)
    assert files.numbers() == (3,)
    assert made(files) == 4


def test_half_collected_incident_is_finished_if_it_says_what_happened(files):
    half = made(files, finish=False)
    (files.folder / f"{half:06d}.partial" / ".engine.log.new").write_bytes(b"half a file")
    empty = files.begin()

    assert files.recover() == (half,)

    assert files.numbers() == (half,)
    assert [entry.name for entry in files.folder.iterdir()] == [f"{half:06d}"]
    assert os.listdir(files.folder / f"{half:06d}") == ["incident.json"]  # noqa: PTH208  (names only)
    assert empty == half + 1


def test_old_and_surplus_incidents_go_and_the_newest_stays(files):
    numbers = [made(files) for _ in range(5)]
    now_s = 100 * DAY_S
    for number, age_days in zip(numbers, (90, 70, 50, 10, 99), strict=True):
        os.utime(files.folder / f"{number:06d}", (0, now_s - age_days * DAY_S))

    assert set(files.prune(keep=20, keep_days=60, now_s=now_s)) == {1, 2}
    assert set(files.prune(keep=2, keep_days=60, now_s=now_s)) == {3}
    assert files.numbers() == (5, 4)


def test_file_that_cannot_be_written_leaves_the_earlier_one(files, monkeypatch):
    number = made(files)
    real = os.fdopen

    def full(descriptor, *words):
        real(descriptor, *words).close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fdopen", full)
    with pytest.raises(OSError, match="No space"):
        files.write(number, "incident.json", b"new")

    assert files.read(number, "incident.json") == b"{}"
    assert [entry.name for entry in (files.folder / "000001").iterdir()] == ["incident.json"]


def test_bundle_holds_a_note_and_the_files_that_are_there(files):
    number = made(files)
    files.write(number, "engine.log", b"log")

    content = files.pack(number, incident.PART, "the note")

    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        inside = {entry.name: archive.extractfile(entry).read() for entry in archive}
    assert inside == {
        "incident-1/CONTENTS.txt": b"the note",
        "incident-1/incident.json": b"{}",
        "incident-1/engine.log": b"log",
    }
    assert files.pack(99, incident.PART, "") is None


def test_strange_names_in_the_folder_are_not_incidents(files):
    made(files)
    for name in ("lost+found", "1.partial.bak", "x"):
        (files.folder / name).mkdir()

    assert files.numbers() == (1,)
    assert files.recover() == ()


# --- the kernel's lines, stacks ---


def test_kernel_record_becomes_a_line_with_its_time():
    line = kernel_tail._line(b"3,17,1000000,-;NVRM: Xid 79\\x0a\x07bell\n SUBSYSTEM=pci\n")

    assert line.endswith("NVRM: Xid 79  bell")
    assert kernel_tail._line(b"no record") is None
    assert kernel_tail._line(b"") is None


def test_kernel_that_nobody_lets_us_read_is_said(monkeypatch):
    monkeypatch.setattr(kernel_tail, "DEVICE", "/nonexistent")
    monkeypatch.setenv("PATH", "")

    lines, problem = kernel_tail.last_lines(10)

    assert lines == []
    assert "cannot be read" in problem


async def test_stacks_without_py_spy_are_a_line(monkeypatch):
    monkeypatch.setattr(stacks, "program", lambda: None)

    assert await stacks.dump(1, deadline_s=1) == "py-spy is not installed"


async def test_stacks_come_by_the_deadline_or_not_at_all(monkeypatch, tmp_path):
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr(stacks, "program", lambda: str(slow))

    assert "did not answer within 0.2 s" in await stacks.dump(1, deadline_s=0.2)


async def test_flood_of_stacks_is_bounded(monkeypatch, tmp_path):
    endless = tmp_path / "py-spy"
    endless.write_text("#!/bin/sh\nexec yes stack\n")
    endless.chmod(0o700)
    monkeypatch.setattr(stacks, "program", lambda: str(endless))

    assert len(await stacks.dump(1, deadline_s=5)) <= stacks.OUTPUT_BYTES
