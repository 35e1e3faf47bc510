"""What is no failure but helps to read one: benign lines, wrappers, start-up stages, settings that a log states."""

import re

BENIGN = (
    # Normal while an engine compiles, loads or prefills for long; the prefix of the message is stable since 0.8.
    r"No available shared memory broadcast block found in \d+ seconds?",
    r"^\s*$",
    r"FutureWarning|DeprecationWarning|UserWarning(?!: (?:Not enough free disk|CUDA initialization))",
    r"OSError: \[Errno 24\] Too many open files`",  # vLLM's own advice about ulimit quotes this error
    r"Xid \(.*\): 154, .*to 0x\w+ \(None\)",  # the driver takes an earlier demand back
    r"^\s*warnings\.warn\(",
    # What processes say on their way out, whatever sent them there.
    r"\[shutdown\](?!.*unexpectedly)|Parent process exited|WorkerProc shutting down|Received SIG(?:TERM|INT)",
    r"INFO:\s+(?:Shutting down|Waiting for application shutdown|Application shutdown complete)",
    r"INFO:\s+Finished server process",
    r"^nanobind: |^\s*- (?:leaked|\.\.\. skipped)",
    r"resource_tracker: There appear to be \d+ leaked",
    r"destroy_process_group\(\) was not called",
    r"Reducing Torch parallelism from",
    r"Failed to get the IP address, using 0\.0\.0\.0",
    r"(?:Retrying in|Retry attempt|retrying) .*\b(?:s|seconds?|\d+/\d+)\b",
    r"Error retrieving (?:safetensors|file list)",
    r"\bcustom allreduce is disabled because\b|Custom allreduce is disabled",
    r"Received request \S+|Request \S+ details:|Generated response (?!.*!{8})",  # they quote what clients write
    r"Ignoring mistral3? |^\s*File \"",
)
"""Lines that never are a failure, whatever words they contain. Tried before every rule."""

WRAPPERS = (
    r"EngineDeadError",
    r"EngineCore encountered (?:an issue|a fatal error)",
    r"EngineCore failed to start",
    r"Engine core initialization failed",
    r"Engine process failed to start",
    r"WorkerProc (?:initialization failed|failed to start|hit an exception)",
    r"Worker failed with error",
    r"died unexpectedly",
    r"CancelledError",
    r"TCPStore",
    r"KeyboardInterrupt",
    r"Got fatal signal from worker processes",
)
"""Exceptions that only carry another one; they say that the engine died, never why."""

WRAPPER = re.compile("|".join(WRAPPERS))
IS_BENIGN = re.compile("|".join(BENIGN))

STAGES = (
    ("starting to load model", "load"),
    ("loading safetensors checkpoint shards", "load"),
    ("loading weights took", "load"),
    ("model loading took", "memory"),
    ("memory profiling takes", "memory"),
    ("kv cache size:", "capture"),
    ("capturing cuda graph", "capture"),
    ("application startup complete", "ready"),
)
"""Text, and the stage that an engine is in once it was printed."""

MARKS = (
    ("speculativeconfig(method='mtp", "mtp"),
    ("speculativeconfig(method='qwen3_next_mtp", "mtp"),
    ("speculativeconfig(method='deepseek_mtp", "mtp"),
    ("specdecoding metrics:", "mtp"),
    ("'speculative_config': {", "mtp"),
    ("--speculative-config", "mtp"),
    ("enginecore encountered a fatal error", "engine_fatal"),
    ("enginecore encountered a fatal error", "fatal"),
    ("enginecore failed to start", "fatal"),
    ("engine core initialization failed", "fatal"),
    ("enginedeaderror", "fatal"),
    ("workerproc failed to start", "fatal"),
    ("workerproc initialization failed", "fatal"),
    ("died unexpectedly", "fatal"),
    ("got fatal signal from worker processes", "fatal"),
)
"""Text, and what is known of the engine once it was printed."""

BOUNDARIES = ("non-default args:", "vllm api server version")
"""A start of the engine begins here."""

CORE_BOUNDARY = "initializing a v1 llm engine"
"""A start whose first lines are missing begins here at the latest."""

SETTINGS = re.compile(
    r"['\"]?\b(?P<name>max_num_seqs|max_num_batched_tokens|max_model_len|gpu_memory_utilization|port|num_speculative_tokens"
    r"|tensor_parallel_size|kv_cache_memory_bytes)['\"]?\s*[:=]\s*(?P<value>\d+(?:\.\d+)?)\b"
)
"""Settings in the engine's own line of arguments."""

FALLBACK_PHASE = {"": "parse", "load": "load", "memory": "memory", "capture": "capture", "ready": "runtime"}
"""Phase of an unknown failure, by the stage that the engine had reached."""
