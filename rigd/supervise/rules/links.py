# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""Failures of the ranks' communication: NCCL, shared memory, peer access, custom all-reduce."""

from rigd.supervise.rules.model import (
    NO_CUSTOM_ALL_REDUCE,
    NO_P2P,
    Change,
    Retry,
    Rule,
    Turn,
    Weight,
    fix,
    sig,
)

_BIGGER_SHM = (
    Turn(knob="docker.ipc", change=Change.SET, value="host"),
    Turn(knob="docker.shm_size", change=Change.SET, value="16gb"),
)

RULES = (
    Rule(
        kind="nccl_init_hang",
        phase="nccl",
        retry=Retry.NEVER,
        starting_only=True,
        weight=Weight.HINT,
        signatures=(
            sig("vllm is using nccl==", r"vLLM is using nccl==(?P<nccl_version>[\d.]*\d)", tail=True),
            sig(
                "nccl info", r"NCCL INFO.*(?:Init START|Connected all|comm 0x|via P2P|Channel \d+)", tail=True
            ),
        ),
        sentence="The log stops where NCCL[[ {nccl_version}]] connects the cards: peer-to-peer access is granted but "
        "does not work, and it hangs for ever.",
        remedy="Kill it, set NCCL_P2P_DISABLE=1 and disable-custom-all-reduce, and delete "
        "gpu_p2p_access_cache_for_*.json.",
        turns=(
            NO_P2P,
            NO_CUSTOM_ALL_REDUCE,
            Turn(knob="p2p_cache", change=Change.MOVE_ASIDE),
        ),
        documented="noonghunna/club-3090#873, vllm#12664, vllm#8058, NVIDIA/nccl#2335",
    ),
    Rule(
        kind="nccl_watchdog",
        phase="nccl",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "watchdog caught collective operation timeout",
                r"Watchdog caught collective operation timeout(?:.*?OpType=(?P<operation>\w+))?"
                r"(?:.*?Timeout\(ms\)=(?P<timeout_ms>\d+))?",
            ),
            sig("taking the entire process down", r"(?<!not )taking the entire process down"),
            sig(
                "watchdog thread terminated with exception",
                r"watchdog thread terminated with exception(?!.*illegal memory)",
            ),
        ),
        sentence="A collective operation[[ ({operation})]] between the cards did not end[[ within {timeout_ms} ms]], and "
        "NCCL's watchdog killed the engine.",
        remedy="Set NCCL_P2P_DISABLE=1 and disable-custom-all-reduce, and delete gpu_p2p_access_cache_for_*.json.",
        turns=(NO_P2P, NO_CUSTOM_ALL_REDUCE, Turn(knob="p2p_cache", change=Change.MOVE_ASIDE)),
        documented="vllm#5458, vllm#2734",
    ),
    Rule(
        kind="shm_exhausted",
        phase="nccl",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "while creating shared memory segment",
                r"creating shared memory segment (?P<path>/dev/shm/\S+)(?: \(size (?P<segment_bytes>\d+)\))?",
            ),
            sig("posix_fallocate failed"),
            sig(
                "/dev/shm",  # noqa: S108  (what the log says)
                r"(?:No space left on device.*(?P<path>/dev/shm\S*)|(?P<path2>/dev/shm/\S+).*No space left on device)",
            ),
            sig(
                "no space left on device",
                r"(?:nccl|shared memory).*No space left on device|No space left on device: '?(?P<path>/psm_\w+)",
            ),
            sig(
                "no space left on device",
                r"No space left on device",
                frames=r"shared_memory\.py|shm_broadcast\.py|SharedMemory\(",
            ),
            sig("out of shared memory"),
            sig("insufficient shared memory", r"^(?!.*bus error).*insufficient shared memory"),
        ),
        sentence="Shared memory is too small for the ranks[[ ({path})]]; Docker's default is 64 MiB.",
        remedy="Run the container with ipc host, or shm_size of at least 8 GiB (podman-compose ignores ipc silently).",
        turns=_BIGGER_SHM,
        documented="MiniMax-AI/MiniMax-01#42, NVIDIA/nccl#290, vllm#1710",
        overrides=("disk_full", "sigbus_shm"),
    ),
    Rule(
        kind="sigbus_shm",
        phase="nccl",
        retry=Retry.NEVER,
        weight=Weight.CONSEQUENCE,
        signatures=(
            sig("fatal python error: bus error"),
            sig("bus error", r"Bus error(?: \(core dumped\)|.*SIGBUS|.*nonexistent physical address|\s*$)"),
            sig("unexpected bus error"),
            sig("sigbus"),
            sig("exit code: -7", r"exit code: (?P<exit_code>-7)\b"),
            sig("exitcode: -7", r"exitcode: (?P<exit_code>-7)\b"),
        ),
        sentence="A rank died of a bus error: shared memory ran out under it.",
        remedy="Run the container with ipc host, or shm_size of at least 8 GiB.",
        turns=_BIGGER_SHM,
        documented="vllm#1771, vllm#859",
        overrides=("worker_died",),
    ),
    Rule(
        kind="nccl_peer_217",
        phase="nccl",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "peer access is not supported between",
                r"(?:Cuda failure (?P<cuda_error>\d+) )?'?peer access is not supported",
            ),
            sig("cuda failure 217", r"Cuda failure (?P<cuda_error>217)"),
        ),
        sentence="NCCL asked for peer access that these two cards do not have (CUDA error 217, a driver fault on PCIe "
        "boxes).",
        remedy="Set NCCL_CUMEM_HOST_ENABLE=0, or upgrade the driver.",
        turns=(
            Turn(knob="environment.NCCL_CUMEM_HOST_ENABLE", change=Change.SET, value="0"),
            NO_P2P,
            fix("driver"),
        ),
        documented="NVIDIA/nccl#1838, vLLM documentation",
    ),
    Rule(
        kind="nccl_watchdog",
        phase="nccl",
        retry=Retry.NEVER,
        weight=Weight.CONSEQUENCE,
        signatures=(
            sig(
                "nccl error",
                r"NCCL error.*(?P<reason>unhandled system error|unhandled cuda error|internal error|remote process exited)",
            ),
            sig("ncclsystemerror"),
            sig("ncclunhandledcudaerror"),
        ),
        sentence="NCCL failed between the cards[[: {reason}]]; its own warning was not printed.",
        remedy="Start once more with NCCL_DEBUG=WARN to see why; with Docker give ipc host or a larger shm_size; then set "
        "NCCL_P2P_DISABLE=1.",
        turns=(
            Turn(knob="environment.NCCL_DEBUG", change=Change.SET, value="WARN"),
            *_BIGGER_SHM,
            NO_P2P,
            NO_CUSTOM_ALL_REDUCE,
        ),
        documented="vllm#5458, vLLM documentation",
    ),
    Rule(
        kind="custom_ar_ipc",
        phase="capture",
        retry=Retry.NEVER,
        signatures=(
            sig("custom_all_reduce.cuh", r"custom_all_reduce\.cuh:(?P<line>\d+) ?'?(?P<reason>[\w ]*)"),
            sig(
                "cuda error: invalid argument",
                r"CUDA error: (?P<reason>invalid argument)",
                frames=r"custom_all_reduce|register_graph_buffers|get_graph_buffer_ipc_meta",
            ),
            sig("get_graph_buffer_ipc_meta", r"(?:Error|error).*get_graph_buffer_ipc_meta"),
        ),
        sentence="Custom all-reduce could not share its buffers between the ranks[[ ('{reason}')]]: memory of "
        "expandable segments cannot be shared.",
        remedy="Set disable-custom-all-reduce, or take expandable_segments out of PYTORCH_CUDA_ALLOC_CONF.",
        turns=(
            NO_CUSTOM_ALL_REDUCE,
            Turn(knob="environment.PYTORCH_CUDA_ALLOC_CONF", change=Change.REMOVE),
        ),
        documented="vllm#42609, vllm#49101, vllm#56193",
        overrides=("worker_died",),
    ),
    Rule(
        kind="custom_ar_corrupt",
        phase="runtime",
        retry=Retry.CONDITIONAL,
        weight=Weight.OBSERVED,
        signatures=(
            sig("!!!!!!!!", r"(?:text|content|output|answer|completion|response|generated)\W.*!{8,}"),
        ),
        sentence="The engine answers with '!!!!!!!!': the cards exchange wrong data (custom all-reduce over a peer path), "
        "or numbers overflow.",
        remedy="Set disable-custom-all-reduce and prove it with a canary on the text; no log or metric shows it.",
        turns=(NO_CUSTOM_ALL_REDUCE, NO_P2P),
        documented="noonghunna/club-3090#751, aikitoria/open-gpu-kernel-modules#21",
    ),
    Rule(
        kind="host_reset_p2p",
        phase="host",
        retry=Retry.CONDITIONAL,
        weight=Weight.CONSEQUENCE,
        signatures=(
            sig("uncleanly shut down", r"corrupted or uncleanly shut down"),
            sig(
                "ext4-fs",
                r"EXT4-fs \((?P<device>[\w-]+)\): (?:recovery complete|\d+ orphan inodes? deleted|orphan cleanup)",
            ),
            sig("journal corruption or uncleanly"),
        ),
        sentence="The host went down hard without a word: peer traffic between the cards or a power transient reset it.",
        remedy="Set disable-custom-all-reduce and NCCL_P2P_DISABLE=1, and cap the cards' power or clocks.",
        turns=(NO_CUSTOM_ALL_REDUCE, NO_P2P, fix("power_limit")),
        documented="noonghunna/club-3090#1332, noonghunna/club-3090#1019",
    ),
)
