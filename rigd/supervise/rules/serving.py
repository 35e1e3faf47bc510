# ruff: noqa: E501  (a pattern or a sentence in one piece reads better than cut at a column)
"""Failures of an engine that served: deaths, hangs, poor drafts, and the clients' own mistakes."""

from rigd.supervise.rules.model import (
    FEWER_SEQS,
    MTP_OFF,
    NO_CUSTOM_ALL_REDUCE,
    NO_P2P,
    RESTART,
    Captured,
    Change,
    Retry,
    Rule,
    Turn,
    Weight,
    fix,
    halved,
    sig,
)

_IMA = r"CUDA error: (?P<cuda_error>an illegal memory access was encountered|unspecified launch failure)"
_GDN_FRAMES = (
    r"seq_lens\.to\(|seq_lens_cpu|async_copy_ready_event|gated_delta|\bgdn\b|gdn_attn|spec_decode|num_accepted"
    r"|eagle|mtp|propose_draft|rejection_sampl"
)
_NO_ASYNC = Turn(knob="async_scheduling", change=Change.SET, value=False)
_EAGER = Turn(knob="enforce_eager", change=Change.SET, value=True)
_POISON_FRAMES = r"in schedule\b|structured_output|grammar|xgrammar|outlines|llguidance|json_schema"
_STORM = 5
"""Restarts of systemd's counter that are no accident any more."""


def _often(found: Captured) -> bool:
    restarts = found.get("restarts")
    return isinstance(restarts, int) and restarts >= _STORM


_ENGINE_FATAL = frozenset({"engine_fatal"})
_MTP = frozenset({"mtp"})

RULES = (
    Rule(
        kind="ima_mtp_gdn",
        phase="runtime",
        retry=Retry.YES,
        signatures=(
            sig("cuda error: an illegal memory access", _IMA, marks=_MTP),
            sig("cuda error: an illegal memory access", _IMA, frames=_GDN_FRAMES),
            sig("cuda error: unspecified launch failure", _IMA, marks=_MTP),
            sig("cuda error: unspecified launch failure", _IMA, frames=_GDN_FRAMES),
        ),
        sentence="A GPU kernel read outside its memory ({cuda_error}) while MTP was on: the known fault of speculative "
        "decoding on hybrid models, not the card.",
        remedy="Start again; if it repeats, set async-scheduling off, then turn MTP off.",
        turns=(RESTART, _NO_ASYNC, MTP_OFF),
        documented="vllm#40756, vllm#50021, vllm#53726, noonghunna/club-3090#1052",
    ),
    Rule(
        kind="ima_other",
        phase="runtime",
        retry=Retry.YES,
        signatures=(
            sig("cuda error: an illegal memory access", _IMA),
            sig("cuda error: unspecified launch failure", _IMA),
            sig(
                "cuda error: device-side assert", r"CUDA error: (?P<cuda_error>device-side assert triggered)"
            ),
            sig("cuda error: misaligned address", r"CUDA error: (?P<cuda_error>misaligned address)"),
            sig(
                "an illegal memory access was encountered",
                r"(?P<cuda_error>an illegal memory access was encountered)",
            ),
            sig("cudaerrorillegaladdress"),
        ),
        sentence="A GPU kernel failed[[: {cuda_error}]] (the place in the traceback means nothing, kernels run later).",
        remedy="Start again; the second time set disable-custom-all-reduce, the third time enforce-eager or an older "
        "image; look for an Xid in the kernel log.",
        turns=(RESTART, NO_CUSTOM_ALL_REDUCE, _EAGER, fix("image")),
        documented="vllm#19483, vllm#17098",
        overrides=("nccl_watchdog",),
    ),
    Rule(
        kind="poison_request",
        phase="runtime",
        retry=Retry.YES,
        signatures=(
            sig(
                "error:",
                r"(?P<error>(?:\w+\.)*\w*Error): ?(?P<reason>(?!CUDA|RPC call|EngineCore).*)",
                frames=_POISON_FRAMES,
                marks=_ENGINE_FATAL,
            ),
            sig(
                "exception:",
                r"(?P<error>(?:\w+\.)*\w*Exception): ?(?P<reason>.*)",
                frames=_POISON_FRAMES,
                marks=_ENGINE_FATAL,
            ),
            sig("error", r"^(?P<error>(?:\w+\.)*\w+Error)$", frames=_POISON_FRAMES, marks=_ENGINE_FATAL),
            sig(
                "failed to advance fsm",
                r"Failed to advance FSM for request (?P<request>\S+)",
                marks=_ENGINE_FATAL,
            ),
        ),
        sentence="One request killed the engine: its grammar or JSON schema raised {error} in the scheduler"
        "[[ ({reason})]].",
        remedy="Start again, and block that request at the gateway when it comes a second time (the client will repeat "
        "it); a newer vLLM has fixes.",
        turns=(RESTART, fix("client")),
        documented="vllm#43920, vllm#44401, vllm#47312, vllm#45346",
    ),
    Rule(
        kind="rpc_timeout",
        phase="runtime",
        retry=Retry.YES,
        weight=Weight.CONSEQUENCE,
        signatures=(
            sig("rpc call to", r"RPC call to (?P<call>\w+) timed out"),
            sig("execute_model timed out"),
        ),
        sentence="A worker did not answer[[ the call {call}]] in time: a kernel or a collective between the cards hangs.",
        remedy="Start again; if it repeats, set NCCL_P2P_DISABLE=1, then turn MTP off, then set "
        "disable-custom-all-reduce.",
        turns=(RESTART, NO_P2P, MTP_OFF, NO_CUSTOM_ALL_REDUCE),
        documented="vllm#37250, vllm#41530, vllm#48752, vllm#19668",
        overrides=("worker_died",),
    ),
    Rule(
        kind="spec_accept_collapse",
        phase="runtime",
        retry=Retry.YES,
        weight=Weight.OBSERVED,
        signatures=(),
        sentence="Drafts are never accepted any more (mean acceptance length {mean_acceptance_length}): speculation "
        "costs and brings nothing.",
        remedy="Start again; if it comes back, turn MTP off or use another checkpoint.",
        turns=(RESTART, MTP_OFF),
        documented="noonghunna/club-3090#1052, vllm#52873",
    ),
    Rule(
        kind="drafter_missing",
        phase="runtime",
        retry=Retry.NEVER,
        weight=Weight.OBSERVED,
        signatures=(
            sig(
                "drafter",
                r"(?:drafter|draft model)\b.*(?:not found|missing|could not be (?:found|loaded)|falling back|(?<!not )disabled)",
            ),
            sig(
                "draft model",
                r"draft model\b.*(?:not found|missing|could not be (?:found|loaded)|falling back)",
            ),
            sig(
                "speculative decoding",
                r"speculative decoding (?:is |was |will be )?(?:disabled|turned off|not (?:enabled|active))",
            ),
        ),
        sentence="Speculative decoding was asked for but does not run: no draft statistics appear.",
        remedy="Fetch the drafter (a gated one needs a token) and check the speculative configuration; answers are "
        "right, only slow.",
        turns=(fix("drafter"),),
        documented="noonghunna/club-3090 FAQ",
    ),
    Rule(
        kind="spec_concurrency_cap",
        phase="runtime",
        retry=Retry.NEVER,
        weight=Weight.OBSERVED,
        signatures=(),
        sentence="Only {running} requests run while {waiting} wait and the KV pool is at {kv_usage_percent} %: a hybrid "
        "model with MTP reserves state blocks for each draft token.",
        remedy="Lower num_speculative_tokens, or turn MTP off.",
        turns=(
            Turn(
                knob="speculative.num_speculative_tokens",
                change=Change.HALVE,
                value=halved("num_speculative_tokens"),
            ),
            MTP_OFF,
        ),
        documented="vllm#55533",
    ),
    Rule(
        kind="mtp_prefix_corruption",
        phase="runtime",
        retry=Retry.CONDITIONAL,
        weight=Weight.OBSERVED,
        signatures=(
            sig(
                "prefix",
                r"(?:canary|answer|output|completion|tool calls?)\b.*(?:differs?|degenerate|vanish\w*|corrupt\w*|wrong).*\b(?:cached prefix|prefix (?:cache )?hits?)\b",
            ),
        ),
        sentence="Answers degenerate after prefix-cache hits: MTP with prefix caching poisons a hybrid model's state.",
        remedy="Turn prefix caching off or MTP off; a restart hides it for a while.",
        turns=(Turn(knob="enable_prefix_caching", change=Change.SET, value=False), MTP_OFF),
        documented="vllm#43559, vllm#48375, noonghunna/club-3090#710",
    ),
    Rule(
        kind="preempt_thrash",
        phase="runtime",
        retry=Retry.NEVER,
        weight=Weight.OBSERVED,
        signatures=(sig("is preempted by", r"(?:Sequence group|Request) (?P<request>\S+) is preempted by"),),
        sentence="Requests push one another out of the KV pool[[ ({preemptions} preemptions)]][[, which is "
        "{kv_usage_percent} % full]].",
        remedy="Lower max-num-seqs, or max-model-len, or give more KV memory; a few preemptions are healthy.",
        turns=(
            FEWER_SEQS,
            Turn(knob="max_model_len", change=Change.HALVE, value=halved("max_model_len")),
        ),
        documented="vllm#18115, vllm#42827",
    ),
    Rule(
        kind="stall_forever",
        phase="runtime",
        retry=Retry.YES,
        weight=Weight.OBSERVED,
        signatures=(),
        sentence="{running} requests are running and not one token comes[[: {lines} status lines in a row say 0.0 tokens/s]]"
        "[[: the engine waited {waits} minutes in a row for a worker]].",
        remedy="Start again; if it repeats, set NCCL_P2P_DISABLE=1, then turn MTP off, then set "
        "disable-custom-all-reduce.",
        turns=(RESTART, NO_P2P, MTP_OFF, NO_CUSTOM_ALL_REDUCE),
        documented="vllm#17972, vllm#2731, vllm#1492, vllm#13134",
    ),
    Rule(
        kind="stall_selfheal",
        phase="runtime",
        retry=Retry.YES,
        weight=Weight.OBSERVED,
        signatures=(),
        sentence="The engine fell silent for {gap_s} s with requests running and went on by itself[[ ({stalls} times)]].",
        remedy="Wait 3 to 5 minutes before acting (most end by themselves), then take a stack dump and restart; count "
        "them.",
        turns=(RESTART, _NO_ASYNC, MTP_OFF),
        documented="syv-ai/qwen38-27b-rtx3090#107",
    ),
    Rule(
        kind="slow_not_stuck",
        phase="runtime",
        retry=Retry.NEVER,
        weight=Weight.OBSERVED,
        signatures=(),
        sentence="The engine is busy, not stuck: {running} running, {waiting} waiting, {tokens_per_s} tokens/s.",
        remedy="Do nothing to the engine; send fewer requests at once, or raise max-num-seqs.",
        turns=(Turn(knob="max_num_seqs", change=Change.RAISE),),
        documented="intel/llm-scaler#391",
    ),
    Rule(
        kind="kv_pool_shrunk",
        phase="memory",
        retry=Retry.CONDITIONAL,
        weight=Weight.OBSERVED,
        signatures=(),
        sentence="The KV pool is {kv_tokens} tokens, {percent} % of the {earlier_kv_tokens} of an earlier start: this one "
        "started onto a card that was not empty.",
        remedy="Wait until the cards' memory is released and start again once; or fix the pool with "
        "kv-cache-memory-bytes.",
        turns=(RESTART, Turn(knob="kv_cache_memory_bytes", change=Change.SET)),
        documented="syv-ai/qwen38-27b-rtx3090 gotcha 2, 16 and 18, vllm#44209",
    ),
    Rule(
        kind="host_ram_leak",
        phase="runtime",
        retry=Retry.YES,
        weight=Weight.OBSERVED,
        signatures=(
            sig(
                "resident",
                r"resident (?:memory|set)\b.*(?:grew|growing|grown|above|exceeds).*?(?P<resident_gib>[\d.]+ ?[GM]iB)",
            ),
        ),
        sentence="An engine process grows and never shrinks[[: {first_gib} to {last_gib} GiB]][[ ({resident_gib} GiB)]].",
        remedy="Drain and restart at a threshold of resident memory, before the kernel kills it; upgrade vLLM.",
        turns=(RESTART, fix("image")),
        documented="vllm#28726, vllm#44175, vllm#52089, vllm#50150",
    ),
    Rule(
        kind="worker_died",
        phase="runtime",
        retry=Retry.YES,
        weight=Weight.CONSEQUENCE,
        signatures=(
            sig(
                "died unexpectedly",
                r"(?P<member>(?:Worker|Engine ?core)\s?proc \S+) died unexpectedly(?: \(exit code: (?P<exit_code>-?\d+|None)\))?",
            ),
            sig("died unexpectedly", r"(?P<member>\w*Worker\w*)[^.]*died unexpectedly"),
            sig("engine core exited unexpectedly", r"(?P<member>engine core) exited unexpectedly"),
            sig("free(): invalid"),
            sig("malloc(): "),
            sig("double free or corruption"),
            sig("corrupted size vs. prev_size"),
            sig(
                "fatal python error:",
                r"Fatal Python error: (?P<reason>Segmentation fault|Aborted|Floating[- ]point exception|Illegal instruction)",
            ),
            sig("segmentation fault", r"(?P<reason>Segmentation fault)"),
            sig("got fatal signal from worker processes"),
            sig("worker process died"),
            sig(
                "segfault at",
                r"(?P<member>(?:VLLM|python|vllm)[\w:.]*)\[(?P<pid>\d+)\]: (?P<reason>segfault) at",
            ),
            sig(
                "failed core proc(s): {'", r"Failed core proc\(s\): \{'(?P<member>\w+)': (?P<exit_code>-\d+)"
            ),
        ),
        sentence="A process of the engine died by itself[[ ({member})]][[ with exit code {exit_code}]][[: {reason}]]; "
        "the log shows no cause that rigd knows[[; the first error in it is: {error}]].",
        remedy="Start again; look for its end in the kernel log, and on AMD hosts check the IOMMU; the API server ends "
        "with exit code 0 in this case.",
        turns=(RESTART,),
        documented="vllm#48966, noonghunna/club-3090 HARDWARE",
    ),
    Rule(
        kind="http_health_timeout",
        phase="runtime",
        retry=Retry.CONDITIONAL,
        weight=Weight.HINT,
        signatures=(
            sig("health check exceeded timeout"),
            sig(
                "probe failed",
                r"(?P<probe>Liveness|Readiness|Startup) probe failed:.*(?:deadline exceeded|timed out|timeout)",
            ),
            sig(
                "/health",
                r"/health\b.*(?:timed out|timeout|deadline exceeded)|(?:timed out|timeout|deadline exceeded).*/health\b",
            ),
        ),
        sentence="A health check got no answer in time: the API server's event loop is busy, which is not yet dead.",
        remedy="Ask for several misses and a stopped token counter before acting; raise the probe's timeout.",
        turns=(Turn(knob="supervision.probe_timeout_s", change=Change.RAISE),),
        documented="ray-project/ray#54070",
    ),
    Rule(
        kind="restart_storm",
        phase="host",
        retry=Retry.NEVER,
        weight=Weight.HINT,
        signatures=(
            sig("start request repeated too quickly"),
            sig(
                "restart counter is at",
                r"restart counter is at (?P<restarts>\d+)",
                check=_often,
            ),
            sig("restarting (", r"\bRestarting \((?P<exit_code>\d+)\) .*ago"),
            sig("back-off restarting failed container"),
        ),
        sentence="Something restarts the engine again and again without changing anything[[ ({restarts} times)]].",
        remedy="Set the restart policy to no (rigd owns restarts) and look at the first failure; each restart can leak "
        "driver memory.",
        turns=(fix("restart_policy"),),
        documented="eugr/spark-vllm-docker#257, rwlove/home-ops#13226",
    ),
    # -- the clients' own mistakes: never a reason to restart
    Rule(
        kind="chat_template",
        phase="runtime",
        retry=Retry.NEVER,
        weight=Weight.CLIENT,
        signatures=(
            sig("while applying chat template"),
            sig("no user query found in messages"),
            sig("jinja2.exceptions", r"jinja2\.exceptions\.(?P<error>\w+): ?(?P<reason>.*)"),
            sig("no chat template is provided"),
            sig("default chat template is no longer allowed"),
            sig("conversation roles must alternate"),
        ),
        sentence="A client's messages do not fit the chat template[[: {reason}]]; the engine itself is fine.",
        remedy="Do not restart: correct the client's messages, or mount a corrected chat template.",
        turns=(fix("chat_template"),),
        documented="vllm#36432, langgenius/dify#33152",
    ),
    Rule(
        kind="tool_parser",
        phase="runtime",
        retry=Retry.NEVER,
        weight=Weight.CLIENT,
        signatures=(
            sig("error in extracting tool call from response"),
            sig("error in chat completion stream generator"),
            sig("error trying to handle streaming tool call"),
            sig("failed to parse tool call"),
        ),
        sentence="The tool-call parser could not read the model's answer, or a client sent bad JSON back; the engine "
        "itself is fine.",
        remedy="Do not restart: check that tool-call-parser is the one for this model (qwen3_coder, not hermes).",
        turns=(fix("tool_call_parser"),),
        documented="vllm#26561, vllm#47761, vllm-project/vllm-ascend#6561",
    ),
    Rule(
        kind="ctx_len_400",
        phase="runtime",
        retry=Retry.NEVER,
        weight=Weight.CLIENT,
        signatures=(
            sig(
                "maximum context length is",
                r"maximum context length is (?P<max_model_len>\d+) tokens(?:.*?requested (?P<requested_tokens>\d+))?",
            ),
            sig(
                "is longer than the maximum model length",
                r"(?:length |prompt \()(?:length )?\(?(?P<requested_tokens>\d+)\)? is longer than the maximum model length of"
                r" (?P<max_model_len>\d+)",
            ),
            sig(
                "maximum model length of",
                r"(?:prompt|length).*maximum model length of (?P<max_model_len>\d+)",
            ),
        ),
        sentence="A client sent a prompt[[ of {requested_tokens} tokens]] longer than the context[[ of {max_model_len}]]; "
        "the engine itself is fine.",
        remedy="Do not restart: the client must send less; raise max-model-len if most requests are refused.",
        turns=(fix("client"),),
        documented="vLLM source",
    ),
)
