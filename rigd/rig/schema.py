"""The typed schema of a rig file. Unknown keys are errors; units are last in each name.

Names of engine settings are vLLM's own (`max_num_seqs` is `--max-num-seqs`).
"""

import enum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, Secret, model_validator

from rigd.rig.alert_urls import masked_url
from rigd.rig.budget import Budget
from rigd.rig.host import Host
from rigd.rig.model import Model, Seconds
from rigd.rig.sizes import parse_size
from rigd.rig.trends import Trends

Port = Annotated[int, Field(ge=1, le=65535)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


def _checked_size(size: int | str) -> int | str:
    parse_size(size)
    return size


Size = Annotated[int | str, AfterValidator(_checked_size)]
"""Bytes, or a number with a unit: `512mb`, `16gb`, `48GiB` (steps of 1024, as Docker counts)."""


class RuntimeKind(enum.StrEnum):
    """How the engine runs."""

    DOCKER = "docker"
    PROCESS = "process"


class SecretRef(Model):
    """Where a secret is; never the secret. Exactly one of the three."""

    env: str | None = None
    """Name of an environment variable of the daemon."""
    file: str | None = None
    """Path of a file whose first line is the secret; mode 0600 is expected."""
    credential: str | None = None
    """Name of a systemd credential (`LoadCredential=`)."""

    @model_validator(mode="after")
    def _exactly_one(self) -> "SecretRef":
        if sum(value is not None for value in (self.env, self.file, self.credential)) != 1:
            raise ValueError("give exactly one of env, file, credential")
        return self


class Speculative(Model):
    """vLLM's speculative configuration; other keys of it go into `extra`."""

    method: str
    """`mtp`, `ngram`, `eagle3`, ..."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=32)]
    """Draft tokens a step."""
    model: str | None = None
    """Draft model, for the methods that have one."""
    draft_sample_method: str | None = None
    """`greedy` or `probabilistic` (vLLM's own names)."""
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Any other key of vLLM's speculative configuration, passed as it is."""


class Arguments(Model):
    """vLLM's settings by their own names. A setting left out is not passed: vLLM's default holds."""

    tensor_parallel_size: Annotated[int, Field(ge=1)] | None = None
    """Cards that share the model."""
    max_model_len: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    """Longest context in tokens."""
    max_num_seqs: Annotated[int, Field(ge=1)] | None = None
    """Most requests in one batch."""
    max_num_active_seqs: Annotated[int, Field(ge=1)] | None = None
    """Most requests admitted at once, below max_num_seqs, without shrinking the batch (since 0.31)."""
    max_num_batched_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens in one step."""
    enable_chunked_prefill: bool | None = None
    """Long prompts are read in pieces of max_num_batched_tokens; off, that number must hold a whole prompt."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of each card's memory that vLLM may use."""
    kv_cache_memory_bytes: Annotated[int, Field(ge=1)] | None = None
    """KV pool of each card in bytes; takes precedence over gpu_memory_utilization."""
    kv_cache_dtype: str | None = None
    """`auto`, `fp8`, `fp8_e5m2`, ...: number format of the KV cache."""
    mamba_ssm_cache_dtype: str | None = None
    """`float16`, `float32`, ...: number format of the recurrent state of hybrid models."""
    dtype: str | None = None
    """`auto`, `float16`, `bfloat16`: number format of weights and activations."""
    quantization: str | None = None
    """`gptq_marlin`, `awq`, ...: how the weights are quantised; vLLM reads it from the model if left out."""
    attention_backend: str | None = None
    """`FLASHINFER`, `FLASH_ATTN`, ...; the flag where the version reads it, the variable where not."""
    block_size: Annotated[int, Field(ge=1)] | None = None
    """Tokens in one block of the KV cache."""
    enable_prefix_caching: bool | None = None
    """Prompts that begin alike are read once; warm-up needs it."""
    enable_prompt_tokens_details: bool | None = None
    """Lets answers say how many prompt tokens came from the cache; warm-up proofs use it."""
    enforce_eager: bool | None = None
    """No compilation and no CUDA graphs: starts sooner, decodes slower."""
    async_scheduling: bool | None = None
    """The next step is planned while the present one runs."""
    disable_custom_all_reduce: bool | None = None
    """Use NCCL's own all-reduce; cards without working peer access need it."""
    language_model_only: bool | None = None
    """Leave out the vision part of a multimodal model."""
    trust_remote_code: bool | None = None
    """Run Python code that comes with the model."""
    chat_template: str | None = None
    """Path of a chat template, as the engine sees it (inside the container)."""
    default_chat_template_kwargs: dict[str, JsonValue] | None = None
    """What the template is given unless a request says otherwise, for example `{enable_thinking: true}`."""
    enable_auto_tool_choice: bool | None = None
    """The model may decide to call tools; needs tool_call_parser."""
    tool_call_parser: str | None = None
    """`qwen3_coder`, `hermes`, ...: how tool calls are read from the answer."""
    reasoning_parser: str | None = None
    """`qwen3`, `deepseek_r1`, ...: how thinking is told from the answer."""
    speculative: Speculative | None = None
    """Rendered as `--speculative-config`."""
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Any other vLLM flag by name without the dashes, for example `seed: 7`: true is `--flag`, false
    `--no-flag`, a list one flag with its values, a mapping becomes JSON."""


class Mount(Model):
    """A folder or file of the host that the engine's container sees."""

    source: str
    """Path on the host: absolute, from `~` (the daemon's home), or from the rig file's folder."""
    target: Annotated[str, Field(pattern="^/")]
    """Absolute path in the container."""
    read_only: bool = False
    """The container may read it and no more."""
    create: bool = False
    """Make the source folder when it is missing (caches); otherwise a missing source is an error."""


class Ulimit(Model):
    """A resource limit of the container; -1 is unlimited."""

    soft: Annotated[int, Field(ge=-1)]
    """What holds until the process asks for more."""
    hard: Annotated[int, Field(ge=-1)]
    """What it may ask for."""


class Docker(Model):
    """How the engine's container is made. rigd owns restarts: its restart policy is always `no`."""

    image: str
    """Image with a tag or, better, a digest. A floating tag such as `latest` is refused."""
    container: Slug
    """Name of the container."""
    gpus: Literal["all", "none"] | tuple[int, ...] = "all"
    """Cards the container gets: `all`, `none`, or their indices."""
    gpu_injection: Literal["gpus", "cdi", "runtime"] = "gpus"
    """How cards get in: device request (`docker run --gpus`), CDI, or `runtime: nvidia`."""
    shm_size: Size | None = None
    """Size of /dev/shm in the container, for example `16gb`; without effect with ipc host."""
    ipc: Literal["private", "host"] = "private"
    """`host`: the container uses the host's /dev/shm."""
    network: Literal["bridge", "host"] = "bridge"
    """With bridge the engine's port is published on `engine.host`; with host it binds there itself."""
    container_port: Port = 8000
    """Port inside the container, for bridge."""
    mounts: tuple[Mount, ...] = ()
    """Folders and files of the host that the container sees: model caches, chat templates."""
    ulimits: dict[str, Ulimit] = Field(default_factory=dict)
    """Limits of the container's processes, for example `memlock: {soft: -1, hard: -1}`."""
    memory: Size | None = None
    """Memory limit of the container, for example `48gb`; none by default."""
    pids_limit: Annotated[int, Field(ge=1)] | None = None
    """Most processes and threads in the container; Docker's default if left out."""
    entrypoint: Annotated[tuple[str, ...], Field(min_length=1)] = ("vllm", "serve")
    """Command in the image that serves; the arguments follow it."""
    pull: Literal["missing", "never"] = "missing"
    """Whether to pull an image that is not there."""
    user: str | None = None
    """User in the container, as a name or `UID:GID`; the image's own if left out."""


class Process(Model):
    """How the engine runs as a bare process."""

    executable: Annotated[tuple[str, ...], Field(min_length=1)] = ("vllm", "serve")
    """Command that serves; the arguments follow it."""
    working_directory: str | None = None
    """Folder that the engine starts in; the daemon's if left out."""
    inherit_environment: tuple[str, ...] = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "TMPDIR")
    """Variables of the daemon that the engine sees; everything else is kept from it."""


class Engine(Model):
    """What to launch."""

    runtime: RuntimeKind
    """`docker` or `process`; the section of that name says more."""
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+")]
    """vLLM's version, for the table of what differs between versions."""
    model: str
    """Hugging Face id or folder, as the engine sees it (inside the container). A bare process may use `~/...`
    and `./...`, the latter from the rig file's folder."""
    served_model_name: str | None = None
    """Name that clients use; the model itself if left out."""
    host: str = "127.0.0.1"
    """Address to serve on. A tailnet address or 127.0.0.1; 0.0.0.0 opens the box to its whole network."""
    port: Port = 8000
    """Port to serve on."""
    api_key: SecretRef | None = None
    """Key that clients must send; handed to the engine as `VLLM_API_KEY` through a private file."""
    environment: dict[str, str | SecretRef] = Field(default_factory=dict)
    """Variables of the engine; a secret is a reference."""
    arguments: Arguments = Arguments()
    """vLLM's own settings."""
    docker: Docker | None = None
    """The container, for runtime docker."""
    process: Process | None = None
    """The process, for runtime process; may be left out."""

    @model_validator(mode="after")
    def _runtime_described(self) -> "Engine":
        if self.runtime is RuntimeKind.DOCKER and self.docker is None:
            raise ValueError("runtime docker needs a `docker:` section")
        if self.runtime is RuntimeKind.PROCESS and self.docker is not None:
            raise ValueError("runtime process takes no `docker:` section")
        if self.runtime is RuntimeKind.DOCKER and self.process is not None:
            raise ValueError("runtime docker takes no `process:` section")
        return self


class Canary(Model):
    """The small completion that proves the engine answers."""

    prompt: str = "The capital of France is"
    """What is asked."""
    max_tokens: Annotated[int, Field(ge=1, le=64)] = 8
    """Length of the answer."""
    expect: str | None = None
    """Text the answer must contain (case does not matter); None: any text that is not degenerate."""
    timeout_s: Seconds = 30.0
    """Deadline of the first canary after the engine is up; later ones go by `stall_deadline_s`."""
    every_s: Seconds | None = None
    """How often while the engine looks idle; None: half of `stall_deadline_s`."""


class Deadlines(Model):
    """How long each phase of a start may take, in seconds."""

    gates_s: Seconds = 120.0
    """Until the machine is clean: old processes, port, GPU memory, disk."""
    pull_s: Seconds = 7200.0
    """Image pull."""
    create_s: Seconds = 120.0
    """Container or process created."""
    load_s: Seconds = 1800.0
    """From the engine's process to `/health` (weights, compile, graphs); first boots take ten minutes."""
    first_answer_s: Seconds = 180.0
    """From `/health` to the first real completion."""
    warm_s: Seconds = 900.0
    """All prefixes proved warm."""
    check_s: Seconds = 120.0
    """The engine's own parser on a new configuration."""
    stop_s: Seconds = 60.0
    """From TERM to the last process gone; KILL follows after `stop_grace_s`."""


class Backoff(Model):
    """Wait between failed starts: initial * factor^n, at most max, plus or minus jitter."""

    initial_s: Annotated[float, Field(ge=0)] = 1.0
    """Wait after the first failure."""
    factor: Annotated[float, Field(ge=1)] = 2.0
    """Each wait is this many times the one before."""
    max_s: Seconds = 300.0
    """Longest wait."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the wait that is random."""


class Ladder(Model):
    """How far rigd may change engine settings by itself, one knob a boot, when the engine cannot serve as wished."""

    enabled: bool = True
    """False: settings are never changed; a failure is answered by restarts alone."""
    restarts: Annotated[int, Field(ge=0)] = 3
    """Restarts of one class of failure before a knob is turned, where a restart may help."""
    boots: Annotated[int, Field(ge=1)] = 14
    """Most starts by rigd itself in `supervision.attempts_window_s`, turned knobs included."""
    least_max_num_seqs: Annotated[int, Field(ge=1)] = 2
    """`max_num_seqs` is never turned below this."""
    least_max_num_batched_tokens: Annotated[int, Field(ge=1)] = 1024
    """`max_num_batched_tokens` is never turned below this."""
    least_gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.86
    """`gpu_memory_utilization` is never turned below this."""
    most_gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.97
    """`gpu_memory_utilization` is never turned above this."""
    least_max_model_len: Annotated[int, Field(ge=1)] = 8192
    """`max_model_len` is never turned below this."""
    climb_after_s: Seconds = 21600.0
    """Time ready, with room, after which the newest change is undone on trial; doubled after each failed trial."""
    climb_kv_usage: Annotated[float, Field(ge=0, le=1)] = 0.6
    """A trial begins only if the KV pool was never fuller than this share over the stretch, and nothing preempted."""
    climb_gpu_free_mib: Annotated[float, Field(ge=0)] = 512.0
    """Memory that every card must have had free over the stretch, where there are cards."""
    climb_idle_s: Seconds = 3600.0
    """How long a trial waits for a moment without requests, which are never cut off; then for the next stretch."""
    most_max_num_seqs: Annotated[int, Field(ge=1)] | None = None
    """Up to here `max_num_seqs` is raised beyond the wish, on trial, when requests wait with room; None: never."""
    raise_waiting: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Share of the stretch in which requests must have been waiting before it is raised."""
    raise_speed: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Share of the tokens a second and stream that must be left after a raise; else it is taken back."""
    wait_s: Seconds = 86400.0
    """Longest wait for what the engine needs (port, disk, network, Docker, mounts); it costs no start or attempt."""
    wait_path_s: Seconds = 60.0
    """Longest wait for a model's folder that is not there and lies on no disk that this host means to mount."""
    wait_memory_s: Seconds = 600.0
    """Longest wait for the cards' memory, after which settings are fitted to what is free, where the log says it."""


class Supervision(Model):
    """How one engine is kept serving."""

    probe_interval_s: Seconds = 2.0
    """How often the engine is looked at."""
    probe_timeout_s: Seconds = 5.0
    """How long one look may take."""
    failure_threshold: Annotated[int, Field(ge=1)] = 3
    """Consecutive failed probes before the engine counts as down (a dead process counts at once)."""
    success_threshold: Annotated[int, Field(ge=1)] = 1
    """Consecutive good probes before it counts as up again."""
    stall_deadline_s: Seconds = 240.0
    """Longest time without any progress while work is in flight, or without an answered canary while idle."""
    stop_grace_s: Seconds = 15.0
    """From TERM to KILL."""
    canary: Canary = Canary()
    """The small completion that proves the engine answers."""
    deadlines: Deadlines = Deadlines()
    """How long each phase of a start may take."""
    backoff: Backoff = Backoff()
    """Wait between failed starts."""
    attempts: Annotated[int, Field(ge=1)] = 5
    """Failures in `attempts_window_s` after which rigd stops trying and says so."""
    attempts_window_s: Seconds = 3600.0
    """How long a failure counts."""
    healthy_stretch_s: Seconds = 600.0
    """Time ready after which the backoff starts from its beginning again."""
    early_crash_s: Seconds = 60.0
    """An end sooner than this after ready counts as a failed start."""
    ladder: Ladder = Ladder()
    """How far rigd may change engine settings by itself."""
    trends: Trends = Trends()
    """Failures that only the numbers show: when they count, and what they are answered with."""


class Gates(Model):
    """What must hold before a start."""

    disk_free_gib: Annotated[float, Field(ge=0)] = 5.0
    """Free space in rigd's state folder and in every writable mount."""
    shm_free_mib: Annotated[float, Field(ge=0)] = 0.0
    """Free space in the host's /dev/shm, where the engine uses it (ipc host, or a bare process)."""
    gpu_memory_used_mib: Annotated[float, Field(ge=0)] = 1000.0
    """Most memory that may be in use on each card before a start."""
    gpu_settle_s: Annotated[float, Field(ge=0)] = 5.0
    """How long the cards' memory must stay below that."""


class Prefix(Model):
    """A prompt beginning that agents share. Either `request`, or `system` and/or `files`."""

    name: Slug
    """Name in status and journal."""
    request: str | None = None
    """Path of a JSON file with a chat completion request body; its last user message is the tail."""
    system: str | None = None
    """System prompt text."""
    files: tuple[str, ...] = ()
    """Files appended to the system prompt, in order, each after a line with its path."""
    tools: str | None = None
    """Path of a JSON file with the `tools` array that the clients send."""

    @model_validator(mode="after")
    def _one_source(self) -> "Prefix":
        if self.request is not None and (self.system is not None or self.files or self.tools is not None):
            raise ValueError("give either `request`, or `system`, `files` and `tools`")
        if self.request is None and self.system is None and not self.files:
            raise ValueError("give `request`, `system` or `files`")
        return self


class Warm(Model):
    """How prefixes are warmed and proved."""

    target_hit: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of the prefix's tokens that a request with another tail must find cached, less the blocks
    that the engine never caches (the last partial block; one more with speculative decoding)."""
    max_sightings: Annotated[int, Field(ge=2)] = 5
    """Most requests a prefix; hybrid models need about three."""
    request_timeout_s: Seconds = 600.0
    """Deadline of one warm request; a cold prefix of 200K tokens takes minutes."""
    every_s: Seconds | None = 1800.0
    """How often the hit is proved again while ready; None: never by the clock."""
    watch_files: bool = True
    """Warm again when a file of a prefix changes."""
    wait_for_idle_s: Seconds = 30.0
    """How long a warm request waits for live traffic to pass before it goes anyway."""


class Channel(Model):
    """One kind of client of the engine and what it may use of the KV pool."""

    name: Slug
    """Name in budgets and client files."""
    context: Annotated[int, Field(ge=1)]
    """Longest prompt in tokens."""
    output: Annotated[int, Field(ge=1)]
    """Longest answer in tokens."""
    parallel: Annotated[int, Field(ge=1)] = 1
    """Requests of this channel at once."""
    priority: int = 0
    """Lower is served first, as in vLLM."""


class Logs(Model):
    """What is kept of the engine's output and of the journal."""

    keep_starts: Annotated[int, Field(ge=1)] = 10
    """Starts whose log stays readable."""
    max_mib: Annotated[float, Field(gt=0)] = 64.0
    """Size at which a start's log is rotated; one older part is kept."""
    keep_events: Annotated[int, Field(ge=100)] = 20_000
    """Journal entries kept."""
    keep_incidents: Annotated[int, Field(ge=1)] = 20
    """Incidents kept (`rigd incidents`); each is at most 4 MiB."""
    keep_incidents_days: Annotated[float, Field(gt=0)] = 60.0
    """How long an incident is kept. Days."""


class PrivateUrl(Secret[str]):
    """An Apprise URL: a text that shows itself masked wherever it is printed."""

    def _display(self) -> str:
        return masked_url(self.get_secret_value())


class AlertKind(enum.StrEnum):
    """What a person is told of."""

    FAILED = "failed"
    DEGRADED = "degraded"
    RECOVERED = "recovered"
    HOST = "host"
    STORE = "store"


class Alerts(Model):
    """Who is told when something is wrong, and how often."""

    urls: tuple[SecretRef | PrivateUrl, ...] = ()
    """Where alerts go, as Apprise URLs (ntfy, mail, Telegram, ...: over a hundred services). They hold tokens:
    better a reference to each than the URL itself."""
    kinds: tuple[AlertKind, ...] = tuple(AlertKind)
    """`failed` (given up, or down for long), `degraded` (serving, but not as wished), `recovered` (crashes that
    passed, and the end of what was told), `host` (cards, kernel, Docker), `store` (rigd's own disk)."""
    down_s: Seconds = 900.0
    """Not serving for this long is told as `failed`, although rigd is still trying."""
    group_s: Annotated[float, Field(ge=0)] = 60.0
    """What happens within this time becomes one message; giving up and host trouble are told at once."""
    repeat_s: Seconds | None = 3600.0
    """First reminder while something stays wrong; None: no reminders. Passing crashes are told this far apart too."""
    repeat_factor: Annotated[float, Field(ge=1)] = 2.0
    """Each time between reminders is this many times the one before."""
    repeat_max_s: Seconds = 86400.0
    """Longest time between reminders."""
    quiet_hours: (
        Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")] | None
    ) = None
    """Such as "22:30-07:00": only new `failed` and `host` pass at once, the rest comes as one message at its end."""
    timezone: str | None = None
    """Time zone of quiet hours and of times in messages, such as `Europe/Berlin`; the box's own if left out."""


class Rig(Model):
    """A whole rig file."""

    name: Slug
    """Name of the rig; labels containers and processes as ours."""
    engine: Engine
    """What to launch."""
    supervision: Supervision = Supervision()
    """How it is kept serving."""
    gates: Gates = Gates()
    """What must hold before a start."""
    host: Host = Host()
    """What rigd may do to the host."""
    prefixes: tuple[Prefix, ...] = ()
    """Prompt beginnings that agents share, warmed in this order after every start."""
    warm: Warm = Warm()
    """How prefixes are warmed and proved."""
    channels: tuple[Channel, ...] = ()
    """Who uses the engine, and how much of it."""
    budget: Budget = Budget()
    """What `rigd budget` reckons with."""
    logs: Logs = Logs()
    """What is kept."""
    alerts: Alerts = Alerts()
    """Who is told when something is wrong."""
