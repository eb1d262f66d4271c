"""The shape of a model: of a file that has one, a job file or a model's config.json, or of a
published model by its name.

The keys of config.json are those of the Hugging Face model classes (Llama, Mixtral, Qwen,
DeepSeek); its sequence is the longest that the model takes, seldom that of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from importers.jobs.draft import Draft, Origin
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
_LLAMA3 = {"kv_heads": 8, "vocab": 128_256}
_DEEPSEEK = {"kv_rank": 512, "rope_dim": 64, "head_dim": 128}
_MIXTRAL = {"kv_heads": 8, "vocab": 32_000, "experts": 8, "experts_per_token": 2}
_QWEN3 = {"kv_heads": 4, "head_dim": 128, "vocab": 151_936, "experts": 128, "experts_per_token": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "llama3 8B": {**_LLAMA3, "layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32},
    "llama3 70B": {**_LLAMA3, "layers": 80, "hidden": 8192, "ffn": 28672, "heads": 64},
    "llama3 405B": {**_LLAMA3, "layers": 126, "hidden": 16384, "ffn": 53248, "heads": 128},
    "deepseek_v3 16B": {
        **_DEEPSEEK,
        **{"layers": 27, "hidden": 2048, "ffn": 10944, "heads": 16, "kv_heads": 16},
        **{"vocab": 102_400, "experts": 64, "experts_per_token": 6, "expert_ffn": 1408},
        **{"shared_experts": 2, "dense_layers": 1},
    },
    "deepseek_v3 236B": {
        **_DEEPSEEK,
        **{"layers": 60, "hidden": 5120, "ffn": 12288, "heads": 128, "kv_heads": 128},
        **{"vocab": 102_400, "experts": 160, "experts_per_token": 6, "expert_ffn": 1536},
        **{"shared_experts": 2, "dense_layers": 1, "query_rank": 1536},
    },
    "deepseek_v3 671B": {
        **_DEEPSEEK,
        **{"layers": 61, "hidden": 7168, "ffn": 18432, "heads": 128, "kv_heads": 128},
        **{"vocab": 129_280, "experts": 256, "experts_per_token": 8, "expert_ffn": 2048},
        **{"shared_experts": 1, "dense_layers": 3, "query_rank": 1536},
    },
    "mixtral 8x7B": {
        **_MIXTRAL,
        **{"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "expert_ffn": 14336},
    },
    "mixtral 8x22B": {
        **_MIXTRAL,
        **{"layers": 56, "hidden": 6144, "ffn": 16384, "heads": 48, "expert_ffn": 16384},
    },
    "qwen3 30B-A3B": {
        **_QWEN3,
        **{"layers": 48, "hidden": 2048, "ffn": 6144, "heads": 32, "expert_ffn": 768},
    },
    "qwen3 235B-A22B": {
        **_QWEN3,
        **{"layers": 94, "hidden": 4096, "ffn": 12288, "heads": 64, "expert_ffn": 1536},
    },
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


def put_shape(draft: Draft, name: str, origin: Origin, shown: str = "") -> None:
    """Put the shape that the user gives, else that of the published model `name`, into the draft,
    but for sequence and dtype. `shown`: in messages, in place of the name.

    Raises: InputError when the name is not known and no shape is given either.
    """
    if not draft.model and name not in SHAPES:
        draft.fault(
            origin,
            f"the shape of {shown or name} is not known (known: {', '.join(SHAPES)}): --model FILE"
            " takes it from a job file or a config.json",
        )
        draft.raise_faults()
    shape = draft.model or {f"model.{key}": value for key, value in SHAPES[name].items()}
    for key, value in shape.items():
        if key not in ("model.sequence", "model.dtype"):
            draft.put(key, value, origin)
