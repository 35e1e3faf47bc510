# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""What the kernel and the driver say: Xids, a lost card, the IOMMU, the kernel's out-of-memory killer."""

from rigd.supervise.rules.model import (
    RESTART,
    WAIT_FOR_GPU_MEMORY,
    Change,
    Retry,
    Rule,
    Turn,
    Weight,
    fix,
    sig,
)

_XID = (
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\)[^:]*: (?P<xid>{numbers})\b"
    r"(?:, pid='?(?P<pid>\d+|<unknown>)'?)?(?:, name=(?P<process>[^,]+))?(?:, (?P<text>.+))?"
)
_RESET = Turn(knob="gpu", change=Change.RESET)
_REBOOT = Turn(knob="host", change=Change.REBOOT)


def _xid(numbers: str, **conditions: object):  # type: ignore[no-untyped-def]  # noqa: ANN202
    return sig("nvrm: xid", _XID.replace("{numbers}", numbers), **conditions)


RULES = (
    Rule(
        kind="host_reboot_required",
        phase="host",
        retry=Retry.NEVER,
        weight=Weight.DECISIVE,
        signatures=(
            sig(
                "amd-vi:",
                r"(?:(?P<device>[\w.:]+ ?[\w.:]*): )?AMD-Vi: Event logged \[(?P<event>\w+)(?:.*?address=(?P<address>0x[0-9a-fA-F]+))?",
            ),
        ),
        sentence="The host's IOMMU blocked the GPU's memory traffic (AMD-Vi {event}); what the engine reports after that "
        "is misleading.",
        remedy="Add iommu=pt to the kernel's command line and reboot the host.",
        turns=(fix("kernel_command_line"), _REBOOT),
        documented="noonghunna/club-3090#178, NVIDIA/open-gpu-kernel-modules#1134",
        overrides=("gpu_lost", "gpu_reset_required", "gpu_not_enumerable"),
    ),
    Rule(
        kind="gpu_lost",
        phase="host",
        retry=Retry.NEVER,
        weight=Weight.DECISIVE,
        signatures=(
            _xid("79"),
            sig(
                "nvrm: the nvidia gpu",
                r"The NVIDIA GPU (?P<pci>[0-9a-fA-F:.]+) .*fallen off the bus",
                follow=2,
            ),
            sig("fallen off the bus", r"(?:GPU (?P<pci>[0-9a-fA-F:.]+):? .*)?fallen off the bus"),
            sig(
                "gpu is lost", r"^(?!.*Unable to determine)(?:.*GPU (?P<pci>[0-9a-fA-F:.]+\d).*)?GPU is lost"
            ),
            sig("rminitadapter failed", r"(?:GPU (?P<pci>[0-9a-fA-F:.]+): )?RmInitAdapter failed!"),
        ),
        sentence="A GPU[[ ({pci})]] has fallen off the bus[[ (Xid {xid})]]: power, riser or heat.",
        remedy="Reboot the host, often with a full power cycle; do not restart the engine in a loop; then limit power or "
        "clocks and reseat the card.",
        turns=(_REBOOT, fix("hardware")),
        documented="leptonai/gpud#1209, NVIDIA/NVSentinel#155, NVIDIA/open-gpu-kernel-modules#507",
        overrides=("gpu_reset_required", "gpu_not_enumerable"),
    ),
    Rule(
        kind="host_reboot_required",
        phase="host",
        retry=Retry.NEVER,
        weight=Weight.DECISIVE,
        signatures=(
            _xid("154", check=lambda found: "reboot required" in str(found.get("text", "")).lower()),
            sig("node reboot required", r"\((?P<recovery_action>Node Reboot Required)\)"),
        ),
        sentence="The driver says that this host must be rebooted[[ (GPU {pci})]][[: {text}]].",
        remedy="Stop the engine and reboot the host.",
        turns=(_REBOOT,),
        documented="kubernetes-sigs/dra-driver-nvidia-gpu#1441",
        overrides=("gpu_reset_required",),
    ),
    Rule(
        kind="gpu_reset_required",
        phase="host",
        retry=Retry.CONDITIONAL,
        weight=Weight.DECISIVE,
        signatures=(
            _xid(
                "154",
                check=lambda found: any(
                    words in str(found.get("text", "")).lower()
                    for words in ("reset required", "drain and reset")
                ),
            ),
            _xid("46|48|61|62|64|74|95|109|110|119|120|140|143"),
            sig("gpu reset required", r"\((?P<recovery_action>GPU Reset Required)\)"),
        ),
        sentence="A GPU[[ ({pci})]] hangs in its driver or firmware[[ (Xid {xid}: {text})]] and must be reset.",
        remedy="Stop everything that uses the card, run `nvidia-smi --gpu-reset -i N`; if that fails, reload the nvidia "
        "modules, then reboot.",
        turns=(_RESET, _REBOOT),
        documented="noonghunna/club-3090#838, leptonai/gpud",
    ),
    Rule(
        kind="gpu_app_fault",
        phase="host",
        retry=Retry.YES,
        weight=Weight.CONSEQUENCE,
        signatures=(
            _xid("13|31|32|43|45|69|94"),
            _xid("(?!154\\b)\\d+"),
        ),
        sentence="The kernel reports a fault of a program on a GPU[[ ({pci})]] (Xid {xid}[[, {process}]]); the card is "
        "usually fine.",
        remedy="Start the engine again (Xid 43 alone needs nothing, Xid 45 follows another); if it repeats with MTP, it "
        "is MTP's fault and not the hardware's.",
        turns=(RESTART,),
        documented="syv-ai/qwen38-27b-rtx3090#98, vllm#53726",
        overrides=("worker_died", "rpc_timeout"),
    ),
    Rule(
        kind="host_oom_kill",
        phase="host",
        retry=Retry.CONDITIONAL,
        weight=Weight.DECISIVE,
        signatures=(
            sig(
                "out of memory: killed process",
                r"[Oo]ut of memory: Killed process (?P<pid>\d+) \((?P<process>[^)]+)\)(?:.*?anon-rss:(?P<resident_gib>\d+ ?kB))?",
            ),
            sig("oom-kill:", r"oom-kill:(?:.*?task=(?P<process>[^,]+))?(?:,pid=(?P<pid>\d+))?"),
            sig("invoked oom-killer", r"(?P<by>\S+) invoked oom-killer"),
            sig("a process of this unit has been killed by the oom killer"),
            sig(
                "oom_reaper: reaped process",
                r"oom_reaper: reaped process (?P<pid>\d+) \((?P<process>[^)]+)\)",
            ),
            sig("'oom-kill'", r"Failed with result 'oom-kill'"),
            sig("oomkilled", r"\bOOMKilled\b\"?(?:: ?true|\s*$|\))"),
        ),
        sentence="The kernel killed a process of the engine[[ ({process}, pid {pid})]]"
        "[[, {resident_gib} GiB resident,]] because the host's memory (or the container's limit) ran out.",
        remedy="Free host memory or raise the container's limit; find out whether it grew over days (a leak: restart on a "
        "threshold) or while loading.",
        turns=(fix("host_memory"), RESTART),
        documented="deepseek-ai/DeepSeek-VL2#90, vllm#34643, vllm#586",
        overrides=("host_ram_leak",),
    ),
    Rule(
        kind="orphan_gpu_mem",
        phase="host",
        retry=Retry.CONDITIONAL,
        weight=Weight.HINT,
        signatures=(
            sig(
                "vllm::",
                r"^\|? *(?P<gpu>\d+) .*\b(?P<pid>\d+) +C(?:\+G)? +(?P<process>\S*VLLM::\w+)\S* +(?P<used_mib>\d+ ?MiB)",
            ),
            sig("vllm::", r"^ *(?P<pid>\d+), *(?P<process>VLLM::\w+)\S*, *(?P<used_mib>\d+ ?MiB)"),
        ),
        sentence="An engine process without its API server still holds GPU memory[[: {process}, pid {pid}, {used_mib} "
        "MiB]].",
        remedy="End that process group (TERM, then KILL), and check that the cards' memory is released before the next "
        "start.",
        turns=(Turn(knob="orphans", change=Change.RESTART), WAIT_FOR_GPU_MEMORY),
        documented="vllm#55510, vllm#34643, vllm#43060",
    ),
)
