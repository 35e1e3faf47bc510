"""The flags of `vllm serve` 0.32.0 by how they take values, as its own parser lists them."""

BOOLEAN = tuple(
    """
    trust-request-chat-template trust-request-mm-kwargs return-tokens-as-token-ids
    enable-auto-tool-choice exclude-tools-when-tool-choice-none enable-prompt-tokens-details
    enable-per-request-metrics enable-server-load-tracking enable-force-include-usage
    enable-tokenizer-info-endpoint enable-log-outputs enable-log-deltas cohere-is-reasoning-model
    log-error-stack tokens-only enable-scale-out disable-uvicorn-access-log allow-credentials
    enable-ssl-refresh enable-request-id-headers disable-fastapi-docs enable-offline-docs
    enable-flash-late-interaction trust-remote-code allow-deprecated-quantization enforce-eager
    enable-return-routed-experts return-sampling-mask use-fp64-gumbel enable-trace-replay
    disable-sliding-window disable-cascade-attn skip-tokenizer-init enable-prompt-embeds
    enable-sleep-mode sleep-mode-offload-cudagraph enable-cumem-allocator enable-nccl-comm-suspend
    use-tqdm-on-load enable-mamba-cache-stochastic-rounding numa-bind dcp-q-replicate
    data-parallel-hybrid-lb data-parallel-external-lb enable-hc-sp enable-expert-parallel
    enable-batch-sharded-sampling enable-ep-weight-filter enable-dbo enable-shm-tensor-arena
    enable-elastic-ep disable-nccl-for-dp-synchronization enable-eplb ray-workers-use-nsight
    disable-custom-all-reduce enable-fault-tolerance enable-prefix-caching kv-sharing-fast-prefill
    swa-bounded-replay enable-mamba-shared-prefix-checkpoint use-replayssm language-model-only
    enable-mm-embeds mm-encoder-only interleave-mm-strings skip-mm-profiling mm-device-do-normalize
    enable-lora enable-tower-connector-lora fully-sharded-loras specialize-active-lora
    enable-mixed-moe-lora-format enable-moe-shared-loras kv-cache-metrics cudagraph-metrics
    enable-layerwise-nvtx-tracing enable-mfu-metrics enable-logging-iteration-details
    jit-monitor-verbose long-prefill-token-threshold-adaptive enable-chunked-prefill
    disable-chunked-mm-input scheduler-reserve-full-isl disable-hybrid-kv-cache-manager async-scheduling
    enable-flashinfer-autotune fail-on-environ-validation enable-log-requests
    """.split()  # noqa: SIM905  (a table to be read)
)
"""`--NAME` and `--no-NAME`."""

SWITCH = tuple(
    """
    headless grpc data-parallel-multi-port-external-lb disable-log-stats aggregate-engine-logging
    """.split()  # noqa: SIM905  (a table to be read)
)
"""`--NAME` alone."""

INTEGER = tuple(
    """
    api-server-count sse-keep-alive-interval port data-parallel-supervisor-port
    dp-supervisor-probe-failure-threshold ssl-cert-reqs h11-max-incomplete-event-size
    h11-max-header-count seed max-logprobs renderer-num-workers safetensors-prefetch-num-threads
    mamba-cache-philox-rounds pipeline-parallel-size master-port nnodes node-rank tensor-parallel-size
    decode-context-parallel-size dcp-kv-cache-interleave-size cp-kv-cache-interleave-size
    prefill-context-parallel-size data-parallel-size data-parallel-rank data-parallel-start-rank
    data-parallel-size-local data-parallel-rpc-port ubatch-size elastic-ep-max-dp-size
    dbo-decode-token-threshold dp-sync-interval dbo-prefill-token-threshold block-size
    replayssm-buffer-len offload-group-size offload-num-in-group offload-prefetch-step
    mm-shm-cache-max-object-size-mb max-loras max-lora-rank max-num-seqs long-prefill-token-threshold
    prefill-schedule-interval stream-interval max-cudagraph-capture-size spec-tokens shutdown-timeout
    """.split()  # noqa: SIM905  (a table to be read)
)
"""One whole number."""

NUMBER = tuple(
    """
    dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s gpu-memory-utilization cpu-offload-gb
    mm-processor-cache-gb mm-encoder-fp8-scale-save-margin mm-ipc-gpu-memory-gb kv-cache-metrics-sample
    watermark
    """.split()  # noqa: SIM905  (a table to be read)
)
"""One number."""

LISTED = tuple(
    """
    lora-modules api-key allowed-media-domains served-model-name sleep-preserve-parameter-names
    logits-processors ignore-patterns numa-bind-nodes numa-bind-cpus kv-cache-dtype-skip-layers
    cpu-offload-params offload-params lora-target-modules collect-detailed-traces
    cudagraph-capture-sizes
    """.split()  # noqa: SIM905  (a table to be read)
)
"""One or more words."""

TEXT = tuple(
    """
    config chat-template chat-template-content-format default-chat-template-kwargs response-role
    tool-call-parser tool-parser-plugin tool-strict-level tool-server max-log-len cohere-format
    anthropic-disabled-thinking-effort fingerprint-mode fingerprint-value host grpc-port uds
    uvicorn-log-level disable-access-log-for-endpoints allowed-origins allowed-methods allowed-headers
    ssl-keyfile ssl-certfile ssl-ca-certs ssl-ciphers root-path middleware model runner convert
    tokenizer tokenizer-mode dtype hf-config-path allowed-local-media-path revision code-revision
    tokenizer-revision max-model-len quantization quantization-config logprobs-mode config-format
    hf-token hf-overrides model-class-overrides pooler-config generation-config
    override-generation-config model-impl io-processor-plugin load-format download-dir
    safetensors-load-strategy safetensors-prefetch-block-size model-loader-extra-config
    pt-load-map-location attention-backend mamba-backend mamba-ssu-algorithm reasoning-parser
    reasoning-parser-plugin distributed-executor-backend master-addr distributed-timeout-seconds
    cpu-distributed-timeout-seconds device-ids dcp-comm-backend data-parallel-address
    data-parallel-backend all2all-backend eplb-config expert-placement-strategy
    max-parallel-loading-workers worker-cls worker-extension-cls fault-tolerance-config
    kv-cache-memory-bytes kv-cache-dtype num-gpu-blocks-override prefix-caching-hash-algo
    prefix-cache-retention-interval mamba-cache-dtype mamba-ssm-cache-dtype mamba-block-size
    prefix-match-unit mamba-cache-mode kv-offloading-size kv-offloading-backend offload-backend
    limit-mm-per-prompt media-io-kwargs mm-processor-kwargs mm-processor-cache-type mm-hasher-algorithm
    mm-encoder-tp-mode mm-encoder-attn-backend mm-encoder-attn-dtype mm-encoder-fp8-scale-path
    mm-encoder-fp8-scale-save-path video-pruning-rate video-pruning-method mm-tensor-ipc
    mm-processor-device lora-dtype max-cpu-loras default-mm-loras max-lora-cls-labels logging-config
    log-level log-config-file show-hidden-metrics-for-version otlp-traces-endpoint
    per-request-spec-decode-metrics custom-histogram-buckets jit-monitor-mode max-num-batched-tokens
    max-num-scheduled-tokens max-num-active-seqs max-num-queued-reqs max-num-queued-tokens
    scheduling-policy scheduler-cls ir-op-priority moe-backend linear-backend
    sparse-indexer-topk-backend speculative-config spec-method spec-model watermark-config
    diffusion-config kv-transfer-config kv-events-config ec-transfer-config ec-manager-config
    compilation-config attention-config engram-config reasoning-config kernel-config additional-config
    structured-outputs-config aux-output-config profiler-config optimization-level performance-mode
    weight-transfer-config gdn-prefill-backend kda-prefill-backend kda-decode-backend
    """.split()  # noqa: SIM905  (a table to be read)
)
"""One word; many are JSON."""

ALIAS = {
    "-asc": "--api-server-count",
    "-q": "--quantization",
    "-pp": "--pipeline-parallel-size",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-tp": "--tensor-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpe": "--data-parallel-external-lb",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-ep": "--enable-expert-parallel",
    "--device-memory-utilization": "--gpu-memory-utilization",
    "-sc": "--speculative-config",
    "-dc": "--diffusion-config",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
}
"""Short and second names."""
