# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""Failures of the arguments and of the configuration: refused by the parser, by the model, or by the card."""

from rigd.supervise.rules.model import MTP_OFF, Change, Retry, Rule, Turn, Weight, first, fix, sig

RULES = (
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
                "max_num_scheduled_tokens",
                r"(?P<reason>max_num_scheduled_tokens is set to -?\d+.*?speculative[^\[]*)",
                follow=1,
            ),
            sig(
                "speculative",
                r"(?P<reason>(?:ValueError|NotImplementedError|AssertionError): .*speculative.*)",
            ),
            sig("does not support mtp", r"^(?P<reason>.*does not support MTP.*)"),
        ),
        sentence="The speculative configuration does not fit this model or vLLM version[[: {reason}]].",
        remedy="Start without speculative-config; then check that the checkpoint has an MTP head, the method's name for "
        "this vLLM version, and that the folder's name contains no method name.",
        turns=(MTP_OFF,),
        documented="vllm#47486, vllm-project/vllm-ascend#9144, syv-ai/qwen38-27b-rtx3090 gotcha 17",
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
                r"(?P<reason>(?:weight|size_[kmn]|input_size|output_size|in_features|out_features|intermediate_size|group_size)\S* ?=? ?\(?(?P<size>\d+)\)? is not divisible by.*)",
            ),
            sig(
                "is not divisible by",
                r"(?:Assertion|Value|Runtime)Error: (?P<reason>(?P<size>\d+) is not divisible by (?P<minimum>\d+))",
            ),
            sig(
                "not divisible by",
                r"^(?P<reason>.*(?:quant|marlin|gptq|awq|weight block|group_size|block_[nk]).*not divisible by.*)",
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
                "' not found. available",
                r"(?P<reason>(?:reasoning|tool)[\w ]* parser '(?P<parser>[\w.-]+)' not found)",
            ),
            sig("requires --", r"Error: (?P<reason>.*--[\w-]+ requires --[\w-]+.*)"),
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
            sig(
                "error: ",
                r"^(?:\w+\.)*(?:Value|Type|Key|Assertion|NotImplemented)Error: (?P<reason>.+)",
                frames=r"create_engine_config|in __post_init__|validate_parsed_serve_args|in verify_\w+|_verify_args",
                during=frozenset({""}),
            ),
        ),
        sentence="The configuration is refused[[ ({config})]][[ at {field}]][[: {reason}]].",
        remedy="Change the setting that the sentence names; where it states the bound, use that; otherwise go back to "
        "the last settings that worked.",
        turns=(fix("configuration"),),
        documented="vLLM source 0.32.0",
    ),
)
