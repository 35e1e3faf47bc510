"""The host watch on a real store: told once, over daemons and boots; a broken host shuts the launch's gate."""

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rigd.adapters.gpu import GpuCard, GpuFault, GpuProblem, GpuReadings
from rigd.adapters.gpu_driver import DriverVersions
from rigd.adapters.kernel_log import FROM_BOOT, FROM_NOW, KernelLine
from rigd.adapters.store import Store
from rigd.cli import status
from rigd.runtime.gates import uses_card
from rigd.supervise.host_watch import HostWatch, Supervised
from rigd.supervise.live import Board
from rigd.supervise.plan import load_plan
from rigd.supervise.state import Status

XID_79 = "NVRM: Xid (PCI:0000:14:00): 79, pid=1, GPU has fallen off the bus."
CARDS = tuple(
    GpuCard(index=index, uuid=f"GPU-{index}", bus_id=f"00000000:{bus}:00.0", memory_used_mib=14)
    for index, bus in enumerate(("0A", "14"))
)
FINE = GpuReadings(at_s=1.0, cards=CARDS)
ABSENT = GpuReadings(at_s=1.0, problem=GpuProblem(fault=GpuFault.NO_LIBRARY, message="none", hint="-"))


class Kernel:
    """A kernel that says what the test lets it say."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.position = ""
        self.asked: list[str] = []
        self.lines: tuple[KernelLine, ...] = ()
        self._queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def say(self, number: int, text: str) -> None:
        self._queue.put_nowait((f"kmsg:{number}", text))

    async def batches(self, position):
        self.asked.append(position)
        self.position = position or "kmsg:0"
        yield ()
        while True:
            self.position, text = await self._queue.get()
            yield (KernelLine(at_s=1.0, text=text),)


class Watched:
    """One daemon's life of a host watch."""

    def __init__(self, store: Store, plan, *, boot: str) -> None:
        self.kernel, self.board, self.entries = Kernel(), Board(), []
        self.status = Status()
        self.watch = HostWatch(
            store,
            self.board,
            kernel=self.kernel,
            journal=self._journal,
            look=lambda: Supervised(status=self.status, plan=plan),
            now=lambda: 2.0,
            boot=boot,
            versions=DriverVersions,
        )

    async def _journal(self, *entries) -> None:
        self.entries += [entry.kind for entry in entries]

    def classes(self) -> list[str]:
        return [finding["class"] for finding in self.watch.findings]


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "rig.yaml"
    path.write_text(
        "name: r\nengine:\n  runtime: process\n  model: m\n  version: 0.32.0\n  process: {executable: [vllm]}\n"
    )
    return load_plan(path)


@pytest.fixture
async def life(tmp_path, plan):
    """Give a context manager in which a daemon watches; each opens the same store afresh."""

    @contextlib.asynccontextmanager
    async def live(*, boot: str = "boot-1"):
        store = await Store.open(tmp_path / "rigd.db")
        watched = Watched(store, plan, boot=boot)
        task = asyncio.create_task(watched.watch.run())
        try:
            yield watched
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.close()

    return live


async def test_a_line_becomes_a_finding_and_shuts_the_gate(life, wait_until):
    async with life() as host:
        await host.watch.on_readings(FINE)
        host.kernel.say(7, XID_79)
        await wait_until(host.classes)

        assert host.classes() == ["gpu_lost"]
        assert host.entries == ["host-finding"]
        assert host.board.hold.name == "host:gpu_lost"
        assert "GPU 1 at 0000:14:00" in host.board.hold.detail


async def test_the_next_daemon_goes_on_and_repeats_nothing(life, wait_until):
    async with life() as first:
        await first.watch.on_readings(FINE)
        first.kernel.say(7, XID_79)
        await wait_until(first.classes)

    async with life() as second:
        await second.watch.on_readings(FINE)
        await wait_until(lambda: second.kernel.asked)

        assert second.kernel.asked == ["kmsg:7"]
        assert second.classes() == ["gpu_lost"]
        assert second.entries == []
        assert second.board.hold is not None


async def test_the_first_daemon_begins_with_what_comes(life, wait_until):
    async with life() as host:
        await wait_until(lambda: host.kernel.asked)

        assert host.kernel.asked == [FROM_NOW]


async def test_a_reboot_ends_the_findings_and_all_that_the_new_kernel_said_is_news(life, wait_until):
    async with life() as first:
        await first.watch.on_readings(FINE)
        first.kernel.say(7, XID_79)
        await wait_until(first.classes)

    async with life(boot="boot-2") as second:
        await wait_until(lambda: second.kernel.asked)

        assert second.kernel.asked == [FROM_BOOT]
        assert (second.classes(), second.entries) == ([], ["host-cleared"])


OOM = "Out of memory: Killed process 4 (VLLM::Worker_TP) total-vm:1kB, anon-rss:2kB, file-rss:0kB"
XID_119 = "NVRM: Xid (PCI:0000:14:00): 119, pid=1, Timeout after 6s of waiting for RPC"


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        pytest.param(XID_119, Status(), True, id="just-now"),
        pytest.param(XID_119, Status(launched_s=1.5), True, id="a-card-that-was-broken-before-the-start"),
        pytest.param(XID_119, Status(ready_s=1.5), False, id="an-engine-was-ready-since"),
        pytest.param(OOM, Status(launched_s=0.5), True, id="this-engine-was-killed"),
        pytest.param(OOM, Status(launched_s=1.5), False, id="an-earlier-engine-was-killed"),
    ],
)
async def test_what_the_host_said_of_the_engine_in_hand(life, wait_until, text, status, told):
    async with life() as host:
        await host.watch.on_readings(FINE)
        host.kernel.say(7, text)
        await wait_until(host.classes)
        host.status = status

        assert len(host.watch.fresh(0.0)) == told
        assert host.watch.fresh(1.1) == ()


async def test_nothing_is_held_on_a_host_without_cards(life, wait_until):
    async with life() as host:
        await host.watch.on_readings(ABSENT)
        host.kernel.say(7, XID_79)
        await wait_until(host.classes)

        assert host.board.hold is None


async def test_an_unreadable_kernel_log_is_said_and_its_return(life, wait_until):
    async with life() as host:
        host.kernel.problem = "the kernel's log cannot be read"
        await host.watch.on_readings(FINE)
        assert host.classes() == ["kernel_log_unreadable"]

        host.kernel.problem = None
        await host.watch.on_readings(FINE)
        assert host.classes() == []
        assert host.entries == ["host-finding", "host-cleared"]


async def test_a_reading_that_nobody_understands_ends_nothing(life):
    async with life() as host:
        await host.watch.on_readings(GpuReadings(at_s=1.0, cards=(None,)))
        await host.watch.on_readings(FINE)

        assert host.classes() == []


async def test_an_engine_is_followed_by_its_processes(life, wait_until):
    async with life() as host:
        host.status = Status(engine=SimpleNamespace(pid=1), ready_s=1.0)
        await host.watch.on_readings(FINE)
        host.kernel.say(8, "Out of memory: Killed process 1 (init) total-vm:1kB, anon-rss:2kB, file-rss:0kB")
        await wait_until(host.classes)

        assert "of the engine" in host.watch.findings[0]["sentence"]


@pytest.mark.parametrize(
    ("visible", "index", "uuid", "expected"),
    [
        pytest.param(None, 1, "GPU-1", True, id="all-cards"),
        pytest.param("0", 1, "GPU-1", False, id="another-card"),
        pytest.param("0,1", 1, "", True, id="by-index"),
        pytest.param("GPU-1", 1, "GPU-1234", True, id="by-uuid"),
        pytest.param("GPU-1", 0, "", False, id="uuid-unknown"),
        pytest.param("0", None, "", True, id="all-of-the-driver"),
    ],
)
def test_only_the_cards_that_the_engine_uses_hold_it(plan, visible, index, uuid, expected):
    environment = () if visible is None else (("CUDA_VISIBLE_DEVICES", visible),)
    spec = replace(plan.spec, environment=environment)

    assert uses_card(spec, index=index, uuid=uuid) is expected


def test_a_person_sees_the_gravest_first_with_what_to_do():
    document = {
        "now_s": 100.0,
        "host": [
            {
                "sentence": "GPU 1 is lost.",
                "class": "gpu_lost",
                "severity": "error",
                "hint": "power off",
                "since_s": 90.0,
                "blocks": True,
            },
            {
                "sentence": "GPU 0 has 9 MiB in use.",
                "class": "gpu_mem_busy",
                "severity": "info",
                "hint": "end it",
                "since_s": 90.0,
                "blocks": False,
            },
        ],
    }

    lines = list(status._host(document, lambda text, _code: text))

    assert [line.partition(", since")[0] for line in lines] == [
        "GPU 1 is lost. (gpu_lost",
        "  -> power off",
        "GPU 0 has 9 MiB in use. (gpu_mem_busy",
    ]
