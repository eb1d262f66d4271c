"""Who may run what on a host."""

import os
import pwd
from pathlib import Path

import pytest

from scheduler.agent.ranks.allow import AllowList, NotAllowed, load_allow_list, own_user, program
from tests.refusals import file_refusal, refusal

ME = pwd.getpwuid(os.geteuid()).pw_name


def test_a_user_who_is_not_listed_runs_nothing() -> None:
    allowed = AllowList(frozenset({ME}), ME)
    assert allowed.user("").pw_name == ME
    with pytest.raises(NotAllowed, match="nothing runs as mallory"):
        allowed.user("mallory")
    with pytest.raises(NotAllowed, match="has no default_user"):
        AllowList(frozenset({ME})).user("")
    with pytest.raises(NotAllowed, match="is root here and has no allow-list"):
        AllowList(frozenset()).user("")
    with pytest.raises(NotAllowed, match="there is no user"):
        AllowList(frozenset({"no-such-user"})).user("no-such-user")


def test_a_container_s_user_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    number = 3_123_456_789  # as some clusters give each namespace a range of its own
    monkeypatch.setattr(os, "geteuid", lambda: number)
    monkeypatch.setenv("HOME", "/scratch")
    user = own_user().user("")
    assert (user.pw_name, user.pw_uid, user.pw_dir) == (str(number), number, "/scratch")
    with pytest.raises(NotAllowed, match="nothing runs as root"):
        own_user().user("root")


def test_a_host_may_refuse_commands_beside_its_ranks(tmp_path: Path) -> None:
    file = tmp_path / "allow.yaml"
    file.write_text(f"users: [{ME}]\nexec: false\n")
    with pytest.raises(NotAllowed, match="runs no commands beside ranks"):
        load_allow_list(str(file)).commands_beside(ME)
    AllowList(frozenset({ME})).commands_beside(ME)


def test_a_link_does_not_lead_out_of_the_directories(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    allowed = AllowList(frozenset({ME}), ME, (str(inside),))
    user = allowed.user(ME)
    assert allowed.workdir(str(inside), user) == str(inside)
    for path in (inside / "link", outside, tmp_path / "in-other"):
        with pytest.raises(NotAllowed, match="is not below"):
            allowed.workdir(str(path), user)
    with pytest.raises(NotAllowed, match="there is no directory"):
        allowed.workdir(str(inside / "none"), user)


def test_a_program_is_looked_for_as_exec_does(tmp_path: Path) -> None:
    (tmp_path / "train").touch(mode=0o755)
    assert program("./train", str(tmp_path), "/bin") == f"{tmp_path}/./train"
    assert program("train", "/", str(tmp_path)) == str(tmp_path / "train")
    with pytest.raises(NotAllowed, match="there is no program gone"):
        program("gone", str(tmp_path), "/bin")


def test_a_wrong_list_is_refused_by_line_and_one_that_anybody_may_write(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    for text, message in [
        ("users: [a]\nroot: true\n", "2: root: unknown key"),
        ("users: []\n", "1: users: must be a list of users"),
        ("users: [a]\nwithout_cgroups: 1\n", "2: without_cgroups: must be true or false, not 1"),
        ("users: [a]\ndefault_user: b\n", "2: default_user: 'b' is not one of users"),
        ("users: [a]\nexec: sometimes\n", "2: exec: must be true or false"),
        ("users: [a]\ngates: [nhc]\n", "2: gates: must be a list of absolute paths"),
        ("users: [a]\nworkdirs: [data]\n", "2: workdirs: must be a list of absolute paths"),
    ]:
        assert message in file_refusal(load_allow_list, path, text)
    path.write_text("users: [a]\n")
    assert load_allow_list(str(path)).users == {"a"}
    path.chmod(0o666)
    assert "writable by everybody" in refusal(load_allow_list, str(path))
