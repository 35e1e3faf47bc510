"""The kernel's log: records, escapes, floods, overwritten ones, and going on where an earlier reader ended."""

import asyncio
import errno
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from rigd.adapters.kernel_log import BATCH_RECORDS, FROM_BOOT, FROM_NOW, KEEP_LINES, KernelLog, drain, matters

XID = "NVRM: Xid (PCI:0000:0a:00): 31, pid=7, name=VLLM::EngineCor, MMU Fault"


def reader(*items):
    """Return a `read` that gives the items in turn, raises those that are errors, and then would block."""
    left = list(items)

    def read() -> bytes:
        if not left:
            raise BlockingIOError
        item = left.pop(0)
        if isinstance(item, OSError):
            raise item
        return item

    return read


def record(number: int, text: str) -> bytes:
    return f"4,{number},{number * 1000},-;{text}\n SUBSYSTEM=pci\n".encode()


def test_records_are_read_with_number_time_and_text():
    found, more = drain(reader(record(7, XID), record(8, "usb 1-1: new device")), 6)

    assert [(one.position, one.text) for one in found] == [("kmsg:7", XID), ("kmsg:8", "usb 1-1: new device")]
    assert not more


def test_records_up_to_the_known_one_are_passed_over():
    found, _ = drain(reader(record(7, "old"), record(8, "new")), 7)

    assert [one.text for one in found] == ["new"]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"garbage", id="no-header"),
        pytest.param(b"4,x,1,-;text\n", id="number-is-a-word"),
        pytest.param(b"4,9;text\n", id="fields-missing"),
        pytest.param(b"\xff\xfe\n", id="not-text"),
        pytest.param(b";\n", id="empty"),
    ],
)
def test_malformed_records_are_left_out(data):
    found, _ = drain(reader(data, record(8, XID)), 0)

    assert [one.text for one in found] == [XID]


def test_escaped_bytes_are_themselves_again():
    found, _ = drain(reader(b"4,1,1,c;NVRM: one\\x0aNVRM: two \\xff \\x5cn\n"), 0)

    assert found[0].text == "NVRM: one\nNVRM: two \ufffd \\n"


def test_overwritten_records_are_no_error():
    found, _ = drain(reader(OSError(errno.EPIPE, "overwritten"), record(50, XID)), 3)

    assert [one.position for one in found] == ["kmsg:50"]


def test_a_flood_is_taken_in_portions():
    found, more = drain(reader(*(record(number, "x") for number in range(1, 2 * BATCH_RECORDS))), 0)

    assert len(found) == BATCH_RECORDS
    assert more


@pytest.mark.parametrize(
    "text",
    [
        XID,
        "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.",
        "oom-kill:constraint=CONSTRAINT_NONE,task=python,pid=3",
        "Out of memory: Killed process 3 (python)",
        "nvidia 0000:0a:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x1 address=0x2 flags=0x3]",
        "pcieport 0000:00:03.1: AER: Uncorrected (Fatal) error received: 0000:0a:00.0",
        "nvidia-modeset: ERROR: GPU:0: Idling display engine timed out",
    ],
)
def test_lines_about_the_host_of_gpus_matter(text):
    assert matters(text)


@pytest.mark.parametrize("text", ["usb 1-1: new device", "docker0: port 1 entered blocking state", ""])
def test_other_lines_do_not_matter(text):
    assert not matters(text)


@pytest.fixture
def ring(tmp_path):
    """Give the path of a named pipe as /dev/kmsg, and a function that appends a record to it."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    handle = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield path, lambda number, text: os.write(handle, record(number, text))
    os.close(handle)


async def first(log: KernelLog, position: str, count: int) -> list[tuple[str, ...]]:
    """Return the texts of the first batches."""
    found = []
    batches = log.batches(position)
    async with asyncio.timeout(10):
        async for lines in batches:
            found.append(tuple(line.text for line in lines))
            if len(found) == count:
                break
    await batches.aclose()
    return found


async def test_lines_come_as_the_kernel_writes_them(ring, wait_until):
    path, write = ring
    log = KernelLog(kmsg=path)
    task = asyncio.create_task(first(log, "kmsg:6", 2))
    await asyncio.sleep(0)

    write(7, XID)

    assert await task == [(), (XID,)]
    assert log.position == "kmsg:7"
    assert [line.text for line in log.lines] == [XID]
    assert log.problem is None


async def test_overwritten_records_are_counted(ring):
    path, write = ring
    log = KernelLog(kmsg=path)
    write(12, XID)

    await first(log, "kmsg:6", 2)

    assert log.overwritten == 5


async def test_only_the_last_lines_are_kept(ring):
    path, write = ring
    log = KernelLog(kmsg=path)
    batches = log.batches("kmsg:0")
    await anext(batches)

    for number in range(1, KEEP_LINES + 50):
        write(number, f"NVRM: line {number}")
        await anext(batches)
    await batches.aclose()

    assert len(log.lines) == KEEP_LINES
    assert log.lines[-1].text == f"NVRM: line {KEEP_LINES + 49}"


def journal(folder: Path, script: str) -> str:
    """Return the path of a `journalctl` that is this script."""
    path = folder / "journalctl"
    path.write_text(f"#!{sys.executable}\nimport json, sys, time\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


ENTRY = json.dumps({"MESSAGE": XID, "__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": "1700000000000000"})
BYTES = json.dumps(
    {
        "MESSAGE": list(b"NVRM: \xff odd"),
        "__CURSOR": "s=1;i=3",
        "__REALTIME_TIMESTAMP": "1700000001000000",
    }
)


async def test_the_journal_is_followed_where_the_log_itself_may_not_be_read(tmp_path):
    program = journal(
        tmp_path,
        f"print({ENTRY!r}); print('garbage'); print('{{}}'); print({BYTES!r}, flush=True); time.sleep(60)",
    )
    log = KernelLog(kmsg=tmp_path / "none", journalctl=program)

    assert await first(log, FROM_BOOT, 3) == [(), (XID,), ("NVRM: \ufffd odd",)]
    assert log.position == "journal:s=1;i=3"


async def test_the_journal_goes_on_after_a_cursor(tmp_path):
    program = journal(
        tmp_path,
        f"assert '--after-cursor=s=1;i=1' in sys.argv; print({ENTRY!r}, flush=True); time.sleep(60)",
    )
    log = KernelLog(kmsg=tmp_path / "none", journalctl=program)

    assert await first(log, "journal:s=1;i=1", 2) == [(), (XID,)]


async def test_what_the_journal_held_before_is_no_news(tmp_path):
    program = journal(tmp_path, f"print({ENTRY!r}, flush=True); time.sleep(60)")
    log = KernelLog(kmsg=tmp_path / "none", journalctl=program)

    assert await first(log, FROM_NOW, 2) == [(), ()]
    assert log.position == "journal:s=1;i=2"


async def test_a_log_that_nobody_may_read_is_a_sentence(tmp_path, wait_until):
    program = journal(tmp_path, "sys.exit('No permission')")
    log = KernelLog(kmsg=tmp_path / "none", journalctl=program)
    task = asyncio.create_task(first(log, FROM_NOW, 2))

    await wait_until(lambda: log.problem is not None)

    assert "No such file" in log.problem
    assert "No permission" in log.problem
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_stand_in_for_the_log_is_passed_over_for_the_journal(tmp_path):
    (tmp_path / "kmsg").write_text("")
    program = journal(tmp_path, f"print({ENTRY!r}, flush=True); time.sleep(60)")
    log = KernelLog(kmsg=tmp_path / "kmsg", journalctl=program)

    assert (XID,) in await first(log, FROM_BOOT, 3)


async def test_a_missing_journalctl_is_a_sentence(tmp_path, wait_until):
    log = KernelLog(kmsg=tmp_path / "none", journalctl=str(tmp_path / "absent"))
    task = asyncio.create_task(first(log, FROM_NOW, 2))

    await wait_until(lambda: log.problem is not None)

    assert "absent" in log.problem
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
