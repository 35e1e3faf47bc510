# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""Failures of the container, of the driver, and of what the host allows a process."""

from rigd.supervise.rules.model import RECREATE, RESTART, Change, Retry, Rule, Turn, Weight, first, fix, sig

RULES = (
    Rule(
        kind="no_nvidia_runtime",
        phase="create",
        retry=Retry.NEVER,
        signatures=(
            sig("could not select device driver", r"could not select device driver.*capabilities"),
            sig("unknown or invalid runtime name", r"unknown or invalid runtime name: (?P<runtime>[\w.-]+)"),
            sig("unresolvable cdi devices", r"unresolvable CDI devices (?P<devices>\S+)"),
            sig("nvidia-container-runtime", r"nvidia-container-runtime.*(?:not found|no such file)"),
            sig("nvidia-container-cli", r"nvidia-container-cli.*(?:executable file not found|no such file)"),
        ),
        sentence="Docker cannot give the container a GPU: the NVIDIA Container Toolkit is missing or not configured.",
        remedy="Install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart Docker "
        "(Docker from snap cannot do it).",
        turns=(fix("nvidia_container_toolkit"),),
        documented="NVIDIA/nvidia-docker#1034, NVIDIA/nvidia-docker#1637",
    ),
    Rule(
        kind="image_needs_newer_driver",
        phase="create",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "unsatisfied condition: cuda",
                r"unsatisfied condition: cuda ?>= ?(?P<needed_cuda>[\d.]+\d)",
            ),
            sig("unsatisfied condition:", r"requirement error: unsatisfied condition: (?P<condition>[^,]+)"),
        ),
        sentence="The image needs a newer NVIDIA driver[[ (CUDA {needed_cuda} or newer)]] than this host has.",
        remedy="Use an older image tag, or upgrade the host's driver.",
        turns=(fix("image"), fix("driver")),
        documented="vllm#5635, janhq/server#262",
    ),
    Rule(
        kind="cuda_compat",
        phase="parse",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "system has unsupported display driver",
                r"(?:Error (?P<cuda_error>\d+): )?system has unsupported display driver",
            ),
            sig(
                "forward compatibility was attempted",
                r"(?:Error (?P<cuda_error>\d+): )?forward compatibility was attempted",
            ),
            sig("cudaerrorsystemdrivermismatch"),
            sig("cudaerrorcompatnotsupportedondevice"),
        ),
        sentence="The image brings CUDA compatibility libraries that this driver or card cannot use[[ (CUDA error "
        "{cuda_error})]]; forward compatibility is for data-centre cards only.",
        remedy="Upgrade the host's driver or use an older image; do not set VLLM_ENABLE_CUDA_COMPATIBILITY on a "
        "GeForce card.",
        turns=(fix("driver"), fix("image")),
        documented="vllm#33447, vllm#5283, noonghunna/club-3090#222",
    ),
    Rule(
        kind="driver_too_old",
        phase="parse",
        retry=Retry.NEVER,
        signatures=(
            sig("driver on your system is too old", r"too old \(found version (?P<driver_cuda>\d+)\)"),
            sig("driver on your system is too old"),
            sig("compiled with an unsupported toolchain"),
            sig("cuda driver version is insufficient"),
            sig("cudaerrorinsufficientdriver"),
            sig("cudaerrorunsupportedptxversion"),
        ),
        sentence="The host's NVIDIA driver is too old for the engine's CUDA[[ (driver knows CUDA {driver_cuda})]].",
        remedy="Upgrade the host's driver, or use an image or build made for an older CUDA.",
        turns=(fix("driver"), fix("image")),
        documented="guqiong96/Lvllmds4#46",
    ),
    Rule(
        kind="driver_lib_mismatch",
        phase="host",
        retry=Retry.NEVER,
        weight=Weight.DECISIVE,
        signatures=(
            sig("driver/library version mismatch"),
            sig("nvmlerror_lib", r"NVMLError_Lib(?:Rm|rary)VersionMismatch"),
            sig("nvml/rm version mismatch"),
            sig("nvml_error_lib_rm_version_mismatch"),
            sig(
                "nvrm: api mismatch",
                r"API mismatch: the client has the version (?P<client_version>[\d.]+\d),?.*?kernel module has the version"
                r" (?P<module_version>[\d.]+\d)",
                follow=3,
            ),
            sig("nvrm: api mismatch"),
        ),
        sentence="The NVIDIA driver's library was upgraded under the loaded kernel module[[ (library {client_version}, "
        "module {module_version})]]; nothing new can use the GPUs.",
        remedy="Reload the nvidia modules while nothing uses the GPUs, or reboot the host; a running engine keeps "
        "working until it is restarted, so do not restart it for this.",
        turns=(Turn(knob="host", change=Change.REBOOT),),
        documented="NVIDIA/nvidia-container-toolkit#171",
    ),
    Rule(
        kind="nvml_unknown_in_container",
        phase="host",
        retry=Retry.YES,
        signatures=(sig("failed to initialize nvml: unknown error"),),
        sentence="The container lost its access to the GPU devices (systemd reloaded and dropped its device rules); "
        "the host itself is fine.",
        remedy="Delete the container and create it again (a restart inside it does not help); for good: CDI, or Docker's "
        "cgroupfs driver.",
        turns=(RECREATE,),
        documented="NVIDIA/nvidia-container-toolkit#48, #251, #1227",
    ),
    Rule(
        kind="gpu_not_enumerable",
        phase="host",
        retry=Retry.NEVER,
        weight=Weight.DECISIVE,
        signatures=(
            sig("detection error: nvml error", r"detection error: nvml error: (?P<nvml_error>[\w ]+)"),
            sig(
                "unable to determine the device handle",
                r"Unable to determine the device handle for (?:GPU ?(?:(?P<gpu>\d+): )?(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)|.*)",
            ),
            sig("nvmlerror_unknown"),
            sig("nvmlerror_gpuislost"),
            sig("nvml_error_gpu_is_lost"),
            sig(
                "initialization error: nvml error",
                r"initialization error: nvml error: (?P<nvml_error>[\w ]+)",
            ),
        ),
        sentence="A GPU[[ ({pci})]] cannot be enumerated any more: most likely it fell off the bus.",
        remedy="Look for an Xid or 'fallen off the bus' in the kernel log; reboot the host (a full power cycle may be "
        "needed); no restart of the engine helps.",
        turns=(Turn(knob="host", change=Change.REBOOT),),
        documented="1CatAI/1Cat-vLLM#6, noonghunna/club-3090#104",
    ),
    Rule(
        kind="no_kernel_image",
        phase="load",
        retry=Retry.NEVER,
        signatures=(
            sig("no kernel image is available"),
            sig("cudaerrornokernelimagefordevice"),
            sig("requires sm", r"requires sm_?(?P<needed_sm>\d+)"),
            sig(
                "requires compute capability", r"requires compute capability (?:>= ?)?(?P<needed_sm>[\d.]*\d)"
            ),
            sig("minimum capability", r"Minimum capability: (?P<needed_sm>\d+)\.? +Current capability: \d+"),
            sig(
                "is not compatible with the current pytorch",
                r"sm_\d+ is not compatible with the current PyTorch",
            ),
            sig(
                "or newer",
                r"(?:only supports?|requires?) (?:Turing|Ampere|Ada|Hopper|Blackwell|SM ?_?(?P<needed_sm>\d+))\w*(?: GPUs?)? or newer",
            ),
            sig(
                "only supported on",
                r"only supported on (?:Hopper|Blackwell|Ada|(?:compute capability |SM ?_?)(?P<needed_sm>[\d.]*\d))",
            ),
            sig("fa3 is only supported", r"FA3 is only supported on devices with compute capability[^.]*"),
        ),
        sentence="The build has no kernel for this card[[ (it needs sm {needed_sm})]]: made for another architecture.",
        remedy="Use another image or attention backend that is built for this card's architecture.",
        turns=(fix("image"), Turn(knob="attention_backend", change=Change.SET, value="FLASHINFER")),
        documented="noonghunna/club-3090 fingerprints file",
    ),
    Rule(
        kind="jit_toolchain",
        phase="capture",
        retry=Retry.NEVER,
        signatures=(
            sig("failed to find c compiler"),
            sig("cuda_utils", r"CalledProcessError.*(?:gcc|cc|clang).*cuda_utils"),
            sig(
                "calledprocesserror",
                r"CalledProcessError: Command '?\[?['\"]?(?:[\w./-]*/)?(?P<tool>gcc|g\+\+|cc|c\+\+|clang(?:\+\+)?|nvcc|ninja)\b",
            ),
            sig(
                "no such file or directory",
                r"No such file or directory: '?[\w./:-]*\b(?P<tool>nvcc|ninja|gcc|g\+\+|c\+\+|cc)'?(?:$|[\s'\"])",
            ),
            sig("ptxas fatal", r"ptxas fatal ?:? ?(?P<reason>.*)"),
            sig(
                "ninja",
                r"CalledProcessError.*ninja|ninja: build stopped|Ninja build failed|ninja is required",
            ),
            sig("could not find nvcc"),
            sig("cuda_home", r"CUDA_HOME (?:environment variable is not set|.*nvcc.*not)"),
            sig("invalidcxxcompiler", r"InvalidCxxCompiler"),
            sig("python.h: no such file", r"(?P<tool>Python\.h): No such file"),
        ),
        sentence="A kernel had to be compiled at start and the compiler is missing or failed[[ ({tool})]].",
        remedy="Install gcc, the Python headers, ninja and nvcc (check CUDA_HOME for a stray colon), or set "
        "VLLM_USE_FLASHINFER_SAMPLER=0, or use the container image.",
        turns=(
            Turn(knob="environment.VLLM_USE_FLASHINFER_SAMPLER", change=Change.SET, value="0"),
            fix("toolchain"),
        ),
        documented="vllm#15329, vllm#49497, vllm#36077, flashinfer-ai/flashinfer#1781",
    ),
    Rule(
        kind="port_in_use",
        phase="parse",
        retry=Retry.CONDITIONAL,
        signatures=(
            sig(
                "port is already allocated",
                r"Bind for (?P<address>[\w.:\[\]]+):(?P<port>\d+) failed: port is already allocated",
            ),
            sig("port is already allocated"),
            sig(
                "attempting to bind on address",
                r"attempting to bind on address \('(?P<address>[^']*)', (?P<port>\d+)",
            ),
            sig(
                "failed to bind host port",
                r"failed to bind host port (?:for )?(?P<address>\S*?):(?P<port>\d+)(?:[:/]|\b)",
            ),
            sig(
                "failed to listen on any local network address",
                r"failed to listen on any local network address\.? \(?port: (?P<distributed_port>\d+)",
            ),
            sig("eaddrinuse", r"EADDRINUSE(?:.*?port: ?(?P<distributed_port>\d+))?"),
            sig(
                "address already in use",
                r"(?:listen \w+ (?P<address>[\w.:\[\]]+):(?P<port>\d+).*)?address already in use",
            ),
            sig("is already in use", r"\bport (?P<port>\d+) is already in use"),
        ),
        sentence="The port[[ {port}]][[ {distributed_port} (of the ranks' own store)]] is taken by another process, "
        "mostly an earlier engine or an orphan of it.",
        remedy="Find the owner (`ss -ltnp`), end it if it is an orphan of ours, or choose another port; a taken port of "
        "the ranks' store (TCPStore) only needs another try.",
        turns=(Turn(knob="port", change=Change.WAIT, value=first("port")), RESTART),
        documented="vllm#8204, vllm#7514, vllm#11617",
    ),
    Rule(
        kind="uvloop_proxmox",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(sig("this event loop is already running"),),
        sentence="uvloop cannot start its event loop: the Docker image does not run under this Proxmox container "
        "runtime.",
        remedy="Run vLLM from a virtual environment, or the container with --privileged.",
        turns=(fix("runtime"),),
        documented="noonghunna/club-3090#49",
    ),
    Rule(
        kind="uuid_devices",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig(
                "invalid literal for int()",
                r"invalid literal for int\(\) with base 10: '(?P<device>(?:GPU|MIG)-[^']+)'",
            ),
            sig("device_id_to_physical_device_id", r"device_id_to_physical_device_id", tail=True),
        ),
        sentence="CUDA_VISIBLE_DEVICES names the cards by UUID[[ ({device})]], which this vLLM cannot read.",
        remedy="Name the cards by index and set CUDA_DEVICE_ORDER=PCI_BUS_ID.",
        turns=(
            Turn(knob="environment.CUDA_DEVICE_ORDER", change=Change.SET, value="PCI_BUS_ID"),
            Turn(knob="environment.CUDA_VISIBLE_DEVICES", change=Change.SET, value="0,1"),
        ),
        documented="noonghunna/club-3090 UPSTREAM",
    ),
    Rule(
        kind="threads_limit",
        phase="parse",
        retry=Retry.NEVER,
        signatures=(
            sig("can't start new thread"),
            sig("blas_thread_init", r"blas_thread_init: pthread_create failed"),
            sig(
                "pthread_create failed",
                r"pthread_create failed.*(?:Operation not permitted|temporarily unavailable)",
            ),
            sig("blockingioerror", r"BlockingIOError: \[Errno 11\] Resource temporarily unavailable"),
            sig(
                "resource temporarily unavailable", r"(?:fork|clone|thread).*Resource temporarily unavailable"
            ),
        ),
        sentence="The engine may start no more threads: an old Docker's seccomp profile, or a limit of process ids.",
        remedy="Upgrade Docker, raise the container's pids limit, or set OPENBLAS_NUM_THREADS=1.",
        turns=(
            Turn(knob="docker.pids_limit", change=Change.RAISE),
            Turn(knob="environment.OPENBLAS_NUM_THREADS", change=Change.SET, value="1"),
        ),
        documented="vllm#5645, coqui-ai/TTS#3439",
    ),
)
