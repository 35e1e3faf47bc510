# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""Failures of files and downloads: the model, its access, the disk, the compile cache, the time they take."""

from rigd.supervise.rules.model import RESTART, Change, Retry, Rule, Turn, Weight, fix, sig

RULES = (
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
            sig("torch_compile_cache", r"(?:Error|Exception)(?!.*No space left).*torch_compile_cache"),
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
    Rule(
        kind="hf_auth",
        phase="load",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig(
                "401 client error",
                r"^(?!.*RepositoryNotFound).*401 Client Error(?:.*?for url: (?P<url>\S+))?",
            ),
            sig("403 client error", r"403 Client Error(?:.*?for url: (?P<url>\S+))?"),
            sig("gatedrepoerror"),
            sig("access a gated repo", r"access a gated repo"),
            sig("cannot access gated repo", r"Cannot access gated repo(?: for url (?P<url>\S+))?"),
            sig("invalid user token"),
        ),
        sentence="Hugging Face refuses access[[ to {url}]]: the token is missing or expired, or the licence was not "
        "accepted (a gated drafter counts too).",
        remedy="Accept the licence on the model's page and give the engine a valid HF_TOKEN.",
        turns=(fix("hf_token"),),
        documented="opea-project/GenAIExamples#2237",
        overrides=("hf_not_found", "hf_network"),
    ),
    Rule(
        kind="hf_auth",
        phase="load",
        retry=Retry.NEVER,
        starting_only=True,
        weight=Weight.CONSEQUENCE,
        signatures=(sig("invalid username or password"),),
        sentence="Hugging Face refuses the token: it is wrong or expired.",
        remedy="Give the engine a valid HF_TOKEN, or none for a public model.",
        turns=(fix("hf_token"),),
        documented="opea-project/GenAIExamples#2237",
        overrides=("hf_network",),
    ),
    Rule(
        kind="hf_not_found",
        phase="load",
        retry=Retry.NEVER,
        starting_only=True,
        signatures=(
            sig("repositorynotfounderror"),
            sig("repository not found for url", r"Repository Not Found for url: (?P<url>\S+?)\.?(?:\s|$)"),
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
        kind="registry_unreachable",
        phase="create",
        retry=Retry.YES,
        signatures=(
            sig(
                "dial tcp",
                r"(?:Get \"?(?P<url>https?://[^\s\"]+)\"?: )?dial tcp.*: (?P<reason>[^:]+(?:: [^:]+)?)$",
            ),
            sig(
                "net/http:",
                r"(?:Get \"?(?P<url>https?://[^\s\"]+)\"?: )?net/http: (?P<reason>.*(?:timeout|canceled).*)",
            ),
        ),
        sentence="The image could not be fetched: its registry does not answer[[ ({url})]][[: {reason}]].",
        remedy="See whether the host reaches the registry (network, DNS, proxy of the Docker service); rigd waits until "
        "Docker reaches it.",
        turns=(Turn(knob="registry", change=Change.WAIT), RESTART),
        documented="Docker documentation, docker pull",
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
            sig("connection aborted", r"Connection aborted"),
            sig("remote end closed connection"),
            sig("server disconnected without sending"),
            sig("without sending complete message body"),
            sig(
                "requests.exceptions.",
                r"requests\.exceptions\.(?:Connection|SSL|Proxy|ChunkedEncoding)Error|requests\.exceptions\.\w*Timeout",
            ),
            sig(
                "httpx.", r"httpx\.(?:\w*Timeout|Connect|Read|Write|Network|Proxy|RemoteProtocol)(?:Error)?\b"
            ),
            sig("httpcore.", r"httpcore\.(?:\w*Timeout|(?:Connect|Read|Network|RemoteProtocol)Error)\b"),
            sig("error sending request for url", r"error sending request for url \((?P<url>\S+?)\)"),
            sig("cas service error", r"CAS service error : (?!IO Error: No space).*"),
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
            sig(
                "unpicklingerror",
                r"(?P<reason>UnpicklingError: (?:invalid load key|pickle data was truncated).*)",
            ),
            sig("the file might be corrupted", r"(?P<reason>.*The file might be corrupted.*)"),
            sig("ran out of input", r"(?P<reason>EOFError: Ran out of input)"),
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
        documented="syv-ai/qwen38-27b-rtx3090 gotcha 36",
        overrides=("config_invalid",),
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
)
