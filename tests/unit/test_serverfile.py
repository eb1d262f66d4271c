"""The server file: every fault with its file, line and field; paths beside the file."""

from pathlib import Path

import pytest

from scheduler.cli.server.serve import _settings
from scheduler.core import SchedulingOptions
from scheduler.eventlog.store import StoreError, open_store
from scheduler.files.errors import InputError
from scheduler.server.config import (
    BadOption,
    MetricsKeys,
    ServerKeys,
    in_server_file,
    keys,
    load_server_file,
    options,
    overridden,
)
from tests.refusals import file_refusal


def write(folder: Path, text: str) -> str:
    path = folder / "muster.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_what_a_file_leaves_out_is_as_without_a_file(tmp_path: Path) -> None:
    assert load_server_file(write(tmp_path, "policy: easy\n")) == ServerKeys(policy="easy")


def test_files_are_looked_for_beside_the_file_that_names_them(tmp_path: Path) -> None:
    text = "store: sqlite:///log.db\nfabric: own.yaml\ntenants: /etc/tenants.yaml\n"
    keys = load_server_file(write(tmp_path, text))
    assert keys.store == f"sqlite:///{tmp_path / 'log.db'}"
    assert keys.fabric == str(tmp_path / "own.yaml")
    assert keys.tenants == "/etc/tenants.yaml"
    for preset in ("roce-24k", "roce-24"):  # one that there is, and a misspelt one
        assert load_server_file(write(tmp_path, f"fabric: {preset}")).fabric == preset
    told = file_refusal(
        load_server_file, tmp_path / "muster.yaml", "tenants: ~nobody-there/a.yaml\n"
    )
    assert "names a home" in told
    with pytest.raises(StoreError, match="home"):
        open_store("sqlite:///~nobody-there/muster.db")


@pytest.mark.parametrize("line", ["store: sqlite:////var/log.db", "store: postgresql://db/muster"])
def test_a_store_that_stands_nowhere_beside_is_taken_as_it_is(tmp_path: Path, line: str) -> None:
    assert load_server_file(write(tmp_path, line)).store == line.removeprefix("store: ")


def test_the_limits_of_decisions_are_those_of_the_file(tmp_path: Path) -> None:
    text = "policy: easy\nassumed_limit_h: 2\nresize_every_s: 1m\nleast_gain_percent: 25\n"
    limits = _settings(load_server_file(write(tmp_path, text))).options
    assert limits == SchedulingOptions(
        "easy", assumed_limit_s=7_200, resize_every_s=60, least_gain=25
    )
    assert _settings(ServerKeys()).options == SchedulingOptions()


def test_a_fault_names_its_line_and_field(tmp_path: Path) -> None:
    for text, expected in {
        "slurm: {step_options: [--nodes=3]}": "slurm.step_options: must leave --nodes to muster",
        "slurm: {step_options: [-N3]}": "slurm.step_options: must be options of srun as --name=",
        "lisen: a:1": "lisen: unknown key 'lisen', did you mean listen?",
        "store: muster.db": "store: must be sqlite:///FILE or postgresql://HOST/DATABASE, not",
        "resize_every_s: often": "resize_every_s: must be",
        "assumed_limit_h: 0": "assumed_limit_h: must be hours, above 0",
        "lease_s: 86401": "lease_s: must be at most 86,400, is 86,401",
        "tenants: {}": "tenants: must be the path of a file, not {}",
        "metrics: {listen: 9464}": "metrics.listen: must be HOST:PORT, a port",
        "listen: 7443": "listen: must be HOST:PORT, a port up to 65,535, not 7443",
        "store: mysql://a/b": "store: must be sqlite:///FILE or",
        "metrics:": "metrics: is empty: give its keys, or leave it out",
    }.items():
        told = file_refusal(load_server_file, tmp_path / "muster.yaml", f"{text}\n")
        assert told.startswith(f"muster.yaml:1: {expected}")


def test_a_fault_that_is_found_later_names_the_key_of_the_server_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text("tenants: 1")
    for text, expected in {
        "fabric: roce": "muster.yaml:1: fabric: 'roce' is neither a preset",
        "tenants: no.yaml": "muster.yaml:1: tenants: no.yaml: no such file",
        "tenants: wrong.yaml": "wrong.yaml:1: tenants: must be a list",
        "agents: {lease_s: 9}": "muster.yaml:1: agents: agents must prove their host",
    }.items():
        keys = load_server_file(write(Path(), text))
        with pytest.raises(InputError) as caught:
            _settings(keys)
        assert str(in_server_file(caught.value, "muster.yaml", keys)).startswith(expected)


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    text = "listen: 1\npolicy: x\ndrain_s: 0\n"
    found = file_refusal(load_server_file, tmp_path / "muster.yaml", text)
    assert [line.split(": ")[1] for line in found.splitlines()] == ["listen", "policy", "drain_s"]


def test_an_option_overrides_its_key_and_leaves_the_rest(tmp_path: Path) -> None:
    text = (
        "listen: 0.0.0.0:1\nlease_s: 9\nlog: {level: info}\nmetrics: {listen: a:1, per_job: true}\n"
    )
    given = {"lease_s": 7, "log.format": "json", "metrics.listen": "b:2"}
    found = overridden(load_server_file(write(tmp_path, text)), given)
    assert (found.listen, found.lease_s) == ("0.0.0.0:1", 7)
    assert (found.log.level.value, found.log.format.value) == ("info", "json")
    assert found.metrics == MetricsKeys(listen="b:2", per_job=True)
    assert overridden(found, {}) == found


def test_an_option_is_held_to_the_rule_of_its_key() -> None:
    wrong = {
        "lease_s": 86_401,
        "metrics.listen": "here",
        "store": "muster.db",
        "assumed_limit_h": 0.0,
    }
    options_by_key = {option.path: option.name for option in options()}
    for path, value in wrong.items():
        with pytest.raises(BadOption) as caught:
            overridden(ServerKeys(), {path: value})
        assert caught.value.option == options_by_key[path]
        assert caught.value.message.startswith("must be")


def test_every_option_names_a_key_and_no_two_are_the_same() -> None:
    found = list(options())
    assert {option.path for option in found} <= set(keys())
    assert len({option.name for option in found}) == len(found)
