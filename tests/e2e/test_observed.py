"""Options of `muster serve` for metrics, logs and traces, as they are typed."""

from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.e2e.processes import ServerProcess, free_port, muster
from tests.e2e.shell import Shell


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--metrics", "here"), "must be HOST:PORT"),
        (("--metrics-per-job",), "needs --metrics"),
        (("--log-level", "loud"), "--log-level"),
    ],
)
def test_an_option_that_makes_no_sense(
    alone: Shell, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    store = f"sqlite:///{tmp_path / 'muster.db'}"
    said = alone.told("serve", "--fabric", "ib-24k", "--store", store, *options, code=2)
    assert message in " ".join(said.replace("│", " ").split())
    assert not (tmp_path / "muster.db").exists()


def test_options_go_before_the_server_file(tmp_path: Path) -> None:
    in_file, typed = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config = tmp_path / "muster.yaml"
    config.write_text(f'metrics: {{listen: "{in_file}", per_job: true}}\n', encoding="utf-8")
    server = ServerProcess(tmp_path)
    server.start("--config", str(config), "--metrics", typed)
    try:
        with urlopen(f"http://{typed}/metrics", timeout=60) as answer:
            assert b"muster_ready 1.0" in answer.read()
        with pytest.raises(OSError, match="refused"):
            urlopen(f"http://{in_file}/metrics", timeout=60)
        status = muster("status", address=server.address)
        assert status.returncode == 0
        assert "leader, log at version 1" in status.stdout
    finally:
        server.end()
