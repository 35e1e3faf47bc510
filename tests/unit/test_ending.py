"""The end of an engine: its whole tree, and what probes, log, host and cards say of why, as one failure."""

from dataclasses import replace

import pytest
from supervise import ENGINE, NOW_S, OTHER, failure

from rigd.errors import RigdError
from rigd.runtime import startlog
from rigd.runtime.base import EngineExit, RuntimeUnavailableError, StopReport
from rigd.supervise import ending
from rigd.supervise.classify import diagnose
from rigd.supervise.decision import StopEngine
from rigd.supervise.ending import end_engine, merged
from rigd.supervise.observations import StopFailed

SAMPLER = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 10 dummy requests. "
    "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
)
STRANGE = "ERROR 11-30 10:00:00 [core.py:1] EngineCore failed to start.\nTraceback\nQuuxError: never seen"


def found(text, exit_code=1):
    return diagnose(text.splitlines(), exit_code=exit_code)


def test_log_says_what_the_probes_could_not():
    seen = merged(failure("engine_exited"), found(SAMPLER))

    assert seen.kind == "oom_sampler_warmup"
    assert (seen.remedies[0].knob, seen.remedies[0].change) == ("max_num_seqs", "halve")
    assert seen.evidence[0].startswith("1: RuntimeError: CUDA out of memory")


@pytest.mark.parametrize("kind", sorted(ending.OURS_KNOWS_BEST))
def test_what_probes_saw_is_not_overruled_by_an_older_line_of_the_log(kind):
    seen = merged(failure(kind, sentence="Seen by us."), found(SAMPLER))

    assert (seen.kind, seen.sentence, seen.remedies) == (kind, "Seen by us.", ())
    assert seen.evidence, "the log's lines are evidence all the same"


def test_log_that_says_nothing_leaves_what_was_seen():
    seen = merged(failure("health_failing", sentence="No answer."), found("INFO all is well"))

    assert (seen.kind, seen.sentence) == ("health_failing", "No answer.")


def test_first_error_that_no_rule_knows_is_told():
    seen = merged(failure("engine_exited", sentence="It ended."), found(STRANGE))

    assert "QuuxError: never seen" in seen.sentence
    assert seen.kind == "engine_exited"


def test_retry_that_either_thinks_useless_is_useless():
    useless = merged(
        failure("engine_exited", retry_helps=False), found("CUDA error: an illegal memory access")
    )

    assert not useless.retry_helps


# The end.


class Fake:
    """A runtime with some engines."""

    def __init__(self, *running, error=None):
        self.running, self.error, self.stopped = list(running), error, []

    async def stop(self, ref, *, grace_s, deadline_s):
        del grace_s, deadline_s
        if self.error is not None:
            raise self.error
        self.stopped.append(ref.id)
        self.running = [one for one in self.running if one != ref]
        return StopReport(processes=3, killed=1, survivors=(), took_s=0.5)

    async def find(self):
        return tuple(self.running)

    async def sweep(self):
        return ("left over",)


class Starts:
    """The store's table of starts."""

    def __init__(self):
        self.ends = {}

    async def update_start(self, start, **columns):
        self.ends[start] = columns


def action(why=None, ref=ENGINE):
    return StopEngine(job=1, ref=ref, grace_s=0.5, failure=why)


async def end(asked, runtime, folder, **more):
    starts = Starts()
    done = await end_engine(
        asked, runtime, stop_s=5, state_dir=folder, store=starts, now=lambda: NOW_S, **more
    )
    return done, starts.ends


def logged(folder, text, start=ENGINE.start):
    place = startlog.folder_of(folder, start)
    place.mkdir(parents=True)
    (place / startlog.LOG_NAME).write_text(text)


async def test_every_engine_of_the_rig_and_its_remains_are_ended(tmp_path):
    runtime = Fake(ENGINE, OTHER)

    done, ends = await end(action(), runtime, tmp_path)

    assert runtime.stopped == [ENGINE.id, OTHER.id]
    assert (done.report.processes, done.report.killed, done.diagnosis) == (7, 2, None)
    assert ends[ENGINE.start]["outcome"] == "stopped"


async def test_failure_is_told_by_its_log_and_kept_with_the_start(tmp_path):
    logged(tmp_path, SAMPLER)
    why = failure("engine_exited", exit=EngineExit(code=1))

    done, ends = await end(action(why), Fake(ENGINE), tmp_path)

    assert done.diagnosis.kind == ends[ENGINE.start]["outcome"] == "oom_sampler_warmup"
    assert '"code": 1' in ends[ENGINE.start]["exit_json"]


async def test_cards_are_asked_after_the_engine_is_gone(tmp_path):
    runtime = Fake(ENGINE)

    async def room(diagnosis):
        assert runtime.running == []
        return replace(diagnosis, fits=0.5)

    done, _ = await end(action(failure("engine_exited")), runtime, tmp_path, room=room)

    assert done.diagnosis.fits == 0.5


async def test_log_that_cannot_be_understood_never_holds_up_a_restart(tmp_path, monkeypatch):
    def broken(*_args, **_more):
        raise ZeroDivisionError("bug")

    logged(tmp_path, SAMPLER)
    monkeypatch.setattr(ending, "diagnose", broken)
    why = failure("engine_exited")

    done, _ = await end(action(why), Fake(ENGINE), tmp_path)

    assert done.diagnosis == why


@pytest.mark.parametrize("error", [RuntimeUnavailableError("Docker is away"), RigdError("it will not go")])
async def test_engine_that_cannot_be_ended_is_said_and_not_taken_for_gone(tmp_path, error):
    done, ends = await end(action(failure("engine_exited")), Fake(ENGINE, error=error), tmp_path)

    assert isinstance(done, StopFailed)
    assert str(error) in done.message
    assert ends == {}
