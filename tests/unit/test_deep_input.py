"""What `make fuzz` found once and must not find again: depth, homes, zeroes."""

import zlib
from pathlib import Path

import pytest

from importers.jobs.draft import Tool
from importers.jobs.load import Given, import_job
from placement.errors import BadInput
from scheduler.core.explain.conditions import supposed
from scheduler.eventlog import snapshots
from scheduler.eventlog.store import StoreError, open_store
from scheduler.files.errors import InputError
from scheduler.files.old_placement import load_placement
from scheduler.server.config import load_server_file
from simulator.traces.load import FORMATS, TraceFile
from simulator.traces.record import BadRecord
from tests.build import fabric, loaded, started, submit

DEEP = "[" * 100_000


def test_an_old_placement_nested_too_deep_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text('{"hosts": ' + DEEP)
    with pytest.raises(InputError, match="is not JSON"):
        load_placement(str(file), fabric())


def test_a_record_of_a_trace_nested_too_deep_is_a_bad_record(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(DEEP + "\n")
    told: list[BadRecord] = []
    assert list(TraceFile(file, FORMATS["muster"], lambda _, bad: told.append(bad))) == []
    assert [bad.line for bad in told] == [1]


def test_a_configuration_nested_too_deep_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("a = " + DEEP)
    with pytest.raises(InputError, match="nested too deep"):
        import_job(str(file), Tool.TORCHTITAN, Given(gpus=8))


@pytest.mark.parametrize(
    "options",
    [
        "--tensor-model-parallel-size 0",
        "--make-vocab-size-divisible-by 0",
    ],
)
def test_nothing_is_padded_to_a_multiple_of_zero(tmp_path: Path, options: str) -> None:
    file = tmp_path / "run.sh"
    file.write_text(
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --vocab-size 100"
        f" --micro-batch-size 1 --global-batch-size 8 {options}"
    )
    with pytest.raises(InputError, match=r"must (be at least 1|not be negative)"):
        import_job(str(file), Tool.MEGATRON, Given(gpus=8)).checked()


def test_a_home_of_nobody_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("tenants: ~nobody-has-this-name/tenants.yaml\n")
    with pytest.raises(InputError, match="names a home"):
        load_server_file(str(file))
    with pytest.raises(StoreError, match="home"):
        open_store("sqlite:///~nobody-has-this-name/muster.db")


def test_a_condition_with_endless_spares_is_refused() -> None:
    state = started(loaded(), submit("a", 8), submit("b", 8))
    with pytest.raises(BadInput, match="more than 1,000,000"):
        supposed(state, "b", ["spares " + "9" * 400], 0)


def test_a_snapshot_nested_too_deep_is_refused() -> None:
    first = zlib.decompress(snapshots.encode(loaded(), 0)).partition(b"\n")[0]
    with pytest.raises(snapshots.BadSnapshot):
        snapshots.decode(zlib.compress(first + b"\nfabric\t\t" + DEEP.encode() + b"\n"))
