# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""Failures of memory and of sizing: the weights, the KV pool, the graphs, what others hold on the card."""

from rigd.supervise.rules.model import (
    FEWER_BATCHED_TOKENS,
    FEWER_SEQS,
    MTP_OFF,
    RESTART,
    WAIT_FOR_GPU_MEMORY,
    Captured,
    Change,
    Retry,
    Rule,
    Signature,
    Turn,
    Weight,
    first,
    fix,
    halved,
    lower_utilization,
    rounded_down,
    sig,
    unless,
    utilization_that_fits,
)

SIZE = r"[\d.,]+ ?(?:[KMGT]i?B|bytes)"
OOM = (
    rf"CUDA out of memory\. Tried to allocate (?P<tried_mib>{SIZE})"
    rf"(?:.*?\bGPU (?P<gpu>\d+))?(?:.*?(?:total capac\w+ of |; )(?P<total_gib>{SIZE}))?(?:.*?(?:of which|allocated;) (?P<free_mib>{SIZE})(?: is)? free)?"
    rf"(?:.*?this process has (?P<process_gib>{SIZE}) memory in use)?"
)
SIZES = "[[: it tried to allocate {tried_mib} MiB]][[ on GPU {gpu}]][[ ({free_mib} MiB of {total_gib} GiB were free)]]."

_AT_LOAD = (
    r"\bload_model\b|make_layers|create_weights|gptq_marlin_repack|process_weights_after_loading|load_weights"
    r"|initialize_model|weight_loader|marlin_permute|awq_marlin_repack"
)
_AT_PROFILE = r"profile_run|determine_available_memory|_dummy_run.*profile|profile_cudagraph"
_AT_CAPTURE = (
    r"capture_model|capture_graphs|_capture_cudagraphs|cuda_graph|cudagraph|CUDAGraph|torch\.cuda\.graph"
)
_AT_RUNTIME = (
    r"run_busy_loop|_process_engine_step|step_with_batch_queue|, in (?:execute_model|sample_tokens)\b"
    r"|chunk_gated_delta_rule|chunk_fwd_o|empty_like\(v\)|prompt_logprobs"
)


def _memory_was_free(found: Captured) -> bool:
    tried, free = found.get("tried_mib"), found.get("free_mib")
    return isinstance(tried, int | float) and isinstance(free, int | float) and free >= tried + 1024


def _driver_oom(frames: str, *stages: str) -> Signature:
    return sig(
        "error: out of memory",
        r"CUDA (?:driver )?error: out of memory",
        frames=frames,
        during=frozenset(stages),
    )


def _oom(frames: str = "", *stages: str) -> Signature:
    return sig("cuda out of memory. tried", OOM, frames=frames, during=frozenset(stages))


RULES = (
    Rule(
        kind="oom_sampler_warmup",
        phase="memory",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "out of memory occurred when warming up",
                r"out of memory occurred when warming up (?:sampler|pooler) with (?P<dummy_requests>\d+) dummy requests",
            ),
        ),
        sentence="The GPU ran out of memory while the sampler was warmed up[[ with {dummy_requests} requests at once"
        " (that is max-num-seqs)]].",
        remedy="Halve max-num-seqs; when it is 16 or less already, lower gpu-memory-utilization by 0.02 to 0.05.",
        turns=(
            Turn(knob="max_num_seqs", change=Change.HALVE, value=halved("dummy_requests", "max_num_seqs")),
            lower_utilization(0.02),
        ),
        documented="vllm#15105, vllm#14452, vllm#15357",
        overrides=(
            "oom_weights",
            "oom_profile",
            "oom_cudagraph",
            "post_ready_oom",
            "wsl_or_host_ram_oom",
        ),
    ),
    Rule(
        kind="wsl_or_host_ram_oom",
        phase="load",
        retry=Retry.NEVER,
        signatures=(
            sig("cuda out of memory. tried", OOM, check=_memory_was_free),
            sig("auto-prefetch is disabled because", r"exceeds 90% of available RAM", tail=True),
        ),
        sentence="CUDA reports out of memory although the card has room: the host's memory (or the allocator's "
        "fragments) ran out, not the card's.[[ Tried to allocate {tried_mib} MiB while {free_mib} MiB were free.]]",
        remedy="Give the host or VM more memory or swap, or load with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        turns=(
            Turn(
                knob="environment.PYTORCH_CUDA_ALLOC_CONF",
                change=Change.SET,
                value="expandable_segments:True",
            ),
            fix("host_memory"),
        ),
        documented="noonghunna/club-3090#32",
    ),
    Rule(
        kind="post_ready_oom",
        phase="runtime",
        retry=Retry.CONDITIONAL,
        signatures=(
            _oom("", "ready"),
            _driver_oom("", "ready"),
            _driver_oom(_AT_RUNTIME, "", "capture"),
            _oom(_AT_RUNTIME, "", "capture"),
        ),
        sentence="The GPU ran out of memory while serving: the workspace of a long prefill is not in the start-up "
        "profile" + SIZES,
        remedy="Lower max-num-batched-tokens (the workspace is linear in it), then gpu-memory-utilization by 0.02; "
        "wait until the dead engine's GPU memory is released before the next start.",
        turns=(WAIT_FOR_GPU_MEMORY, FEWER_BATCHED_TOKENS, lower_utilization(0.02)),
        documented="vllm#44209, noonghunna/club-3090#838",
    ),
    Rule(
        kind="oom_cudagraph",
        phase="capture",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "allocated in private pools",
                OOM + rf".*?(?P<graphs_mib>{SIZE}) allocated in private pools",
                during=frozenset({"", "load", "memory", "capture"}),
            ),
            _oom(_AT_CAPTURE, "", "load", "memory", "capture"),
            _oom("", "capture"),
            _driver_oom("", "capture"),
            sig(
                "cuda graph",
                r"out of memory.*(?:captur\w+|CUDA graph)|(?:captur\w+|CUDA graph).*out of memory",
            ),
        ),
        sentence="The GPU ran out of memory while CUDA graphs were captured" + SIZES,
        remedy="Lower gpu-memory-utilization by 0.03, or capture fewer graph sizes, or fix the pool with "
        "kv-cache-memory-bytes; enforce-eager is the last resort.",
        turns=(
            lower_utilization(0.03),
            Turn(knob="cudagraph_capture_sizes", change=Change.LOWER),
            Turn(knob="enforce_eager", change=Change.SET, value=True),
        ),
        documented="syv-ai/qwen38-27b-rtx3090 gotcha 18 and 29, vllm#44209",
    ),
    Rule(
        kind="oom_profile",
        phase="memory",
        retry=Retry.NEVER,
        signatures=(
            _oom(_AT_PROFILE),
            _oom("", "memory"),
            _driver_oom(_AT_PROFILE),
            _driver_oom("", "memory"),
        ),
        sentence="The GPU ran out of memory in the profiling run, which tries the largest batch" + SIZES,
        remedy="Lower max-num-batched-tokens first, then max-num-seqs and limit-mm-per-prompt.",
        turns=(FEWER_BATCHED_TOKENS, FEWER_SEQS),
        documented="vllm#17631",
    ),
    Rule(
        kind="oom_weights",
        phase="load",
        retry=Retry.NEVER,
        signatures=(_oom(_AT_LOAD), _oom("", "load"), _driver_oom(_AT_LOAD), _driver_oom("", "load")),
        sentence="The model's weights do not fit on the GPU" + SIZES,
        remedy="Use a smaller quantization, more cards (tensor-parallel-size 2) or language-model-only; "
        "gpu-memory-utilization changes nothing here.",
        turns=(
            Turn(knob="language_model_only", change=Change.SET, value=True),
            Turn(knob="tensor_parallel_size", change=Change.RAISE),
            fix("model"),
        ),
        documented="vllm#15182, vllm#188",
    ),
    Rule(
        kind="oom_profile",
        phase="memory",
        retry=Retry.NEVER,
        weight=Weight.CONSEQUENCE,
        signatures=(
            _oom(),
            _driver_oom(""),
            sig("cublas_status_alloc_failed"),
            sig("cuda out of memory", r"OutOfMemoryError: CUDA out of memory"),
        ),
        sentence="The GPU ran out of memory; the log does not show in which phase" + SIZES,
        remedy="Lower max-num-batched-tokens first, then max-num-seqs, then gpu-memory-utilization.",
        turns=(FEWER_BATCHED_TOKENS, FEWER_SEQS, lower_utilization(0.02)),
        documented="vllm#17631",
    ),
    Rule(
        kind="kv_none",
        phase="memory",
        retry=Retry.NEVER,
        signatures=(
            sig("no available memory for the cache blocks"),
            sig(
                "available kv cache memory: -",
                rf"Available KV cache memory: (?P<available_gib>-{SIZE})",
                tail=True,
            ),
        ),
        sentence="After the weights and the profiled peak nothing is left for the KV pool[[ ({available_gib} GiB)]].",
        remedy="Raise gpu-memory-utilization if the card has room (this is the opposite of an out-of-memory error); "
        "otherwise lower max-num-batched-tokens and max-num-seqs, or turn MTP off.",
        turns=(
            Turn(knob="gpu_memory_utilization", change=Change.RAISE, value=0.02),
            FEWER_BATCHED_TOKENS,
            FEWER_SEQS,
            MTP_OFF,
        ),
        documented="vllm#27508, vllm#15357",
    ),
    Rule(
        kind="kv_small",
        phase="memory",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "to serve at least one request with the",
                r"To serve at least one request with the models?'?s? max seq len \((?P<max_model_len>[\d,]+)\)"
                rf"(?:,? \(?(?P<needed_gib>{SIZE}) KV cache is needed)?"
                rf"(?:.*?available KV cache memory \((?P<available_gib>{SIZE})\))?"
                r"(?:.*?estimated maximum model length is (?P<estimated_max_len>[\d,]+))?",
                follow=4,
            ),
            sig(
                "is larger than the maximum number of tokens that can be stored in kv cache",
                r"max(?:imum)? (?:seq(?:uence)?|model) len(?:gth)? \((?P<max_model_len>[\d,]+)\) is larger than the maximum number of"
                r" tokens that can be stored in KV cache \((?P<estimated_max_len>[\d,]+)\)",
            ),
            sig(
                "estimated maximum model length is",
                r"estimated maximum model length is (?P<estimated_max_len>[\d,]+)",
            ),
        ),
        sentence="The KV pool cannot hold one request of the full context[[ of {max_model_len} tokens]]"
        "[[: {needed_gib} GiB needed, {available_gib} GiB available]][[; at most {estimated_max_len} tokens fit]].",
        remedy="Set max-model-len to the estimated maximum or less, or to auto; otherwise raise gpu-memory-utilization "
        "or use an fp8 KV cache.",
        turns=(
            Turn(knob="max_model_len", change=Change.SET, value=rounded_down("estimated_max_len", 16)),
            Turn(knob="max_model_len", change=Change.SET, value=unless("estimated_max_len", "auto")),
            Turn(knob="gpu_memory_utilization", change=Change.RAISE, value=0.02),
            Turn(knob="kv_cache_dtype", change=Change.SET, value="fp8"),
        ),
        documented="vllm#34076, vllm#16118",
    ),
    Rule(
        kind="gpu_mem_busy",
        phase="memory",
        retry=Retry.CONDITIONAL,
        signatures=(
            sig(
                "free memory on device",
                r"Free memory on device (?:cuda:(?P<gpu>\d+) )?\((?P<free_gib>[\d.]+) ?/ ?(?P<total_gib>[\d.]+) GiB\)"
                r".*?less than desired GPU memory utilization \((?P<utilization>[\d.]+), (?P<wanted_gib>[\d.]+) GiB\)",
                follow=1,
            ),
            sig("free memory on device", r"Free memory on device.*less than desired", follow=1),
        ),
        sentence="Too little memory is free on the card[[ {gpu}]] at start[[: {free_gib} of {total_gib} GiB free, "
        "{wanted_gib} GiB wanted by gpu-memory-utilization {utilization}]]; another process, mostly an engine that "
        "is still dying or an orphan, holds the rest.",
        remedy="See who holds the memory (nvidia-smi), end orphans of ours and wait until it is released; if the holder "
        "is foreign or the free amount is stable, lower gpu-memory-utilization to what fits.",
        turns=(
            WAIT_FOR_GPU_MEMORY,
            Turn(
                knob="gpu_memory_utilization",
                change=Change.SET,
                value=utilization_that_fits("free_gib", "total_gib"),
            ),
        ),
        documented="vllm#20305, llm-d-incubation/llm-d-fast-model-actuation#720",
        overrides=("orphan_gpu_mem",),
    ),
    Rule(
        kind="profile_race",
        phase="memory",
        retry=Retry.YES,
        signatures=(
            sig(
                "error in memory profiling",
                rf"Error in memory profiling(?:.*?Initial free memory (?P<initial_free_gib>{SIZE}))?"
                rf"(?:.*?current free memory (?P<current_free_gib>{SIZE}))?",
                follow=1,
            ),
        ),
        sentence="Another process released GPU memory while the engine measured it[[ ({initial_free_gib} GiB free at "
        "first, {current_free_gib} GiB later)]], so the measurement is worthless.",
        remedy="Wait until the memory in use on the cards is stable, then start again unchanged.",
        turns=(WAIT_FOR_GPU_MEMORY, RESTART),
        documented="vllm#17366",
    ),
    Rule(
        kind="mamba_seqs",
        phase="capture",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "exceeds available mamba cache blocks",
                r"max_num_seqs \((?P<max_num_seqs>\d+)\) exceeds available Mamba cache blocks"
                r" \((?P<mamba_blocks>\d+)\)(?:.*?at most (?P<at_most>\d+))?",
                follow=1,
            ),
        ),
        sentence="A hybrid model needs one state block a sequence: max-num-seqs {max_num_seqs} exceeds the "
        "{mamba_blocks} Mamba cache blocks that fit.",
        remedy="Set max-num-seqs to the number in the message or less (each other try costs a whole boot), or shorten "
        "max-model-len.",
        turns=(
            Turn(knob="max_num_seqs", change=Change.SET, value=first("at_most", "mamba_blocks")),
            Turn(knob="max_model_len", change=Change.HALVE, value=halved("max_model_len")),
        ),
        documented="vllm#49064, vllm#38632, kaito-project/kaito#2319",
    ),
    Rule(
        kind="mamba_capture_legacy",
        phase="capture",
        retry=Retry.NEVER,
        signatures=(
            sig("device kernel image is invalid", r"CUDA error: device kernel image is invalid"),
            sig("cudaerrorinvalidkernelimage"),
        ),
        sentence="A hybrid model ran out of Mamba state blocks while graphs were captured: older engines report it as "
        "an invalid kernel image. It is not a driver or architecture error.",
        remedy="Lower max-num-seqs, or shorten max-model-len, or use vLLM 0.20 or newer, which says how many fit.",
        turns=(FEWER_SEQS, Turn(knob="max_model_len", change=Change.HALVE, value=halved("max_model_len"))),
        documented="vllm-project/recipes#551",
    ),
    Rule(
        kind="mamba_align",
        phase="parse",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "mamba cache align mode",
                r"Mamba cache align mode, block_size \((?P<block_size>\d+)\) must be <= max_num_batched_tokens"
                r" \((?P<max_num_batched_tokens>\d+)\)",
                follow=1,
            ),
        ),
        sentence="With prefix caching a hybrid model's block of {block_size} tokens must fit into one batch of "
        "max-num-batched-tokens {max_num_batched_tokens}.",
        remedy="Raise max-num-batched-tokens to the block size or more, or turn prefix caching off.",
        turns=(
            Turn(knob="max_num_batched_tokens", change=Change.SET, value=first("block_size")),
            Turn(knob="enable_prefix_caching", change=Change.SET, value=False),
        ),
        documented="vllm#36734",
    ),
)
