"""Any text is read as YAML or refused with one line."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from scheduler.files.errors import InputError
from scheduler.files.yaml12 import parse


@given(st.text() | st.text("{}[]&*!:-?,|>'\"#% \n\tab01.e~"))
def test_no_text_brings_it_down(text: str) -> None:
    with suppress(InputError):
        parse(text)
