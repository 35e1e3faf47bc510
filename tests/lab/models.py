"""Tiny models with random weights that real vLLM serves on a CPU: `python models.py FOLDER`.

Run by the Python of the lab's vLLM.

tiny      Qwen3, dense: plain serving and prefix caching.
tinymimo  Qwen2 weights dressed as MiMo with one multi-token-prediction block: speculative decoding with
          tensor parallelism and prefix caching, as the two rigs have it. Needs `--trust-remote-code`.
tiny35    Qwen3.5 text, three linear-attention layers to one full, with such a block: takes rig B's arguments,
          answers `/health`, and cannot serve with prefix caching on a CPU. Healthy, yet useless: a case.
"""

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

WIDTH = 256
LAYERS = 4
CONTEXT = 32_768
VOCABULARY = 4_096
CORPUS_FILES = 120
SEED = 0
END, TURN = "<|im_end|>", "<|im_start|>"
SPECIAL = ("<|endoftext|>", TURN, END, "<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = (
    "{% for message in messages %}"
    + TURN
    + "{{ message.role }}\n{{ message.content }}"
    + END
    + "\n{% endfor %}"
    "{% if add_generation_prompt %}" + TURN + "assistant\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer trained on Python's own library, which every machine has."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    corpus = sorted(str(path) for path in Path(sysconfig.get_path("stdlib")).glob("*.py"))[:CORPUS_FILES]
    trainer = BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=ByteLevel.alphabet()
    )
    tokenizer.train(corpus, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=SPECIAL[0])
    fast.chat_template = TEMPLATE
    return fast


def common(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }


def save(model: torch.nn.Module, folder: Path) -> dict[str, torch.Tensor]:
    """Write the model in bfloat16 and return its weights, to add to."""
    model.to(torch.bfloat16).save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def add_prediction_block(
    weights: dict[str, torch.Tensor], block: str, *, layers: str, projection: str, norms: dict[str, float]
) -> None:
    """Add one prediction block: the last layer again, a projection of its two inputs, its norms."""
    last = f"layers.{LAYERS - 1}."
    for name in [name for name in weights if last in name]:
        weights[layers + name.split(last)[1]] = weights[name].clone()
    weights[block + projection] = torch.randn(WIDTH, 2 * WIDTH, dtype=torch.bfloat16) * 0.02
    for name, value in norms.items():
        weights[f"{block}{name}.weight"] = torch.full((WIDTH,), value, dtype=torch.bfloat16)


def rewrite(folder: Path, weights: dict[str, torch.Tensor], **config: object) -> None:
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config, indent=1))


def make_tiny(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    save(Qwen3ForCausalLM(Qwen3Config(**common(tokenizer), head_dim=64, tie_word_embeddings=True)), folder)


def make_tinymimo(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    weights = save(Qwen2ForCausalLM(Qwen2Config(**common(tokenizer), tie_word_embeddings=False)), folder)
    block = "model.mtp_layers.0."
    norms = dict.fromkeys(("token_layernorm", "hidden_layernorm", "final_layernorm"), 1.0)
    add_prediction_block(weights, block, layers=block, projection="input_proj.weight", norms=norms)
    rewrite(
        folder,
        weights,
        model_type="mimo",
        architectures=["MiMoForCausalLM"],
        num_nextn_predict_layers=1,
        auto_map={"AutoConfig": "configuration_mimo.MiMoConfig"},
    )
    (folder / "configuration_mimo.py").write_text(
        "from transformers.models.qwen2.configuration_qwen2 import Qwen2Config\n\n\n"
        'class MiMoConfig(Qwen2Config):\n    model_type = "mimo"\n'
    )


def make_tiny35(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    config = Qwen3_5TextConfig(
        **common(tokenizer),
        head_dim=64,
        tie_word_embeddings=False,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        linear_conv_kernel_dim=4,
        layer_types=["linear_attention"] * (LAYERS - 1) + ["full_attention"],
    )
    weights = save(Qwen3_5ForCausalLM(config), folder)
    norms = dict.fromkeys(("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"), 0.0)
    add_prediction_block(weights, "mtp.", layers="mtp.layers.0.", projection="fc.weight", norms=norms)
    rewrite(folder, weights, mtp_num_hidden_layers=1)


MODELS = {"tiny": make_tiny, "tinymimo": make_tinymimo, "tiny35": make_tiny35}


def main(out: Path) -> None:
    torch.manual_seed(SEED)
    tokenizer = make_tokenizer()
    for name, make in MODELS.items():
        folder = out / name
        tokenizer.save_pretrained(folder)
        make(folder, tokenizer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
