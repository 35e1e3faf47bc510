"""The engine core: its own process, one loop, a step at a time, blocking as vLLM's does."""

import contextlib
import functools
import os
import random
import select
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from rigd.sim.arguments import Settings
from rigd.sim.cache import BlockPool
from rigd.sim.faults import Faults
from rigd.sim.lines import Log
from rigd.sim.processes import (
    Lines,
    StepTimedOutError,
    Worker,
    WorkerDiedError,
    end,
    ignore_term,
    run_step,
    set_title,
    start_workers,
)
from rigd.sim.scheduler import Produced, Request, Scheduler, Step, Tally
from rigd.sim.startup import Start, StartFailedError
from rigd.sim.timing import keep_probability, step_s

ORPHAN_LIMIT_S = 120.0
"""How long a core whose API server was killed lives on. vLLM's lives for ever; a test's must not."""

_IDLE_S = 0.1
_SHM_MESSAGE_S = 60.0
_WORKER_DEATH_S = 3.0
_FLOOD_LIMIT = 20_000
_MIB = 1 << 20
_LEAK_LIMIT = 512 * _MIB


def run_core(settings: Settings, faults: Faults, link: socket.socket) -> int:
    """Be the engine core: start, then serve requests from `link` until there is a reason to end."""
    set_title("VLLM::EngineCore")
    switches = faults.now()
    if switches.on("orphans"):
        os.setsid()
    if switches.on("refuse-term"):
        ignore_term()
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = Log("EngineCore")
    lines = Lines(link)
    workers = start_workers(settings.ranks, inherited=(link,))
    if not switches.on("refuse-term"):
        signal.signal(signal.SIGTERM, functools.partial(_terminate, workers))
    try:
        Start(settings=settings, faults=faults, core=out, workers=workers).run()
    except StartFailedError as failure:
        lines.send({"failed": failure.code})
        return failure.code
    lines.send({"ready": True})
    return Core(settings=settings, faults=faults, out=out, lines=lines, workers=workers).run()


def _terminate(workers: tuple[Worker, ...], _signal: int, _frame: Any) -> NoReturn:
    Log("EngineCore").info("core.py:1454", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    end(0)


@dataclass(kw_only=True)
class _Clock:
    """When the step that is running ends; the time that bookkeeping takes is part of it."""

    due_s: float = 0.0

    def pass_time(self, duration_s: float) -> None:
        now_s = time.monotonic()
        self.due_s = max(self.due_s, now_s - duration_s) + duration_s
        if self.due_s > now_s:
            time.sleep(self.due_s - now_s)


class Core:
    """The loop of a core that is ready."""

    def __init__(
        self, *, settings: Settings, faults: Faults, out: Log, lines: Lines, workers: tuple[Worker, ...]
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._log = out
        self._lines = lines
        self._workers = workers
        self._scheduler = Scheduler(
            pool=BlockPool(
                total=settings.blocks, caching=settings.prefix_caching, sightings=2 if settings.hybrid else 1
            ),
            block_size=settings.block_size,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            drafts=settings.drafts,
        )
        self._random = random.Random(0)  # noqa: S311  (the same run twice, not a secret)
        self._ready_s = time.monotonic()
        self._requests = 0
        self._stalled = False
        self._told_idle = True
        self._parent = os.getppid()
        self._clock = _Clock()
        self._first_s = settings.profile.first_request_s
        self._flooded_s = time.monotonic()
        self._steps = 0
        self._leaked: list[bytearray] = []
        self._leaked_s = time.monotonic()
        self._step_timeout_s = float(os.environ.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "300"))

    def run(self) -> int:
        """Serve until the API server has gone, a worker has died, or a fault says so."""
        while True:
            self._misbehave()
            # Requests come and go before a step is planned, never between its plan and its end.
            if not self._listen(wait=self._scheduler.idle):
                return self._outlive()
            self._push_out()
            step = self._scheduler.plan()
            if step.empty:
                self._report_idle()
                continue
            try:
                self._compute(step)
            except WorkerDiedError as death:
                self._mourn(death)
            except StepTimedOutError:
                self._die("TimeoutError: RPC call to sample_tokens timed out.")

    def _listen(self, *, wait: bool) -> bool:
        """Take what has come from the API server; False when it has gone."""
        links = [self._lines.link, *(worker.link for worker in self._workers)]
        readable, _, _ = select.select(links, [], [], _IDLE_S if wait else 0.0)
        for worker in self._workers:
            if worker.link in readable:
                self._mourn(WorkerDiedError(worker.rank))
        while self._lines.link in readable:
            messages = self._lines.receive()
            if messages is None:
                return False
            for message in messages:
                self._obey(message)
            readable, _, _ = select.select([self._lines.link], [], [], 0.0)
        return True

    def _obey(self, message: dict[str, Any]) -> None:
        if "abort" in message:
            self._scheduler.abort(message["abort"])
            self._told_idle = False
            return
        self._requests += 1
        if self._faults.now().on("die-at-request"):
            self._die("torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
        self._scheduler.add(
            Request(
                id=message["id"], prompt=message["prompt"], answer=message["answer"], reason=message["reason"]
            )
        )

    def _compute(self, step: Step) -> None:
        settings = self._settings
        run_step(self._workers, timeout_s=self._step_timeout_s, waiting=self._complain)
        profile = settings.profile
        pieces = ((one.start, one.tokens) for one in step.prefills)
        self._clock.pass_time(step_s(profile, pieces, len(step.decodes)) + self._first_s)
        self._first_s = 0.0
        switches = self._faults.now()
        given = switches.number("acceptance")
        share = settings.acceptance if given is None else given
        # Without drafts nothing is kept either: each step yields its own token and no more.
        silent = switches.on("acceptance-collapse") or switches.on("no-drafts")
        self._scheduler.drafting = not switches.on("no-drafts")
        keep = 0.0 if silent else keep_probability(share, settings.drafts)
        produced = self._scheduler.commit(step, lambda: self._kept(keep))
        self._report(produced, computed=sum(one.tokens for one in step.prefills))

    def _push_out(self) -> None:
        """Preempt the newest request now and then, where a fault says so."""
        every = self._faults.now().number("preempt")
        self._steps += 1
        if every is not None and self._steps % max(1, int(every)) == 0:
            self._scheduler.push_out()

    def _report_idle(self) -> None:
        """Tell once that nobody is left; an abort makes no step that would tell it."""
        if self._scheduler.idle and not self._told_idle:
            self._told_idle = True
            self._report((), computed=0)

    def _report(self, produced: tuple[Produced, ...], *, computed: int) -> None:
        scheduler = self._scheduler
        tally, scheduler.tally = scheduler.tally, Tally(accepted_per_position=[0] * self._settings.drafts)
        self._lines.send(
            {
                "out": [[one.id, one.tokens, one.finished, one.cached] for one in produced],
                "running": len(scheduler.running),
                "waiting": len(scheduler.waiting),
                "kv": scheduler.pool.usage,
                "computed": computed,
                "tally": asdict(tally),
            }
        )

    def _kept(self, keep: float) -> int:
        kept = 0
        while kept < self._settings.drafts and self._random.random() < keep:
            kept += 1
        return kept

    def _complain(self, waited_s: float) -> None:
        if int(waited_s) and int(waited_s) % int(_SHM_MESSAGE_S) == 0:
            self._log.info(
                "shm_broadcast.py:698",
                "No available shared memory broadcast block found in 60 seconds. This typically "
                "happens when some "
                "processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache "
                "quantization).",
            )

    def _misbehave(self) -> None:
        switches = self._faults.now()
        if not switches.values:
            return
        age_s = time.monotonic() - self._ready_s
        limit_s = switches.number("die-after")
        if limit_s is not None and age_s >= limit_s:
            self._die("torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
        if (lines := switches.number("log-flood")) is not None:
            self._flood(lines)
        if (rate := switches.number("leak")) is not None:
            self._leak(rate)
        stall_s = switches.number("stall")
        if stall_s is None:
            self._stalled = False
        elif self._requests and not self._stalled and self._scheduler.running:
            self._stalled = True
            time.sleep(stall_s)
        while self._frozen(time.monotonic() - self._ready_s) and os.getppid() == self._parent:
            time.sleep(_IDLE_S / 2)

    def _frozen(self, age_s: float) -> bool:
        switches = self._faults.now()
        after_s = switches.number("freeze-after")
        return switches.on("freeze") or (after_s is not None and age_s >= after_s)

    def _flood(self, lines_per_s: float) -> None:
        now_s = time.monotonic()
        due = int((now_s - self._flooded_s) * (lines_per_s or 1000.0))
        if due:
            self._flooded_s = now_s
            text = "\n".join(["the same warning again"] * min(due, _FLOOD_LIMIT))
            self._log.warning("core.py:1589", text)

    def _leak(self, mib_per_s: float) -> None:
        now_s = time.monotonic()
        due = int((now_s - self._leaked_s) * mib_per_s * _MIB)
        room = _LEAK_LIMIT - sum(map(len, self._leaked))
        if due >= _MIB and room > 0:
            self._leaked_s = now_s
            self._leaked.append(bytearray(b"\1" * min(due, room)))  # Written to, so that it is really there.

    def _mourn(self, death: WorkerDiedError) -> NoReturn:
        self._log.error(
            "multiproc_executor.py:315",
            f"Worker proc VllmWorker-{death.rank} died unexpectedly (exit code: -9), shutting down executor.",
        )
        self._log.info(
            "multiproc_executor.py:479",
            f"[shutdown] Executor: waiting for worker exit count={len(self._workers) - 1}",
        )
        for worker in self._workers:
            worker.link.close()
        time.sleep(_WORKER_DEATH_S)
        self._die("RuntimeError: Executor failed.")

    def _die(self, error: str) -> NoReturn:
        self._log.error(
            "core.py:1512",
            "EngineCore encountered a fatal error.\n"
            "Traceback (most recent call last):\n"
            '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1496, in '
            "run_engine_core\n"
            "    engine_core.run_busy_loop()\n"
            f"{error}",
        )
        end(1)

    def _outlive(self) -> int:
        """Live on without an API server, as vLLM's core does after its parent was killed."""
        limit_s = time.monotonic() + ORPHAN_LIMIT_S
        while time.monotonic() < limit_s:
            time.sleep(_IDLE_S)
        sys.stdout.flush()
        return 0
