"""The loop: one writer, persisted before acting, requests answered by decisions, and nothing ends it."""

import asyncio
import contextlib

import pytest
from supervise import ENGINE, NOW_S, POLICY, exited, finished, sampled, status

from rigd.supervise import loop
from rigd.supervise.decision import Decision, Launch
from rigd.supervise.loop import QUEUE_LIMIT, Supervisor
from rigd.supervise.observations import LaunchDone, RequestKind
from rigd.supervise.state import State


class Script:
    """Effects that only write down what they are asked."""

    def __init__(self):
        self.log = []
        self.told = []
        self.fail_at = None

    def begin(self, action):
        if self.fail_at is type(action):
            raise RuntimeError("cannot begin")
        self.log.append(type(action).__name__)

    def attend(self, seen):
        self.log.append(f"attend {seen.state}")

    async def persist(self, seen, entries):
        job = seen.job.kind if seen.job is not None else None
        self.log.append(f"persist {seen.state} {job}")
        self.told += [entry.message for entry in entries if entry.kind == "internal-error"]

    policy = POLICY


@pytest.fixture
async def running():
    """Give a supervisor whose loop runs, and its effects."""
    script = Script()
    supervisor = Supervisor(POLICY, script, now=lambda: NOW_S)
    task = asyncio.create_task(supervisor.run(Decision(status=status(State.STOPPED))))
    await asyncio.sleep(0)
    yield supervisor, script
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_intent_is_persisted_before_the_action_begins(running):
    supervisor, script = running

    reply = await supervisor.request(RequestKind.START)

    assert reply.message == "starting"
    assert script.log.index("persist starting launch") < script.log.index("Launch")


async def test_start_asked_by_many_at_once_launches_once(running):
    supervisor, script = running

    replies = await asyncio.gather(*(supervisor.request(RequestKind.START) for _ in range(20)))

    assert script.log.count("Launch") == 1
    assert sorted({reply.message for reply in replies}) == ["already starting", "starting"]


async def test_wait_ends_as_soon_as_the_state_is_reached(running):
    supervisor, _ = running
    waiting = asyncio.create_task(supervisor.wait(frozenset({State.STARTING}), 5))
    await asyncio.sleep(0)

    await supervisor.request(RequestKind.START)

    assert await asyncio.wait_for(waiting, 1)


async def test_wait_says_no_when_its_time_is_over(running):
    supervisor, _ = running

    assert not await supervisor.wait(frozenset({State.READY}), 0.01)


async def test_decision_that_fails_leaves_the_status_and_answers_the_request(running, monkeypatch):
    supervisor, _ = running
    before = supervisor.status

    def broken(*_args, **_more):
        raise ZeroDivisionError("bug")

    monkeypatch.setattr("rigd.supervise.loop.decide", broken)
    reply = await supervisor.request(RequestKind.START)

    assert (reply.ok, supervisor.status) == (False, before)
    assert "ZeroDivisionError" in reply.message


@pytest.fixture
def broken_decisions(monkeypatch):
    """Give a list: so many of the next decisions about an end fail as it has items."""
    left, real = [], loop.decide

    def sometimes(now, seen, *args, **more):
        if left and seen.told_once:
            left.pop()
            raise ZeroDivisionError("bug")
        return real(now, seen, *args, **more)

    monkeypatch.setattr(loop, "decide", sometimes)
    monkeypatch.setattr(loop, "AGAIN_S", 0.01)
    return left


async def test_exit_that_meets_a_failing_decision_is_decided_once_more(running, broken_decisions, wait_until):
    """Its watcher has ended, and a dead engine's probes need three failures: the exit must not be lost."""
    supervisor, script = running
    supervisor.status = status(State.READY)
    broken_decisions.append("once")

    supervisor.observe(exited(137))

    await wait_until(lambda: supervisor.status.state is State.STOPPING)
    assert supervisor.status.failure.exit.code == 137
    assert script.told == ["a decision failed: ZeroDivisionError: bug; what was seen is decided once more"]


async def test_end_that_fails_twice_is_dropped_and_said(running, broken_decisions, wait_until):
    supervisor, script = running
    supervisor.status = before = status(State.READY)
    broken_decisions.extend(["once", "again"])

    supervisor.observe(exited(137))

    await wait_until(lambda: len(script.told) == 2)
    assert (supervisor.status.state, supervisor.status.job) == (before.state, before.job)
    assert script.told[1].endswith("is dropped, and the probes and deadlines have to find it")


async def test_action_that_cannot_begin_does_not_end_the_loop(running):
    supervisor, script = running
    script.fail_at = Launch

    await supervisor.request(RequestKind.START)
    reply = await supervisor.request(RequestKind.START)

    assert reply.message == "already starting"


async def test_full_queue_drops_probes_but_never_the_end_of_a_job():
    supervisor = Supervisor(POLICY, Script(), now=lambda: NOW_S)
    for _ in range(QUEUE_LIMIT + 50):
        supervisor.observe(sampled())

    supervisor.observe(finished(LaunchDone(ref=ENGINE)))

    assert supervisor._queue.qsize() == QUEUE_LIMIT + 1


async def test_too_many_waiting_requests_are_refused():
    supervisor = Supervisor(POLICY, Script(), now=lambda: NOW_S)
    for _ in range(QUEUE_LIMIT):
        supervisor.observe(sampled())

    reply = await supervisor.request(RequestKind.STOP)

    assert (reply.ok, reply.message) == (False, "too many requests are waiting")
