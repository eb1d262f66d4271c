"""What is said of input that is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.files.errors import InputError


def refusal(read: Callable[..., object], *arguments: object, **named: object) -> str:
    """Return the message of the InputError with which a call ends."""
    with pytest.raises(InputError) as caught:
        read(*arguments, **named)
    return str(caught.value)


def file_refusal(read: Callable[[str], object], path: Path, text: str) -> str:
    """Return the message with which a file of this content is refused, its folder left out."""
    path.write_text(text)
    return refusal(read, str(path)).replace(f"{path.parent}/", "")
