"""An ML engineer's week with real processes: from submit to the last checkpoint."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES
from scheduler.core.policies.job_terms import HangAction, HangTerms
from scheduler.files.inputs import read_job
from scheduler.v1 import job_pb2
from tests.build import job_to_mapping
from tests.e2e.gangs import Local, begins_at, gang, until
from tests.e2e.processes import MUSTER, muster
from tests.e2e.shell import Shell, answered

COMPLETED, FAILED = job_pb2.JOB_STATE_COMPLETED, job_pb2.JOB_STATE_FAILED


def test_a_job_that_is_submitted_again_goes_on_where_the_last_one_was(
    local: Local, tmp_path: Path
) -> None:
    server, client = local
    short = gang("again", tmp_path, 1, steps=20, spares=NO_SPARES)
    client.create_job(short)
    done = until(client, "again", lambda job: job.state == COMPLETED)
    again = client.create_job(gang("again", tmp_path, 1, steps=40, spares=NO_SPARES))
    assert (again.lineage.resume.step, again.lineage.resume.job_uid) == (20, done.uid)
    until(client, "again", lambda job: job.uid == again.uid and job.state == COMPLETED)
    assert begins_at(client, "again") == 20
    shown = answered("job", "again", address=server.address).stdout
    assert "again: goes on from step 40, which job again saved" in shown
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(job_to_mapping(short)))
    file = str(tmp_path / "again.yaml")
    anew = answered("submit", file, "--new-run", address=server.address)
    assert "again: begins at step 0" in anew.stdout
    until(client, "again", lambda job: job.uid != again.uid and job.state == COMPLETED)
    assert begins_at(client, "again") == 0


HANGS = """
import os, time
from muster import progress
rank, attempt = os.environ["RANK"], os.environ["MUSTER_ATTEMPT"]
for step in range(1, 21):
    with progress.computing(step):
        time.sleep(0.05)
    progress.report(step, total=100, loss=1 / step)
if attempt == "1":
    if rank == "0":
        progress.computed(21, 0.05)
    time.sleep(3600)
"""


def test_a_hang_is_found_named_with_its_stacks_and_restarted(local: Local, tmp_path: Path) -> None:
    """One rank waits in step 21 for the other, for ever."""
    server, client = local
    made = gang("hangs", tmp_path, 1, spares=NO_SPARES)
    run = replace(made.run, command=(sys.executable, "-c", HANGS))
    client.create_job(replace(made, run=run, hang=HangTerms(1, HangAction.RESTART)))
    job = until(client, "hangs", lambda job: job.hang != "")
    assert "after step 20, where one took 0.05" in job.hang
    assert f"in step 21 others wait for rank 1 on {job.placement.hosts[0]}" in job.hang
    assert (job.progress.step, job.progress.total_steps) == (20, 100)
    assert "step 20 of 100, 5" in answered("job", "hangs", address=server.address).stdout
    until(client, "hangs", lambda job: job.state == COMPLETED)
    assert client.get_job("hangs").attempt == 2
    stacks = answered("logs", "hangs", "--attempt", "1", "--stacks", address=server.address)
    assert 'File "<string>", line 12 in <module>' in stacks.stdout
    told = answered("logs", "hangs", "--stacks", address=server.address)
    assert (told.returncode, "no stacks were taken" in told.stderr) == (1, True)


def test_ranks_on_cpus_fill_their_hosts_and_see_no_gpu(local: Local, tmp_path: Path) -> None:
    """Three ranks on each host of two GPUs; and on a place of one GPU of a host that others use."""
    script = "import os; print(*(os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE')),"
    script += " repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    server, client = local
    made = gang("cpus", tmp_path, 2, spares=NO_SPARES)
    run = replace(made.run, command=(sys.executable, "-c", script), cpu_ranks=3)
    request = replace(made.request, parallelism=Parallelism(dp=4), traffic=(), model=None)
    client.create_job(replace(made, run=run, request=request))
    until(client, "cpus", lambda job: job.state == COMPLETED, 60)
    for rank in range(6):
        told = b"".join(client.tail_logs("cpus", rank)).decode()
        assert told == f"{rank} {rank % 3} 6 ''\n"
    beyond = answered("logs", "cpus", "--rank", "6", address=server.address)
    assert "must be 0 to 5, not 6" in beyond.stderr
    part = replace(request, parallelism=Parallelism(dp=1))
    client.create_job(replace(made, name="part", run=run, request=part))
    job = until(client, "part", lambda job: job.state == COMPLETED, 60)
    assert b"".join(client.tail_logs("part", 2)).decode() == "2 2 3 ''\n", job


def test_logs_of_an_earlier_attempt_and_of_all_ranks_are_read(local: Local, tmp_path: Path) -> None:
    server, client = local
    made = gang("logs", tmp_path, 2, spares=NO_SPARES)
    script = (
        "import os; r, a = os.environ['RANK'], os.environ['MUSTER_ATTEMPT']\n"
        "print('rank', r, 'attempt', a)\n"
        "if a == '1' and r == '3': raise KeyError('the traceback that I need')"
    )
    run = replace(made.run, command=(sys.executable, "-u", "-c", script))
    client.create_job(replace(made, run=run))
    until(client, "logs", lambda job: job.state == COMPLETED)
    first = b"".join(client.tail_logs("logs", 3, attempt=1)).decode()
    assert first.splitlines()[-1] == "KeyError: 'the traceback that I need'"
    every = answered("logs", "logs", "--all-ranks", address=server.address).stdout
    assert every.splitlines() == [f"{rank}: rank {rank} attempt 2" for rank in range(4)]
    beyond = answered("logs", "logs", "--attempt", "3", address=server.address)
    assert (beyond.returncode, "must be 0 to 2, not 3" in beyond.stderr) == (2, True)


def test_a_gang_is_run_from_its_command_and_cancelled_by_ctrl_c(
    local: Local, tmp_path: Path
) -> None:
    server, client = local
    at = ("--address", server.address)
    script = "import os; print('rank', os.environ['RANK'], os.getcwd(), os.environ['A'])"
    told = ("--env", "A=1", "--", sys.executable, "-c", script)
    done = muster("run", "-n", "2", *at, *told)
    assert (done.returncode, done.stdout) == (0, f"rank 0 {Path.cwd()} 1\n")
    wrong = muster("run", "-n", "2", *at, "--", sys.executable, "-c", "import nothing_at_all")
    assert (wrong.returncode, "restarts.max is 0" in wrong.stderr) == (1, True)
    sleeping = (sys.executable, "-uc", "import time; print('here'); time.sleep(300)")
    command = [MUSTER, "run", "-n", "1", "--name", "long", *at, "--", *sleeping]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert client.get_job("long").state == job_pb2.JOB_STATE_CANCELLED
    held = client.create_job(replace(gang("idle", tmp_path, 1, spares=NO_SPARES), run=None))
    assert "its file has no `run`: no agent starts it" in held.reason


LIMITED = """
import os, signal, sys, time
from muster import progress
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
asked = []
for step in range(1, 10_000):
    progress.report(step)
    if progress.should_save() and len(asked) < 2:
        asked.append(progress.seconds_to_save())
        if len(asked) == 1:
            print("asked with", round(asked[0], 1), flush=True)
            path = os.environ["CKPT"] + f"/step-{step}"
            os.makedirs(path)
            progress.saved(step, path)
            time.sleep(0.6)
            print("then", progress.should_save(), flush=True)
    time.sleep(0.05)
"""


def test_ranks_are_asked_to_save_before_a_time_limit_and_say_what_a_framework_saved(
    local: Local, tmp_path: Path
) -> None:
    _, client = local
    made = gang("limited", tmp_path, 1, spares=NO_SPARES, limit_s=6)
    checkpoints = tmp_path / "frameworks"
    run = replace(
        *(made.run,),
        command=(sys.executable, "-c", LIMITED),
        env=(*made.run.env, ("CKPT", str(checkpoints))),
        per_host=1,
        warn_s=2,
    )
    client.create_job(replace(made, run=run))
    job = until(client, "limited", lambda job: job.state == FAILED)
    told, then = b"".join(client.tail_logs("limited")).decode().splitlines()
    assert 0.5 < float(told.removeprefix("asked with ")) <= 1.5  # a quarter of the limit
    assert then == "then False"  # it has been saved
    saved = client.get_job("limited").saved_checkpoint
    assert saved.where == f"{checkpoints}/step-{saved.step}"
    assert job.reason == "reached its time limit of 6 s"


def test_a_template_of_each_framework_is_a_job(alone: Shell, tmp_path: Path) -> None:
    one_a_host = ("torchrun", "torchtitan", "megatron", "deepspeed", "accelerate", "hf")
    for framework in ("python", *one_a_host):
        file = tmp_path / f"{framework}.yaml"
        file.write_text(alone.run("launch", "template", framework, "-n", "64").stdout)
        spec = read_job(str(file)).spec
        assert spec.request.parallelism.world_size == 64
        assert spec.run.per_host == int(framework in one_a_host)
    assert "lightning" in alone.told("launch", "template", "abacus", code=2)
