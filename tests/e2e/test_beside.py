"""Commands, shells and connections beside the ranks of a gang, with real processes."""

import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from placement.workload.request import NO_SPARES
from scheduler.client import Client
from scheduler.v1 import job_pb2
from tests.e2e.gangs import Local, gang, is_launched, until
from tests.e2e.processes import MUSTER, muster, type_into
from tests.e2e.shell import answered
from tests.waiting import wait_until

SERVES = """
import http.server, os, time
if os.environ["RANK"] == "0":
    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * 300_000)
    server = http.server.HTTPServer(("localhost", 0), Hello)
    print(server.server_port, flush=True)
    server.serve_forever()
time.sleep(3600)
"""


SLEEPS = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(300)
"""


def _running(folder: Path, client: Client, name: str, script: str = SLEEPS) -> None:
    """A gang of two ranks on one host that runs `script`."""
    made = gang(name, folder, 1, spares=NO_SPARES)
    client.create_job(replace(made, run=replace(made.run, command=(sys.executable, "-c", script))))
    until(client, name, is_launched(1), within_s=60)


def _is_there(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture(scope="module")
def beside(shared: Local, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a server on which the ranks of gang `beside` run, the first of which serves a
    page and has logged its port."""
    server, client = shared
    _running(tmp_path_factory.mktemp("beside"), client, "beside", SERVES)
    until(client, "beside", lambda _: b"".join(client.tail_logs("beside")).endswith(b"\n"))
    return server.address


def test_a_command_runs_beside_a_rank_as_it_does_and_the_log_has_who_ran_it(beside: str) -> None:
    script = "import os, sys; print(os.environ['RANK'], os.environ['MUSTER_JOB'], sys.argv[1])"
    program = (sys.executable, "-c", script, "$HOME; x")
    told = muster("exec", "beside", "--rank", "1", "--", *program, address=beside)
    assert (told.returncode, told.stdout) == (0, "1 beside $HOME; x\n"), told.stderr
    script = "import os, sys; sys.stderr.write(os.getcwd()); sys.exit(7)"
    told = muster("exec", "beside", "--", sys.executable, "-c", script, address=beside)
    assert (told.returncode, told.stdout, told.stderr) == (7, "", "/tmp")
    missing = muster("exec", "beside", "--", "no-such-program", address=beside)
    assert missing.returncode == 127
    assert "cannot execute no-such-program: No such file or directory" in missing.stderr
    beyond = muster("exec", "beside", "--rank", "2", "--", "true", address=beside)
    assert (beyond.returncode, "must be 0 to 1, not 2" in beyond.stderr) == (2, True)
    many = os.urandom(3 << 20)
    command = [MUSTER, "exec", "beside", "-i", "--address", beside, "--", "cat"]
    told_bytes = subprocess.run(command, input=many, capture_output=True, timeout=120)
    assert told_bytes.stdout == many
    audit = answered("audit", "-o", "json", address=beside).stdout
    assert '"command": ["no-such-program"]' in audit
    assert '"event": "ChannelOpened"' in audit


def test_a_shell_has_a_terminal_and_ends_by_its_own_word(beside: str) -> None:
    typed = b"test -t 0 && echo is a $((40+2)) terminal of rank $RANK; exit 3\n"
    code, written = type_into(typed, "shell", "beside", "--rank", "1", address=beside)
    assert code == 3
    assert b"is a 42 terminal of rank 1" in written
    assert muster("exec", "beside", "-t", "--", "true", address=beside).returncode == 2


def test_a_port_beside_a_rank_is_reached_from_here(beside: str, shared: Local) -> None:
    port = b"".join(shared[1].tail_logs("beside")).decode().strip()
    command = [MUSTER, "port-forward", "beside", f"0:{port}", "--address", beside]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        here = process.stdout.readline().split()[0]
        for _ in range(3):
            with urllib.request.urlopen(f"http://{here}/", timeout=60) as answer:
                assert answer.read() == b"x" * 300_000
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    audit = answered("audit", "-o", "json", address=beside).stdout
    assert audit.count(f'"port": {port}') == 1  # the first of its connections


def test_what_runs_beside_a_rank_ends_with_its_caller_and_with_the_attempt(
    local: Local, tmp_path: Path
) -> None:
    server, client = local
    _running(tmp_path, client, "ends")
    command = [MUSTER, "exec", "ends", "--address", server.address]
    command += ["--", sys.executable, "-c", SLEEPS]
    for ending in ("caller", "attempt"):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            pids = [int(pid) for pid in process.stdout.readline().split()]
            assert all(map(_is_there, pids))
            if ending == "caller":
                process.send_signal(signal.SIGINT)
            else:
                client.cancel_job("ends")
            code = process.wait(60)
        wait_until(lambda: not any(map(_is_there, pids)))  # noqa: B023
        assert code == 130 if ending == "caller" else code in (1, 137, 143)
    late = muster("exec", "ends", "--", "true", address=server.address)
    assert (late.returncode, "is cancelled, not running" in late.stderr) == (1, True)


def test_hosts_are_had_without_a_command_and_given_back_when_nobody_uses_them(
    local: Local, tmp_path: Path
) -> None:
    server, client = local
    at = server.address
    had = muster("alloc", "-n", "4", "--name", "mine", address=at)
    assert (had.returncode, had.stdout) == (0, "mine: z0-r0-h0 z0-r0-h1\n"), had.stderr
    program = (sys.executable, "-c", "import os; print(os.environ['NODE_RANK'])")
    told = muster("exec", "mine", "--rank", "3", "--", *program, address=at)
    assert (told.returncode, told.stdout) == (0, "1\n"), told.stderr
    client.cancel_job("mine")
    assert muster("alloc", "-n", "1", "--name", "b", "--idle", "1s", address=at).returncode == 0
    job = until(client, "b", lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)
    assert job.reason == "nobody has run a command beside its ranks for 1 s"
    typed = b"echo of $MUSTER_JOB; exit 4\n"
    code, written = type_into(typed, "alloc", "-n", "2", "--name", "typed", address=at)
    assert code == 4, written
    assert client.get_job("typed").state == job_pb2.JOB_STATE_CANCELLED


SAYS = """
import os
print("length", len(os.environ["TOKEN"]))
"""


def test_a_secret_gets_to_the_ranks_by_reference_and_nowhere_else(
    local: Local, tmp_path: Path
) -> None:
    secret = "hunter2-" * 4
    (tmp_path / "token").write_text(secret + "\n")
    program = tmp_path / "says.py"
    program.write_text(SAYS)
    server, client = local
    made = gang("told", tmp_path, 1, spares=NO_SPARES)
    command = (sys.executable, str(program))
    where = (("TOKEN", f"file:{tmp_path}/token"),)
    run = replace(made.run, command=command, env_from=where)
    for name, warm in (("told", ()), ("warm", ("json",))):
        client.create_job(replace(made, name=name, run=replace(run, warm=warm)))
        until(client, name, lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)
        assert b"".join(client.tail_logs(name)) == b"length 32\n"
        shown = answered("job", name, "-o", "json", address=server.address).stdout
        assert f"file:{tmp_path}/token" in shown
        assert secret not in shown
    missing = replace(run, env_from=(("T", "secret:wandb/key"),))
    client.create_job(replace(made, name="missing", run=missing))
    job = until(client, "missing", lambda job: job.state == job_pb2.JOB_STATE_FAILED, 60)
    assert "cannot read T from /run/muster-secrets/wandb/key: No such file" in job.reason
    kept = [path for path in server.folder.rglob("*") if path.is_file()]
    assert server.folder / "m.db" in kept
    assert not [path for path in kept if secret.encode() in path.read_bytes()]
