"""README and the pages of docs/ cannot rot: what they print, name and list is what there is.

`pytest tests/unit/test_pages.py --rewrite` writes transcripts and computed tables anew.
"""

import ast
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import typer

from placement.workload.memory import memory
from placement.workload.training import Batch, ModelShape, Training
from scheduler.cli.program import app, load_commands
from scheduler.core.model.lifecycle import JobMove, JobState
from scheduler.files.fabrics import FORMATS, read_fabric
from scheduler.files.inputs import load_job
from scheduler.observe.catalogue import METRICS
from scheduler.observe.census import MOST_DOMAINS, Use
from scheduler.observe.instruments import Stage
from scheduler.observe.logs import FACTS
from scheduler.observe.proof import CutProof
from scripts import lifecycle, observability, published
from scripts.published import Row, check
from scripts.published.memory import Figure, figures
from tests.build import DEEPSEEK_V3
from tests.commands import Muster
from tests.twins import backup
from tests.unit.fabricfiles.conftest import tree

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
QUICKSTART = DOCS / "quickstart.md"


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    return re.findall(rf"```(?:{'|'.join(languages)})\n(.*?)```", page.read_text(), re.DOTALL)


# --- transcripts and commands --------------------------------------------------------

TRANSCRIPT = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
# What no claim rests on: how long it took, and which of several equal layouts it is.
LOOSE = re.compile(r"^\S+ \S+ to place, \S+ \S+ in all$|(^z\d+ .* ms$\n)+", re.MULTILINE)


@pytest.fixture
def renewed(muster: Muster, tmp_path: Path) -> Callable[[str], str]:
    """Makes of a transcript one with what its commands print now."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def printed(shown: re.Match[str]) -> str:
        head = f"$ {shown[1]}\n"
        program, *words = shlex.split(shown[1])
        if program != "muster":
            subprocess.run(shown[1], shell=True, cwd=tmp_path, check=True)
            return head
        result = muster(*words, *(["--processes", "1"] if words[0] == "twin" else []))
        assert not result.err
        return head + result.out + "\n" * shown[2].endswith("\n\n")

    return lambda text: re.sub(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", printed, text, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fabric", "quickstart", "twin"])
def test_transcripts_are_what_is_printed(
    name: str, renewed: Callable[[str], str], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    page = DOCS / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    if name == "twin":
        (prices,) = re.findall(r"```yaml\n(# prices.yaml\n.*?)```", text, re.DOTALL)
        (tmp_path / "prices.yaml").write_text(prices)
        backup(tmp_path / "backup.db")
    assert TRANSCRIPT.search(text)
    now = TRANSCRIPT.sub(lambda block: renewed(block[0]), text)
    if pytestconfig.getoption("--rewrite"):
        page.write_text(now, encoding="utf-8")
    else:
        assert LOOSE.sub("...", now) == LOOSE.sub("...", text)


@pytest.mark.slow
def test_the_readme_shows_lines_of_what_is_printed(renewed: Callable[[str], str]) -> None:
    quoted, shown, *_ = blocks(README, "text")
    assert set(quoted.splitlines()) <= set(QUICKSTART.read_text().splitlines())
    assert set(LOOSE.sub("", shown).splitlines()) <= set(renewed(shown).splitlines())


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(README.read_text().splitlines()) <= 90


def commands() -> list[str]:
    """Every `muster ...` of a block, continued lines joined."""
    found = blocks(README, "console", "sh", "text") + blocks(QUICKSTART, "console", "sh", "text")
    found += blocks(DOCS / "fabric-formats.md", "sh")
    text = "".join(found).replace("\\\n", " ")
    return re.findall(r"^(?:\$ |.*\| )?(muster [^|>\n]*)", text, re.MULTILINE)


@pytest.mark.parametrize("command", commands())
def test_a_command_parses(command: str) -> None:
    load_commands()
    found: Any = typer.main.get_command(app)
    name, *words = shlex.split(command, comments=True)
    context = found.make_context(name, list(words))
    while hasattr(found, "get_command"):
        name, *words = words
        found = found.get_command(context, name)
        assert found is not None, f"no command {name}"
        context = found.make_context(name, list(words), parent=context)


def test_what_python_imports_is_there() -> None:
    for block in blocks(README, "python") + blocks(QUICKSTART, "python"):
        compile(block, "<page>", "exec")
        exec("\n".join(line for line in block.splitlines() if line.startswith("from ")), {})


@pytest.mark.parametrize("page", [README, QUICKSTART], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).is_file()] == []


# --- files, definitions and tests that pages name ------------------------------------


def test_files_that_pages_name_exist() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    # The last is of an example that a reader of a chapter of docs/extending.md adds.
    files = [f"/{name}" for name in (*listed.split(), "simulator/traces/formats/plain.py")]
    for page in (README, *sorted(DOCS.glob("*.md"))):
        text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
        named = re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|proto|js))`", text)
        missing = [name for name in named if not any(file.endswith(f"/{name}") for file in files)]
        assert not missing, f"{page.name} names {', '.join(missing)}"


def names_in(file: str) -> set[str]:
    """Functions, classes, methods and constants that a file defines."""
    path = next(p for p in (ROOT / "scheduler" / file, ROOT / file) if p.exists())
    parsed = ast.parse(path.read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    defined = {node.name for node in ast.walk(parsed) if isinstance(node, kinds)}
    assigned = [node for node in parsed.body if isinstance(node, ast.Assign)]
    return defined | {ast.unparse(target) for node in assigned for target in node.targets}


def test_each_step_of_the_way_of_a_job_names_definitions_of_its_files() -> None:
    page = (DOCS / "concepts.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| \d+ \| (.+?) \|", page[page.index("## The way of a job") :], re.M)
    assert len(steps) == 10
    for step in steps:
        words = set(re.findall(r"`([^`]+)`", step))
        files = {word for word in words if word.endswith(".py")}
        assert words - files <= set().union(*map(names_in, files)), step


def test_each_rule_is_where_the_table_says() -> None:
    """The table of docs/extending.md, "Where a rule is": files, names and pages."""
    rows = re.findall(r"^\| .*`[a-z_/]+\.py` `\w+`.*$", (DOCS / "extending.md").read_text(), re.M)
    assert len(rows) >= 10
    for row in rows:
        for file, name in re.findall(r"`([a-z_/]+\.py)` `(\w+)`", row):
            assert name in names_in(file), (file, name)
        [(page, anchor)] = re.findall(r"\((\w+\.md)#([\w-]+)\)", row)
        titles = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(), re.MULTILINE)
        anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
        assert anchor in anchors, row


def test_every_edge_has_a_test_that_is_there() -> None:
    page = (DOCS / "threats.md").read_text(encoding="utf-8")
    rows = [row for row in page.partition("## Each edge")[2].splitlines() if "→" in row][1:]
    assert len(rows) >= 18
    pattern = r"`((?:unit|property|integration|drills/fuzz)/[\w/]+\.py)(?:::(\w+))?`"
    for row in rows:
        named = re.findall(pattern, row.rsplit("|", 2)[1])
        assert named, row
        for path, test in named:
            folder = ROOT if path.startswith("drills/") else ROOT / "tests"
            text = (folder / path).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in text, (path, test)


# --- pages that are made of the code -------------------------------------------------


@pytest.mark.parametrize("script", [lifecycle, observability], ids=lambda script: script.__name__)
def test_a_page_that_a_script_makes_is_current(script: Any) -> None:
    assert script.PAGE.read_text(encoding="utf-8") == script.page()


def test_every_state_and_move_of_a_job_is_explained() -> None:
    assert set(lifecycle.JOB_STATES) == set(JobState)
    assert set(lifecycle.JOB_MOVES_SAID) == set(JobMove)


def test_every_metric_has_a_sentence_and_every_word_of_them_an_explanation() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.match(r"[A-Z0-9].*\.$", metric.text), metric.name
    page = observability.page()
    for word in (*Stage, *CutProof):
        assert f"`{word}`" in page
    for use in Use:
        assert f"| {use} |" in page
    assert f"more than {MOST_DOMAINS} of them" in page
    facts = page[page.index("| fact |") :]
    assert all(fact in facts for fact in FACTS)


@pytest.mark.parametrize("section", [ModelShape, Batch, Training])
def test_every_key_of_a_model_and_its_training_is_described(section: type) -> None:
    described = set(re.findall(r"`(\w+)`", (DOCS / "traffic.md").read_text()))
    assert set(section.__dataclass_fields__) <= described


def test_the_example_of_experts_is_deepseek_v3_and_fits() -> None:
    request = load_job(str(ROOT / "examples/deepseek-v3.yaml")).request
    assert (request.model, request.traffic) == (DEEPSEEK_V3, ())
    found = memory(request)
    assert found is not None
    assert found.total < request.training.gpu_memory_gb * 2**30


JOBS = [p for p in sorted((ROOT / "examples").glob("*.yaml")) if "parallelism" in p.read_text()]


@pytest.mark.parametrize("path", JOBS, ids=lambda p: p.stem)
def test_no_example_needs_more_than_a_usual_gpu(path: Path) -> None:
    found = memory(load_job(str(path)).request)
    assert found is None or found.total < 80 * 2**30


# --- docs/fabric-formats.md: its example of every format is the same cluster ---------

FORMATS_PAGE = (DOCS / "fabric-formats.md").read_text()
FABRICS = dict(re.findall(r"```(\S+)\n(.*?)```", FORMATS_PAGE, re.DOTALL))
EXAMPLES = [form for form in FORMATS if form in FABRICS]


def test_every_format_is_on_the_page() -> None:
    assert all(f"| `{form}` |" in FORMATS_PAGE for form in FORMATS)
    assert [form for form in FORMATS if form != "slurm-yaml-block"] == EXAMPLES


@pytest.mark.parametrize("form", EXAMPLES)
def test_the_example_is_the_cluster(tmp_path: Path, form: str) -> None:
    (tmp_path / "file").write_text(FABRICS[form])
    extra = FABRICS["overlay-for-blocks" if form.endswith("block") else "overlay"]
    (tmp_path / "overlay.yaml").write_text(extra)
    found = read_fabric(str(tmp_path / "file"), form, str(tmp_path / "overlay.yaml")).fabric
    racks = ["zone1/rack1"] * 2 + ["zone1/rack2"] * 2 + ["zone2/rack3"] * 2
    assert tree(found) == {f"n{i}": place for i, place in enumerate(racks, 1)}
    host = 8 * 400e9 / 8
    assert found.tiers[0].uplink_bytes_per_s.tolist() == [4 * host / 7, 2 * host / 4]


# --- docs/memory.md and docs/validation.md: published values beside ours -------------

VALIDATION = DOCS / "validation.md"
TABLE = re.compile(r"(?<=<!-- rows -->\n).*?(?=<!-- end of rows -->)", re.DOTALL)
HEAD = "| row | what | evidence | published | ours | tolerance |\n|---|---|---|---|---|---|\n"


def memory_rows(found: list[Figure]) -> str:
    text = "| source | run | published, GiB | muster | |\n|---|---|---|---|---|\n"
    for each in found:
        known = f"| {each.source} | {each.what} | {each.gib:g} | {each.ours:.1f} |"
        text += f"{known} {100 * each.error:+.1f} % |\n"
    return text


def memory_summary(found: list[Figure]) -> str:
    text = "| source | figures | within 10 % | median error | furthest |\n|---|---|---|---|---|\n"
    for source in (*dict.fromkeys(figure.source for figure in found), "all"):
        errors = [abs(each.error) for each in found if source in (each.source, "all")]
        near, middle = sum(error <= 0.1 for error in errors), 100 * median(errors)
        text += (
            f"| {source} | {len(errors)} | {near} | {middle:.1f} % | {100 * max(errors):.1f} % |\n"
        )
    return text


def test_the_tables_of_memory_are_what_is_computed(pytestconfig: pytest.Config) -> None:
    page, found = DOCS / "memory.md", figures()
    text = page.read_text()
    for marker, made in (("rows", memory_rows(found)), ("summary", memory_summary(found))):
        pattern = rf"(?<=<!-- {marker} -->\n).*?(?=<!-- end of {marker} -->)"
        text = re.sub(pattern, lambda _, made=made: made, text, flags=re.DOTALL)
    if pytestconfig.getoption("--rewrite"):
        page.write_text(text)
    assert page.read_text() == text


def validation_line(row: Row) -> str:
    done = check(row)
    assert done.passed, f"{row.what}: {row.published} published, {done.ours} ours"
    tolerance = f"{row.tolerance.text}, slow" if row.slow else row.tolerance.text
    known = f"| {row.number} | {row.what} | {row.evidence} | {row.published}"
    return f"{known} | {done.ours_text} | {tolerance} |\n"


@pytest.mark.slow
def test_the_table_of_validation_is_what_is_computed(pytestconfig: pytest.Config) -> None:
    text, rows = VALIDATION.read_text(), published.rows()
    if pytestconfig.getoption("--rewrite"):
        VALIDATION.write_text(TABLE.sub(HEAD + "".join(map(validation_line, rows)), text))
        return
    missing = [row.number for row in rows if not row.slow and validation_line(row) not in text]
    assert not missing


def test_every_published_row_is_in_the_table_explained_and_within_its_tolerance() -> None:
    """`make validate` alone computes slow rows: the page must not show a value that fails there."""
    text, rows = VALIDATION.read_text(), published.rows()
    table = TABLE.search(text)
    assert table is not None
    cells = [line.split(" | ") for line in table[0].removeprefix(HEAD).splitlines()]
    shown = {cell[0].removeprefix("| "): cell[4] for cell in cells}
    assert list(shown) == [row.number for row in rows]
    explained = set(re.findall(r"\d+", " ".join(re.findall(r"^\*\*([\d, ]+):", text, re.M))))
    assert {re.sub(r"\D", "", number) for number in shown} == explained
    single = [row for row in rows if row.slow and "/" not in shown[row.number]]
    assert len(single) > 15
    wrong = [row for row in single if not row.tolerance.holds(float(shown[row.number]))]
    assert not wrong
