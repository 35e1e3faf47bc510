"""What the cards have room for once an engine is gone: the fullest one counts, and memory must have settled."""

import pytest

from rigd.adapters.gpu import GpuCard, GpuFault, GpuProblem, GpuReadings
from rigd.engine.card_memory import utilization_that_fits
from rigd.rig.schema import Engine, Rig
from rigd.runtime.gates import share_that_fits
from rigd.supervise import card_room
from rigd.supervise.card_room import with_room
from rigd.supervise.ladder import Remedy
from rigd.supervise.plan import make_plan
from rigd.supervise.state import Failure

UP = Remedy(knob="gpu_memory_utilization", change="raise", value=0.02)
KV_NONE = Failure(kind="kv_none", sentence="s", remedies=(UP,))


@pytest.fixture
def spec(tmp_path):
    rig = Rig(name="r", engine=Engine(runtime="process", version="0.32.0", model="m"))
    return make_plan(tmp_path / "rig.yaml", rig).spec


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(card_room, "SETTLED_S", 0.0)


def cards(*used_mib, total_mib=24576):
    seen = [
        GpuCard(
            index=index,
            memory_total_mib=total_mib,
            memory_free_mib=None if used is None else total_mib - 261 - used,
        )
        for index, used in enumerate(used_mib)
    ]
    return GpuReadings(at_s=0.0, cards=tuple(seen))


def readings(*sequence):
    """Return a reader of these readings in turn, the last one for ever, and what it was asked."""
    left, asked = list(sequence), []

    async def read():
        asked.append(1)
        return left.pop(0) if len(left) > 1 else left[0]

    return read, asked


@pytest.mark.parametrize(
    ("used", "fits"),
    [((14, 14), 0.97), ((14, 1500), 0.91), ((24000, 14), 0.0), ((14, None), None), ((), None)],
    ids=["idle", "one-is-held", "full", "one-does-not-say", "no-cards"],
)
def test_fullest_card_counts(spec, used, fits):
    assert share_that_fits(cards(*used), spec) == fits


def test_share_of_no_memory_is_none():
    assert utilization_that_fits(1.0, 0.0) is None
    assert utilization_that_fits(0.2, 24.0) is None


async def test_memory_is_waited_for_until_two_readings_agree(spec):
    read, asked = readings(cards(9000), cards(3000), cards(14), cards(14), cards(20000))

    assert (await with_room(KV_NONE, spec, read)).fits == 0.97
    assert len(asked) == 4


async def test_memory_that_never_settles_is_taken_as_it_is(spec, monkeypatch):
    monkeypatch.setattr(card_room, "LONGEST_S", 0.0)
    read, asked = readings(cards(9000), cards(14))

    assert (await with_room(KV_NONE, spec, read)).fits == 0.61
    assert len(asked) == 1


async def test_cards_are_asked_only_where_a_larger_share_is_a_remedy(spec):
    read, asked = readings(cards(14))
    other = Failure(kind="oom_profile", sentence="s", remedies=(Remedy(knob="max_num_seqs", change="halve"),))

    assert await with_room(other, spec, read) == other
    assert asked == []


async def test_driver_in_trouble_says_nothing(spec):
    problem = GpuProblem(fault=GpuFault.STUCK, message="m", hint="h")
    read, _ = readings(GpuReadings(at_s=0.0, problem=problem))

    assert (await with_room(KV_NONE, spec, read)).fits is None
