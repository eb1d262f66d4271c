"""Tables of training runs: what a row says, what it cannot, and the fit that such tables serve."""

import csv
import io
import tomllib
from pathlib import Path

import numpy as np
import pytest

from placement.objective.fitted_constants import fitted_constants
from placement.objective.step_time import step_time
from scheduler.cli.calls import AnswerFormat
from scheduler.cli.offline.estimate import print_table
from scheduler.files.step_table import StepRow, read_table
from scripts.fit_steps import (
    FILE,
    PRIORS,
    Fit,
    Table,
    content_of,
    predict_unseen_families,
    toml_text,
)
from tests.refusals import file_refusal

HEAD = (
    "id,source,gpu,gpus,gpus_per_node,model,layers,hidden,ffn,heads,kv_heads,vocab,experts,topk,"
    "expert_ffn,seq,tp,pp,vp,cp,ep,dp,micro_batch,global_batch,precision,fsdp_or_zero,recompute,"
    "sp,trained,measured_step_s"
)
DENSE = "{id},s,{gpu},{gpus},8,{id},32,{hidden},14336,32,8,128256,0,0,0,{seq}"
MOE = "{id},s,{gpu},{gpus},8,{id},32,{hidden},14336,32,8,128256,64,4,1024,{seq}"
RUN = ",{tp},{pp},1,{cp},{ep},{dp},1,{batch},{precision},zero1,{recompute},{sp},full,{seconds}"
USUAL = {
    **{"id": "a", "gpu": "H100", "gpus": 16, "hidden": 4096, "seq": 8192, "tp": 2, "pp": 1},
    **{"cp": 1, "ep": 1, "dp": 8, "batch": 64, "precision": "bf16", "recompute": "none"},
    **{"sp": 1, "seconds": 1.0},
}


def line(shape: str = DENSE, **changes: object) -> str:
    return (shape + RUN).format(**{**USUAL, **changes})


def table(path: Path, *lines: str) -> list[StepRow]:
    file = path / "runs.csv"
    file.write_text("\n".join([HEAD, *lines]) + "\n")
    return list(read_table(str(file)))


def test_a_row_is_a_job_on_hosts_of_its_gpu(tmp_path: Path) -> None:
    (row,) = table(tmp_path, line(MOE, ep=16, gpus=32, dp=16, precision="fp8", recompute="full"))
    parallelism, model = row.request.parallelism, row.request.model
    assert (parallelism.tp, parallelism.ep, parallelism.dp) == (2, 8, 2)  # tp holds experts too
    assert row.request.training.expert_tp == 1
    assert (model.dtype, model.experts, model.expert_ffn) == ("fp8", 64, 1024)
    assert row.request.training.recompute == "full"
    assert (row.fabric.host_count, row.fabric.by_host.kinds[0].name) == (4, "H100")


def test_large_jobs_on_nvlink_racks_take_sixteen_trays_of_each(tmp_path: Path) -> None:
    (row,) = table(tmp_path, line(gpu="GB200", gpus=128, dp=64).replace(",8,", ",4,", 1))
    assert [len(tier.domains) for tier in row.fabric.tiers] == [2]
    assert row.fabric.has_scale_up_tier


def test_rows_that_no_job_file_says_have_a_note(tmp_path: Path) -> None:
    for changes, says in [
        ({"gpu": "H101"}, "no GPU 'H101' in the catalogue"),
        ({"precision": "nvfp4"}, "H100 has no nvfp4"),
        ({"gpus": 17}, "is 16, not the 17 GPUs"),
        ({"recompute": "some"}, "'some' has no key in a job file"),
        ({"hidden": "wide"}, "must be a whole number"),
        ({"batch": 65}, "batch"),
    ]:
        wrong, right = table(tmp_path, line(**changes), line())
        assert wrong.request is None
        assert says in wrong.note
        assert right.request is not None


def test_lines_are_in_the_order_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(tmp_path, line(id="b"), line(id="a", gpu="none"), line(id="c", seconds=9))
    print_table(str(tmp_path / "runs.csv"), AnswerFormat.TABLE)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["id"] for row in rows] == ["b", "a", "c"]
    assert rows[1]["seconds"] == rows[1]["memory_gib"] == ""
    assert float(rows[0]["low"]) < float(rows[0]["seconds"]) < float(rows[0]["high"])
    assert float(rows[0]["memory_gib"]) > 10
    assert rows[0]["seconds"] == rows[2]["seconds"]  # what was measured is not read


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    told = file_refusal(lambda path: list(read_table(path)), tmp_path / "t.csv", "id,gpu\na,H100\n")
    assert "has no column gpus, layers" in told


def test_constants_lie_in_their_intervals_and_name_their_sources() -> None:
    content = tomllib.loads(FILE.read_text())
    for section in ("gemm", "attention", "kernel", "exposed"):
        for name, entry in content[section].items():
            assert entry["low"] <= entry["value"] <= entry["high"], name
    assert all(entry["source"] for entry in content["kernel"].values())
    assert 0 < fitted_constants().resolution < 0.02


def runs(path: Path, slower: float) -> Table:
    """Runs of 24 families that take `slower` times what muster estimates."""
    lines = [
        line(
            **{"id": f"m{hidden}-{seq}", "gpu": gpu, "hidden": hidden, "seq": seq, "tp": tp},
            **{"gpus": 16, "dp": 16 // tp, "precision": precision},
        )
        for gpu, precision in (("A100", "bf16"), ("H100", "bf16"), ("H100", "fp8"))
        for hidden in (4096, 8192)
        for seq in (2048, 8192)
        for tp in (1, 4)
    ]
    measured = []
    for text, row in zip(lines, table(path, *lines), strict=True):
        assert row.request is not None
        assert row.fabric is not None
        seconds = slower * step_time(row.fabric, row.request, range(2)).seconds
        measured.append(text.removesuffix("1.0") + str(seconds))
    return Table(table(path, *measured))


def test_a_fit_finds_the_rates_of_runs_that_it_has_not_seen(tmp_path: Path) -> None:
    fit = Fit(runs(tmp_path, slower=1.25))
    before = np.abs(fit.errors(fit.start, np.arange(len(fit.table))))
    after = np.abs([error for _, error in predict_unseen_families(fit, 1)])
    assert np.median(after) < 0.1 < np.median(before)
    content = content_of(fit, {"dense": (0.9, 1.1)}, 0.01)
    again = tomllib.loads(toml_text(content, "head"))
    assert again == content
    assert again["gemm"]["bf16:A100"]["rows"] == 8
    assert set(again["kernel"]) < set(PRIORS)
