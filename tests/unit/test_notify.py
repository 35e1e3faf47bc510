"""Deliveries by a child process, to a real server: what comes back, what is on record, what ends at a deadline."""

import fcntl
import os
import stat
import time

import pytest
from receiver import REFUSE, Receiver

from rigd.adapters.notify import Delivery, Letter, Record, RecordBusyError, send
from rigd.adapters.private_file import read_private, write_private


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def letter(receiver_or_url, id_="1", name="phone"):
    url = receiver_or_url if isinstance(receiver_or_url, str) else receiver_or_url.url
    return Letter(id=id_, name=name, url=url, title="a title", body="a body\nin lines", level="warning")


async def test_letter_arrives_with_title_body_and_level(receiver):
    done = await send([letter(receiver)])

    assert done == (Delivery(id="1", name="phone", ok=True),)
    (message,) = receiver.got
    assert (message["title"], message["message"], message["type"]) == (
        "a title", "a body\nin lines", "warning",
    )  # fmt: skip


async def test_refusals_say_why_and_hold_up_no_other(receiver, free_port):
    receiver.answer = REFUSE
    other = Receiver()
    letters = [
        letter(receiver), letter(receiver, id_="2"), letter(other, name="mail"),
        letter(f"json://127.0.0.1:{free_port}", name="down"), letter("bogus://x", name="wrong"),
    ]  # fmt: skip
    done = {item.name: item for item in await send(letters)}
    other.close()

    assert {name: (item.id, item.ok) for name, item in done.items()} == {
        "phone": ("1", False), "mail": ("1", True), "down": ("1", False), "wrong": ("1", False),
    }  # fmt: skip
    assert receiver.asked == 1
    assert "error=500" in done["phone"].detail
    assert "onnection" in done["down"].detail
    assert "does not understand" in done["wrong"].detail


async def test_receiver_that_hangs_is_given_up_at_the_deadline(receiver):
    receiver.hold.clear()
    began_s = time.monotonic()
    (done,) = await send([letter(receiver)], deadline_s=0.5)

    assert not done.ok
    assert time.monotonic() - began_s < 15


async def test_record_says_what_was_delivered_and_is_private(receiver, tmp_path):
    record = Record(tmp_path / "delivered")
    assert await record.take() == ()
    await send([letter(receiver)], record)
    record.release()

    assert stat.S_IMODE((tmp_path / "delivered").stat().st_mode) == 0o600
    assert await record.take() == (Delivery(id="1", name="phone", ok=True),)
    await record.clear()
    record.release()
    assert await record.take() == ()
    record.release()


async def test_record_of_a_delivery_under_way_is_busy(tmp_path):
    record = Record(tmp_path / "delivered")
    descriptor = os.open(tmp_path / "delivered", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(RecordBusyError):
        await record.take()
    os.close(descriptor)

    assert await record.take() == ()
    record.release()


async def test_record_with_a_line_cut_off_keeps_the_whole_ones(tmp_path):
    (tmp_path / "delivered").write_text('{"id": "1", "name": "phone", "ok": true}\n[]\n{"id": "2", "na')
    record = Record(tmp_path / "delivered")

    assert [item.id for item in await record.take()] == ["1"]
    record.release()


async def test_delivery_goes_on_where_the_disk_gives_no_record(receiver, tmp_path):
    record = Record(tmp_path / "no/such/folder")

    assert await record.take() == ()
    assert (await send([letter(receiver)], record))[0].ok


async def test_child_sees_no_variable_that_it_does_not_need(receiver, monkeypatch, tmp_path):
    probe = tmp_path / "sitecustomize.py"
    probe.write_text(f"import os; open({str(tmp_path / 'seen')!r}, 'w').write(' '.join(os.environ))")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("HF_TOKEN", "hunter22")
    await send([letter(receiver)])

    seen = (tmp_path / "seen").read_text().split()
    assert "PATH" in seen
    assert "HF_TOKEN" not in seen


def test_private_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "alerts.json"
    assert read_private(path, limit=10) is None
    write_private(path, "one")
    write_private(path, "two")

    assert read_private(path, limit=10) == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["alerts.json"]
    with pytest.raises(OSError, match="such"):
        write_private(tmp_path / "no/such", "x")
