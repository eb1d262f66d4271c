"""Helios, Acme and PAI: columns by name, dialects, and what is left out."""

from pathlib import Path

import pytest

from scheduler.files.errors import InputError
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
from tests.tracefiles import read_text

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)
SEREN = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
    "duration,queue,gpu_time"
)
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
    "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time"
)
PAI = "j1,worker,4,Terminated,100.0,160.5,600.0,29.3,{},V100"


def helios(tmp_path: Path, *rows: str, header: str = HELIOS) -> tuple[list[TraceJob], list[str]]:
    return read_text(tmp_path, "helios", "\n".join((header, *rows, "")))


def helios_row(gpus: str = "16", state: str = "COMPLETED", times: str = "") -> str:
    times = times or "2020-04-01 10:00:00,2020-04-01 10:01:00,2020-04-01 11:01:00"
    return f"7,uab,vcx,{gpus},64,2,{state},{times},9,9"


def test_helios_fields(tmp_path: Path) -> None:
    (job,), told = helios(tmp_path, helios_row())

    assert told == []
    assert job == TraceJob(
        id="7",
        submit_ns=1_585_735_200 * SECOND_NS,
        run_ns=3600 * SECOND_NS,  # from the times: the column says 9
        line=2,
        gpus=16,
        user="uab",
        queue="vcx",
        outcome=TraceOutcome.COMPLETED,
    )


def test_helios_states_and_rows_that_are_not_replayed(tmp_path: Path) -> None:
    states = ("CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "SUSPENDED")
    day = "2020-04-01 10:00:00"
    rows = [helios_row(times=f"{day},,{day}"), helios_row(times=f"{day},{day},None")]
    jobs, told = helios(tmp_path, *rows, *(helios_row(state=state) for state in states))

    outcomes = [job.outcome.value for job in jobs]
    assert outcomes == ["cancelled", "failed", "failed", "failed", ""]  # of none that is known
    assert jobs[0].line == 4
    assert told == [
        "left out 2: column 9 (start_time): is empty: it never ran",
        "left out 3: column 10 (end_time): is empty: it had not ended",
    ]


def test_philly_is_sorted_by_submit_and_named_by_line(tmp_path: Path) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:13:03,2951.5,16,47224.0,6214e9\n"
    )
    jobs, told = read_text(tmp_path, "philly-csv", text)

    assert told == []
    assert [(job.id, job.gpus, job.queue) for job in jobs] == [
        ("line-3", 16, "6214e9"),
        ("line-2", 1, "11cb48"),
    ]
    assert jobs[0].run_ns == 2_951_500_000_000
    assert jobs[1].submit_ns == 1_507_532_515 * SECOND_NS  # read as UTC


def test_quoted_cells_windows_lines_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    row = helios_row().replace("vcx", '"a, ""b"""')
    (job,), told = read_text(tmp_path, "helios", f"\ufeff{HELIOS}\r\n{row}\r\n\r\n")

    assert (job.queue, told) == ('a, "b"', [])
    with pytest.raises(InputError, match=r"trace:1: header: must name the column vc"):
        helios(tmp_path, header=HELIOS.replace("vc,", ""))


def test_seren_and_kalos_differ_in_columns_and_zones(tmp_path: Path) -> None:
    seren = (
        f"{SEREN}\n5,u1,2,16,64,Pretrain,COMPLETED,2023-03-01 08:00:00+08:00,"
        "2023-03-01 08:00:10+08:00,2023-03-01 08:00:18+08:00,8,10,128\n"
    )
    kalos = (
        f"{KALOS}\nab,u1,2,16,64,100,10,Pretrain,FAILED,2023-03-01 00:00:00+00:00,"
        "2023-03-01 00:00:10+00:00,2023-03-01 00:00:18+00:00,2023-03-01 00:00:18+00:00,,18,10,288\n"
    )
    (first,), _ = read_text(tmp_path, "acme", seren)
    (second,), _ = read_text(tmp_path, "acme", kalos)

    assert first.submit_ns == second.submit_ns == 1_677_628_800 * SECOND_NS
    assert first.run_ns == second.run_ns == 8 * SECOND_NS  # Kalos' column says 18
    assert (first.queue, second.id, second.outcome) == ("Pretrain", "ab", TraceOutcome.FAILED)


# --- PAI -----------------------------------------------------------------------


def test_pai_rounds_a_share_of_a_gpu_up_for_each_instance(tmp_path: Path) -> None:
    header = (
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    )
    rows = [PAI.format(percent) for percent in ("25", "100.0", "150", "800")]
    (jobs, told), (headed, _) = (
        read_text(tmp_path, "pai", "\n".join(lines)) for lines in (rows, [header, *rows])
    )

    assert told == []
    assert [job.line for job in headed] == [2, 3, 4, 5]
    assert [job.gpus for job in jobs] == [4, 4, 8, 32]
    assert jobs[0].submit_ns == 100 * SECOND_NS
    assert jobs[0].run_ns == 60_500_000_000
    assert (jobs[0].id, jobs[0].queue) == ("j1/worker", "V100")
    assert jobs[0].outcome is TraceOutcome.COMPLETED


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (PAI.format(""), "left out 1: plan_gpu: is 0: a task of CPUs"),
        (PAI.format("-25"), "1: plan_gpu: must not be negative: '-25'"),
        (PAI.format("25").replace("160.5", ""), "left out 1: end_time: is empty: it had not"),
        (PAI.format("25").replace("160.5", "90"), "1: end_time: is before start_time: '90'"),
        (PAI.format("25").replace("100.0", "-1"), "1: start_time: must not be negative: '-1'"),
        (PAI.format("25").replace(",4,", ",0,"), "1: inst_num: must be more than 0, not '0'"),
        ("a,b", "1: columns: must be as many as in the header, not '2'"),
    ],
)
def test_pai_tasks_that_are_not_replayed(tmp_path: Path, row: str, told: str) -> None:
    jobs, (fault,) = read_text(tmp_path, "pai", f"{row}\n")

    assert jobs == []
    assert fault.startswith(told)
