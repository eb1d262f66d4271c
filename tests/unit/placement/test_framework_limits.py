"""Parallelism that no framework runs is refused, and what some refuse is said."""

from typing import Any

import pytest

from placement.workload.framework_limits import framework_notes
from scheduler.files.errors import InputError
from scheduler.files.job import job_from_mapping

MODEL = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8}
MODEL |= {"vocab": 128256, "sequence": 8192}


Keys = dict[str, Any] | None


def job(batch: Keys = None, model: Keys = None, **axes: int) -> Any:
    return job_from_mapping(
        {
            "name": "a",
            "parallelism": axes,
            "model": MODEL | (model or {}),
            "batch": {"global_sequences": 256} | (batch or {}),
        }
    ).request


@pytest.mark.parametrize(
    ("axes", "batch", "field", "message"),
    [
        ({"pp": 64}, {}, "parallelism.pp", "64 of a model of 32 layers"),
        ({"pp": 16}, {"virtual_stages": 4}, "parallelism.pp", "16 x 4 virtual stages"),
        ({"tp": 64}, {}, "parallelism.tp", "64 of a model of 32 heads"),
    ],
)
def test_ranks_without_a_layer_or_a_head_are_refused(
    axes: dict[str, int], batch: dict[str, int], field: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        job(batch, **axes)
    (problem,) = caught.value.found
    assert (problem.field, message in problem.message) == (field, True)


def test_experts_divide_over_their_ranks() -> None:
    experts = {"experts": 6, "experts_per_token": 2}
    assert job(model=experts, ep=2)
    with pytest.raises(InputError, match="6 do not divide over 4 ranks"):
        job(model=experts, ep=4)


@pytest.mark.parametrize(
    ("axes", "batch", "note"),
    [
        ({"tp": 8}, {}, ""),
        ({"tp": 16}, {}, "tp 16 is more than the model's 8 key-value heads"),
        ({"tp": 3, "dp": 1}, {"global_sequences": 1}, "tp 3 does not divide the model's 32 heads"),
        ({"dp": 1}, {"virtual_stages": 2}, "2 virtual stages need pp above 1"),
    ],
)
def test_what_some_frameworks_refuse_is_said(
    axes: dict[str, int], batch: dict[str, int], note: str
) -> None:
    notes = framework_notes(job(batch, **axes))
    assert [text[: len(note)] for text in notes] == ([note] if note else [])
