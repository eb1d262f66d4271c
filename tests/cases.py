"""Many cases in one test: those of a table or of seeds, of which a failure names its own.

A case of `pytest.mark.parametrize` costs a millisecond and more before it begins, so that hundreds
of cases that take microseconds are better looped over.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(**values: object) -> Iterator[None]:
    """A failure inside says for which values it is."""
    try:
        yield
    except Exception as error:
        error.add_note("case: " + ", ".join(f"{name}={value!r}" for name, value in values.items()))
        raise
