# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""Failures before the model loads: container, driver, arguments, files, network, host limits."""

from rigd.supervise.rules.model import (
    MTP_OFF,
    RECREATE,
    RESTART,
    Change,
    Retry,
    Rule,
    Turn,
    Weight,
    first,
    fix,
    sig,
)

RULES = (
    # -- container and driver
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
            sig("fa3 is only supported", r"FA3 is only supported on devices with compute capability[^.]*"),
        ),
        sentence="The build has no kernel for this card[[ (it needs sm {needed_sm})]]: made for another architecture.",
        remedy="Use another image or attention backend that is built for this card's architecture.",
        turns=(fix("image"), Turn(knob="attention_backend", change=Change.SET, value="FLASHINFER")),
        documented="club-3090 fingerprints file",
    ),
    # -- arguments and configuration
    Rule(
        kind="bad_cli",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig("unrecognized arguments:", r"unrecognized arguments: (?P<arguments>.+)"),
            sig(": error: argument", r": error: argument (?P<arguments>[^:]+): (?P<reason>.+)"),
            sig(": error: ambiguous option", r": error: ambiguous option: (?P<arguments>.+)"),
            sig(": error: the following arguments are required", r"required: (?P<arguments>.+)"),
            sig("invalid choice:", r"error: (?P<reason>.*invalid choice: (?P<arguments>\S+).*)"),
            sig("error: no such option", r"No such option: (?P<arguments>\S+)"),
            sig(": error: ", r"(?:\bvllm|api_server\.py)[\w .]*: error: (?P<reason>.+)"),
        ),
        sentence="The engine's parser refuses the command line[[: {arguments}]][[ ({reason})]].",
        remedy="Correct or remove that flag (compare with `vllm serve --help=all` of this version), or go back to the "
        "image in which it existed.",
        turns=(Turn(knob="arguments", change=Change.REMOVE, value=first("arguments")), fix("image")),
        documented="vllm#37133, vllm#42399, vllm#27389, vllm#22072, vllm#8273",
    ),
    Rule(
        kind="spec_config",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig(
                "for speculativeconfig",
                r"validation errors? for SpeculativeConfig (?P<reason>.+?)(?: \[type=|$)",
                follow=3,
            ),
            sig(
                "unsupported speculative method",
                r"(?P<reason>Unsupported speculative method: '?(?P<method>\w+)'?)",
            ),
            sig(
                "was provided but without speculative",
                r"(?P<reason>num_speculative_tokens was provided but without speculative\w*.*)",
            ),
            sig(
                "must be divisible by n_predict",
                r"(?P<reason>num_speculative_tokens:? ?\(?(?P<num_speculative_tokens>\d*)\)?.*must be divisible by n_predict.*)",
            ),
            sig("num_speculative_tokens must be provided"),
            sig(
                "speculative",
                r"(?P<reason>(?:ValueError|NotImplementedError|AssertionError): .*speculative.*)",
            ),
            sig("does not support mtp", r"(?P<reason>.*does not support MTP.*)"),
        ),
        sentence="The speculative configuration does not fit this model or vLLM version[[: {reason}]].",
        remedy="Start without speculative-config; then check that the checkpoint has an MTP head, the method's name for "
        "this vLLM version, and that the folder's name contains no method name.",
        turns=(MTP_OFF,),
        documented="vllm#47486, vllm-project/vllm-ascend#9144, syv gotcha 17",
        overrides=("config_invalid", "bad_cli"),
    ),
    Rule(
        kind="fp8_kv_ampere",
        phase="memory",
        retry=Retry.NEVER,
        signatures=(
            sig("fp8e4nv", r"fp8e4nv.*(?:not supported|architecture|arch)"),
            sig(
                "no valid attention backend",
                r"No valid attention backend.*(?:kv_cache_dtype not supported|fp8)",
                follow=2,
            ),
        ),
        sentence="This card cannot compute with an fp8-e4m3 KV cache in the chosen attention backend (Ampere lacks it).",
        remedy="Set the attention backend FLASHINFER, or kv-cache-dtype fp8_e5m2 (not with fp8 checkpoints), or auto "
        "with a new max-model-len.",
        turns=(
            Turn(knob="attention_backend", change=Change.SET, value="FLASHINFER"),
            Turn(knob="kv_cache_dtype", change=Change.SET, value="fp8_e5m2"),
            Turn(knob="kv_cache_dtype", change=Change.SET, value="auto"),
        ),
        documented="vllm#26431, vllm#7714, vllm#53726",
    ),
    Rule(
        kind="fp8_kv_ampere",
        phase="memory",
        retry=Retry.NEVER,
        weight=Weight.HINT,
        signatures=(
            sig("does not support fp8 kv-cache"),
            sig("kv_cache_dtype not supported"),
            sig("no valid attention backend"),
        ),
        sentence="The attention backend refuses an fp8 KV cache on this card.",
        remedy="Set the attention backend FLASHINFER, or kv-cache-dtype fp8_e5m2 (not with fp8 checkpoints), or auto "
        "with a new max-model-len.",
        turns=(
            Turn(knob="attention_backend", change=Change.SET, value="FLASHINFER"),
            Turn(knob="kv_cache_dtype", change=Change.SET, value="fp8_e5m2"),
            Turn(knob="kv_cache_dtype", change=Change.SET, value="auto"),
        ),
        documented="vllm#26431, vllm#7714, vllm#53726",
    ),
    Rule(
        kind="quant_kernel",
        phase="load",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "gptq_marlin_min_thread",
                r"GPTQ_MARLIN_MIN_THREAD_[NK] \((?P<minimum>\d+)\) > (?:out|in)_features",
            ),
            sig("only supports bfloat16 and float16", r"\w*marlin_gemm only supports"),
            sig(
                "for quantization method",
                r"(?P<reason>(?P<dtype>[\w.]+) is not supported for quantization method (?P<quantization>\w+).*)",
            ),
            sig(
                "min_thread_",
                r"(?P<reason>Weight \w+ = (?P<size>\d+) is not divisible by  ?min_thread_\w+ = ?(?P<minimum>\d+).*)",
            ),
            sig(
                "failed to find a kernel that can implement",
                r"(?P<reason>Failed to find a kernel that can implement.*)",
                follow=3,
            ),
            sig(
                "is not divisible by",
                r"(?P<reason>(?:weight|input_size|output_size|in_features|out_features|intermediate_size|group_size)\S* ?=? ?\(?(?P<size>\d+)\)? is not divisible by.*)",
            ),
            sig(
                "not divisible by",
                r"(?P<reason>.*(?:quant|marlin|gptq|awq|weight block|group_size|block_[nk]).*not divisible by.*)",
            ),
            sig(
                "is not aligned with the quantized weight shape",
                r"(?P<reason>The (?:input|output) size is not aligned.*)",
            ),
        ),
        sentence="The quantization kernel cannot take this checkpoint as it is split or typed[[: {reason}]].",
        remedy="Set dtype explicitly (float16), use a newer vLLM (0.24 pads tiles), tensor-parallel-size 1, or another "
        "checkpoint.",
        turns=(
            Turn(knob="dtype", change=Change.SET, value="float16"),
            Turn(knob="tensor_parallel_size", change=Change.SET, value=1),
            fix("model"),
        ),
        documented="vllm#28843, vllm#40354, vllm-project/llm-compressor#2582",
        overrides=("config_invalid",),
    ),
    Rule(
        kind="jit_toolchain",
        phase="capture",
        retry=Retry.NEVER,
        signatures=(
            sig("failed to find c compiler"),
            sig("cuda_utils", r"CalledProcessError.*(?:gcc|cc|clang).*cuda_utils"),
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
        kind="compile_cache_poisoned",
        phase="capture",
        retry=Retry.CONDITIONAL,
        signatures=(
            sig("vllm failed to compile the model"),
            sig("corrupted compilation artifact"),
            sig("expected tensors only, but got"),
            sig("assert_size_stride", r"assert_size_stride"),
            sig("input_global_scale", r"KeyError: '?input_global_scale"),
            sig("torch_compile_cache", r"(?:Error|Exception).*torch_compile_cache"),
        ),
        sentence="A compilation artifact in the cache is corrupted or belongs to another version.",
        remedy="Move the cache folder (torch_compile_cache) aside once and start again; if it fails again, set "
        "VLLM_DISABLE_COMPILE_CACHE=1.",
        turns=(
            Turn(knob="compile_cache", change=Change.MOVE_ASIDE),
            Turn(knob="environment.VLLM_DISABLE_COMPILE_CACHE", change=Change.SET, value="1"),
        ),
        documented="ls1intum/edutelligence#579, vllm#21858, vllm#24915",
    ),
    # -- files and downloads
    Rule(
        kind="hf_auth",
        phase="load",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig("401 client error", r"401 Client Error(?:.*?for url: (?P<url>\S+))?"),
            sig("403 client error", r"403 Client Error(?:.*?for url: (?P<url>\S+))?"),
            sig("gatedrepoerror"),
            sig("access a gated repo", r"access a gated repo"),
            sig("cannot access gated repo", r"Cannot access gated repo(?: for url (?P<url>\S+))?"),
            sig("invalid user token"),
            sig("invalid username or password"),
        ),
        sentence="Hugging Face refuses access[[ to {url}]]: the token is missing or expired, or the licence was not "
        "accepted (a gated drafter counts too).",
        remedy="Accept the licence on the model's page and give the engine a valid HF_TOKEN.",
        turns=(fix("hf_token"),),
        documented="opea-project/GenAIExamples#2237",
        overrides=("hf_not_found", "hf_network"),
    ),
    Rule(
        kind="hf_not_found",
        phase="load",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig("repositorynotfounderror"),
            sig("revisionnotfounderror"),
            sig("entrynotfounderror", r"(?<!Local)EntryNotFoundError"),
            sig("404 client error", r"404 Client Error(?:.*?for url: (?P<url>\S+))?"),
            sig(
                "is not a local folder and is not a valid model identifier",
                r"(?P<model>[^\s'\"]+)['\"]? is not a local folder",
            ),
            sig(
                "hfvalidationerror", r"HFValidationError: Repo id must .*?: {0,1}'?(?P<model>[^'\s]+?)'?\.? "
            ),
            sig("hfvalidationerror"),
            sig("can't load the configuration of", r"Can't load the configuration of '(?P<model>[^']+)'"),
            sig("repo id must", r"Repo id must be in the form.*?: '(?P<model>[^']+)'"),
            sig(
                "invalid repository id or local directory",
                r"Invalid repository ID or local directory specified: '(?P<model>[^']+)'",
                follow=2,
            ),
            sig(
                "cannot find any model weights with",
                r"Cannot find any model weights with [`'](?P<model>[^`']+)",
            ),
            sig(
                "no such file or directory",
                r"FileNotFoundError: .*No such file or directory: '(?P<model>[^']*(?:config\.json|\.safetensors))'",
            ),
        ),
        sentence="The model[[ '{model}']] is neither a folder that the engine can see nor a repository that Hugging "
        "Face knows (a private one without a token looks the same).",
        remedy="Correct the model's name or path; with Docker, check the mount: the path is the one inside the "
        "container.",
        turns=(fix("model"),),
        documented="Avarok-Cybersecurity/dgx-vllm#16",
        overrides=("hf_network", "config_invalid"),
    ),
    Rule(
        kind="hf_not_found",
        phase="create",
        retry=Retry.NEVER,
        signatures=(
            sig("bind source path does not exist", r"bind source path does not exist: (?P<path>\S+?)\.?$"),
            sig(
                "error mounting",
                r"error mounting \"?(?P<path>[^\" ]+)\"? to rootfs.*(?:no such file|not a directory)",
            ),
        ),
        sentence="The folder or file[[ '{path}']] that the container should see does not exist on this host.",
        remedy="Correct the mount's source path, or make the folder; the model must lie in it.",
        turns=(fix("mounts"),),
        documented="Docker documentation, bind mounts",
    ),
    Rule(
        kind="hf_network",
        phase="load",
        retry=Retry.YES,
        starting_only=True,
        signatures=(
            sig("read timed out", r"(?:host='?(?P<host>[\w.-]+).*)?Read timed out"),
            sig("connecttimeout", r"ConnectTimeout(?:Error)?"),
            sig("localentrynotfounderror"),
            sig("offlinemodeisenabled"),
            sig("cannot reach https", r"Cannot reach (?P<url>https?://\S+): offline mode"),
            sig("couldn't connect to", r"couldn't connect to '?(?P<url>https?://[\w./-]+\w)'?"),
            sig("an error happened while trying to locate the file"),
            sig("name resolution", r"(?:Temporary failure in name resolution|NameResolutionError)"),
            sig("max retries exceeded", r"(?:host='(?P<host>[\w.-]+)'.*)?Max retries exceeded"),
            sig("server error", r"\b(?P<status>5\d\d) Server Error"),
            sig("too many requests", r"\b(?P<status>429)\b.*Too Many Requests|Too Many Requests"),
            sig("incompleteread"),
            sig("network is unreachable"),
            sig("no route to host"),
        ),
        sentence="The model could not be fetched: the network or Hugging Face did not answer[[ ({status})]]"
        "[[ ({host})]][[ ({url})]].",
        remedy="Try again with growing waits; if the snapshot is complete, set HF_HUB_OFFLINE=1; check DNS inside the "
        "container.",
        turns=(
            Turn(knob="network", change=Change.WAIT),
            RESTART,
            Turn(knob="environment.HF_HUB_OFFLINE", change=Change.SET, value="1"),
        ),
        documented="xorbitsai/inference#2341, huggingface/text-generation-inference#1186",
    ),
    Rule(
        kind="disk_full",
        phase="load",
        retry=Retry.NEVER,
        signatures=(
            sig(
                "no space left on device",
                r"^(?!.*(?:/dev/shm|nccl|posix_fallocate|shared memory)).*No space left on device(?:: '(?P<path>[^']+)')?",
            ),
            sig("disk quota exceeded"),
        ),
        sentence="A disk is full[[ ({path})]]: the cache volume or the container's own storage.",
        remedy="Free space on the volume of the model cache or move the cache; starting again cannot help before that.",
        turns=(fix("disk"),),
        documented="huggingface/huggingface_hub#2742",
        overrides=("hf_network", "weights_corrupt"),
    ),
    Rule(
        kind="disk_full",
        phase="load",
        retry=Retry.NEVER,
        weight=Weight.HINT,
        signatures=(
            sig(
                "not enough free disk space",
                r"Not enough free disk space to download the file(?:.*?expected file size is: (?P<file_mib>[\d.]+ MB))?"
                r"(?:.*?only has (?P<free_mib>[\d.]+ MB))?",
                follow=1,
            ),
        ),
        sentence="There is not enough disk space for the model's files[[: {file_mib} MiB needed, {free_mib} MiB free]].",
        remedy="Free space on the volume of the model cache or move the cache; starting again cannot help before that.",
        turns=(fix("disk"),),
        documented="huggingface/huggingface_hub#2742",
    ),
    Rule(
        kind="weights_corrupt",
        phase="load",
        retry=Retry.CONDITIONAL,
        starting_only=True,
        signatures=(
            sig(
                "safetensorerror",
                r"SafetensorError: (?P<reason>(?:Error while deserializing header: )?(?:.*?file (?P<file>\S+\.safetensors).*|.+))",
            ),
            sig("error while deserializing header", r"(?P<reason>Error while deserializing header: .+)"),
            sig("not fully covered", r"(?P<reason>incomplete metadata, file not fully covered)"),
            sig("safetensors", r"(?P<reason>(?:Invalid|Corrupt\w*|Truncated) [^:]*\.safetensors.*)"),
            sig("pytorchstreamreader failed", r"(?P<reason>PytorchStreamReader failed.*)"),
            sig("git-lfs", r"(?P<reason>version https://git-lfs\.github\.com/spec)"),
            sig("consistency check failed", r"(?P<reason>Consistency check failed.*)"),
        ),
        sentence="A weights file is damaged or truncated[[: {reason}]].",
        remedy="Compare the files' sizes and checksums with the repository, delete the one bad file and download it "
        "again once.",
        turns=(fix("weights"),),
        documented="QwenLM/Qwen3-VL#264",
    ),
    Rule(
        kind="tokenizer_missing",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig("failed to tokenize reasoning strings", r"failed to tokenize reasoning strings"),
            sig("can't load tokenizer for", r"Can't load tokenizer for '(?P<model>[^']+)'"),
            sig("couldn't instantiate the backend tokenizer"),
            sig("unable to load vocabulary from file"),
        ),
        sentence="The model's folder has no usable tokenizer[[ ({model})]].",
        remedy="Complete the download: tokenizer.json and tokenizer_config.json must lie beside the weights.",
        turns=(fix("model"),),
        documented="syv gotcha 36",
        overrides=("config_invalid",),
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
            sig("eaddrinuse", r"EADDRINUSE(?:.*?port: ?(?P<distributed_port>\d+))?"),
            sig("failed to listen on any local network address", r"\(port: (?P<distributed_port>\d+)\)"),
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
        kind="arch_unsupported",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig(
                "are not supported for now",
                r"Model architectures? \[?'?(?P<architecture>\w+)'?.*are not supported for now",
            ),
            sig(
                "failed to be inspected",
                r"Model architectures? \[?'?(?P<architecture>\w+)'?.*failed to be inspected",
            ),
            sig(
                "does not recognize this architecture",
                r"(?:model type `(?P<architecture>[\w.-]+)`.*)?does not recognize this architecture",
            ),
            sig("no model architectures are specified"),
            sig("has no vllm implementation", r"(?P<architecture>\w+) has no vLLM implementation"),
            sig("not supported by vllm", r"architectures?.*not supported by vllm"),
        ),
        sentence="This vLLM (or its transformers) does not know the model's architecture[[ {architecture}]].",
        remedy="Use a newer vLLM image, or install the dependency that the log names.",
        turns=(fix("image"),),
        documented="vLLM documentation, supported models",
        overrides=("config_invalid",),
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
        documented="club-3090 UPSTREAM",
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
    Rule(
        kind="ready_timeout",
        phase="load",
        retry=Retry.YES,
        starting_only=True,
        signatures=(
            sig(
                "timed out waiting for engine core processes to start",
                r"Timed out waiting for engine core processes to start(?:.*?(?P<timeout_s>\d+) ?s)?",
                follow=1,
            ),
            sig("vllm_engine_ready_timeout_s", r"TimeoutError.*VLLM_ENGINE_READY_TIMEOUT_S"),
            sig("timed out waiting for engines to send initial message"),
        ),
        sentence="The engine was not ready in time[[ ({timeout_s} s)]]: a slow disk or a cold compilation.",
        remedy="Raise VLLM_ENGINE_READY_TIMEOUT_S and try once more; the second start finds files and compilation "
        "cached.",
        turns=(
            RESTART,
            Turn(knob="environment.VLLM_ENGINE_READY_TIMEOUT_S", change=Change.SET, value="1800"),
        ),
        documented="vLLM source 0.17.1 and newer",
    ),
    Rule(
        kind="config_invalid",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig(
                "is greater than the derived max_model_len",
                r"(?P<reason>User-specified max_model_len \((?P<max_model_len>\d+)\) is greater than the derived max_model_len"
                r" \([^)]*?=(?P<most_max_model_len>\d+)[^)]*\).*?To allow overriding[^.]*)",
                follow=2,
            ),
            sig(
                "must be greater than or equal to max_num_seqs",
                r"(?P<reason>max_num_batched_tokens \((?P<max_num_batched_tokens>\d+)\) must be greater than or equal to"
                r" max_num_seqs \((?P<least_batched_tokens>\d+)\))",
            ),
            sig(
                "is smaller than max_model_len",
                r"(?P<reason>max_num_batched_tokens \((?P<max_num_batched_tokens>\d+)\) is smaller than max_model_len"
                r" \((?P<least_batched_tokens>\d+)\))",
            ),
            sig(
                "max_num_active_seqs",
                r"(?P<reason>max_num_active_seqs \(?(?P<max_num_active_seqs>\d+)\)?.*?max_num_seqs \(?(?P<most_active_seqs>\d+)\)?.*?)(?: \[type=|$)",
            ),
            sig(
                "must be divisible by tensor parallel size",
                r"(?P<reason>Total number of attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size"
                r" \((?P<tensor_parallel_size>\d+)\))",
            ),
            sig(
                "does not match the quantization method",
                r"(?P<reason>Quantization method specified in the model config \((?P<checkpoint_quantization>[\w-]+)\) does not match the"
                r" quantization method specified in the `?quantization`? argument \((?P<quantization>[\w-]+)\))",
            ),
            sig("vllmvalidationerror", r"VLLMValidationError: (?P<reason>.+)"),
            sig(
                "invalid tool call parser",
                r"(?P<reason>invalid tool call parser: (?P<parser>[\w.-]+))",
            ),
            sig("invalid reasoning parser", r"(?P<reason>invalid reasoning parser: (?P<parser>[\w.-]+))"),
            sig(
                "the supplied chat template",
                r"(?P<reason>The supplied chat template (?:string )?\((?P<path>[^)]+)\).*)",
                follow=1,
            ),
        ),
        sentence="The configuration is refused[[ ({config})]][[ at {field}]][[: {reason}]].",
        remedy="Change the setting that the sentence names; where it states the bound, use that; otherwise go back to "
        "the last settings that worked.",
        turns=(
            Turn(knob="max_model_len", change=Change.SET, value=first("most_max_model_len")),
            Turn(knob="max_num_batched_tokens", change=Change.SET, value=first("least_batched_tokens")),
            Turn(knob="max_num_active_seqs", change=Change.SET, value=first("most_active_seqs")),
            Turn(knob="quantization", change=Change.SET, value=first("checkpoint_quantization")),
            fix("configuration"),
        ),
        documented="vLLM source 0.32.0",
    ),
    Rule(
        kind="config_invalid",
        phase="parse",
        retry=Retry.NEVER,
        starting_only=True,
        weight=Weight.CONSEQUENCE,
        signatures=(
            sig(
                "validation error",
                r"validation errors? for (?P<config>\w+) (?:(?P<field>(?-i:[a-z_0-9.]+)) )?(?P<reason>.+?)(?: \[type=|$)",
                follow=3,
            ),
        ),
        sentence="The configuration is refused[[ ({config})]][[ at {field}]][[: {reason}]].",
        remedy="Change the setting that the sentence names; where it states the bound, use that; otherwise go back to "
        "the last settings that worked.",
        turns=(fix("configuration"),),
        documented="vLLM source 0.32.0",
    ),
)
