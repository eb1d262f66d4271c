"""The file of a snapshot: all of it, or a plain sentence."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from random import Random

import pytest

from scheduler.files.errors import InputError
from simulator.snapshot.file import FORMAT, check_target, read, write

HEADER = {"after_s": 3.5, "record": {"options": {"policy": "easy"}}}
PARTS = {"state": bytes(range(256)) * 9, "replay": b"{}", "jobs.csv": b""}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "a.snap", HEADER, PARTS)
    return tmp_path / "a.snap"


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    (problem,) = caught.value.found
    assert (problem.source, problem.field) == (str(path), "--resume")
    return problem.message


def test_it_is_read_as_it_was_written(path: Path) -> None:
    content = read(path)

    assert (content.header, content.parts) == (HEADER, PARTS)


def test_its_first_lines_say_what_it_is(path: Path) -> None:
    first, header, rest = path.read_bytes().split(b"\n", 2)

    digest = hashlib.sha256(header + b"\n" + rest).hexdigest()
    assert first.decode() == f"muster replay snapshot {FORMAT} {digest}"
    assert json.loads(header)["after_s"] == 3.5


def test_every_flipped_byte_and_every_cut_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    random = Random(1)
    for at in [*range(100), *random.sample(range(100, len(whole)), 100)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert refusal(path)
        path.write_bytes(whole[:at])
        assert refusal(path)


def test_a_damaged_one_is_told_from_a_newer_one_and_from_something_else(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert refusal(path) == "is damaged or cut short: its digest is another"
    path.write_bytes(whole.replace(b"snapshot 2 ", b"snapshot 3 ", 1))
    assert refusal(path) == "has format 3, this muster reads format 2"
    path.write_bytes(b"\x1f\x8b something else")
    assert refusal(path) == "is no snapshot of a replay"
    assert refusal(path.with_name("absent")) == "cannot be read: No such file or directory"


@pytest.mark.parametrize("body", [b"", b"[]\n", b"{}\n", b'{"parts": [["a", 9]]}\nabc', b"{\n"])
def test_a_right_digest_of_nonsense_is_refused(body: bytes, path: Path) -> None:
    digest = hashlib.sha256(body).hexdigest()
    path.write_bytes(f"muster replay snapshot {FORMAT} {digest}\n".encode() + body)

    assert refusal(path) == "is not what muster writes"


def test_who_cannot_write_the_new_one_keeps_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="cannot be written: No space left on device") as caught:
        write(path, {"after_s": 4}, {})

    assert caught.value.filename == str(path)
    assert read(path).header == HEADER
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("job.yaml", "holds something else"),
        (".", "cannot be written: Is a directory"),
        ("gone/a.snap", "there is no folder"),
    ],
)
def test_what_is_no_snapshot_is_not_replaced(name: str, message: str, path: Path) -> None:
    (path.parent / "job.yaml").write_text("name: a\n")
    with pytest.raises(InputError, match=message):
        check_target(path.parent / name)


def test_a_snapshot_may_be_replaced_and_a_new_one_made(path: Path) -> None:
    (path.parent / "empty").touch()
    for name in (path.name, "new.snap", "empty"):
        check_target(path.parent / name)
