"""docs/fabric.md, *Change it while it runs*, word by word: a server of its own, a gang on it."""

import re
import shlex
from functools import partial
from pathlib import Path

import pytest
import yaml

from scheduler.client import Client
from scheduler.v1 import job_pb2
from tests.build import spec
from tests.e2e.processes import ServerProcess, muster
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fabric.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Change it while it runs\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^muster (.*)$", SECTION, re.MULTILINE)


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    server = ServerProcess(tmp_path)
    example = ROOT / "examples" / "living-fabric" / "fabric.yaml"
    (tmp_path / "fabric.yaml").write_bytes(example.read_bytes())
    server.start()
    try:
        with Client(server.address) as client:
            client.create_job(spec("train", 2))
            wait_until(lambda: client.get_job("train").state == job_pb2.JOB_STATE_RUNNING)
            said = []
            for words in map(shlex.split, COMMANDS):
                run = partial(muster, *words, address=server.address, folder=tmp_path)
                if words[-1] == "--dry-run" and "shrunk" in words[-2]:  # its gang moves meanwhile
                    wait_until(lambda: not run().returncode)  # noqa: B023
                done = run()
                assert done.returncode == 0, (words, done.stdout, done.stderr)
                said.append(done.stdout)
            job = client.get_job("train")
            assert job.state == job_pb2.JOB_STATE_RUNNING
            assert not [host for host in job.placement.hosts if host.startswith("z0")]
            assert {host.name[:2] for host in client.list_hosts()} == {"z1", "we", "gp"}
    finally:
        server.end()
    assert yaml.safe_load((tmp_path / "fabric.yaml").read_text())["domains"][0]["name"] == "z0"
    dry = said[1]
    assert "added    4 hosts   west-r2-h[0-3]" in dry
    assert re.search(r"renamed +z1 +-> west", dry)
    assert re.search(r"renamed +z1-r1-h1 +-> gpu-17", dry)
    assert said[-1].count("FabricChanged") == 2
