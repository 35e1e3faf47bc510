"""What vLLM's own code makes of a model and its settings, without weights and without serving.

Run by the Python of the lab's vLLM, `python pool_oracle.py ANSWERS < QUESTIONS`: a JSON list of argument lists
(`vllm serve`'s, the model first) comes in, a JSON list goes to the file, each with what the engine would write into
its line `KV cache size`. vLLM is imported once; each question is put to processes made by forking. The model is built
on PyTorch's meta device, on as many ranks as asked, and then asked for the cache that its layers want.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity, get_kv_cache_configs

RANK_DEADLINE_S = 120


def answer_of(arguments: list[str], rank: int, port: int) -> dict[str, Any] | None:
    """Return the answer of rank 0, None of the others."""
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    parsed = parser.parse_args(["--model", arguments[0], *arguments[1:]])
    config = AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
    ranks = config.parallel_config.tensor_parallel_size
    config.parallel_config.rank = rank
    os.environ["VLLM_DIST_IDENT"] = f"pool{port}"  # names what the ranks share
    with set_current_vllm_config(config):
        init_distributed_environment(ranks, rank, f"tcp://127.0.0.1:{port}", rank, "gloo")
        initialize_model_parallel(ranks)
    with torch.device("meta"):
        initialize_model(config)
        if config.speculative_config is not None and config.speculative_config.draft_model_config is not None:
            initialize_model(config, model_config=config.speculative_config.draft_model_config)
    current_platform.update_block_size_for_backend(config)
    layers = config.compilation_config.static_forward_context
    specs = {
        name: spec
        for name, layer in layers.items()
        if isinstance(layer, AttentionLayerBase) and (spec := layer.get_kv_cache_spec(config)) is not None
    }
    if rank:
        return None
    resolve_kv_cache_layout(config, [["LBHNC"]], specs.values())
    memory = config.cache_config.kv_cache_memory_bytes
    caches = get_kv_cache_configs(config, [specs] * ranks, [memory] * ranks)
    tokens, concurrency = get_kv_cache_capacity(config, caches[0])
    return {
        "tokens": tokens,
        "concurrency": concurrency,
        "blocks": caches[0].num_blocks,
        "block": config.cache_config.block_size,
        "groups": len(caches[0].kv_cache_groups),
        "context": config.model_config.max_model_len,
    }


def asked(arguments: list[str]) -> dict[str, Any]:
    """Return the answer of ranks that are processes of their own, which end with it."""
    ranks = (
        int(arguments[arguments.index("--tensor-parallel-size") + 1])
        if "--tensor-parallel-size" in arguments
        else 1
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.NamedTemporaryFile("r") as file:
        children = [_child(arguments, rank, port, Path(file.name)) for rank in range(ranks)]
        for child in children:
            os.waitpid(child, 0)
        return json.loads(file.read() or '{"error": "a rank ended without an answer"}')


def _child(arguments: list[str], rank: int, port: int, file: Path) -> int:
    child = os.fork()
    if child:
        return child
    signal.alarm(RANK_DEADLINE_S)
    try:
        if (found := answer_of(arguments, rank, port)) is not None:
            file.write_text(json.dumps(found))
    except BaseException:  # noqa: BLE001  (the parent hands it on)
        traceback.print_exc()
        file.write_text(json.dumps({"error": traceback.format_exc()[-2000:]}))
    finally:
        os._exit(0)


def main(out: Path) -> None:
    out.write_text(json.dumps([asked(arguments) for arguments in json.load(sys.stdin)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
