"""The actor on a real store: stored before it is done, once over daemons and boots, and what came of it is told."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rigd.adapters.gpu import GpuCard, GpuReadings
from rigd.adapters.kernel_log import KernelLine
from rigd.adapters.store import Store
from rigd.rig.host import GpuSettings, HeatResponse, Host, Temperature
from rigd.rig.schema import RuntimeKind
from rigd.runtime.base import EngineRef
from rigd.supervise.host_actor import HostActor
from rigd.supervise.host_acts import ActKind, ActState
from rigd.supervise.host_root import Answer
from rigd.supervise.host_watch import HostWatch, Supervised
from rigd.supervise.live import Board
from rigd.supervise.plan import load_plan
from rigd.supervise.state import Desired, Failure, State, Status

BUS = "0000:14:00"
XID_119 = f"NVRM: Xid (PCI:{BUS}): 119, pid=1, name=VLLM::Worker_TP1, Timeout after 6s of waiting for RPC"
CARDS = tuple(
    GpuCard(
        index=index, uuid=f"GPU-{index}", bus_id=f"00000000:{bus}:00.0", temperature_c=60, power_set_w=350.0
    )
    for index, bus in enumerate(("0A", "14"))
)
BACKOFF = Status(state=State.BACKOFF, desired=Desired.RUNNING)
ENGINE = EngineRef(runtime=RuntimeKind.PROCESS, id="1:1", pid=1, start=1, digest="d", created_s=0.0)
READY = Status(state=State.READY, desired=Desired.RUNNING, engine=ENGINE)


class Hands:
    """Writes down what it is asked for, and what was stored by then."""

    def __init__(self, store: Store) -> None:
        self.here, self.answer = True, Answer(ok=True, message="so it is")
        self.asked: list[ActKind] = []
        self.stored: list[str] = []
        self._store = store

    async def carry_out(self, act):
        self.stored.append(await self._store.fact("host-acts") or "")
        self.asked.append(act.kind)
        return self.answer


class Daemon:
    """The host's side of one daemon."""

    def __init__(self, store: Store, plan, rules: Host, *, boot: str = "b1") -> None:
        self.now_s, self.status, self.rules = 1000.0, BACKOFF, rules
        self.cards, self.board = CARDS, Board()
        self.hands = Hands(store)
        self.entries: list[tuple[str, str]] = []
        self.requests: list[str] = []
        kernel = SimpleNamespace(problem=None, position="", lines=())
        self.watch = HostWatch(
            store,
            self.board,
            kernel=kernel,
            journal=self._journal,
            look=self._look,
            now=lambda: self.now_s,
            boot=boot,
            versions=lambda: SimpleNamespace(mismatch=False),
        )
        self.watch._loaded.set()
        self.actor = HostActor(
            store,
            self.watch,
            self.board,
            self.hands,
            journal=self._journal,
            look=self._look,
            restart=self._restart,
            start=self._start,
            now=lambda: self.now_s,
            boot=boot,
        )
        self._plan = plan

    def _look(self) -> Supervised:
        return Supervised(status=self.status, plan=self._plan, rules=self.rules)

    async def _restart(self, why: str) -> None:
        self.requests.append(f"restart {why}")

    async def _start(self, why: str) -> None:
        self.requests.append(f"start {why}")

    async def _journal(self, *entries) -> None:
        self.entries += [(entry.kind, dict(entry.data).get("state", "")) for entry in entries]

    async def look(self, *, after_s: float = 10.0, **second) -> None:
        """Read the cards `after_s` later, the second with these changes, and let the actor finish."""
        self.now_s += after_s
        cards = (self.cards[0], replace(self.cards[1], **second))
        await self.watch.on_readings(GpuReadings(at_s=self.now_s, cards=cards))
        await self.actor.consider()
        if self.actor._task is not None:
            await self.actor._task

    async def hear(self, text: str) -> None:
        from rigd.supervise.host import Around  # noqa: PLC0415  (only here)
        from rigd.supervise.host_kernel import after_kernel  # noqa: PLC0415

        line = KernelLine(at_s=self.now_s, text=text)
        await self.watch.amend(lambda state: after_kernel(state, [line], Around(now_s=self.now_s)))

    def acts(self) -> list[str]:
        return [state for kind, state in self.entries if kind == "host-act"]


@pytest.fixture
async def store(tmp_path):
    opened = await Store.open(tmp_path / "rigd.db")
    yield opened
    await opened.close()


@pytest.fixture
def make(store, tmp_path):
    """Give a function that makes a daemon on the one store."""
    path = tmp_path / "rig.yaml"
    path.write_text(
        "name: r\nengine:\n  runtime: process\n  model: m\n  version: 0.32.0\n  process: {executable: [vllm]}\n"
    )
    plan = load_plan(path)

    def make(rules: Host, **more) -> Daemon:
        return Daemon(store, plan, rules, **more)

    return make


RESET = Host(allow_gpu_reset=True, act_after_s=30)
REBOOT = Host(allow_reboot=True, act_after_s=30, most_per_day=1)


async def in_need(daemon: Daemon) -> None:
    """Let a card need a reset, for long enough."""
    await daemon.look()
    await daemon.hear(XID_119)
    await daemon.look(after_s=40)


async def test_the_intent_is_on_disk_before_the_card_is_reset_and_the_start_waits_so_long(make):
    daemon = make(RESET)
    await daemon.look()

    await daemon.hear(XID_119)
    assert daemon.board.hold is not None
    await daemon.look(after_s=40)

    assert daemon.hands.asked == [ActKind.RESET]
    assert '"intended"' in daemon.hands.stored[0]
    assert daemon.acts() == ["intended", "done"]
    assert daemon.watch.findings == []
    assert daemon.board.hold is None


async def test_without_leave_nothing_is_done_and_nothing_waits(make):
    daemon = make(Host())

    await in_need(daemon)

    assert daemon.hands.asked == []
    assert daemon.board.hold is None
    assert len(daemon.watch.findings) == 1


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(READY, id="ready"),
        pytest.param(replace(BACKOFF, state=State.STARTING), id="a-launch-may-be-past-the-gate"),
        pytest.param(replace(BACKOFF, state=State.STOPPING, engine=ENGINE), id="stopping"),
        pytest.param(replace(BACKOFF, state=State.MAINTENANCE), id="maintenance"),
        pytest.param(Status(state=State.STOPPED), id="stopped-by-a-person"),
        pytest.param(
            replace(BACKOFF, state=State.FAILED, failure=Failure(kind="bad_cli", sentence="-")),
            id="given-up-for-another-reason",
        ),
    ],
)
async def test_a_host_that_is_not_quiet_is_left_alone(make, status):
    daemon = make(RESET)
    daemon.status = status

    await in_need(daemon)

    assert daemon.hands.asked == []


async def test_a_launch_that_waits_at_the_gate_is_quiet(make):
    daemon = make(RESET)
    daemon.status = replace(BACKOFF, state=State.STARTING)
    daemon.board.waiting = True

    await in_need(daemon)

    assert daemon.hands.asked == [ActKind.RESET]


async def test_an_engine_that_was_given_up_for_its_card_is_started_after_the_reset(make):
    daemon = make(RESET)
    daemon.status = replace(
        BACKOFF, state=State.FAILED, failure=Failure(kind="gpu_reset_required", sentence="-")
    )

    await in_need(daemon)

    assert daemon.requests == ["start because the card was reset"]


async def test_a_reset_that_fails_is_told_with_the_reason_and_not_repeated(make):
    daemon = make(RESET)
    daemon.hands.answer = Answer(ok=False, message="it is in use")

    await in_need(daemon)
    await daemon.look(after_s=600)

    assert daemon.hands.asked == [ActKind.RESET]
    assert daemon.acts() == ["intended", "failed"]
    assert daemon.board.hold is None  # A start is tried again, as if rigd could do nothing.


async def test_the_count_of_reboots_survives_the_reboot(make):
    before = make(REBOOT)
    await in_need(before)
    await before.look()
    assert before.hands.asked == [ActKind.REBOOT]
    assert before.acts() == ["intended"]

    after = make(REBOOT, boot="b2")
    after.now_s = before.now_s + 90
    await in_need(after)
    await after.look()

    assert after.hands.asked == []
    assert after.acts() == ["done", "refused"]
    assert [act.state for act in after.actor.history] == [ActState.DONE, ActState.REFUSED]


async def test_a_daemon_killed_in_the_act_does_not_do_it_again(make):
    first = make(RESET)
    begun = asyncio.Event()

    async def hangs(_act):
        begun.set()
        await asyncio.Event().wait()

    first.hands.carry_out = hangs
    reset = asyncio.create_task(in_need(first))
    await begun.wait()
    await first.actor.close()
    await asyncio.gather(reset, return_exceptions=True)

    second = make(RESET)
    second.now_s = first.now_s + 5
    await in_need(second)

    assert second.hands.asked == []
    assert second.acts() == ["failed"]


async def test_what_cannot_be_stored_is_not_done(make, store, monkeypatch):
    async def full() -> bool:
        return False

    daemon = make(RESET)
    monkeypatch.setattr(store, "flush", full)

    await in_need(daemon)

    assert daemon.hands.asked == []
    assert daemon.acts() == ["intended", "failed"]


# --- heat and settings ---


async def test_a_hot_card_is_lowered_once_and_restored_when_cool(make):
    daemon = make(Host(temperature=Temperature(response=HeatResponse.LOWER_POWER)))
    daemon.status = READY
    for celsius in (92, 92, 92, 92, 92, 85):
        await daemon.look(temperature_c=celsius, power_set_w=220.0 if daemon.hands.asked else 350.0)

    assert daemon.hands.asked == [ActKind.LOWER]
    assert daemon.watch.state.lowered == (BUS,)

    await daemon.look(temperature_c=70, power_set_w=220.0)
    await daemon.look(temperature_c=70)
    assert daemon.hands.asked == [ActKind.LOWER, ActKind.RESTORE]
    assert daemon.watch.state.lowered == ()
    assert daemon.watch.findings == [] or all(one["class"] == "thermal" for one in daemon.watch.findings)


async def test_a_hot_card_s_engine_is_stopped_and_held_until_it_is_cool(make):
    daemon = make(Host(temperature=Temperature(response=HeatResponse.STOP)))
    daemon.status = READY
    for celsius in (92, 92, 92, 92):
        await daemon.look(temperature_c=celsius)

    assert len(daemon.requests) == 1
    assert daemon.requests[0].startswith("restart because a card is too hot")
    assert daemon.board.hold is not None

    daemon.status = replace(BACKOFF, state=State.STARTING)
    await daemon.look(temperature_c=70)
    assert daemon.board.hold is None
    assert daemon.hands.asked == []


async def test_settings_that_were_lost_are_set_again(make):
    daemon = make(Host(gpus=(GpuSettings(card="GPU-1", power_limit_w=290),)))
    daemon.status = READY
    await daemon.look()
    await daemon.look()
    await daemon.look(power_set_w=290.0)

    assert daemon.hands.asked == [ActKind.APPLY]
    assert daemon.acts() == ["intended", "done"]
    assert daemon.watch.findings == []


async def test_a_stored_history_of_another_version_is_begun_anew(make, store):
    store.keep_fact("host-acts", '{"what": 1}')
    await store.flush()
    daemon = make(RESET)

    await in_need(daemon)

    assert daemon.hands.asked == [ActKind.RESET]
