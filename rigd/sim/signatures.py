"""What failing starts print, by name: the real texts, with the numbers of the double filled in."""

from dataclasses import dataclass

_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU {rank} has a total capacity of "
    "23.57 GiB of which {free} is free. Including non-PyTorch memory, this process has 23.31 GiB memory in use. "
    "Of the allocated memory 22.40 GiB is allocated by PyTorch{pools}, and 312.41 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One way in which a start fails."""

    phase: str
    """Phase at whose end it happens: args, load, profile, kv or capture."""
    process: str
    """Whose traceback it is: `worker` or `core`."""
    frames: tuple[tuple[str, int, str, str], ...]
    """File, line, function and source line of each frame, outermost first."""
    error: str
    before: str = ""
    """What a library prints by itself before the traceback."""


def _oom(size: str, free: str, pools: str = "") -> str:
    return _OOM.format(size=size, free=free, pools=pools, rank=0)


SIGNATURES = {
    "oom-weights": Signature(
        phase="load",
        process="worker",
        frames=(
            (
                "v1/worker/gpu_worker.py",
                412,
                "load_model",
                "self.model_runner.load_model(load_dummy_weights)",
            ),
            (
                "model_executor/layers/quantization/gptq_marlin.py",
                412,
                "create_weights",
                "qweight = PackedvLLMParameter(",
            ),
        ),
        error=_oom("136.00 MiB", "98.81 MiB"),
    ),
    "oom-profile": Signature(
        phase="profile",
        process="worker",
        frames=(
            ("v1/worker/gpu_worker.py", 688, "determine_available_memory", "self.model_runner.profile_run()"),
            (
                "v1/worker/gpu_model_runner.py",
                6120,
                "profile_run",
                "hidden_states, last_hidden_states = self._dummy_run(",
            ),
        ),
        error=_oom("1.16 GiB", "730.81 MiB"),
    ),
    "oom-sampler": Signature(
        phase="capture",
        process="worker",
        frames=(
            (
                "v1/worker/gpu_worker.py",
                815,
                "compile_or_warm_up_model",
                "self.model_runner._dummy_sampler_run(",
            ),
            ("v1/worker/gpu_model_runner.py", 5990, "_dummy_sampler_run", "raise RuntimeError("),
        ),
        error="RuntimeError: CUDA out of memory occurred when warming up sampler with {max_num_seqs} dummy requests. "
        "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    ),
    "oom-cudagraph": Signature(
        phase="capture",
        process="worker",
        frames=(
            ("v1/worker/gpu_worker.py", 803, "compile_or_warm_up_model", "self.model_runner.capture_model()"),
            ("v1/worker/gpu_model_runner.py", 6570, "capture_model", "self._capture_cudagraphs("),
        ),
        error=_oom("44.00 MiB", "30.81 MiB", " with 1.07 GiB allocated in private pools (e.g., CUDA Graphs)"),
    ),
    "kv-none": Signature(
        phase="kv",
        process="core",
        frames=(("v1/core/kv_cache_utils.py", 1010, "_check_enough_kv_cache_memory", "raise ValueError("),),
        error="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine (this flag also controls CPU memory reservation on the CPU backend, despite its "
        "name). See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.",
    ),
    "kv-small": Signature(
        phase="kv",
        process="core",
        frames=(("v1/core/kv_cache_utils.py", 1030, "_check_enough_kv_cache_memory", "raise ValueError("),),
        error="ValueError: To serve at least one request with the model's max seq len ({max_model_len}), "
        "({needed_gib} GiB KV cache is needed, which is larger than the available KV cache memory "
        "({available_gib} GiB). Based on the available memory, the estimated maximum model length is {fits}. Try "
        "increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing "
        "`max_model_len` when initializing the engine. See "
        "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.",
    ),
    "gpu-busy": Signature(
        phase="args",
        process="worker",
        frames=(("v1/worker/utils.py", 764, "request_memory", "raise ValueError("),),
        error="ValueError: Free memory on device cuda:0 (11.32/23.57 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 21.68 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
        "processes.",
    ),
    "mamba-seqs": Signature(
        phase="capture",
        process="worker",
        frames=(("v1/worker/gpu_model_runner.py", 6480, "capture_model", "raise ValueError("),),
        error="ValueError: max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({fits}). Each decode "
        "request requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs "
        "to at most {fits} or increase gpu_memory_utilization.",
    ),
    "cache-poisoned": Signature(
        phase="profile",
        process="worker",
        frames=(("compilation/backends.py", 1105, "__call__", "raise RuntimeError("),),
        error="RuntimeError: vLLM failed to compile the model. The most likely reason for this is that a previous "
        "compilation failed, leading to a corrupted compilation artifact. We recommend trying to remove "
        "~/.cache/vllm/torch_compile_cache and try again to see the real issue. ",
    ),
    "weights-corrupt": Signature(
        phase="load",
        process="worker",
        frames=(
            (
                "model_executor/model_loader/weight_utils.py",
                880,
                "safetensors_weights_iterator",
                "with safe_open(st_file,",
            ),
        ),
        error="safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not "
        "fully covered",
    ),
    "hf-network": Signature(
        phase="args",
        process="api",
        frames=(
            (
                "transformers_utils/repo_utils.py",
                180,
                "list_repo_files",
                "return hf_list_repo_files(repo_id, revision=revision, repo_type=repo_type, token=token)",
            ),
        ),
        error="huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file "
        "on the Hub and we cannot find the requested files in the local cache. Please check your connection and "
        "try again or make sure your Internet connection is on.",
    ),
    "model-missing": Signature(
        phase="args",
        process="api",
        frames=(
            ("transformers_utils/config.py", 702, "get_config", "raise ValueError(error_message) from e"),
        ),
        error="OSError: {model} is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
    ),
    "fp8-kv": Signature(
        phase="profile",
        process="worker",
        frames=(("platforms/cuda.py", 390, "get_attn_backend_cls", "raise ValueError("),),
        error="ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are "
        "('fp8e4b15', 'fp8e5')",
    ),
    "custom-allreduce": Signature(
        phase="capture",
        process="worker",
        frames=(),
        error="Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'",
    ),
    "shm-exhausted": Signature(
        phase="args",
        process="worker",
        frames=(
            ("distributed/device_communicators/pynccl.py", 132, "__init__", "self.nccl.ncclCommInitRank("),
        ),
        error="RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        before="box:7:7 [0] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment "
        "/dev/shm/nccl-Fb2a1c (size 9637888), error: No space left on device (28)",
    ),
}
"""Signatures by the name that the fault `fail-at-start` takes."""


def traceback_text(signature: Signature, **numbers: object) -> str:
    """Return the whole traceback as vLLM logs it."""
    error = signature.error.format(**numbers)
    if not signature.frames:
        return error
    frames = "".join(
        f'  File "/usr/local/lib/python3.12/dist-packages/vllm/{file}", line {line}, in {function}\n    {source}\n'
        for file, line, function, source in signature.frames
    )
    return f"Traceback (most recent call last):\n{frames}{error}"
