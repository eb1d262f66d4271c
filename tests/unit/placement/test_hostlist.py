"""Slurm's hostlist notation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.errors import BadInput
from placement.fabric.hostlist import expand, fold
from scheduler.cli.render.place.formats import compress


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        (" a , b ", ["a", "b"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[8-11]", ["a8", "a9", "a10", "a11"]),
        ("a[08-11]", ["a08", "a09", "a10", "a11"]),
        ("a[2,0-1]", ["a2", "a0", "a1"]),
        ("r[0-1]-h[0-1]", ["r0-h0", "r0-h1", "r1-h0", "r1-h1"]),
        ("a[1,2],b3,c[04]", ["a1", "a2", "b3", "c04"]),
        ("a,,b", ["a", "b"]),
        (",a[1-2], ", ["a1", "a2"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a[1", "unbalanced"),
        ("a]1[", "unbalanced"),
        ("a[[1]]", "unbalanced"),
        ("a[]", "not a number or range"),
        ("a[x]", "not a number or range"),
        ("a[1-2-3]", "not a number or range"),
        ("a[3-1]", "backwards"),
        ("", "empty host name"),
        (", ,", "empty host name"),
        ("a[0-99999999]", "more than"),
        ("a[0-9999][0-9999]", "more than"),
        ("a[0-999999,0-999999,0-999999]", "more than"),
        ("a[" + "9" * 5_000 + "]", "not a number or range"),
        ("a[٣]", "not a number or range"),
    ],
    ids=lambda text: text[:24],
)
def test_what_names_no_hosts_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        expand(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a1", "a3", "b"], "a[1,3],b"),
        (["a08", "a09", "a10"], "a[08-10]"),
        (["a9", "a010"], "a[9,010]"),
        (["a3", "a2", "a1"], "a[3,2,1]"),
        (["n1.c2", "n2.c2", "n2.c3"], "n[1-2].c2,n2.c3"),
        (["r0-h0", "r0-h1", "r1-h0"], "r0-h[0-1],r1-h0"),
        (["gpu07", "gpu08", "login2", "trainer-a"], "gpu[07-08],login2,trainer-a"),
        (["a", "a", "1"], "a,a,1"),
        (["a", "a0", "a"], "a,a0,a"),
        (["x" + "9" * 40, "x1"], "x" + "9" * 40 + ",x1"),
    ],
)
def test_fold(names: list[str], text: str) -> None:
    assert fold(names) == text
    assert (expand(text) if text else []) == names


STEMS, NUMBERS = ("a", "b", "ab", "ca"), ("", "0", "1", "3", "00", "01", "12", "003", "310")
ENDS = ("", "", "-a", "-b0", "-a9", "-b07")


@given(st.lists(st.tuples(*map(st.sampled_from, (STEMS, NUMBERS, ENDS))).map("".join), min_size=1))
def test_expand_undoes_fold(names: list[str]) -> None:
    assert expand(fold(names)) == names
    assert sorted(expand(compress(names))) == sorted(set(names))
