"""Values of variables that ranks read from files: bounded, started cold or warm."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.agent.ranks import supervisor, zygote


@pytest.mark.parametrize("read", [supervisor._read_value, zygote._read_value])
def test_an_endless_file_is_refused_and_a_value_is_read(
    tmp_path: Path, read: Callable[[str], str]
) -> None:
    with pytest.raises(OSError, match="File too large"):
        read("/dev/zero")
    path = tmp_path / "token"
    path.write_text("sécret\n")
    assert read(str(path)) == "sécret"
