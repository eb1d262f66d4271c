"""Values of a YAML text are changed, and comments stay."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scheduler.files.yaml_edit import with_value

TEXTS = [
    "",
    "# mine\n",
    "current: a # now\n",
    "# top\ncurrent: a\ncontexts:  # all of them\n  a: {address: x:1} # flow\n  # b is old\n",
    "contexts:\n  a:\n    address: x:1   # where\n    ca: 'y, z'\n  # the other\n"
    "  b:\n    address: z:2\n# end\ncurrent: b",
    "{contexts: {a: {}}}\n",
    "contexts:\n",
    "contexts:   # none yet\ncurrent:\n",
    "contexts:\n  a: {address: 'x, y'\n    }\n",
]
WORDS = st.text("abz:,{}[]#'\" -%@é0", min_size=1, max_size=8)


def put(value: dict[str, object], path: tuple[str, ...], leaf: str) -> None:
    for key in path[:-1]:
        if not isinstance(value.get(key), dict):
            value[key] = {}
        value = value[key]  # type: ignore[assignment]
    value[path[-1]] = leaf


@given(
    st.sampled_from(TEXTS),
    st.lists(
        st.tuples(
            st.one_of(
                st.just(("current",)),
                st.tuples(
                    st.just("contexts"),
                    st.sampled_from("abc") | WORDS,
                    st.sampled_from(["address", "ca"]),
                ),
            ),
            WORDS,
        ),
        max_size=4,
    ),
)
def test_what_is_changed_is_read_back_and_comments_stay(
    text: str, changes: list[tuple[tuple[str, ...], str]]
) -> None:
    expected = yaml.safe_load(text) or {}
    comments = [line[line.index("#") :] for line in text.splitlines() if "#" in line]
    for path, value in changes:
        text = with_value(text, path, value)
        put(expected, path, value)
    assert yaml.safe_load(text) == expected or not changes
    assert all(comment in text for comment in comments)


def test_a_list_on_the_way_is_refused() -> None:
    with pytest.raises(ValueError, match="contexts is not a mapping"):
        with_value("contexts: [a]\n", ("contexts", "a", "ca"), "x")
