"""Any names survive being folded into a host list and expanded again."""

from hypothesis import given
from hypothesis import strategies as st

from placement.fabric.hostlist import expand, fold
from scheduler.cli.render.place.formats import compress

STEMS, NUMBERS = ("a", "b", "ab", "ca"), ("", "0", "1", "3", "00", "01", "12", "003", "310")


ENDS = ("", "", "-a", "-b0", "-a9", "-b07")


@given(
    st.lists(
        st.tuples(*map(st.sampled_from, (STEMS, NUMBERS, ENDS))).map("".join),
        min_size=1,
    )
)
def test_expand_undoes_fold(names: list[str]) -> None:
    assert expand(fold(names)) == names
    assert sorted(expand(compress(names))) == sorted(set(names))
