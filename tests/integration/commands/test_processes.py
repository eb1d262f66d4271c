"""The command as a process of its own: signals, streams, what it loads."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.commands import JOB

ROOT = Path(__file__).parents[3]
INSTALLS_SERVER = (
    "pip install --require-hashes -r deploy/requirements.lock",
    "pip install 'muster-scheduler[server]'",
)
MAIN = "from scheduler.cli import main; main()"


def place_args(folder: Path) -> list[str]:
    return ["place", f"{folder}/job.yaml", "--fabric", "roce-24k"]


def run_python(code: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **env},
    )


def test_ctrl_c_while_it_loads_ends_it_at_once() -> None:
    """The signal comes as the first library is looked for, which then goes on loading."""
    done = run_python(
        "import os, signal, sys\n"
        # Who starts the tests in the background has it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from scheduler.cli import main\n"
        "class Struck:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Struck())\n"
        "sys.argv = ['muster', '--version']\n"
        "main()"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def in_shell(words: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the command by a shell. `words`: what comes after its arguments."""
    command = ["bash", "-c", f'"$@" {words}', "-", sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_nobodys(closed: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("tp: 2", "tp: 8"))
    placed = in_shell(closed, place_args(tmp_path))
    assert (placed.returncode, placed.stderr) == (0, "")
    assert in_shell(closed, ["place", "gone"]).returncode == 2


@pytest.mark.slow
def test_a_terminal_that_cannot_show_a_name_gets_it_escaped(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("tp: 2", "tp: 8"))
    tiers = "[{name: zone, count: 1}, {name: host, count: 16}]"
    fabric = f"name: nördlich\ngpus_per_host: 8\ntiers: {tiers}\n"
    (tmp_path / "fabric.yaml").write_text(fabric, encoding="utf-8")
    words = ("place", str(tmp_path / "job.yaml"), "--fabric", str(tmp_path / "fabric.yaml"))
    done = run_python(MAIN, *words, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(r"placed: job on n\xf6rdlich")


def test_a_shell_is_told_how_a_word_may_go_on() -> None:
    done = run_python(
        f"import sys; sys.argv = ['muster']; {MAIN}",
        _MUSTER_COMPLETE="complete_bash",
        COMP_WORDS="muster jobs --state que",
        COMP_CWORD="3",
    )
    assert done.stdout.split() == ["queued"], done.stderr


HEAVY = ("pandas", "networkx", "sqlalchemy", "ortools", "grpc", "numpy", "pydantic", "yaml")


def test_help_loads_nothing_heavy() -> None:
    done = run_python(
        "import sys\n"
        "import scheduler.cli.program\n"
        "assert 'rich.table' not in sys.modules\n"
        "from scheduler.cli import main\n"
        "sys.argv = ['muster', '--help']\n"
        "try: main()\n"
        f"finally: print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    assert done.returncode == 0
    assert "place" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"


PLACING = ("numba", "numpy", "networkx", "ortools", "scipy", "matplotlib")
OF_JOB_FILES = ("placement.fabric.tree", "placement.workload.request", "scheduler.files.job")
LIGHT = "jobs --watch|job a|explain a|cancel a[1-2]|wait a|drain h1 h2|hosts|tenants|links|status"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "barred"),
    [
        ("submit --help", PLACING),
        ("submit {job}", PLACING),
        ("accounting", PLACING),
        *((words, PLACING + OF_JOB_FILES) for words in (*LIGHT.split("|"), "window list")),
    ],
)
def test_a_command_that_places_nothing_loads_nothing_that_places(
    arguments: str, barred: tuple[str, ...], tmp_path: Path
) -> None:
    """Nobody answers at the address: what else it would do is print what a server says."""
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    done = run_python(
        "import sys\n"
        "from scheduler.cli import main\n"
        "try: main()\n"
        f"finally: print([m for m in {barred} if m in sys.modules], file=sys.stderr)",
        *arguments.format(job=job).split(),
        MUSTER_ADDRESS="127.0.0.1:1",
    )
    assert done.stderr.splitlines()[-1] == "[]"
    is_client = "--help" not in arguments
    assert ("no server" in done.stderr or "127.0.0.1:1" in done.stderr) is is_client, done.stderr


THIN = """
import sys
from scheduler.release import SERVER_PACKAGES

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in SERVER_PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from scheduler.cli import main
main()
"""


@pytest.mark.slow
def test_a_thin_client_submits_and_asks_and_says_what_is_missing_for_the_rest(
    tmp_path: Path,
) -> None:
    """Without the packages of the extra `server`, as `pip install muster-scheduler` leaves it."""
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    for words in ("jobs", f"submit {job}", f"submit {job} --dry-run", "status", "hosts", "logs a"):
        done = run_python(THIN, *words.split(), MUSTER_ADDRESS="127.0.0.1:1")
        assert "no server answers at 127.0.0.1:1" in done.stderr, (words, done.stderr)
    for words in (
        f"place {job} --fabric roce-24k",
        "serve --fabric roce-24k",
        f"replay {job} --trace-format swf --fabric roce-24k",
    ):
        done = run_python(THIN, *words.split())
        assert done.returncode == 2, (words, done.stderr)
        [said] = done.stderr.splitlines()
        assert said.startswith("muster: this command needs numpy, which only servers need: ")
        for way in INSTALLS_SERVER:
            assert way in said
    page = (ROOT / "docs" / "operations.md").read_text()
    assert all(way in page for way in INSTALLS_SERVER)
    assert (ROOT / "deploy" / "requirements.lock").is_file()


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error_and_a_full_disk_is_one(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("parallelism: {tp: 8, dp: 512}\ntraffic: {dp: 1}\n")
    done = in_shell("--format env | head -1", place_args(tmp_path))
    assert done.stdout.startswith("RANK=0 ")
    assert "rror" not in done.stderr.replace("does not load", "")
    if Path("/dev/full").exists():  # a Linux device
        full = in_shell(">/dev/full", place_args(tmp_path))
        assert full.returncode == 1
        assert full.stderr.splitlines()[-1].startswith("muster: No space left")


@pytest.mark.slow
def test_answers_do_not_depend_on_the_process(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("tp: 2", "tp: 8"))
    (tmp_path / "busy").write_text("\n".join(f"z{i}-r[000-188]-h[0-1]" for i in range(8)))
    args = [*place_args(tmp_path), "--busy", f"{tmp_path}/busy", "--format", "json"]
    answers = [json.loads(run_python(MAIN, *args, PYTHONHASHSEED=seed).stdout) for seed in "12"]
    for answer in answers:
        assert answer.pop("seconds")["total"] > 0
    assert json.dumps(answers[0]) == json.dumps(answers[1])
