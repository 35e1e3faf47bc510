"""A rig file that is read again: what is not the engine's is taken up without touching the engine."""

from dataclasses import replace

import pytest
from supervise import ENGINE, NOW_S, POLICY, status

from rigd.rig.host import Host
from rigd.rig.schema import Alerts, Engine, Rig, RuntimeKind
from rigd.supervise.decide import decide
from rigd.supervise.decision import Launch, StopEngine, UseRules
from rigd.supervise.observations import Observation, Request, RequestKind
from rigd.supervise.overlay import KnobStep
from rigd.supervise.plan import make_plan
from rigd.supervise.state import State

STEP = KnobStep(knob="max_num_seqs", old=10, new=5, kind="cuda_oom", sentence="s")


def asked(now, kind=RequestKind.RESTART, sections=("alerts", "host")):
    request = Request(id=7, kind=kind, sections=sections)
    return decide(now, Observation(request=request), POLICY, now_s=NOW_S)


@pytest.mark.parametrize("state", [State.STARTING, State.WARMING, State.READY, State.DEGRADED])
def test_a_restart_for_other_parts_alone_leaves_the_engine_as_it_is(state):
    decision = asked(status(state))

    assert decision.actions == (UseRules(steps=()),)
    assert decision.status.state is state
    assert decision.replies[0].ok
    assert "`alerts`, `host` of the rig file is in effect" in decision.replies[0].message
    assert [entry.kind for entry in decision.entries] == ["rig-file"]


def test_what_rigd_changed_on_top_stays():
    decision = asked(status(State.READY, overlay=(STEP,), overlay_basis=POLICY.basis))

    assert decision.actions == (UseRules(steps=(STEP,)),)
    assert decision.status.overlay == (STEP,)


def test_an_engine_of_an_older_configuration_is_restarted_all_the_same():
    old = status(State.READY, engine=replace(ENGINE, digest="older"))

    decision = asked(old)

    assert [type(action) for action in decision.actions] == [UseRules, StopEngine]


@pytest.mark.parametrize("kind", [RequestKind.RESTART, RequestKind.START])
def test_where_nothing_runs_the_file_is_taken_up_before_the_launch(kind):
    decision = asked(status(State.FAILED), kind)

    assert [type(action) for action in decision.actions] == [UseRules, Launch]


def test_an_unchanged_file_restarts_the_engine():
    assert StopEngine in {type(action) for action in asked(status(State.READY), sections=()).actions}


def test_a_plan_names_the_sections_that_differ(tmp_path):
    engine = Engine(runtime=RuntimeKind.PROCESS, version="0.32.0", model="m")
    before = make_plan(tmp_path / "rig.yaml", Rig(name="r", engine=engine))
    rig = Rig(name="r", engine=engine, host=Host(allow_reboot=True), alerts=Alerts(group_s=1))
    after = make_plan(tmp_path / "rig.yaml", rig)

    assert before.changes(after) == ("host", "alerts")
    assert before.changes(before) == ()
    assert before.spec.digest == after.spec.digest
