"""Gangs whose ranks run in containers, by programs that stand for apptainer and podman, and by a
real podman where one runs."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from placement.workload.request import NO_SPARES, SpareRule
from scheduler.client import Client, ServiceError
from scheduler.core import JobSpec
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.v1 import job_pb2
from tests.e2e.gangs import gang, is_launched, local_server, until

ENGINE = """#!{python}
import json, os, sys
open({record!r}, "a").write(json.dumps(sys.argv) + "\\n")
os.execvp(sys.argv[sys.argv.index({image!r}) + 1], sys.argv[sys.argv.index({image!r}) + 1:])
"""


def _engine(folder: Path, name: str, image: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have agents find this engine alone; return where it writes down how it is called."""
    programs, record = folder / "bin", folder / "calls"
    programs.mkdir()
    program = programs / name
    program.write_text(ENGINE.format(python=sys.executable, record=str(record), image=image))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return record


def _contained(name: str, folder: Path, image: str, mounts: tuple[str, ...] = ()) -> JobSpec:
    made = gang(name, folder, 1, steps=20, spares=NO_SPARES)
    assert made.run is not None
    return replace(made, run=replace(made.run, container=ContainerSpec(image, mounts)))


def _completes(client: Client, name: str) -> None:
    until(client, name, lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)


def test_ranks_run_in_an_apptainer_image_with_its_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = "docker://example.org/train:1"
    record = _engine(tmp_path, "apptainer", image, monkeypatch)
    mounts = (f"{tmp_path}:{tmp_path}", "/usr:/host-usr:ro")
    with local_server(tmp_path, racks=1, hosts=1, lease_s=15) as (_, client):
        made = _contained("a", tmp_path, "example.org/train:1", mounts)
        client.create_job(made)
        _completes(client, "a")
        assert client.get_job("a").spec.run.container.mounts == list(mounts)
        client.create_job(_contained("b", tmp_path, "example.org/train:1", ("/no/such:/data",)))
        job = until(client, "b", lambda job: job.state == job_pb2.JOB_STATE_FAILED, 60)
        assert "there is no /no/such to mount on this host" in job.reason
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(calls) == 2, "one for each rank"
    for words in calls:
        assert words[1:3] == ["exec", "--pwd=/tmp"]
        binds = [word for word in words if word.startswith("--bind=")]
        assert binds[0] == "--bind=/tmp:/tmp"
        assert [f"--bind={mount}" for mount in mounts] == binds[-2:]
        assert words[words.index(image) + 1 :] == list(made.run.command if made.run else ())


def test_podman_gets_secrets_by_the_environment_and_never_in_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = _engine(tmp_path, "podman", "example.org/train:1", monkeypatch)
    (tmp_path / "token").write_text("hunter2\n")
    script = "import os; print(os.environ['TOKEN'], os.environ['WORLD_SIZE'])"
    with local_server(tmp_path, racks=1, hosts=1, lease_s=15) as (_, client):
        made = _contained("a", tmp_path, "docker://example.org/train:1")
        assert made.run is not None
        secret = (("TOKEN", f"file:{tmp_path}/token"),)
        run = replace(made.run, command=(sys.executable, "-c", script), env_from=secret)
        client.create_job(replace(made, run=run))
        _completes(client, "a")
        assert b"".join(client.tail_logs("a")) == b"hunter2 2\n"
    words = json.loads(record.read_text().splitlines()[0])
    assert {"--env=TOKEN", "--env=RANK", "--env=MASTER_ADDR"} <= set(words)
    assert {"--cgroups=disabled", "--network=host", "--workdir=/tmp"} <= set(words)
    assert "--replace" in words, "else what was killed stays"
    assert "hunter2" not in record.read_text()


def test_a_container_is_refused_where_nothing_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with local_server(tmp_path, racks=1, hosts=1, lease_s=15) as (_, client):
        client.create_job(gang("plain", tmp_path, 1, steps=2, spares=SpareRule(hosts=0)))
        _completes(client, "plain")  # so its agent is there
        with pytest.raises(ServiceError, match="no host has apptainer, singularity or podman"):
            client.create_job(_contained("a", tmp_path, "example.org/train:1"))


def _image(folder: Path) -> tuple[str, tuple[str, ...]]:
    """An image that is a folder in which all is mounted from this machine."""
    image = folder / "image"
    image.mkdir()
    linked = [path for path in Path("/").iterdir() if path.is_symlink()]
    for path in linked:  # /bin of /usr/bin
        (image / path.name).symlink_to(os.readlink(path))
    plain = ("/usr", "/lib", "/lib64", "/bin", "/opt", "/work", "/home")
    own = [path for path in map(Path, plain) if path.is_dir() and path not in linked]
    prefix = Path(sys.base_prefix)
    if not any(prefix.is_relative_to(path) for path in own):
        own.append(prefix)
    return str(image), tuple(f"{path}:{path}:ro" for path in own)


def _runs_podman(image: str) -> bool:
    if shutil.which("podman") is None:
        return False
    words = ["podman", "run", "--rm", "--cgroups=disabled", "--network=host"]
    words += ["--ulimit=nofile=64:64", "--ulimit=nproc=64:64", "--volume=/usr:/usr:ro"]
    words += ["--rootfs", f"{image}:O", "/usr/bin/true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_ranks_of_a_real_podman_train_save_and_end_with_their_attempt(tmp_path: Path) -> None:
    image, mounts = _image(tmp_path)
    if not _runs_podman(image):
        pytest.skip("no podman that runs containers without cgroups of their own")
    with local_server(tmp_path, racks=1, hosts=2, lease_s=15) as (server, client):
        mounts = (*mounts, f"{tmp_path}:{tmp_path}")
        client.create_job(_contained("a", tmp_path, image, mounts))
        _completes(client, "a")
        shown = client.get_job("a")
        assert shown.lineage.checkpoints[0].step == 20, shown.lineage
        made = _contained("b", tmp_path, image, mounts)
        assert made.run is not None
        command = ("/bin/sh", "-c", "echo started; exec sleep 1000")
        client.create_job(replace(made, run=replace(made.run, command=command)))
        until(client, "b", is_launched(1), 60)
        until(client, "b", lambda _: b"started" in b"".join(client.tail_logs("b")), 60)
        client.cancel_job("b")
        until(client, "b", lambda _: not any(map(server.ranks, server.hosts)), 60)
