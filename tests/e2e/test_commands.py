"""The commands of the service against a real server process."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.processes import MUSTER, ServerProcess
from tests.e2e.shell import Shell


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(folder)
    server.start()
    yield server
    server.kill()


def job_file(folder: Path, name: str, hosts: int = 1, **keys: Any) -> str:
    file = folder / f"{name}.yaml"
    job = {"name": name, "parallelism": {"tp": 8, "dp": hosts}, "traffic": {"dp": 10}, "spares": 0}
    file.write_text(yaml.safe_dump({**job, **keys}))
    return str(file)


@pytest.fixture
def shell(server: ServerProcess, alone: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("MUSTER_ADDRESS", server.address)
    return alone


def test_a_job_from_submission_to_its_end(shell: Shell, folder: Path) -> None:
    file = job_file(folder, "life", 2)
    submitted = shell.asked("submit", file, "--request-id", "r-life")
    assert shell.asked("submit", file, "--request-id", "r-life")["uid"] == submitted["uid"]
    shell.run("wait", "life", "--for", "start")
    assert "life is running" in shell.asked("explain", "life")["reason"]["sentence"]
    running = shell.asked("job", "life")
    assert (running["state"], running["attempt"]) == ("JOB_STATE_RUNNING", 1)
    held = shell.asked("hosts", "--job", "life")["hosts"]
    assert [host["name"] for host in held] == sorted(running["placement"]["hosts"])
    done = ["finish", "life", "--outcome", "completed", "--attempt", "1"]
    tried = shell.run(*done, "--dry-run")
    assert (tried.code, tried.stderr) == (0, "muster: dry run: nothing was changed\n")
    assert "etag is" in shell.run(*done, "--etag", "another").stderr
    ended = shell.asked(*done)
    assert ended["state"] == "JOB_STATE_COMPLETED"
    completed = shell.asked("jobs", "--state", "completed")["jobs"]
    assert [job["name"] for job in completed] == ["life"]


def test_the_windows_of_a_file_are_made(shell: Shell, folder: Path) -> None:
    file = folder / "windows.yaml"
    window = {"name": "bios", "kind": "maintenance", "start": "2030-01-01T06:00Z", "duration": "1h"}
    file.write_text(yaml.safe_dump({"windows": [{**window, "hosts": ["z1"]}]}))
    for _ in range(2):
        made = shell.asked("window", "apply", str(file))
        assert [each["name"] for each in made["windows"]] == ["bios"]
        assert int(made["version"]) > 0
    shell.run("window", "delete", "bios")

    file.write_text(f"windows:\n  - {json.dumps({**window, 'hosts': ['z1', 'z9']})}\n")
    told = shell.told("window", "apply", str(file), code=2)
    assert told == f"{file}:2: windows.0.hosts.1: no host and no domain 'z9' in this fabric"


def test_what_others_wrote_stays_in_its_line(shell: Shell, server: ServerProcess) -> None:
    shell.run("cordon", "z1-r3-h0", "--reason", "\x1b[31mred\nz1-r3-h1  healthy")
    escaped = r"\x1b[31mred\nz1-r3-h1  healthy"
    for command in (["hosts"], ["host", "z1-r3-h0"], ["audit"]):
        rows = shell.run(*command).stdout.splitlines()
        assert next(row for row in rows if "[31mred" in row).endswith(escaped), command
    shell.run("uncordon", "z1-r3-h0")


def test_watch_replays_and_goes_on(shell: Shell, server: ServerProcess, folder: Path) -> None:
    begin = shell.asked("hosts")["version"]
    command = [MUSTER, "watch", "--after", str(begin), "--format", "json", "--job", "seen"]
    command += ["--address", server.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        shell.asked("submit", job_file(folder, "seen"))
        assert watching.stdout is not None
        changes = [json.loads(watching.stdout.readline()) for _ in range(2)]
        shell.asked("cancel", "seen")
        changes.append(json.loads(watching.stdout.readline()))
        watching.kill()
    kinds = [change["change"].removeprefix("JOB_CHANGE_") for change in changes]
    assert kinds == ["SUBMITTED", "STARTED", "ENDED"]


def test_what_the_server_refuses_in_a_job_file_is_said_with_its_line(
    shell: Shell, folder: Path
) -> None:
    file = folder / "half.yaml"
    file.write_text("name: half\nspares: 0\nparallelism:\n  tp: 4\n  dp: 3\n")
    message = shell.told("submit", str(file), code=2)
    assert message.startswith(f"{file}:")
    assert "parallelism" in message
    assert "do not fill whole hosts" in message


def test_code_outside_of_a_repository_is_not_copied(shell: Shell, folder: Path) -> None:
    file = job_file(folder, "bare", run={"command": ["x"], "workdir": str(folder)})
    told = shell.told("submit", file, "--snapshot", str(folder / "copies"), code=2)
    assert "not a git repository" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "postgresql://127.0.0.1:1/x"], "cannot connect to postgresql://127.0.0.1:1/x"),
        (["--store", "sqlite:////no/such/folder/x.db"], "there is no folder /no/such/folder"),
        (["--listen", "127.0.0.1:65536"], "must be HOST:PORT"),
        (["--fabric", "nowhere"], "'nowhere' is neither a preset"),
        (["--metrics-per-job"], "needs --metrics"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    alone: Shell, tmp_path: Path, arguments: list[str], message: str
) -> None:
    store = f"sqlite:///{tmp_path / 'x.db'}"
    defaults = ["--fabric", "ib-24k", "--store", store, "--listen", "127.0.0.1:0"]
    assert message in alone.told("serve", *defaults, *arguments, code=2)


def test_a_job_is_updated_and_found_by_its_labels(
    server: ServerProcess, shell: Shell, folder: Path
) -> None:
    shell.asked("submit", job_file(folder, "everything", 16))
    shell.asked("submit", job_file(folder, "labelled", 16, labels={"team": "nlp", "run": "1"}))
    before = shell.asked("job", "labelled")
    shown = shell.run("update", "labelled", "--priority", "9", "--dry-run")
    assert (shown.code, shown.stderr) == (0, "muster: dry run: nothing was changed\n")
    assert "priority   9" in shown.stdout
    assert shell.asked("job", "labelled")["etag"] == before["etag"]
    after = shell.asked(
        "update", "labelled", "--priority", "9", "--label", "a=b", "--unlabel", "run"
    )
    assert (after["priority"], after["spec"]["labels"]) == (9, {"team": "nlp", "a": "b"})
    found = shell.asked("jobs", "--filter", "labels.team = nlp", "--order-by", "name desc")
    assert [job["name"] for job in found["jobs"]] == ["labelled"]
    stale = shell.told("cancel", "labelled", "--etag", before["etag"], code=1)
    assert "has changed since you looked" in stale
    assert "is not a field" in shell.told("jobs", "--filter", "size = 3", code=2)
    assert "--label" in shell.told("update", "labelled", "--label", "x", code=2)
    for name in ("labelled", "everything"):
        shell.asked("cancel", name)
