"""Between a failure and the next start: conditions waited for, caches moved aside, and how both end."""

from dataclasses import replace
from pathlib import Path

import pytest
from supervise import NOW_S, POLICY, REPORT, WISH, asked, failure, finished, status

from rigd.rig.schema import Rig
from rigd.supervise import knobs, looking
from rigd.supervise.conditions import CONDITIONS, LONGEST_LOOK_S, look_s
from rigd.supervise.decide import decide
from rigd.supervise.decision import Launch, LookAt, MoveAside, UseOverlay
from rigd.supervise.ladder import CACHES, ROADS, Move, Remedy
from rigd.supervise.looking import LOOKS
from rigd.supervise.observations import LaunchFailed, Looked, MovedAside, Observation, RequestKind, StopDone
from rigd.supervise.overlay import KnobStep
from rigd.supervise.plan import make_plan
from rigd.supervise.resume import resume
from rigd.supervise.rules import RULES as FAILURE_RULES
from rigd.supervise.state import STATUS, Aside, GiveUp, State

TAKEN = failure("port_in_use", sentence="The port is taken.")
LADDER = POLICY.supervision.ladder
MOVE = (
    Remedy(knob="compile_cache", change="move_aside"),
    Remedy(knob="environment.VLLM_DISABLE_COMPILE_CACHE", change="set", value="1"),
)


def at_the_gate(what=TAKEN, **changes):
    """Return the decision after a launch that never was."""
    return decide(
        status(State.STARTING, **changes), finished(LaunchFailed(failure=what)), POLICY, now_s=NOW_S
    )


def pass_time(now, seconds=0.0, policy=POLICY):
    return decide(now, Observation(), policy, now_s=NOW_S + seconds)


def look(now, *, holds, seconds=0.0, policy=POLICY, detail="held by pid 7", **seen):
    """Let the look that is due begin, and end."""
    begun = pass_time(now, seconds, policy)
    assert [type(action) for action in begun.actions] == [LookAt]
    result = Looked(holds=holds, detail=detail, **seen)
    return decide(begun.status, finished(result, job=begun.actions[0].job), policy, now_s=NOW_S + seconds)


def ended(what, policy=POLICY, **changes):
    """Return the decision after an engine that was launched has failed and is cleared away."""
    now = status(State.STOPPING, launched_s=NOW_S - 30, **changes)
    return decide(now, finished(StopDone(report=REPORT, diagnosis=what)), policy, now_s=NOW_S)


def test_failure_of_the_machine_is_waited_out_and_costs_no_attempt():
    decision = at_the_gate()

    now = decision.status
    assert (now.state, now.pending.what, now.failures, now.boots, now.streak) == (
        State.BACKOFF,
        "port",
        (),
        (),
        0,
    )
    assert now.reason == "The port is taken. Waiting for the port to be free before the next start."


def test_looks_grow_rarer_and_say_what_they_see():
    now, waits = at_the_gate().status, []
    seconds = 0.0
    for _ in range(12):
        now = look(now, holds=False, seconds=seconds).status
        waits.append(round(now.retry_s - NOW_S - seconds, 3))
        seconds = now.retry_s - NOW_S

    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2.0, LONGEST_LOOK_S)
    assert now.reason == "waiting for the port to be free: held by pid 7"
    assert (now.failures, now.pending.looks) == ((), 12)


def test_condition_that_comes_true_starts_the_engine():
    waiting = look(at_the_gate().status, holds=False).status

    decision = look(waiting, holds=True, seconds=30)

    assert [type(action) for action in decision.actions] == [Launch]
    assert decision.status.pending is None
    assert "waited 30 s for the port to be free" in decision.status.reason


def test_wait_in_vain_is_given_up_with_what_was_waited_for():
    waiting = look(at_the_gate().status, holds=False).status

    decision = look(waiting, holds=False, seconds=LADDER.wait_s + 1)

    assert (decision.status.state, decision.status.gave_up) == (State.FAILED, GiveUp.WAITED)
    assert "waited 86400 s for the port to be free: held by pid 7" in decision.status.reason


def test_folder_that_nothing_means_to_mount_is_waited_for_only_a_minute():
    gone = ended(failure("hf_not_found", sentence="The model is not there.")).status
    waiting = look(gone, holds=False, detail="/typo is not there", unexpected=True).status
    assert waiting.pending.until_s == NOW_S + LADDER.wait_path_s

    decision = look(waiting, holds=False, seconds=LADDER.wait_path_s + 1)

    assert (decision.status.state, decision.status.gave_up) == (State.FAILED, GiveUp.WAITED)
    assert "waited 60 s for the model's folder" in decision.status.reason


def test_memory_that_is_not_released_leads_on_to_what_fits():
    fits = Remedy(knob="gpu_memory_utilization", change="set", value=0.88)
    waiting = look(ended(failure("gpu_mem_busy", remedies=(fits,))).status, holds=False).status

    decision = look(waiting, holds=False, seconds=LADDER.wait_memory_s + 1)

    assert [str(step) for step in decision.status.overlay] == ["gpu_memory_utilization 0.92 -> 0.88"]


def test_gate_that_opens_before_the_first_look_starts_the_engine():
    full = failure("disk_full", sentence="1.0 GiB are free, 5 GiB are wanted.")

    decision = look(at_the_gate(full).status, holds=True, seconds=1)

    assert [type(action) for action in decision.actions] == [Launch]


def test_condition_that_holds_all_along_is_not_the_cause():
    decision = look(ended(failure("disk_full", retry_helps=False)).status, holds=True)

    assert (decision.status.state, decision.status.gave_up) == (State.FAILED, GiveUp.USELESS)


def test_engine_that_had_served_is_tried_again_although_the_condition_holds():
    served = failure("disk_full", retry_helps=False)
    now = ended(served, ready_s=NOW_S - 5000).status

    assert look(now, holds=True).status.state is State.BACKOFF


def test_same_failure_after_the_condition_held_is_not_waited_for_for_ever():
    now, seconds = at_the_gate().status, 0.0
    while now.state is not State.FAILED and seconds < 1e6:
        seconds += 70
        if now.pending is not None:
            now = look(now, holds=True, seconds=seconds).status
        elif now.state is State.BACKOFF:
            now = pass_time(now, seconds).status
        else:
            again = LaunchFailed(failure=replace(TAKEN, at_s=NOW_S + seconds))
            now = decide(now, finished(again, job=now.job.id), POLICY, now_s=NOW_S + seconds).status

    assert now.state is State.FAILED


def test_wait_goes_on_with_the_next_daemon():
    waiting = look(at_the_gate().status, holds=False).status
    stored = STATUS.validate_json(STATUS.dump_json(waiting))

    resumed = resume(stored, (), POLICY, now_s=NOW_S + 1).status

    assert (resumed.state, resumed.pending) == (State.BACKOFF, waiting.pending)


@pytest.mark.parametrize(
    ("kind", "state"),
    [(RequestKind.START, State.STARTING), (RequestKind.STOP, State.STOPPED)],
    ids=["start", "stop"],
)
def test_operator_ends_a_wait(kind, state):
    after = decide(at_the_gate().status, asked(kind), POLICY, now_s=NOW_S).status

    assert (after.state, after.pending) == (state, None)


def test_trial_is_not_to_blame_for_the_machine():
    turned = KnobStep(knob="max_num_seqs", old=10, new=5, kind="oom_sampler_warmup", sentence="s")

    assert at_the_gate(trial=turned).status.trial == turned


# Without the network.

AWAY = failure("hf_network", sentence="The model could not be fetched.")
OFFLINE = KnobStep(knob="environment.HF_HUB_OFFLINE", old=None, new="1", kind="hf_network", sentence="s")


def test_whole_download_starts_offline_instead_of_waiting():
    decision = look(ended(AWAY).status, holds=False, whole=True)

    now = decision.status
    assert [str(step) for step in now.overlay] == ["environment.HF_HUB_OFFLINE vLLM's default -> 1"]
    assert [type(action) for action in decision.actions] == [UseOverlay]
    assert (now.state, now.pending) == (State.BACKOFF, None)
    assert now.reason.startswith("The model could not be fetched. All that it needs is on this box. Changed")


def test_download_that_is_not_whole_is_waited_for():
    now = look(ended(AWAY).status, holds=False, whole=False).status

    assert (now.overlay, now.pending.what) == ((), "network")


def test_network_that_is_back_already_is_tried_first():
    """It may have been away for a moment; only when the same failure comes back is it done without."""
    first = look(ended(AWAY).status, holds=True, whole=True).status
    assert (first.overlay, first.state) == ((), State.BACKOFF)

    second = look(ended(AWAY, answered=first.answered).status, holds=True, whole=True).status
    assert [step.knob for step in second.overlay] == ["environment.HF_HUB_OFFLINE"]


def test_start_that_fails_offline_too_waits_and_is_online_again_once_the_network_is_back():
    policy = replace(POLICY, engine=knobs.write(POLICY.engine, OFFLINE.knob, "1"))
    failed_offline = ended(AWAY, policy, overlay=(OFFLINE,)).status
    waiting = look(failed_offline, holds=False, whole=True, policy=policy).status
    assert (waiting.overlay, waiting.pending.what) == ((OFFLINE,), "network")

    decision = look(waiting, holds=True, seconds=30, whole=True, policy=policy)

    assert [type(action) for action in decision.actions] == [UseOverlay, Launch]
    assert (decision.status.overlay, decision.actions[0].steps) == ((), ())


def test_operators_own_start_offline_stays():
    own = replace(OFFLINE, kind="operator")
    waiting = look(ended(AWAY, overlay=(own,)).status, holds=False).status

    assert look(waiting, holds=True, seconds=30).status.overlay == (own,)


def test_port_that_is_free_again_says_nothing_of_the_network():
    waiting = look(at_the_gate(overlay=(OFFLINE,)).status, holds=False).status

    assert look(waiting, holds=True, seconds=30).status.overlay == (OFFLINE,)


@pytest.mark.parametrize(("lacks", "whole"), [(None, True), ("org/m: no snapshot", False)])
async def test_look_at_the_network_says_whether_the_downloads_are_whole(monkeypatch, lacks, whole):
    async def away(_url):
        return "https://hub does not answer"

    async def missing(_engine, _spec):
        return lacks

    monkeypatch.setattr("rigd.adapters.reach.problem_of", away)
    monkeypatch.setattr("rigd.supervise.downloads.missing", missing)
    plan = make_plan(Path("rig.yaml"), Rig(name="r", engine=WISH))

    seen = await looking.look("network", looking.Surface(plan=plan, runtime=None, hold=lambda: None))

    assert (seen.holds, seen.whole, "no snapshot" in seen.detail) == (False, whole, not whole)


async def test_downloads_that_cannot_be_read_say_nothing_of_the_network(monkeypatch):
    async def there(_url):
        return None

    async def missing(_engine, _spec):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("rigd.adapters.reach.problem_of", there)
    monkeypatch.setattr("rigd.supervise.downloads.missing", missing)
    plan = make_plan(Path("rig.yaml"), Rig(name="r", engine=WISH))

    seen = await looking.look("network", looking.Surface(plan=plan, runtime=None, hold=lambda: None))

    assert (seen.holds, seen.whole) == (True, False)


def poisoned(**changes):
    return ended(failure("compile_cache_poisoned", remedies=MOVE), **changes)


def test_cache_is_noted_before_it_is_moved_and_moved_once():
    noted = poisoned().status
    begun = pass_time(noted)

    (action,) = begun.actions
    assert isinstance(action, MoveAside)
    assert noted.asides == (
        Aside(cache="compile_cache", kind="compile_cache_poisoned", basis="d1", stamp=action.stamp),
    )
    moved = decide(
        begun.status, finished(MovedAside(moved=True, detail="to x"), job=action.job), POLICY, now_s=NOW_S
    )
    assert [type(one) for one in moved.actions] == [Launch]
    assert moved.status.asides[0].done
    again = poisoned(asides=moved.status.asides)
    assert [step.knob for step in again.status.overlay] == ["environment.VLLM_DISABLE_COMPILE_CACHE"]


def test_cache_that_cannot_be_moved_leads_to_the_next_rung_without_a_start():
    begun = pass_time(poisoned().status)
    result = MovedAside(moved=False, detail="nothing to move")

    decision = decide(begun.status, finished(result, job=begun.actions[0].job), POLICY, now_s=NOW_S)

    assert [step.knob for step in decision.status.overlay] == ["environment.VLLM_DISABLE_COMPILE_CACHE"]


def test_what_the_check_of_a_download_found_is_in_the_reason():
    corrupt = failure("weights_corrupt", sentence="A weights file is damaged.", retry_helps=False)
    begun = pass_time(ended(corrupt).status)
    result = MovedAside(moved=False, detail="d", finding="It is model-2. rigd may not move it: `sudo rm x`.")

    now = decide(begun.status, finished(result, job=begun.actions[0].job), POLICY, now_s=NOW_S).status

    assert (now.state, now.gave_up) == (State.FAILED, GiveUp.USELESS)
    assert now.reason.startswith("A weights file is damaged. It is model-2. rigd may not move it")


def test_another_rig_file_may_move_the_cache_once_more():
    moved = (Aside(cache="compile_cache", kind="compile_cache_poisoned", basis="d0", stamp=1, done=True),)

    assert poisoned(asides=moved).status.pending.move is Move.MOVE_ASIDE


def test_disabled_ladder_moves_nothing():
    off = POLICY.supervision.model_copy(update={"ladder": LADDER.model_copy(update={"enabled": False})})
    now = status(State.STOPPING, launched_s=NOW_S - 30)
    done = finished(StopDone(report=REPORT, diagnosis=failure("compile_cache_poisoned", remedies=MOVE)))

    assert decide(now, done, replace(POLICY, supervision=off), now_s=NOW_S).status.pending is None


# The tables agree.


def test_every_condition_can_be_looked_at():
    assert set(LOOKS) == set(CONDITIONS)


def test_every_wait_and_cache_that_is_named_exists():
    steps = [(one.knob, one.change) for road in ROADS.values() for one in road]
    steps += [(turn.knob, str(turn.change)) for rule in FAILURE_RULES for turn in rule.turns]

    assert {knob for knob, change in steps if change == "wait"} <= set(CONDITIONS)
    assert {knob for knob, change in steps if change == "move_aside"} <= set(CACHES)


def test_every_road_belongs_to_a_class():
    own = {"cannot_serve", "engine_stalled", "garbage_output", "runtime_unavailable"}

    assert set(ROADS) - own <= {rule.kind for rule in FAILURE_RULES}


def test_waits_between_looks_have_a_limit():
    assert look_s(10_000) == LONGEST_LOOK_S
