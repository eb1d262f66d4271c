"""Tables: published ones, those whose columns are given, and what fits an unknown file."""

from pathlib import Path

import pytest

from muster.structs import replace
from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
from scheduler.files.errors import InputError
from simulator.traces.load import advice, find_format
from simulator.traces.mapping import job_spec, with_tenant
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
from tests.refusals import refusal
from tests.replays import trace_job
from tests.tracefiles import read_text

# --- Helios, Acme, Philly and PAI: columns by name, dialects, and what is left out ---

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
    known = trace_job("7", 1_585_735_200, 3600, 16, line=2)  # from the times: the column says 9
    assert job == replace(known, user="uab", queue="vcx", outcome=TraceOutcome.COMPLETED)


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


def test_pai_tasks_that_are_not_replayed(tmp_path: Path) -> None:
    part = PAI.format("25")
    wrong = (PAI.format(""), PAI.format("-25"), part.replace("160.5", ""))
    wrong += (part.replace("160.5", "90"), part.replace(",4,", ",0,"))
    wrong += (part.replace("100.0", "-1"),)

    assert read_text(tmp_path, "pai", "\n".join(wrong)) == (
        [],
        [
            "left out 1: plan_gpu: is 0: a task of CPUs",
            "2: plan_gpu: must not be negative: '-25'",
            "left out 3: end_time: is empty: it had not started or not ended",
            "4: end_time: is before start_time: '90'",
            "5: inst_num: must be more than 0, not '0'",
            "6: start_time: must not be negative: '-1'",
        ],
    )


OWN = "submit=came:min,gpus=cards,duration=ran:h"
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    "iteration_time,resource_time_0,priority\n0,8,1500,10956,gpt2,4,5095000,91,437,0.6,0\n"
)
TIRESIAS = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,2,30,606,vgg19,164,30\n"
)
SPOT = (
    "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
    "job_type\n7,13,A10,20,1,16,958,717,HP\n8,57,A100,15,0.5,3,0,41060,Spot\n"
)
POD = "pod-1,task,P1,ns-1,T1,2023-11-08 12:15:00+00:00,2023-11-08 13:45:00+00:00,4,90"
POD_HEADER = "pod_name,pod_type,project,namespace,user_team,start,finish,count,time_diff"


def table(tmp_path: Path, columns: str, text: str) -> tuple[list[TraceJob], list[str]]:
    return read_text(tmp_path, "csv", text, columns)


def test_columns_by_name_with_units(tmp_path: Path) -> None:
    (job,), told = table(tmp_path, OWN, "ran,cards,other,came\n1.5,16,x,2\n")

    assert not told
    assert (job.submit_ns, job.run_ns) == (120 * SECOND_NS, 5400 * SECOND_NS)
    assert (job.gpus, job.id, job.line, job.time_limit_ns) == (16, "line-2", 2, None)


def test_every_key(tmp_path: Path) -> None:
    columns = (
        "id=a,user=b,queue=c,account=d,class=e,priority=f,outcome=g,limit=h,gpus=i,workers=j,"
        "submit=k,start=l,end=m"
    )
    row = "n,ann,long,nlp,spot,7,TIMEOUT,1-00:00:00,0.5,4,2026-03-01T10:00:00,2026-03-01T10:05:00"
    text = f"a,b,c,d,e,f,g,h,i,j,k,l,m\n{row},2026-03-01T12:05:00+01:00\n"

    (job,), told = table(tmp_path, columns, text)

    assert not told
    assert (job.id, job.user, job.queue, job.account) == ("n", "ann", "long", "nlp")
    assert (job.priority, job.priority_class, job.outcome) == (7, "spot", TraceOutcome.FAILED)
    assert (job.gpus, job.run_ns) == (4, 3600 * SECOND_NS)  # a zone counts
    assert job.time_limit_ns == 86_400 * SECOND_NS


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_columns_by_number_without_a_header(tmp_path: Path, separator: str) -> None:
    text = "\n".join(separator.join(row) for row in (("8", "x", "5", "60"), ("4", "y", "9", "75")))

    jobs, told = table(tmp_path, "submit=3,gpus=1,end=4", text)

    assert not told
    assert [(job.gpus, job.submit_ns // SECOND_NS) for job in jobs] == [(8, 5), (4, 9)]
    assert [job.run_ns // SECOND_NS for job in jobs] == [55, 66]


def test_what_is_wrong_has_its_line_and_its_column(tmp_path: Path) -> None:
    wrong = {
        "8,x,5,60,1": "2: columns: must be as many as in the header, not '5'",
        "eight,2,5": "3: column 1 (cards): must be a number, not 'eight'",
        "8,,5": "4: column 2 (came): is empty",
        "8,noon,5": "5: column 2 (came): must be a number or YYYY-MM-DD HH:MM:SS, not 'noon'",
        "8,2026-13-01 00:00:00,5": "6: column 2 (came): must be YYYY-MM-DD HH:MM:SS, not",
        "8,1,-2": "7: column 3 (ran): must not be negative: '-7200'",
        "0,1,5": "left out 8: column 1 (cards): is 0: a job of CPUs",
        "8,1,none": "left out 9: column 3 (ran): is empty: it had not ended",
    }
    jobs, faults = table(tmp_path, OWN, "\n".join(("cards,came,ran", *wrong)))

    assert not jobs
    for fault, told in zip(faults, wrong.values(), strict=True):
        assert fault.startswith(told)


def test_a_column_map_that_says_too_little_or_too_much() -> None:
    for columns, message in {
        "gpus=a,duration=b": "must name submit, as in submit=COLUMN,gpus=COLUMN,duration=COLUMN",
        "submit=a,gpus=b": "must name either duration or end",
        "submit=a,gpus=b,duration=c,start=d": "names start, which has an effect only with end",
        "submit=a,submit=b,gpus=b,duration=c": "submit is given twice",
        "submit=a,cards=b,duration=c": "must be KEY=COLUMN,..., not 'cards=b'; keys are submit,",
        "submit=a,gpus=b:h,duration=c": "gpus has no unit, 'h' was given",
        "submit=0,gpus=1,duration=2": "submit: columns count from 1",
    }.items():
        assert refusal(find_format, "csv", columns).startswith(f"--columns: {message}")


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace:1: header: must name the column ran: 'cards"):
        table(tmp_path, OWN, "cards,came\n8,5\n")
    with pytest.raises(InputError, match="columns: are 2, and end is said to be column 4"):
        table(tmp_path, "submit=1,gpus=2,end=4", "8,5\n")


def test_an_end_is_not_before_what_it_ends(tmp_path: Path) -> None:
    told = ["1: column 3 (end): is before column 1 (submit): '5'"]
    assert table(tmp_path, "submit=1,gpus=2,end=3", "9,8,5\n") == ([], told)
    told = ["1: column 3 (end): is before column 4 (start): '5'"]
    assert table(tmp_path, "submit=1,gpus=2,start=4,end=3", "1,8,5,9\n") == ([], told)


def test_a_named_table_has_the_columns_by_which_it_is_known(tmp_path: Path) -> None:
    """Else another table would be read under a wrong name."""
    head, *rows = SPOT.splitlines()
    other = "\n".join((head.replace("gpu_model", "model"), *rows)) + "\n"
    with pytest.raises(InputError, match="header: must name the column gpu_model"):
        read_text(tmp_path, "alibaba-spot", other)


def test_muri_counts_in_milliseconds_and_tiresias_in_seconds(tmp_path: Path) -> None:
    (job,), _ = read_text(tmp_path, "muri", MURI)
    (other,), _ = read_text(tmp_path, "tiresias", TIRESIAS)

    assert (job.id, job.gpus, job.submit_ns) == ("0", 8, 3 * SECOND_NS // 2)
    assert job.run_ns == 5095 * SECOND_NS
    assert (other.gpus, other.submit_ns, other.run_ns) == (2, 30 * SECOND_NS, 164 * SECOND_NS)
    with pytest.raises(InputError, match=r"header: names iteration_time, .*; it reads as muri"):
        read_text(tmp_path, "tiresias", MURI)


def test_spot_jobs_have_a_class_and_workers(tmp_path: Path) -> None:
    (spot, urgent), told = read_text(tmp_path, "alibaba-spot", SPOT)

    assert not told
    assert (urgent.id, urgent.gpus, urgent.user, urgent.priority_class) == ("7", 16, "13", "HP")
    assert (spot.id, spot.gpus, spot.priority_class) == ("8", 3, "Spot")
    tenants = Tenants((Tenant("all"),), classes=(PriorityClass("spot", -5, is_preemptible=True),))
    assert with_tenant(job_spec(spot, 8, None), spot, tenants).priority_class == "spot"
    assert with_tenant(job_spec(urgent, 8, None), urgent, tenants).priority_class == ""
    assert with_tenant(job_spec(spot, 8, None), spot, None).priority_class == ""


@pytest.mark.parametrize("head", ["", f"{POD_HEADER}\n"])
def test_pods_with_a_header_and_without(tmp_path: Path, head: str) -> None:
    (job,), told = read_text(tmp_path, "mystous", f"{head}{POD}\n")

    assert not told
    assert (job.id, job.queue, job.account, job.user) == ("pod-1", "task", "P1", "T1")
    assert (job.gpus, job.run_ns) == (4, 5400 * SECOND_NS)


def test_what_fits_a_file_is_named(tmp_path: Path) -> None:
    for text, hint in {
        MURI: "it reads as muri",
        TIRESIAS: "it reads as tiresias",
        SPOT: "it reads as alibaba-spot",
        f"{POD}\n": "it reads as mystous",
        "arrival,GPUs,x,runtime\n5,8,,9\n": (
            "any table with a header reads as csv, here with --columns"
            " submit=arrival,gpus=GPUs,duration=runtime"
        ),
        "one,two\n1,2\n": "",
        "": "",
    }.items():
        path = tmp_path / "unknown"
        path.write_text(text)
        assert advice(path, find_format("swf")).removeprefix("; ") == hint
