"""The chart is the kustomization; the role and the package install what is under deploy/."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.server.config import load_server_file
from scripts.deb import control, stage

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "muster"
KUSTOMIZE = ROOT / "deploy" / "kubernetes"
ROLE = ROOT / "deploy" / "ansible" / "roles" / "muster"


def _rendered(**values: Any) -> dict[tuple[str, str], Any]:
    """The objects of the chart in the namespace muster: as `helm template` does what it uses."""
    given = yaml.safe_load((CHART / "values.yaml").read_text()) | values
    found = {}
    for path in sorted((CHART / "templates").iterdir()):
        text = re.sub(
            r"(?ms)\n?\{\{- if \.Values\.(\w+) \}\}\n(.*?)\{\{- end \}\}",
            lambda m: "\n" + m[2] if given[m[1]] else "",
            path.read_text(),
        )
        text = re.sub(
            r"\{\{ \.Values\.(\w+) \| indent (\d+) \}\}",
            lambda m: re.sub("(?m)^(?=.)", " " * int(m[2]), given[m[1]]),
            text,
        )
        text = re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda m: str(given[m[1]]), text)
        text = text.replace("{{ .Release.Namespace }}", "muster")
        assert "{{" not in text, path
        found |= {_key(item): item for item in yaml.safe_load_all(text) if item}
    return found


def _key(item: Any) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def test_the_chart_makes_what_the_kustomization_makes() -> None:
    names = yaml.safe_load((KUSTOMIZE / "kustomization.yaml").read_text())["resources"]
    texts = [(KUSTOMIZE / name).read_text() for name in names if name != "namespace.yaml"]
    wanted = {_key(i): i for text in texts for i in yaml.safe_load_all(text) if i}
    assert _rendered() == wanted


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    assert (chart["version"], chart["appVersion"]) == (found[1], found[1])


@pytest.mark.parametrize("is_monitored", [False, True])
def test_the_server_file_of_the_chart_is_one(tmp_path: Path, is_monitored: bool) -> None:
    made = _rendered(serviceMonitor=is_monitored)
    assert (("ServiceMonitor", "muster") in made) is is_monitored
    for name, text in made["ConfigMap", "muster-config"]["data"].items():
        (tmp_path / name).write_text(text)
    keys = load_server_file(str(tmp_path / "muster.yaml"))
    assert bool(keys.metrics and keys.metrics.listen) is is_monitored
    ports = {each["name"]: each["port"] for each in made["Service", "muster"]["spec"]["ports"]}
    assert ports["metrics"] == 9464


def test_the_role_copies_and_starts_what_is_there() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    handlers = {each["name"] for each in yaml.safe_load((ROLE / "handlers/main.yml").read_text())}
    text = yaml.safe_dump(tasks)
    assert set(re.findall(r"\{\{ (muster_\w+)", text)) <= set(defaults)
    told = [each["notify"] for each in tasks if "notify" in each]
    assert {
        name for names in told for name in ([names] if isinstance(names, str) else names)
    } == handlers
    made = [
        each["ansible.builtin.systemd_service"]
        for each in yaml.safe_load((ROLE / "handlers/main.yml").read_text())
    ]
    assert all(each["enabled"] for each in made)
    store = load_server_file(str(ROOT / "deploy" / "muster.yaml")).store
    assert f"muster store init --store {store}" in text
    for source in re.findall(r"muster_checkout \}\}/([\w./-]+)", text):
        assert (ROOT / source).exists(), source


def test_the_package_has_a_launcher_units_and_examples(tmp_path: Path) -> None:
    stage(tmp_path, "3.11")
    launcher = tmp_path / "opt/muster/bin/muster"
    assert launcher.stat().st_mode & 0o777 == 0o755
    units = {path.name for path in (tmp_path / "lib/systemd/system").iterdir()}
    assert units == {"muster.service", "muster-agent.service"}
    assert (tmp_path / "usr/share/doc/muster/examples/muster.yaml").is_file()
    assert "Depends: python3 (>= 3.11), python3 (<< 3.12)" in control("0.1.0", "3.11", 1)


def test_processes_of_the_package_find_its_packages(tmp_path: Path) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not Path(f"/usr/bin/python{version}").exists():
        pytest.skip(f"no /usr/bin/python{version} here")
    stage(tmp_path, version)
    folder = tmp_path / f"opt/muster/lib/python{version}/site-packages"
    folder.mkdir(parents=True)
    (folder / "probe.py").write_text("NAME = 'found'")
    inner = "import probe; print(probe.NAME)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = [str(tmp_path / "opt/muster/bin/python"), "-c", outer]
    done = subprocess.run(command, capture_output=True, text=True, env={})
    assert (done.stdout, done.stderr) == ("found\n", "")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb here")
def test_dpkg_takes_the_package(tmp_path: Path) -> None:
    stage(tmp_path / "root", "3.11")
    made = tmp_path / "muster.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tmp_path / "root"), str(made)]
    subprocess.run(command, check=True, capture_output=True)
    shown = subprocess.run(
        ["dpkg-deb", "-I", str(made)], check=True, capture_output=True, text=True
    )
    assert "Package: muster-scheduler" in shown.stdout
