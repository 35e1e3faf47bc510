"""The way from process to ready, phase by phase, with vLLM's log lines; and the ways to fail on it."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rigd.sim.arguments import Settings
from rigd.sim.faults import Faults
from rigd.sim.lines import Log, progress_bar, write
from rigd.sim.processes import Worker
from rigd.sim.signatures import SIGNATURES, Signature, traceback_text

_SHARDS = 4
_CAPTURES = 8
_GIB = 2**30
_MODEL_GIB = 9.31


def _compiled_before() -> bool:
    """Whether a compile cache is in use and holds anything; without VLLM_CACHE_ROOT the double has none."""
    root = os.environ.get("VLLM_CACHE_ROOT")
    if root is None or os.environ.get("VLLM_DISABLE_COMPILE_CACHE") == "1":
        return False
    return any(Path(root, "torch_compile_cache").glob("*"))


class StartFailedError(Exception):
    """The start ends here; the log has said why. `code` is the exit code."""

    def __init__(self, code: int = 1) -> None:
        super().__init__(f"start failed with exit code {code}")
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of the engine core."""

    settings: Settings
    faults: Faults
    core: Log
    workers: tuple[Worker, ...]
    sleep: Callable[[float], None] = time.sleep

    def run(self) -> None:
        """Go through all phases, or raise `StartFailedError`."""
        settings, phases = self.settings, self.settings.profile.startup
        self.core.info(
            "core.py:133",
            f"Initializing a V1 LLM engine (v{settings.version}) with config: model='{settings.model}', "
            f"tokenizer='{settings.model}', max_seq_len={settings.max_model_len}, "
            f"tensor_parallel_size={settings.ranks}, enable_prefix_caching={settings.prefix_caching}",
        )
        self.sleep(phases.init_s)
        for worker in self.workers:
            self._worker(worker).info(
                "parallel_state.py:1906",
                f"world_size={settings.ranks} rank={worker.rank} local_rank={worker.rank} "
                "distributed_init_method=tcp://127.0.0.1:40123 backend=nccl",
            )
        if settings.device == "GPU" and self.workers:
            self._worker(self.workers[0]).info("pynccl.py:113", "vLLM is using nccl==2.28.9")
        self._fail_if("args")
        self._load(phases.weights_s)
        init_s = time.monotonic()
        compile_s = self._compile(phases.compile_s)
        self._fail_if("profile")
        self.sleep(phases.profile_s)
        self._fail_if("kv")
        self._pool()
        self._capture(phases.capture_s)
        self._fail_if("capture")
        took_s = time.monotonic() - init_s
        compiled = f" (compilation: {compile_s:.2f} s)" if compile_s else ""
        self.core.info(
            "core.py:402",
            f"init engine (profile, create kv cache, warmup model) took {took_s:.2f} s{compiled}",
        )

    def _worker(self, worker: Worker) -> Log:
        return Log(worker.title, worker.pid)

    def _load(self, weights_s: float) -> None:
        for worker in self.workers:
            self._worker(worker).info(
                "gpu_model_runner.py:5086", f"Starting to load model {self.settings.model}..."
            )
        switches = self.faults.now()
        weights_s += switches.number("slow-start") or 0.0
        started_s = time.monotonic()
        title = "Loading safetensors checkpoint shards"
        for shard in range(_SHARDS):
            write(progress_bar(title, shard, _SHARDS, time.monotonic() - started_s, shards=True))
            self.sleep(weights_s / _SHARDS)
            self._end_if_told()
            if shard == _SHARDS // 2:
                self._fail_if("load")
        took_s = time.monotonic() - started_s
        write(progress_bar(title, _SHARDS, _SHARDS, took_s, shards=True) + "\n")
        first = self._worker(self.workers[0])
        first.info("default_loader.py:501", f"Loading weights took {took_s:.2f} seconds")
        for worker in self.workers:
            self._worker(worker).info(
                "gpu_model_runner.py:5150",
                f"Model loading took {_MODEL_GIB} GiB memory and {took_s:.6f} seconds",
            )

    def _end_if_told(self) -> None:
        switches = self.faults.now()
        if switches.on("exit-at-start"):
            raise StartFailedError(int(switches.number("exit-at-start") or 0))
        parent = os.getppid()
        while self.faults.now().on("hang-at-start") and os.getppid() == parent:
            self.sleep(0.1)

    def _compile(self, compile_s: float) -> float:
        if self.settings.enforce_eager:
            return 0.0
        first = self._worker(self.workers[0])
        first.info(
            "backends.py:1105",
            "Using cache directory: /home/vllm/.cache/vllm/torch_compile_cache/5b6f3a1c/rank_0_0/backbone "
            "for vLLM's torch.compile",
        )
        first.info("backends.py:1165", f"Dynamo bytecode transform time: {compile_s / 4:.2f} s")
        self.sleep(compile_s)
        first.info("monitor.py:53", f"torch.compile took {compile_s:.2f} s in total")
        return compile_s

    def _pool(self) -> None:
        settings = self.settings
        available = settings.pool_tokens * settings.profile.bytes_per_token / _GIB
        for worker in self.workers:
            self._worker(worker).info("gpu_worker.py:760", f"Available KV cache memory: {available:.2f} GiB")
        most = settings.max_model_len
        self.core.info(
            "kv_cache_utils.py:2327",
            f"{settings.device} KV cache size: {settings.blocks * settings.block_size:,} tokens, "
            "Maximum concurrency "
            f"for {most:,} tokens per request: {settings.blocks * settings.block_size / most:.2f}x",
        )

    def _capture(self, capture_s: float) -> None:
        if self.settings.enforce_eager:
            return
        started_s = time.monotonic()
        title = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE)"
        for done in range(_CAPTURES):
            write(progress_bar(title, done, _CAPTURES, time.monotonic() - started_s, shards=False))
            self.sleep(capture_s / _CAPTURES)
        took_s = time.monotonic() - started_s
        write(progress_bar(title, _CAPTURES, _CAPTURES, took_s, shards=False))
        for worker in self.workers:
            self._worker(worker).info(
                "gpu_model_runner.py:6582", f"Graph capturing finished in {took_s:.0f} secs, took 0.62 GiB"
            )

    def _fail_if(self, phase: str) -> None:
        name = self._failure()
        if name is None or SIGNATURES[name].phase != phase:
            return
        self._fail(SIGNATURES[name])

    def _failure(self) -> str | None:
        """Return the name of what makes this start fail, if anything does."""
        settings, switches = self.settings, self.faults.now()
        limits = (
            ("oom-unless-max-num-seqs", settings.max_num_seqs, "oom-sampler"),
            ("mamba-blocks", settings.max_num_seqs, "mamba-seqs"),
            ("kv-max-len", settings.max_model_len, "kv-small"),
        )
        named = switches.text("fail-at-start")
        if named is not None:
            return named if named in SIGNATURES else "oom-weights"
        if switches.on("poisoned-cache") and _compiled_before():
            return "cache-poisoned"
        for fault, value, name in limits:
            limit = switches.number(fault)
            if limit is not None and value > limit:
                return name
        return "kv-small" if settings.max_model_len > settings.blocks * settings.block_size else None

    def _fail(self, signature: Signature) -> None:
        settings, switches = self.settings, self.faults.now()
        pool = settings.blocks * settings.block_size
        # A failure that was asked for by name leaves half of what was wanted, so that its text makes sense.
        room = pool if pool < settings.max_model_len else settings.max_model_len // 2
        longest = int(switches.number("kv-max-len") or room)
        size = settings.profile.bytes_per_token / _GIB
        text = traceback_text(
            signature,
            model=settings.model,
            max_num_seqs=settings.max_num_seqs,
            max_model_len=settings.max_model_len,
            needed_gib=f"{settings.max_model_len * size:.2f}",
            available_gib=f"{longest * size:.2f}",
            fits=int(switches.number("mamba-blocks") or settings.max_num_seqs // 2)
            if signature is SIGNATURES["mamba-seqs"]
            else longest,
        )
        if signature.before:
            write(f"{signature.before}\n")
        if signature.process == "worker":
            for worker in self.workers:
                self._worker(worker).error(
                    "multiproc_executor.py:881", f"WorkerProc failed to start.\n{text}"
                )
            text = (
                "Traceback (most recent call last):\n"
                "Exception: WorkerProc initialization failed due to an exception in a background process. "
                "See stack trace for root cause."
            )
        self.core.error("core.py:1505", f"EngineCore failed to start.\n{text}")
        raise StartFailedError
