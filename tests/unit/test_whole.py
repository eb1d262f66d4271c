"""Files for users: whole or not at all, where they point to, and errors by what is at fault."""

import os
from pathlib import Path

import pytest

from scheduler.files.atomic_file import write, written
from scheduler.files.errors import MOST_CHARACTERS, Problem
from tests.refusals import refusal


def test_what_was_there_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("before")

    def fail_half_way() -> None:
        with written(file, "-o") as out:
            out.write(b"half")
            out.flush()
            assert file.read_text() == "before"
            raise KeyError

    with pytest.raises(KeyError):
        fail_half_way()
    assert os.listdir(tmp_path) == ["a"]
    assert file.read_text() == "before"

    write(file, "after", "-o")
    assert (os.listdir(tmp_path), file.read_text()) == (["a"], "after")


def test_a_link_stays_a_link_and_a_device_is_written_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("link", "null"):
        write(tmp_path / name, "text", "-o")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "null"]


def test_standard_output_may_be_a_pipe() -> None:
    reader, writer = os.pipe()
    write(Path(f"/dev/fd/{writer}"), "text", "-o")
    os.close(writer)
    with open(reader) as found:
        assert found.read() == "text"


def test_a_wrong_name_is_the_users_a_full_disk_is_not(tmp_path: Path) -> None:
    for name in ("", "none/a"):
        assert "-o: cannot be written" in refusal(write, tmp_path / name, "text", "-o")
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError, match="cannot be written: No space left on device") as caught:
        write(tmp_path / "full", "text", "-o")
    assert caught.value.filename == str(tmp_path / "full")


def test_a_problem_quotes_no_more_than_a_page() -> None:
    told = str(Problem("field", f"{'[' * 100_000} is wrong", "file", 3))

    assert told.startswith("file:3: field: [[[")
    assert told.endswith("[[[ is wrong")
    assert len(told) < MOST_CHARACTERS + 50


def test_a_file_with_permissions_is_written_to_no_file_that_another_has_open(
    tmp_path: Path,
) -> None:
    lying = tmp_path / "lying"
    lying.touch(0o666)
    (tmp_path / "key.part").hardlink_to(lying)
    with written(tmp_path / "key", "", 0o600) as file:
        file.write(b"secret")
    made = tmp_path / "key"
    assert (lying.read_bytes(), made.read_bytes()) == (b"", b"secret")
    assert made.stat().st_mode & 0o777 == 0o600
