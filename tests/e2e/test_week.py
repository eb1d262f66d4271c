"""An ML engineer's week with real processes: from submit to the last checkpoint."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES
from scheduler.cli.program import app, load_commands
from scheduler.core.model.job_array import parse_array
from scheduler.core.policies.job_terms import HangAction, HangTerms, Requeueing, RestartRule
from scheduler.files.inputs import read_job
from scheduler.files.job import job_to_mapping
from scheduler.v1 import job_pb2
from tests.e2e.gangs import Local, begins_at, gang, is_launched, until
from tests.e2e.processes import MUSTER, muster

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
    shown = muster("job", "again", address=server.address).stdout
    assert "again: goes on from step 40, which job again saved" in shown
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(job_to_mapping(short)))
    file = str(tmp_path / "again.yaml")
    anew = muster("submit", file, "--new-run", address=server.address)
    assert "again: begins at step 0" in anew.stdout
    until(client, "again", lambda job: job.uid != again.uid and job.state == COMPLETED)
    assert begins_at(client, "again") == 0


def test_a_chain_of_limited_jobs_is_one_run(local: Local, tmp_path: Path) -> None:
    """What a task saved in the grace after its limit is where the next one begins."""
    _, client = local
    chain = gang("chain", tmp_path, 1, steps=10**6, spares=NO_SPARES, limit_s=3)
    client.create_job(replace(chain, array=parse_array("0-1%1")))
    until(client, "chain-0", lambda job: job.state == FAILED)
    saved = client.get_job("chain-0").saved_checkpoint.step
    until(client, "chain-1", is_launched(1))
    until(client, "chain-1", lambda _: b"from step" in b"".join(client.tail_logs("chain-1")))
    assert begins_at(client, "chain-1") >= saved > 0


def test_a_program_that_cannot_begin_is_tried_three_times_and_frees_its_hosts(
    local: Local, tmp_path: Path
) -> None:
    _, client = local
    wrong = gang("typo", tmp_path, 1, spares=NO_SPARES)
    script = "import sys; sys.exit('KeyError: my typo')"
    run = replace(wrong.run, command=(sys.executable, "-c", script))
    began_s = time.monotonic()
    client.create_job(replace(wrong, run=run))
    job = until(client, "typo", lambda job: job.state == FAILED)
    assert (job.attempt, time.monotonic() - began_s < 10) == (3, True)
    assert job.reason.endswith("exited with code 1: KeyError: my typo")
    once = replace(wrong, name="once", run=run, restarts=RestartRule(exit=(75,)))
    client.create_job(once)
    job = until(client, "once", lambda job: job.state == FAILED)
    assert (job.attempt, job.reason.endswith("restarts.on.exit has 75")) == (1, True)


def test_a_job_that_is_not_requeued_ends_when_another_takes_its_host(
    local: Local, tmp_path: Path
) -> None:
    _, client = local
    low = gang("low", tmp_path, 2, steps=10**6, spares=NO_SPARES, priority_class="low")
    client.create_job(replace(low, requeue=Requeueing.NEVER))
    until(client, "low", is_launched(1))
    client.create_job(gang("high", tmp_path, 2, steps=20, spares=NO_SPARES, priority=9))
    job = until(client, "low", lambda job: job.state == FAILED)
    assert job.reason.startswith("preempted by high")
    assert job.reason.endswith("its file says requeue: never")
    until(client, "high", lambda job: job.state == COMPLETED)


HANGS = """
import os, sys, time
from muster import progress
for step in range(1, 21):
    progress.report(step, total=100, loss=1 / step)
    time.sleep(0.05)
if os.environ["RANK"] == "1":
    sys.exit(0)
if os.environ["MUSTER_ATTEMPT"] == "2":
    sys.exit(0)
time.sleep(3600)
"""


def test_a_hang_is_found_named_with_its_stacks_and_restarted(local: Local, tmp_path: Path) -> None:
    """One rank ends well, and the other waits for it for ever."""
    server, client = local
    made = gang("hangs", tmp_path, 1, spares=NO_SPARES)
    run = replace(made.run, command=(sys.executable, "-c", HANGS))
    client.create_job(replace(made, run=run, hang=HangTerms(1, HangAction.RESTART)))
    job = until(client, "hangs", lambda job: job.hang != "")
    assert "after step 20, where one took 0.05" in job.hang
    assert f"ended well: rank 1 on {job.placement.hosts[0]}" in job.hang
    assert (job.progress.step, job.progress.total_steps) == (20, 100)
    assert "step 20 of 100, 5" in muster("job", "hangs", address=server.address).stdout
    until(client, "hangs", lambda job: job.state == COMPLETED)
    assert client.get_job("hangs").attempt == 2
    stacks = muster("logs", "hangs", "--attempt", "1", "--stacks", address=server.address)
    assert 'File "<string>", line 11 in <module>' in stacks.stdout
    told = muster("logs", "hangs", "--stacks", address=server.address)
    assert (told.returncode, "no stacks were taken" in told.stderr) == (1, True)


def test_the_rank_for_which_others_wait_is_named(local: Local, tmp_path: Path) -> None:
    server, client = local
    made = gang("late", tmp_path, 2, steps=10**6, spares=NO_SPARES)
    client.create_job(replace(made, hang=HangTerms(2)))
    job = until(client, "late", lambda job: job.saved_checkpoint.step > 0, 60)
    last = job.placement.hosts[1]
    pid = server.host(last).ranks()[0]
    os.kill(pid, signal.SIGSTOP)
    job = until(client, "late", lambda job: job.hang != "", 60)
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    rank = next(word for word in environment if word.startswith(b"RANK="))[5:].decode()
    assert f"others wait for rank {rank} on {last}" in job.hang
    os.kill(pid, signal.SIGCONT)
    until(client, "late", lambda job: job.hang == "", 60)


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
    beyond = muster("logs", "cpus", "--rank", "6", address=server.address)
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
    every = muster("logs", "logs", "--all-ranks", address=server.address).stdout
    assert every.splitlines() == [f"{rank}: rank {rank} attempt 2" for rank in range(4)]
    beyond = muster("logs", "logs", "--attempt", "3", address=server.address)
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


def test_a_launch_script_is_imported_submitted_and_runs(local: Local, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, sys; print(os.environ['A'], sys.argv[1:])")
    (tmp_path / "train.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -J tiny -N 1 --gpus-per-node=2\nexport A=1\n"
        f"cd {tmp_path}\nsrun {sys.executable} train.py --lr 3e-4 2>&1 | tee log\n"
    )
    server, client = local
    script, file = str(tmp_path / "train.sbatch"), str(tmp_path / "tiny.yaml")
    made = muster("job", "import", script, "-o", file)
    assert made.returncode == 0, made.stderr
    assert muster("submit", file, address=server.address).returncode == 0
    until(client, "tiny", lambda job: job.state == COMPLETED)
    assert b"".join(client.tail_logs("tiny")) == b"1 ['--lr', '3e-4']\n"


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


EDITED = """
import os, pathlib, sys, time
print("VERSION", flush=True)
if os.environ["MUSTER_ATTEMPT"] == "1":
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
    sys.exit(1)
"""


def test_a_restart_runs_the_code_that_was_submitted(local: Local, tmp_path: Path) -> None:
    repository, go = tmp_path / "code", tmp_path / "go"
    (repository / "sub").mkdir(parents=True)
    program = repository / "sub" / "train.py"
    program.write_text("")
    (repository / ".gitignore").write_text("*.ckpt\n")
    (repository / "large.ckpt").write_text("")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", repository, *words], check=True)
    program.write_text(EDITED.replace("VERSION", "submitted"))
    (repository / "sub" / "new.py").write_text("")
    command = (sys.executable, "train.py", str(go))
    server, client = local
    made = gang("edited", tmp_path, 1, spares=NO_SPARES)
    run = replace(made.run, command=command, workdir=str(repository / "sub"), per_host=1)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job_to_mapping(replace(made, run=run))))
    snapshots = tmp_path / "snapshots"
    told = muster("submit", str(file), "--snapshot", str(snapshots), address=server.address)
    assert told.returncode == 0, told.stderr
    until(client, "edited", is_launched(1), 60)
    program.write_text(EDITED.replace("VERSION", "edited since"))
    go.touch()
    until(client, "edited", lambda job: job.state == COMPLETED, 60)
    assert client.get_job("edited").attempt == 2
    assert b"".join(client.tail_logs("edited")) == b"submitted\n"
    labels = client.get_job("edited").spec.labels
    (copy,) = snapshots.iterdir()
    assert labels["snapshot/tree"] == copy.name
    names = {str(path.relative_to(copy)) for path in copy.rglob("*")}
    assert names == {".gitignore", "sub", "sub/train.py", "sub/new.py"}
    run = replace(run, workdir=str(tmp_path))
    file.write_text(yaml.safe_dump(job_to_mapping(replace(made, name="bare", run=run))))
    told = muster("submit", str(file), "--snapshot", str(snapshots), address=server.address)
    assert (told.returncode, "not a git repository" in told.stderr) == (2, True)


def test_a_template_of_each_framework_is_a_job_and_that_of_python_runs(
    local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import os; print('rank', os.environ['RANK'])")
    load_commands()
    made = partial(CliRunner().invoke, app)
    for framework in ("torchrun", "torchtitan", "megatron", "deepspeed", "accelerate", "hf"):
        file = tmp_path / f"{framework}.yaml"
        file.write_text(made(["launch", "template", framework, "-n", "64"]).stdout)
        spec = read_job(str(file)).spec
        assert (spec.request.parallelism.world_size, spec.run.per_host) == (64, 1)
    unknown = made(["launch", "template", "abacus"])
    assert (unknown.exit_code, "lightning" in unknown.stderr) == (2, True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python.yaml").write_text(made(["launch", "template", "python", "-n", "2"]).stdout)
    server, client = local
    told = muster("submit", str(tmp_path / "python.yaml"), address=server.address)
    assert told.returncode == 0, told.stderr
    until(client, "train", lambda job: job.state == COMPLETED, 60)
    assert b"".join(client.tail_logs("train", 1)) == b"rank 1\n"
