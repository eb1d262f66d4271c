"""Models from job files and from a model's config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from importers.jobs.shapes import model_of
from placement.workload.flops import active_parameter_count, parameter_count
from placement.workload.training import ModelShape
from tests.build import DEEPSEEK_V3, MIXTRAL
from tests.refusals import file_refusal

MIXTRAL_CONFIG = {
    "architectures": ["MixtralForCausalLM"],
    "head_dim": None,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
DEEPSEEK_CONFIG = {
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 129280,
}


def shape_of(tmp_path: Path, config: dict[str, Any]) -> ModelShape:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    keys = {key.removeprefix("model."): value for key, value in model_of(str(path)).items()}
    return ModelShape(**keys, sequence=4_096)


def test_models_with_experts(tmp_path: Path) -> None:
    assert shape_of(tmp_path, MIXTRAL_CONFIG) == MIXTRAL
    assert shape_of(tmp_path, DEEPSEEK_CONFIG) == DEEPSEEK_V3


def test_a_dense_model_without_grouped_queries(tmp_path: Path) -> None:
    """Llama 2 7B: 6.74B parameters; keys of experts that it does not have count for nothing."""
    config = {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
        "num_experts_per_tok": 2,
    }
    shape = shape_of(tmp_path, config)
    assert parameter_count(shape) == pytest.approx(6.74e9, rel=1e-3)
    assert active_parameter_count(shape) == parameter_count(shape)


def test_a_model_of_a_job_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("parallelism: {dp: 8}\nmodel: {layers: 3, hidden: 64}\n")
    assert model_of(str(path)) == {"model.layers": 3, "model.hidden": 64}


def test_files_without_a_model(tmp_path: Path) -> None:
    for content, says in (
        ('{"hidden_size": 4096}', "num_hidden_layers: is missing"),
        ('{"a": 1}', "model: is missing: --model takes"),
        ("[1]", "must be a mapping"),
    ):
        assert says in file_refusal(model_of, tmp_path / "config.json", content)
