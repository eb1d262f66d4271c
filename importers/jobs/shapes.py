"""The shape of a model from a file that has one: a job file, or a model's config.json.

The keys of config.json are those of the Hugging Face model classes (Llama, Mixtral, Qwen,
DeepSeek); its sequence is the longest that the model takes, seldom that of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.files.yaml12 import Document, load

KEYS = {
    "layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "ffn": ("intermediate_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads", "num_attention_heads"),
    "vocab": ("vocab_size",),
    "head_dim": ("v_head_dim", "head_dim"),
    "tied_embeddings": ("tie_word_embeddings",),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
}
OF_EXPERTS = {
    "experts_per_token": ("num_experts_per_tok",),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
}
OF_LATENT = {
    "query_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
}


def model_of(path: str) -> dict[str, Any]:
    """Return the dotted keys of a `model` section.

    Raises: InputError when the file has neither such a section nor a config.json's keys.
    """
    document = load(path)
    shape = document.mapping()
    section = shape.get("model")
    if isinstance(section, dict):
        return {f"model.{key}": value for key, value in section.items()}
    if "hidden_size" in shape:
        return _of_config(document, shape)
    message = "is missing: --model takes a job file with a model, or a model's config.json"
    raise document.error(("model", message))


def _of_config(document: Document, config: Mapping[str, Any]) -> dict[str, Any]:
    shape = _taken(config, KEYS)
    if shape.get("experts"):
        shape |= _taken(config, OF_EXPERTS)
    if config.get("kv_lora_rank"):
        shape |= _taken(config, OF_LATENT)
    missing = [KEYS[key][0] for key in ("layers", "heads", "ffn", "vocab") if key not in shape]
    if missing:
        raise document.error(*((name, "is missing") for name in missing))
    return {f"model.{key}": value for key, value in shape.items()}


def _taken(config: Mapping[str, Any], keys: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The first of the names that has a value; null counts as absent."""
    return {
        key: next(config[name] for name in names if config.get(name) is not None)
        for key, names in keys.items()
        if any(config.get(name) is not None for name in names)
    }
