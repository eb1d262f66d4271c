"""The catalogue of GPUs, and which of them each host of a fabric has."""

from dataclasses import replace
from typing import Any

import pytest

from placement import place
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.gpus import PRECISIONS, catalogue, find_gpu
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from tests.build import llama3, regular, unlike

OWN = {"memory_gb": 96, "memory_gb_per_s": 4000, "tflops": {"bf16": 500, "nvfp4": 2000}}


def mixed(**keys: Any) -> Fabric:
    """Two zones of two hosts, labelled h100 and big."""
    labelled = ((2, {"labels": {"gpu": label}}) for label in ("h100", "big"))
    return from_spec({**unlike(*labelled).spec, **keys})


def test_figures_have_sources_narrower_precisions_are_no_slower_and_names_any_case() -> None:
    for gpu in catalogue().values():
        cited = dict(gpu.sources)
        for figure in ("memory_gb", "memory_gb_per_s", "scale_up_gbps", "watts", "tflops"):
            assert cited[figure], (gpu.name, figure)
        assert set(dict(gpu.tflops)) <= set(PRECISIONS)
    # Narrower precisions are no slower.
    for gpu in catalogue().values():
        rates = dict(gpu.tflops)
        known = [rates[each] for each in ("bf16", "fp8", "nvfp4") if each in rates]
        assert known == sorted(known), gpu.name
    # Names are found in any case and by alias.
    for spelled in ("h100", "H100_SXM", "h100-sxm5"):
        assert find_gpu(spelled, {}) is catalogue()["H100"]
    assert find_gpu("h101", {}) is None


def test_presets_name_their_gpu() -> None:
    kinds = {name: preset(name).by_host.kinds for name in ("roce-24k", "ib-24k", "nvl72-24k")}
    assert {name: [gpu.name for gpu in each] for name, each in kinds.items()} == {
        "roce-24k": ["H100"],
        "ib-24k": ["H100"],
        "nvl72-24k": ["GB200"],
    }


def test_a_fabric_that_names_no_gpu_is_an_h100_and_one_that_does_has_its_links() -> None:
    unnamed, h100, h200 = (
        regular(("host", 2), **({"gpu": gpu} if gpu else {})) for gpu in ("", "H100", "H200")
    )
    assert unnamed.by_host.is_kind_assumed
    assert not h100.by_host.is_kind_assumed
    assert unnamed.by_host.kinds == h100.by_host.kinds
    assert unnamed.digest == h100.digest != h200.digest
    assert regular(("host", 2), gpu="A100").scale_up_gbps == 2400
    assert regular(("host", 2), gpu="A100", scale_up_gbps=1200).scale_up_gbps == 1200


def test_labels_and_domains_say_which_hosts_have_which_gpu() -> None:
    by_label = mixed(gpu={"h100": "H100", "big": "X"}, gpus={"X": OWN}).by_host
    assert [gpu.name for gpu in by_label.kinds_of([0, 1])] == ["H100"]
    assert [gpu.name for gpu in by_label.kinds_of([1, 2])] == ["X", "H100"]
    plain = mixed(gpu="B200").by_host  # the label h100 names a GPU, big does not
    assert [gpu.name for gpu in plain.kinds_of([0])] == ["H100"]
    assert [gpu.name for gpu in plain.kinds_of([3])] == ["B200"]


@pytest.mark.parametrize(
    ("keys", "field", "says"),
    [
        ({"gpu": "H101"}, "gpu", "did you mean H100?"),
        ({"gpu": 5}, "gpu", "must be the name of a GPU"),
        ({"gpu": {"h100": "H100"}}, "gpu", "names no GPU for host"),
        ({"gpu": {"h100": "H100", "big": "Y"}}, "gpu.big", "no GPU 'Y' in the catalogue"),
        ({"gpu": {"h200": "H200"}}, "gpu.h200", "no host is labelled gpu=h200"),
        ({"gpus": {"X": {"memory_gb": 1}}}, "gpus.X.memory_gb_per_s", "is required"),
        ({"gpus": {"X": {**OWN, "tflops": {"fp3": 1}}}}, "gpus.X.tflops.fp3", "unknown precision"),
        ({"gpus": {"X": {**OWN, "tflops": {"bf16": -1}}}}, "gpus.X.tflops.bf16", "positive"),
        ({"gpus": {"X": {**OWN, "cores": 1}}}, "gpus.X.cores", "unknown key"),
    ],
)
def test_wrong_entries_are_refused(keys: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(BadInput, match=says.replace("?", r"\?")) as caught:
        mixed(**keys)
    assert caught.value.field == field


def test_a_precision_that_a_gpu_lacks_is_refused() -> None:
    job = llama3(1)
    assert job.model is not None
    narrow = replace(job, model=replace(job.model, dtype="nvfp4"))
    roce = preset("roce-24k")
    with pytest.raises(BadInput, match="H100 has no nvfp4; it has bf16"):
        place(roce, hostset.full(roce.host_count), narrow)
