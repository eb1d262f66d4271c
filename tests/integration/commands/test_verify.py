"""`muster place --certificate` and `muster verify`: what is confirmed, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from muster.certificate import SEALED, digest
from tests.commands import JOB, Muster


@pytest.fixture
def certificate(muster: Muster, tmp_path: Path) -> Path:
    path = tmp_path / "c.json"
    words = ("place", "job.yaml", "--fabric", "mini.yaml", "--certificate", str(path))
    assert muster(*words).code == 0
    return path


def changed(path: Path, **claims: object) -> Path:
    content = json.loads(path.read_text())
    content["claims"] |= claims
    content["digests"] = {part: digest(content[part]) for part in SEALED}
    path.write_text(json.dumps(content))
    return path


def test_a_certificate_is_confirmed(muster: Muster, certificate: Path) -> None:
    result = muster("verify", str(certificate))
    assert result.code == 0
    assert result.out.startswith("confirmed: ")
    answer = muster("verify", str(certificate), "-o", "json").json
    assert (answer["outcome"], answer["is_whole"]) == ("confirmed", True)


def test_another_host_is_refused(muster: Muster, certificate: Path) -> None:
    hosts = json.loads(certificate.read_text())["claims"]["hosts"]
    path = changed(certificate, hosts=[*hosts[:-1], hosts[0]])
    result = muster("verify", str(path))
    assert (result.code, "needed, each once" in result.out) == (1, True)
    answer = muster("verify", str(path), "-o", "json")
    assert (answer.code, answer.json["outcome"]) == (1, "refused")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "c.json: must be a mapping"),
        ("{}", "c.json: format: is missing"),
        ("[" * 100_000, "c.json: is not JSON"),
    ],
)
def test_what_is_no_certificate_is_named(
    muster: Muster, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    result = muster("verify", str(path))
    assert (result.code, message in result.err) == (2, True), result.err


def test_the_checker_runs_without_the_engine(certificate: Path) -> None:
    """Nothing but the standard library and its three files is loaded."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['verify', {str(certificate)!r}]\n"
        "try: runpy.run_module('muster.verify', run_name='__main__')\n"
        "finally:\n"
        "    known = sys.stdlib_module_names | {'muster', '__main__'}\n"
        "    print({name.split('.')[0] for name in sys.modules} - known, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert (done.returncode, done.stderr.strip()) == (0, "set()"), done.stderr
    assert done.stdout.startswith("confirmed: ")


def test_several_jobs_have_no_one_certificate(muster: Muster, tmp_path: Path) -> None:
    Path("two.yaml").write_text(f"{JOB}---\n{JOB.replace('name: job', 'name: b')}")
    to = ("--certificate", str(tmp_path / "c.json"))
    result = muster("place", "two.yaml", "--fabric", "mini.yaml", *to)
    assert (result.code, "has several jobs" in result.err) == (2, True)
