"""The ladder: which rung comes next, from the engine as it is, and where it ends."""

from dataclasses import replace
from pathlib import Path

import pytest
from supervise import (
    NOW_S,
    POLICY,
    REPORT,
    RULES,
    WISH,
    failure,
    finished,
    idle_at_last,
    load,
    room,
    status,
    vitals,
)

from rigd.rig.schema import Arguments, Docker, Engine, Ladder, Rig
from rigd.supervise import knobs
from rigd.supervise.decide import decide
from rigd.supervise.decision import StopEngine, UseOverlay
from rigd.supervise.ladder import Move, Remedy, Tried, next_rung
from rigd.supervise.observations import LaunchFailed, Looked, Observation, Request, RequestKind, StopDone
from rigd.supervise.overlay import KnobStep, apply
from rigd.supervise.plan import make_plan
from rigd.supervise.state import GiveUp, KnownGood, State

LIMITS = Ladder()
SET_LENGTH = Remedy(knob="max_model_len", change="set", value=34736)


def road(kind, engine, remedies=(), limits=LIMITS):
    """Walk a road to its end and return the turns."""
    turns = []
    for _ in range(50):
        rung = next_rung(kind, remedies, engine, WISH, limits, tried=Tried(answered=(kind,) * 99))
        if rung.move is not Move.TURN:
            return turns, rung.move
        turns.append((rung.knob, rung.new))
        engine = knobs.write(engine, rung.knob, rung.new)
    raise AssertionError("the road does not end")


def test_out_of_memory_road_goes_seqs_batched_tokens_utilization_depth_off():
    turns, end = road("oom_sampler_warmup", WISH)

    assert turns == [
        ("max_num_seqs", 5),
        ("max_num_seqs", 2),
        ("max_num_batched_tokens", 2048),
        ("max_num_batched_tokens", 1024),
        ("gpu_memory_utilization", 0.9),
        ("gpu_memory_utilization", 0.88),
        ("gpu_memory_utilization", 0.86),
        ("speculative.num_speculative_tokens", 2),
        ("speculative.num_speculative_tokens", 1),
        ("speculative", None),
    ]
    assert end is Move.STOP


def test_pool_pinned_in_bytes_is_scaled_instead_of_the_share_of_memory():
    pinned = knobs.write(WISH, "kv_cache_memory_bytes", 13_000_000_000)
    rung = next_rung("oom_cudagraph", (), pinned, pinned, LIMITS, tried=Tried())

    assert (rung.knob, rung.new) == ("kv_cache_memory_bytes", 12_350_000_000)


def test_number_in_the_message_is_jumped_to():
    long = knobs.write(WISH, "max_model_len", 262144)
    rung = next_rung("kv_small", (SET_LENGTH,), long, long, LIMITS, tried=Tried())

    assert (rung.knob, rung.old, rung.new) == ("max_model_len", 262144, 34736)


def test_nothing_is_turned_below_its_floor():
    low = Remedy(knob="max_model_len", change="set", value=4096)

    assert next_rung("kv_small", (low,), WISH, WISH, LIMITS, tried=Tried()).move is Move.STOP


def test_restart_comes_first_where_it_may_help_and_is_bounded():
    moves = [
        next_rung(
            "engine_stalled", (), WISH, WISH, LIMITS, tried=Tried(answered=("engine_stalled",) * count)
        ).move
        for count in range(5)
    ]

    assert moves == [Move.RESTART] * 3 + [Move.TURN] * 2


def test_work_for_a_person_is_no_rung():
    fix = Remedy(knob="hf_token", change="fix")

    assert next_rung("hf_auth", (fix,), WISH, WISH, LIMITS, tried=Tried()).move is Move.STOP


def test_disabled_ladder_only_restarts():
    off = Ladder(enabled=False)

    assert next_rung("oom_profile", (), WISH, WISH, off, tried=Tried()).move is Move.STOP
    assert next_rung("engine_stalled", (), WISH, WISH, off, tried=Tried()).move is Move.RESTART


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("no_such", 1),
        ("docker.shm_size", "16gb"),
        ("max_num_seqs", 0),
        ("max_num_seqs", "many"),
        ("extra", 1),
    ],
)
def test_knob_that_does_not_exist_or_a_value_it_cannot_have_is_refused(knob, value):
    with pytest.raises(knobs.UnknownKnobError, match=knob):
        knobs.write(WISH, knob, value)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("max_num_seqs", 5),
        ("environment.NCCL_P2P_DISABLE", "1"),
        ("speculative.num_speculative_tokens", 1),
        ("enforce_eager", True),
    ],
)
def test_knob_written_is_read_back(knob, value):
    assert knobs.read(knobs.write(WISH, knob, value), knob) == value


def test_overlay_turns_the_knobs_in_order_and_leaves_the_rest():
    steps = (
        KnobStep(knob="max_num_seqs", old=10, new=5, kind="k", sentence="s"),
        KnobStep(knob="speculative", old="mtp", new=None, kind="k", sentence="s"),
    )

    engine = apply(Rig(name="r", engine=WISH), steps).engine

    assert (engine.arguments.max_num_seqs, engine.arguments.speculative) == (5, None)
    assert engine.model == WISH.model


# --- what the supervisor makes of it ---


def oom(**changes):
    return failure("oom_sampler_warmup", retry_helps=False, **changes)


def cleaned_up(now, what=None):
    return decide(now, finished(StopDone(report=REPORT, diagnosis=what or oom())), POLICY, now_s=NOW_S)


def test_turned_knob_is_in_the_stored_status_with_its_reason_before_the_next_start():
    decision = cleaned_up(status(State.STOPPING))

    step = decision.status.overlay[0]
    assert (decision.status.state, str(step), step.kind) == (
        State.BACKOFF,
        "max_num_seqs 10 -> 5",
        "oom_sampler_warmup",
    )
    assert decision.actions == (UseOverlay(steps=decision.status.overlay),)
    assert decision.status.overlay_basis == POLICY.basis


def test_ladder_that_is_spent_gives_up_and_lists_what_was_tried():
    step = KnobStep(knob="max_num_seqs", old=10, new=2, kind="bad_cli", sentence="s")
    decision = cleaned_up(status(State.STOPPING, overlay=(step,)), failure("bad_cli", retry_helps=False))

    assert decision.status.gave_up is GiveUp.LADDER
    assert "max_num_seqs 10 -> 2" in decision.status.reason


def test_crash_of_another_class_is_tried_again_although_settings_were_changed_before():
    now = status(State.STOPPING, overlay=(TURNED,))

    decision = cleaned_up(now, failure("unknown"))

    assert (decision.status.state, decision.status.overlay) == (State.BACKOFF, (TURNED,))


def test_boots_of_a_window_are_limited_whatever_the_road_offers():
    boots = tuple(NOW_S - age for age in range(RULES.ladder.boots))
    decision = cleaned_up(status(State.STOPPING, boots=boots))

    assert (decision.status.state, decision.status.gave_up) == (State.FAILED, GiveUp.BOOTS)


TURNED = KnobStep(knob="max_num_seqs", old=10, new=5, kind="oom_sampler_warmup", sentence="s")


def long_ready(**changes):
    calm = vitals(load=load(kv_usage=0.1), room=room())
    good = KnownGood(digest="d1", basis="d1", start=7)
    return status(State.READY, overlay=(TURNED,), ready_s=NOW_S - 600, vitals=calm, good=good, **changes)


def test_after_a_long_healthy_stretch_with_room_the_newest_change_is_tried_without():
    decision = idle_at_last(long_ready(), POLICY)

    assert (decision.status.trial, decision.status.overlay) == (TURNED, ())
    assert [type(action) for action in decision.actions] == [StopEngine, UseOverlay]


@pytest.mark.parametrize(
    "changes",
    [
        {"ready_s": NOW_S - 400},
        {"vitals": vitals(load=load(running=1, kv_usage=0.1), room=room())},
        {"vitals": vitals(load=load(kv_usage=0.1), room=room(kv_peak=0.9))},
        {"vitals": vitals(load=load(kv_usage=0.1), room=room(preemptions=1))},
        {"vitals": vitals(load=load(kv_usage=0.1), room=room(gpu_free_mib=100))},
        {"vitals": vitals(load=load(kv_usage=0.1))},
        {"trials_failed": 1},
        {"overlay": (replace(TURNED, kind="operator"),)},
    ],
    ids=[
        "too-soon",
        "busy",
        "pool-was-full",
        "preempted",
        "card-was-full",
        "not-looked-at",
        "doubled-stretch",
        "operators-own",
    ],
)
def test_no_trial_without_room_time_or_right(changes):
    now = replace(long_ready(), **changes)

    assert decide(now, Observation(), POLICY, now_s=NOW_S).actions == ()


def test_failed_trial_brings_the_change_back_and_doubles_the_stretch():
    decision = cleaned_up(status(State.STOPPING, trial=TURNED))

    assert (decision.status.overlay, decision.status.trial, decision.status.trials_failed) == (
        (TURNED,),
        None,
        1,
    )
    assert decision.status.retry_s == NOW_S


def test_trial_that_lasts_a_healthy_stretch_has_held():
    tried = status(State.READY, trial=TURNED, ready_s=NOW_S - RULES.healthy_stretch_s)

    assert decide(tried, Observation(), POLICY, now_s=NOW_S).status.trial is None


def test_operators_knob_restarts_a_serving_engine_into_it():
    step = replace(TURNED, kind="operator")
    request = Request(id=1, kind=RequestKind.SET, step=step)

    decision = decide(status(State.READY), Observation(request=request), POLICY, now_s=NOW_S)

    kept = replace(step, version="0.32.0", basis="d1")
    assert (decision.status.state, decision.status.overlay) == (State.STOPPING, (kept,))
    assert "max_num_seqs 10 -> 5" in decision.replies[0].message


def test_clearing_an_empty_overlay_says_so():
    request = Request(id=1, kind=RequestKind.OVERLAY_CLEAR)

    decision = decide(status(State.READY), Observation(request=request), POLICY, now_s=NOW_S)

    assert (decision.actions, decision.replies[0].ok) == ((), True)


def test_start_asked_by_a_person_begins_with_a_clean_count():
    spent = status(State.FAILED, boots=(NOW_S,) * 20, answered=("unknown",) * 3, gave_up=GiveUp.BOOTS)

    decision = decide(spent, Observation(request=Request(id=1, kind=RequestKind.START)), POLICY, now_s=NOW_S)

    assert (decision.status.boots, decision.status.answered) == ((), ())


def test_runtime_that_is_away_uses_up_no_starts():
    away = LaunchFailed(failure=failure("runtime_unavailable"), temporary=True)
    now = decide(status(State.STARTING), finished(away), POLICY, now_s=NOW_S).status
    for minute in range(1, 30):
        now = decide(now, Observation(), POLICY, now_s=NOW_S + 60 * minute).status
        still = Looked(holds=False, detail="Docker does not answer")
        now = decide(now, finished(still, job=now.job.id), POLICY, now_s=NOW_S + 60 * minute).status

    assert (now.state, now.boots, now.failures) == (State.BACKOFF, (), ())
    assert now.reason == "waiting for Docker: Docker does not answer"


def test_death_that_comes_back_every_hour_is_not_restarted_for_ever():
    """Healthy stretches between the deaths: counted by those alone, a restart would be the answer each time."""
    now, turned = status(State.STOPPING, ready_s=NOW_S - 3000, launched_s=NOW_S - 3060), []
    for hour in range(6):
        at_s = NOW_S + 3600 * hour
        died = failure("ima_mtp_gdn", at_s=at_s)
        after = decide(now, finished(StopDone(report=REPORT, diagnosis=died)), POLICY, now_s=at_s).status
        turned.append(len(after.overlay))
        now = status(
            State.STOPPING,
            ready_s=at_s + 60,
            launched_s=at_s + 30,
            overlay=after.overlay,
            slow_answers=after.slow_answers,
        )

    assert turned == [0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(
    ("lived_s", "state"), [(30, State.FAILED), (400, State.BACKOFF)], ids=["soon-after-ready", "long-after"]
)
def test_crash_soon_after_ready_counts_as_a_failed_start(lived_s, state):
    """What cannot be helped ends a start for good; an engine that had served is worth another one."""
    died = failure("worker_died", retry_helps=False)
    now = status(State.STOPPING, ready_s=NOW_S - lived_s, launched_s=NOW_S - lived_s - 30)

    assert cleaned_up(now, died).status.state is state


ENGINE_IN_DOCKER = Engine(
    runtime="docker",
    version="0.32.0",
    model="org/m",
    docker=Docker(image="i:1", container="c", pids_limit=1000),
    environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512"},
)


def first_rungs(kind, remedies=(), engine=ENGINE_IN_DOCKER, count=6):
    """Return the first rungs of a class, each taken once and found useless."""
    tried, rungs = Tried(), []
    for _ in range(count):
        rung = next_rung(kind, remedies, engine, engine, LIMITS, tried=tried)
        rungs.append(f"{rung.move} {rung.knob}".strip())
        if rung.move is Move.STOP:
            break
        if rung.move is Move.TURN:
            engine = knobs.write(engine, rung.knob, rung.new)
        tried = replace(
            tried,
            answered=(*tried.answered, *([rung.mark(kind)] * LIMITS.restarts)),
            moved=tried.moved | ({rung.knob} if rung.move is Move.MOVE_ASIDE else set()),
        )
    return rungs


@pytest.mark.parametrize(
    ("kind", "rungs"),
    [
        ("port_in_use", ["wait port", "restart", "stop"]),
        ("disk_full", ["wait disk", "stop"]),
        ("shm_exhausted", ["wait shm", "turn docker.ipc", "turn docker.shm_size", "stop"]),
        ("hf_network", ["wait network", "restart", "stop"]),
        ("registry_unreachable", ["wait registry", "restart", "stop"]),
        ("hf_not_found", ["wait model_mount", "stop"]),
        ("runtime_unavailable", ["wait docker", "stop"]),
        ("profile_race", ["wait gpu_memory", "restart", "stop"]),
        ("weights_corrupt", ["move_aside hf_download", "stop"]),
        ("ready_timeout", ["restart", "stop"]),
        ("threads_limit", ["turn docker.pids_limit", "turn environment.OPENBLAS_NUM_THREADS", "stop"]),
    ],
)
def test_roads_that_begin_outside_the_settings(kind, rungs):
    assert first_rungs(kind) == rungs


def test_number_of_the_message_fills_the_roads_step():
    fits = Remedy(knob="gpu_memory_utilization", change="set", value=0.88)
    deadline = Remedy(knob="environment.VLLM_ENGINE_READY_TIMEOUT_S", change="set", value="1800")

    assert first_rungs("gpu_mem_busy", (fits,)) == ["wait gpu_memory", "turn gpu_memory_utilization", "stop"]
    assert first_rungs("ready_timeout", (deadline,))[1:] == [f"turn {deadline.knob}", "stop"]
    dummies = Remedy(knob="max_num_seqs", change="halve", value=128)
    assert (
        next_rung(
            "oom_sampler_warmup",
            (dummies,),
            WISH.model_copy(update={"arguments": Arguments()}),
            WISH,
            LIMITS,
            tried=Tried(),
        ).new
        == 128
    )


def test_setting_that_is_in_the_list_already_is_no_step():
    expandable = Remedy(
        knob="environment.PYTORCH_CUDA_ALLOC_CONF", change="set", value="expandable_segments:True"
    )

    assert first_rungs("wsl_or_host_ram_oom", (expandable,)) == ["stop"]


def test_backend_that_the_variable_names_is_not_set_again():
    flashinfer = Remedy(knob="attention_backend", change="set", value="FLASHINFER")
    named = ENGINE_IN_DOCKER.model_copy(update={"environment": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}})

    assert first_rungs("fp8_kv_ampere", (flashinfer,), named) == ["stop"]


def test_start_offline_needs_to_be_known_to_be_possible():
    waited = ("hf_network wait network",) * LIMITS.restarts
    known = Tried(answered=(*waited, "hf_network found whole"))

    rung = next_rung("hf_network", (), WISH, WISH, LIMITS, tried=known)

    assert (rung.move, rung.knob, rung.new) == (Move.TURN, "environment.HF_HUB_OFFLINE", "1")
    again = next_rung("hf_network", (), WISH, WISH, LIMITS, tried=Tried(answered=waited))
    assert again.move is Move.RESTART


@pytest.mark.parametrize("engine", [WISH, ENGINE_IN_DOCKER], ids=["process", "docker"])
def test_start_offline_reaches_the_engine_in_both_runtimes(engine):
    step = KnobStep(knob="environment.HF_HUB_OFFLINE", old=None, new="1", kind="hf_network", sentence="s")
    wish = make_plan(Path("rig.yaml"), Rig(name="r", engine=engine))

    spec = wish.with_overlay([step]).spec

    assert dict(spec.environment)["HF_HUB_OFFLINE"] == "1"
    assert spec.digest != wish.spec.digest


def test_download_that_could_not_be_repeated_offline_is_not_moved():
    offline = ENGINE_IN_DOCKER.model_copy(update={"environment": {"HF_HUB_OFFLINE": "1"}})

    assert first_rungs("weights_corrupt", (), offline) == ["stop"]


POOL = (
    Remedy(knob="gpu_memory_utilization", change="raise", value=0.02),
    Remedy(knob="max_num_batched_tokens", change="halve"),
)


@pytest.mark.parametrize(
    ("fits", "turned"),
    [
        (None, "gpu_memory_utilization 0.92 -> 0.94"),
        (0.97, "gpu_memory_utilization 0.92 -> 0.94"),
        (0.93, "gpu_memory_utilization 0.92 -> 0.93"),
        (0.92, "max_num_batched_tokens 4096 -> 2048"),
        (0.5, "max_num_batched_tokens 4096 -> 2048"),
    ],
    ids=["nobody-knows", "room", "some-room", "just-full", "held-by-others"],
)
def test_pool_too_small_takes_only_what_of_the_cards_is_free(fits, turned):
    small = failure("kv_none", sentence="No pool.", remedies=POOL, fits=fits, retry_helps=False)

    now = cleaned_up(status(State.STOPPING), small).status

    assert [str(step) for step in now.overlay] == [turned]
    assert ("beside what other processes hold" in now.reason) is (fits is not None and fits <= 0.92)


def test_value_that_was_tried_is_never_gone_back_to():
    up = Remedy(knob="gpu_memory_utilization", change="raise", value=0.02)
    tried = Tried(values=frozenset({("gpu_memory_utilization", 0.94)}))

    assert next_rung("kv_none", (up,), WISH, WISH, LIMITS, tried=tried).move is Move.STOP
