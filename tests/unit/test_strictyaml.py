"""YAML without surprises: what is read, what is refused, and where it stood."""

import math
import time
from pathlib import Path

import pytest

from scheduler.files.yaml12 import load, parse, parse_all, read_text
from tests.refusals import refusal


def test_plain_values_follow_yaml_1_2() -> None:
    for text, value in {
        "400e9": 400e9,
        "1e3": 1000.0,
        ".5": 0.5,
        "-12": -12,
        "+3": 3,
        "0o17": 15,
        "0x1F": 31,
        "010": 10,  # octal in YAML 1.1
        "1_000": "1_000",
        "12:30": "12:30",  # 750 in YAML 1.1
        "2001-01-01": "2001-01-01",
        "no": "no",
        "on": "on",
        "yes": "yes",
        "true": True,
        "false": False,
        "null": None,
        "~": None,
        "2%": "2%",
        "'3'": "3",
        '"true"': "true",
        "!!str 3": "3",
        ".inf": math.inf,
        "-.inf": -math.inf,
    }.items():
        read = parse(f"key: {text}").value["key"]
        assert (type(read), read) == (type(value), value), text


def test_every_value_has_its_line() -> None:
    document = parse("a: 1\nb:\n  - x\n  - c: 2\n    d:\n      3\n", "f.yaml")
    assert document.value == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert document.lines == {"a": 1, "b": 2, "b.0": 3, "b.1": 4, "b.1.c": 4, "b.1.d": 5}


def test_an_error_takes_the_line_of_what_surrounds_it() -> None:
    error = parse("a:\n  b: 1\n", "f.yaml").error(("a.b.c", "wrong"), ("a.x", "wrong"), ("", "hm"))
    assert str(error).splitlines() == [
        "f.yaml: hm",
        "f.yaml:1: a.x: wrong",
        "f.yaml:2: a.b.c: wrong",
    ]


def test_aliases_stand_for_their_value() -> None:
    assert parse("a: &x [1, 2]\nb: *x\n").value == {"a": [1, 2], "b": [1, 2]}


LAUGHS = "l0: &l0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


def test_documents_have_lines_and_anchors_of_their_own() -> None:
    text = "---\na: &x 1\n---\n---\nb:\n  c: 2\n"
    first, second = parse_all(text, "f.yaml")
    assert (first.value, second.value) == ({"a": 1}, {"b": {"c": 2}})
    assert (first.lines, second.lines) == ({"a": 2}, {"b": 5, "b.c": 6})
    told = refusal(parse_all, "a: &x 1\n---\nb: *x\n", "f.yaml")
    assert "f.yaml:3: b: alias *x names nothing before it" in told
    assert parse_all("# nothing\n", "f.yaml") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: is given twice, first in line 1"),
        ('"": 1\n"": 2\n', "is given twice, first in line 1"),
        ("p:\n  dp: 1\n  dp: 1\n", "f.yaml:3: p.dp: is given twice, first in line 2"),
        ("p:\n\tdp: 1\n", "f.yaml:2: a tab indents this line; YAML indents with spaces only"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document starts here"),
        ("a: !!python/object:os.system x", "f.yaml:1: a: tag tag:yaml.org,2002:python/object"),
        ("? [a]\n: 1\n", "f.yaml:1: a key must be plain text"),
        ("a: 1\nb: [\n", "f.yaml:2: not valid YAML: did not find expected node content"),
        ("a: *x", "f.yaml:1: a: alias *x names nothing before it"),
        ("a: &x [*x]", "f.yaml:1: a.0: alias *x names nothing before it"),
        ("a: 1\nb: \x07", "f.yaml:2: control character 0x07 is not allowed"),
        ("[" * 100_000, "is nested deeper than 32 levels"),
        ("{a: " * 100_000, "is nested deeper than 32 levels"),
        ("a: " + "9" * 5_000, "f.yaml:1: a: is longer than 400 characters"),
        (LAUGHS, "f.yaml:6: l5.0: aliases stand for more than 100,000 values"),
    ],
)
def test_what_is_refused_names_its_line(text: str, message: str) -> None:
    begin = time.perf_counter()
    assert message in refusal(parse, text, "f.yaml")
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize("text", ["", "\n", "# a comment\n", "~", "- a\n", "3", "text"])
def test_only_a_mapping_is_a_mapping(text: str) -> None:
    assert "must be a mapping of keys to values, is" in refusal(parse(text).mapping)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.yaml"
    garbage.write_bytes(b"a: 1\n\xff\xfe\x00")
    for path, message in [
        (tmp_path, f"{tmp_path}: is a directory, not a file"),
        (tmp_path / "absent.yaml", "absent.yaml: no such file"),
        (garbage, "garbage.yaml:2: is not UTF-8 text"),
        (tmp_path / ("x" * 5_000), "cannot be read: File name too long"),
        ("a\0b", "cannot be read: embedded null byte"),
    ]:
        assert message in refusal(load, path)
    assert "garbage.yaml: is larger than 5 bytes" in refusal(read_text, garbage, 5)
