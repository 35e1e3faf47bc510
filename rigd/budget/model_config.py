"""A model's config.json as a shape. An unknown family, or a field that is missing, is a sentence with its place."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rigd.budget.shape import ModelShape, Recurrent, StateKind
from rigd.errors import UsageError

HINT = "`--config` names another file; or state the pool, as the engine said it, in budget.pool_tokens"
NESTED = ("text_config", "llm_config", "language_config")
"""Where multimodal models keep the language model."""
DRAFT_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
MOST = 10**9
"""No number of a model is larger."""
FULL, WINDOW, LINEAR, MAMBA = "full_attention", "sliding_attention", "linear_attention", "mamba"


class ConfigError(UsageError):
    """A config.json from which the KV cache cannot be reckoned."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One config.json, or the part of it about the language model; knows its place for messages."""

    values: Mapping[str, Any]
    path: str
    inside: str = ""

    def wrong(self, sentence: str, hint: str = HINT) -> ConfigError:
        """Return the error that says what is wrong with the file."""
        return ConfigError(f"cannot reckon the KV pool from '{self.path}': {sentence}", hint=hint)

    def place(self, key: str) -> str:
        """Return the key's path in the file."""
        return f"{self.inside}.{key}" if self.inside else key

    def get(self, key: str) -> Any:
        """Return a value, None where there is none."""
        return self.values.get(key)

    def whole(self, *keys: str, least: int = 1) -> int:
        """Return the first of the keys that is there, as a whole number."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
                raise self.wrong(f"{self.place(key)} is {value!r}, not a whole number of {least} to {MOST:,}")
            return value
        others = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
        raise self.wrong(f"{self.place(keys[0])}{others} is missing")

    def optional(self, *keys: str, default: int = 0) -> int:
        """Return the same, with a default."""
        present = [key for key in keys if self.values.get(key) is not None]
        return self.whole(*present, least=0) if present else default

    def word(self, *keys: str) -> str | None:
        """Return the first of the keys that is there, as text."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if not isinstance(value, str):
                raise self.wrong(f"{self.place(key)} is {value!r}, not a text")
            return value.removeprefix("torch.")
        return None


def read_shape(text: str, path: str) -> ModelShape:
    """Return the shape that a config.json describes. Raises `ConfigError`."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = (
            f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise ConfigError(
            f"cannot reckon the KV pool from '{path}': it is not JSON{where}", hint=HINT
        ) from None
    whole = Config(values=values if isinstance(values, dict) else {}, path=path)
    if not isinstance(values, dict):
        raise whole.wrong("it is not a JSON object")
    config = _language_model(whole)
    kind = config.word("model_type") or whole.word("model_type")
    if kind is None:
        raise config.wrong(f"{config.place('model_type')} is missing")
    family = FAMILIES.get(kind)
    if family is None:
        raise config.wrong(
            f"{config.place('model_type')} {kind!r} is a family that rigd does not know",
            hint=f"it knows {', '.join(sorted(FAMILIES))}; {HINT}",
        )
    return family(config, kind)


def _language_model(whole: Config) -> Config:
    for key in NESTED:
        inner = whole.get(key)
        if isinstance(inner, dict):
            outer = {
                name: whole.get(name) for name in ("dtype", "torch_dtype") if whole.get(name) is not None
            }
            return Config(values=outer | inner, path=whole.path, inside=key)
    return whole


# --- families ---


def _head_dim(config: Config) -> int:
    if config.get("head_dim"):
        return config.whole("head_dim")
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    if hidden % heads:
        raise config.wrong(
            f"{config.place('hidden_size')} {hidden} cannot be split over {heads} attention heads"
        )
    return hidden // heads


def _layer_types(config: Config, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what each layer is, None where the file does not say."""
    kinds = config.get("layer_types")
    if kinds is None:
        return None
    layers = config.whole("num_hidden_layers")
    place = config.place("layer_types")
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise config.wrong(f"{place} does not say what each of the {layers} layers is")
    for number, kind in enumerate(kinds):
        if kind not in known:
            raise config.wrong(f"{place}[{number}] is {kind!r}, a kind of layer that rigd does not know")
    return tuple(kinds)


def _attention(config: Config, kind: str, *, full: int, window: int = 0, **more: Any) -> ModelShape:
    """Return a shape of grouped-query attention; `more` is what a family adds."""
    return ModelShape(
        model_type=kind,
        dtype=config.word("dtype", "torch_dtype"),
        max_context=config.whole("max_position_embeddings"),
        full_layers=full,
        window_layers=window,
        window=config.whole("sliding_window") if window else None,
        kv_heads=config.whole("num_key_value_heads", "num_attention_heads"),
        head_dim=_head_dim(config),
        draft_layers=config.optional(*DRAFT_KEYS),
        **more,
    )


def _dense(config: Config, kind: str) -> ModelShape:
    """Return the shape of a model in which every layer has attention: over everything, or over a window."""
    layers = config.whole("num_hidden_layers")
    kinds = _layer_types(config, (FULL, WINDOW))
    windows = 0
    if config.get("use_sliding_window") is not False:
        if kinds is not None:
            windows = kinds.count(WINDOW)
        elif every := config.optional("sliding_window_pattern"):
            windows = layers - layers // every
        elif config.get("sliding_window") is not None:
            windows = layers
    return _attention(config, kind, full=layers - windows, window=windows)


def _latent(config: Config, kind: str) -> ModelShape:
    """Return the shape of multi-head latent attention: one latent and one rotated key a token, on every card."""
    latent = config.whole("kv_lora_rank") + config.whole("qk_rope_head_dim")
    if config.get("index_topk") is not None:
        raise config.wrong(f"{config.place('index_topk')}: sparse attention with an index is not reckoned")
    return ModelShape(
        model_type=kind,
        dtype=config.word("dtype", "torch_dtype"),
        max_context=config.whole("max_position_embeddings"),
        full_layers=config.whole("num_hidden_layers"),
        kv_heads=1,
        head_dim=latent,
        latent_dim=latent,
        draft_layers=config.optional(*DRAFT_KEYS),
    )


def _gated_delta_net(config: Config, kind: str) -> ModelShape:
    """Return the shape of a model that has full attention in every fourth layer, say, and linear in the others."""
    layers = config.whole("num_hidden_layers")
    kinds = _layer_types(config, (FULL, LINEAR))
    every = "full_attention_interval"
    interval = (
        4 if config.get(every) is None else config.whole(every)
    )  # as the engine, where the file is silent
    full = kinds.count(FULL) if kinds else layers // interval
    if not full:
        raise config.wrong(
            f"{config.place('layer_types' if kinds else every)} leaves no layer with full attention"
        )
    recurrent = Recurrent(
        kind=StateKind.GATED_DELTA_NET,
        layers=layers - full,
        key_heads=config.whole("linear_num_key_heads"),
        value_heads=config.whole("linear_num_value_heads"),
        key_dim=config.whole("linear_key_head_dim"),
        value_dim=config.whole("linear_value_head_dim"),
        kernel=config.whole("linear_conv_kernel_dim"),
        state_dtype=config.word("mamba_ssm_dtype"),
    )
    shape = _attention(config, kind, full=full, recurrent=recurrent)
    if kind == "qwen3_next" and not shape.draft_layers:
        return replace(shape, draft_layers=1)  # Its file does not name the block that it brings.
    return shape


def _granite_hybrid(config: Config, kind: str) -> ModelShape:
    """Return the shape of Granite 4: Mamba 2 layers with attention between."""
    kinds = _layer_types(config, (FULL, "attention", MAMBA))
    if kinds is None:
        raise config.wrong(f"{config.place('layer_types')} is missing")
    mamba = kinds.count(MAMBA)
    return _attention(
        config,
        kind,
        full=len(kinds) - mamba,
        recurrent=Recurrent(
            kind=StateKind.MAMBA2,
            layers=mamba,
            key_heads=config.whole("mamba_n_groups"),
            value_heads=config.whole("mamba_n_heads"),
            key_dim=config.whole("mamba_d_state"),
            value_dim=config.whole("mamba_d_head"),
            kernel=config.whole("mamba_d_conv"),
        ),
    )


Family = Callable[[Config, str], ModelShape]
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(
        (
            "llama", "mistral", "mixtral", "ministral3", "qwen2", "qwen2_moe", "qwen2_5_vl_text", "qwen3",
            "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "mimo", "gpt_oss", "gemma3_text", "phi3",
            "granite", "granitemoe", "glm4", "glm4_moe", "olmo2", "olmo3", "seed_oss", "smollm3",
            "starcoder2", "ernie4_5", "minimax_m2",
        ),
        _dense,
    ),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"), _latent),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _gated_delta_net
    ),
    "granitemoehybrid": _granite_hybrid,
}  # fmt: skip
"""Families of models whose KV cache rigd reckons, by `model_type`."""
