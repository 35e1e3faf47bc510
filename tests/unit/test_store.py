"""What the store keeps, and what it does when its file or its disk goes bad."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest

from rigd.adapters import database as database_module
from rigd.adapters import write_behind
from rigd.adapters.database import Database
from rigd.adapters.store import Store, StoreInUseError

GARBAGE = b"\x13garbage\x37" * 2000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "rigd.db"


@pytest.fixture
async def store(path):
    opened = await Store.open(path)
    yield opened
    await opened.close()


def entry(number):
    return (float(number), "probe", f"event {number}", None)


async def messages(store, **how):
    return [event.message for event in await store.events(**how)]


async def reopened(store, path):
    await store.close()
    return await Store.open(path)


# --- what is kept ---


async def test_a_new_store_is_private_and_without_problem(store, path):
    assert store.problem is None
    assert store.recovered_from is None
    assert await store.load_status() is None
    assert {stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_the_latest_status_survives(store, path):
    assert await store.save_status('{"state": "starting"}')
    assert await store.save_status('{"state": "ready"}')

    again = await reopened(store, path)

    assert await again.load_status() == '{"state": "ready"}'
    await again.close()


async def test_journal_numbers_grow_by_one_across_restarts(store, path):
    await store.append_events([entry(1), entry(2)])
    again = await reopened(store, path)
    await again.append_events([(3.5, "exit", "event 3", '{"code": 0}')])

    events = await again.events()

    assert [event.id for event in events] == [1, 2, 3]
    assert (events[2].at_s, events[2].kind, events[2].data_json) == (3.5, "exit", '{"code": 0}')
    await again.close()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param({"limit": 2}, ["event 1", "event 2"], id="from-the-beginning"),
        pytest.param({"after_id": 3, "limit": 10}, ["event 4", "event 5"], id="after-one"),
        pytest.param({"limit": 2, "newest": True}, ["event 4", "event 5"], id="the-newest-in-order"),
        pytest.param({"after_id": 4, "limit": 9, "newest": True}, ["event 5"], id="the-newest-after-one"),
    ],
)
async def test_journal_is_read_in_order(store, how, expected):
    await store.append_events([entry(number) for number in range(1, 6)])

    assert await messages(store, **how) == expected


async def test_journal_entries_cannot_be_changed(store, path):
    await store.append_events([entry(1)])
    await store.close()
    with sqlite3.connect(path) as outside, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        outside.execute("UPDATE events SET message = 'nothing happened'")
    outside.close()


async def test_start_numbers_are_never_given_twice(store, path):
    first, second = await store.next_start(), await store.next_start()
    again = await reopened(store, path)

    third, jumped, after = (
        await again.next_start(),
        await again.next_start(minimum=40),
        await again.next_start(),
    )

    assert (first, second, third, jumped, after) == (1, 2, 3, 40, 41)
    await again.close()


async def test_a_start_gathers_what_becomes_known_of_it(store):
    await store.record_start(7, digest="abc", runtime="docker", began_s=1.0, spec_json="{}")
    await store.update_start(7, ready_s=42.0, phases_json="[1]")
    await store.update_start(7, ended_s=60.0, outcome="crashed", exit_json='{"code": 0}')

    (start,) = await store.starts(5)

    assert (start.number, start.digest, start.runtime, start.began_s) == (7, "abc", "docker", 1.0)
    assert (start.ready_s, start.ended_s, start.outcome) == (42.0, 60.0, "crashed")
    assert (start.phases_json, start.exit_json) == ("[1]", '{"code": 0}')


async def test_warm_results_come_newest_first(store):
    await store.record_warm(1, "system", 1.0, '{"hit": 0.1}')
    await store.record_warm(1, "system", 2.0, '{"hit": 0.99}')

    assert [row.result_json for row in await store.warm(5)] == ['{"hit": 0.99}', '{"hit": 0.1}']


async def test_pruning_keeps_the_newest(store):
    await store.append_events([entry(number) for number in range(1, 11)])
    for number in range(1, 6):
        await store.record_start(number, digest="d", runtime="process", began_s=0.0, spec_json="{}")

    assert await store.prune(keep_events=3, keep_starts=2)

    assert await messages(store) == ["event 8", "event 9", "event 10"]
    assert [start.number for start in await store.starts(9)] == [5, 4]


async def test_half_characters_of_a_broken_log_line_can_be_stored(store):
    assert await store.append_events([(1.0, "log", "tail \udcff end", None)])
    assert await store.save_status("\ud800")

    assert await messages(store) == ["tail ? end"]


async def test_a_value_that_no_file_takes_does_not_hold_up_the_others(store):
    await store.append_events([entry(1)])
    await store.record_warm(2**70, "prefix", 1.0, "{}")

    assert await store.append_events([entry(2)])

    assert store.problem is None
    assert (await messages(store))[:2] == ["event 1", "event 2"]


# --- one daemon to a store ---

HOLD = """
import asyncio, sys
from pathlib import Path
from rigd.adapters.store import Store
async def main():
    store = await Store.open(Path(sys.argv[1]))
    number = 0
    print("open", flush=True)
    while sys.argv[2] == "write":
        number += 1
        await store.append_events([(1.0, "k", f"event {number}", None)])
        await store.save_status(str(number))
        print(number, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture
def other_process(path):
    """Start a process that opens the store, and `write`s to it or `hold`s it; ended with KILL."""
    started = []

    def start(what):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, path, what], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_second_daemon_is_refused_until_the_first_has_ended(path, other_process, monkeypatch):
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 0.1)
    first = other_process("hold")
    with pytest.raises(StoreInUseError, match="another process has it"):
        await Store.open(path)

    first.kill()
    first.wait()
    second = await Store.open(path)

    assert second.problem is None
    assert second.recovered_from is None
    await second.close()


async def test_nothing_acknowledged_is_lost_to_a_kill(path, other_process):
    writer = other_process("write")
    lines = [writer.stdout.readline() for _ in range(30)]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    acknowledged = int((lines + writer.stdout.readlines())[-1])

    store = await Store.open(path)

    assert store.recovered_from is None
    events = await store.events(limit=100_000)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert len(events) >= acknowledged
    assert int(await store.load_status()) >= acknowledged
    await store.close()


# --- a damaged file ---


def write_foreign(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.commit()
    other.close()


def write_newer(path):
    ours = Database(path)
    ours.read("INSERT INTO schema_version VALUES (999)")
    ours.close()


def cut(path):
    whole = Database(path)
    whole.write([("INSERT INTO facts VALUES ('status', ?)", ("x" * 100_000,))])
    whole.close()
    os.truncate(path, 20_000)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(GARBAGE), id="garbage"),
        pytest.param(write_foreign, id="another-program's"),
        pytest.param(write_newer, id="from-a-newer-rigd"),
        pytest.param(cut, id="cut-off"),
    ],
)
async def test_a_damaged_file_is_kept_aside_and_a_new_one_begun(path, damage):
    path.parent.mkdir()
    damage(path)

    store = await Store.open(path)

    assert store.recovered_from.name.startswith("rigd.db.corrupt-")
    assert store.recovered_from.stat().st_size > 0
    assert await store.save_status("new")
    assert store.problem is None
    (event,) = await store.events()
    assert event.kind == "store"
    assert str(store.recovered_from) in event.message
    await store.close()


async def test_two_damaged_files_in_one_second_are_both_kept(path):
    path.parent.mkdir()
    kept = set()
    for _ in range(2):
        path.write_bytes(GARBAGE)
        store = await Store.open(path)
        kept.add(store.recovered_from)
        await store.close()

    assert len(kept) == 2
    assert all(found.exists() for found in kept)


async def test_garbage_written_over_the_open_file_is_noticed_at_the_next_write(store, path):
    await store.append_events([entry(1)])
    await store.next_start()
    with path.open("r+b") as file:
        file.write(GARBAGE)

    assert await store.save_status("after")

    assert store.recovered_from is not None
    assert path.read_bytes()[:15] == b"SQLite format 3"
    (event,) = await store.events()
    assert "damaged" in event.message
    assert event.id > 1
    again = await reopened(store, path)
    assert await again.load_status() == "after"
    assert await again.next_start() == 2
    await again.close()


async def test_damage_behind_the_header_is_noticed_by_the_upkeep(store, path):
    await store.append_events([(1.0, "k", "x" * 1000, None) for _ in range(200)])
    await store.prune(keep_events=1000, keep_starts=10)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 65_536)

    await store.save_status("kept")
    assert await store.prune(keep_events=1000, keep_starts=10)

    assert store.recovered_from is not None
    assert store.problem is None
    assert await store.load_status() == "kept"


@pytest.mark.parametrize("replacement", [None, write_foreign], ids=["deleted", "replaced"])
async def test_a_file_that_is_taken_away_is_begun_anew(store, path, replacement):
    await store.append_events([entry(1)])
    path.unlink()
    if replacement:
        replacement(path)

    assert await store.save_status("after")

    said = await messages(store)
    assert any("under the running daemon" in message for message in said)
    assert (store.recovered_from is not None) == bool(replacement)
    again = await reopened(store, path)
    assert await again.load_status() == "after"
    await again.close()


# --- a disk that refuses ---


def fill(store):
    """Let SQLite refuse every further page, as a full disk does."""
    database = store._behind._database
    ((pages,),) = database.read("PRAGMA page_count")
    database.read(f"PRAGMA max_page_count = {pages}")


def free(store):
    store._behind._database.read("PRAGMA max_page_count = 1000000")


BIG = "x" * 20_000


async def test_a_full_disk_is_said_and_made_up_for(store, path):
    await store.append_events([entry(1)])
    fill(store)

    assert not await store.append_events([(2.0, "k", BIG, None), entry(3)])
    assert not await store.save_status(BIG)
    assert not await store.record_start(5, digest="d", runtime="process", began_s=0.0, spec_json="{}")
    numbers = [await store.next_start(), await store.next_start()]

    assert "disk is full" in store.problem
    assert numbers == [1, 2]
    assert await store.load_status() == BIG
    assert await messages(store) == ["event 1", BIG, "event 3"]

    free(store)
    assert await store.flush()

    assert store.problem is None
    again = await reopened(store, path)
    assert await messages(again) == ["event 1", BIG, "event 3"]
    assert await again.load_status() == BIG
    assert [start.number for start in await again.starts()] == [5]
    assert await again.next_start() == 6
    await again.close()


async def test_memory_stays_bounded_while_the_disk_is_full(store, monkeypatch):
    monkeypatch.setattr(write_behind, "PENDING_LIMIT", 10)
    fill(store)
    await store.append_events([(0.0, "k", BIG, None)])
    await store.append_events([(float(number), "k", BIG, None) for number in range(1, 16)])
    assert store.problem is not None

    free(store)
    assert await store.flush()

    events = await store.events()
    assert [event.at_s for event in events[:10]] == [float(number) for number in range(6, 16)]
    assert events[10].message == "6 writes were lost"


async def test_a_stuck_disk_costs_one_deadline_and_then_nothing(path, monkeypatch, wait_until):
    store = await Store.open(path, deadline_s=0.1)
    release = threading.Event()
    write = Database.write
    monkeypatch.setattr(Database, "write", lambda self, writes: (release.wait(), write(self, writes)))
    loop = asyncio.get_running_loop()

    assert not await store.save_status("first")
    began_s = loop.time()
    for number in range(100):
        assert not await store.save_status(f"later {number}")
    assert (
        loop.time() - began_s < 100 * 0.1 / 2
    )  # Had each of them waited for its deadline, it were twice that.
    assert "has not answered" in store.problem
    assert await store.load_status() == "later 99"

    release.set()
    await wait_until(store.flush)

    assert store.problem is None
    again = await reopened(store, path)
    assert await again.load_status() == "later 99"
    await again.close()


async def test_a_folder_that_cannot_be_had_is_a_problem_and_no_end(path):
    path.parent.write_text("a file where the folder should be")
    store = await Store.open(path)

    assert not await store.save_status("in memory")
    assert "cannot write the store" in store.problem
    assert await store.load_status() == "in memory"
    assert not await store.append_events([entry(1)])
    assert await messages(store) == ["event 1"]
    assert await store.next_start() == 1

    path.parent.unlink()
    assert await store.flush()

    again = await reopened(store, path)
    assert await again.load_status() == "in memory"
    assert await messages(again) == ["event 1"]
    assert await again.next_start() == 2
    await again.close()


async def test_a_store_that_comes_back_keeps_its_numbers_in_order(path):
    before = await Store.open(path)
    await before.append_events([entry(1), entry(2)])
    assert await before.next_start() == 1
    await before.close()
    path.parent.rename(path.parent.with_name("away"))
    path.parent.write_text("in the way")
    store = await Store.open(path)
    await store.append_events([entry(3)])

    path.parent.unlink()
    path.parent.with_name("away").rename(path.parent)
    assert await store.append_events([entry(4)])

    assert await messages(store) == ["event 1", "event 2", "event 3", "event 4"]
    assert await store.next_start() == 2
    await store.close()
