"""The log of a start: followed while the engine loads, and what it took kept for the next estimate."""

import asyncio
from types import SimpleNamespace

import pytest
from supervise import ENGINE

from rigd.runtime import startlog
from rigd.supervise.live import Board
from rigd.supervise.start_follower import StartFollower

LOG = (
    "INFO 11-30 10:00:00 Starting to load model m...\nINFO 11-30 10:00:01 Loading weights took 3.00 seconds\n"
)


@pytest.fixture
def follower(tmp_path):
    async def starts(_count):
        return [SimpleNamespace(phases_json='{"load": 5.0}'), SimpleNamespace(phases_json=None)]

    made = StartFollower(
        SimpleNamespace(starts=starts), Board(), state_dir=tmp_path, now=lambda: ENGINE.created_s + 5
    )
    folder = startlog.folder_of(tmp_path, ENGINE.start)
    folder.mkdir(parents=True)
    (folder / startlog.LOG_NAME).write_text(LOG)
    yield made
    made.leave()


async def test_progress_is_shown_until_nothing_is_followed(follower, wait_until):
    follower.begin(ENGINE)
    await wait_until(lambda: follower._board.live is not None)

    follower.leave()

    assert (follower._board.live, follower.task) == (None, None)


async def test_phases_of_a_start_that_was_seen_are_told_once(follower, wait_until):
    follower.begin(ENGINE)
    await wait_until(lambda: follower._board.live is not None)

    phases = follower.finish(ENGINE, ENGINE.created_s + 8)

    assert sum(phases.values()) == pytest.approx(8.0)
    assert len(phases) > 1
    assert follower.finish(ENGINE, ENGINE.created_s + 8) == {}


async def test_start_that_was_not_seen_teaches_nothing(follower):
    assert follower.finish(ENGINE, ENGINE.created_s + 8) == {}
    follower.begin(ENGINE)
    await asyncio.sleep(0)
    follower.begin(ENGINE)  # The daemon takes up another engine before the log was read.
    assert follower.finish(ENGINE, ENGINE.created_s + 8) == {}
