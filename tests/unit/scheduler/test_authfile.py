"""The auth file and its editor: faults by line, comments kept, nothing lost, no secret at rest."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.access import tokens
from scheduler.access.auth_file.editing import add_token, revoke
from scheduler.access.auth_file.reading import load_auth
from scheduler.cli.program import app
from scheduler.client.credentials import Credentials
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.identity import Caller, Role
from tests.refusals import file_refusal, refusal

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 10**9
HASH = "ab" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "auth.yaml"


def test_a_fault_is_named_with_its_line(path: Path) -> None:
    for text, expected in [
        ("tokens: [{id: x}]", "auth.yaml:1: tokens.0.role: is required"),
        (
            "certificates:\n  - {san: a, role: viewer}",
            "auth.yaml:2: certificates.0.tenant: is requ",
        ),
        ("certificates:\n  - {san: a, role: admin, tenant: x}", "role admin is not of one tenant"),
        ("certificates:\n  - {role: admin}", "needs either san or common_name"),
        ("certificates: [{san: a, role: admin}, {san: a, role: admin}]", "a is given twice"),
        (
            f'tokens: [{{id: "00000001", name: a, role: admin, sha256: "{HASH}", expires: soon}}]',
            "tokens.0.expires: must be a time such as",
        ),
    ]:
        assert expected in file_refusal(load_auth, path, text)


def test_a_folder_and_a_file_that_anybody_may_write_are_no_auth_files(path: Path) -> None:
    for name, message in ((str(path.parent), "is a directory"), ("", "is not a file name")):
        assert message in refusal(add_token, name, "ada", Role.ADMIN, "", NOW, None)
    assert list(path.parent.iterdir()) == []
    path.write_text("{}\n", encoding="utf-8")
    path.chmod(0o666)
    assert "is writable by everybody" in refusal(load_auth, str(path))


def test_a_new_token_lets_its_owner_in_and_is_not_in_the_file(path: Path) -> None:
    made = add_token(str(path), "ada", Role.SUBMITTER, "vision", NOW, None)
    found = load_auth(str(path)).by_token(made.text, NOW_NS)
    assert found == Caller("ada", Role.SUBMITTER, "vision")
    assert made.text.split("_", 2)[2] not in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o007 == 0


def test_a_token_is_of_a_name_in_one_line(path: Path) -> None:
    for name in ["", " ", "two\nlines", "\x1b[31mred", "x" * 257]:
        told = refusal(add_token, str(path), name, Role.ADMIN, "", NOW, None)
        assert "token.name: must be one line of 1 to 256 characters" in told
    assert not path.exists()


def test_no_two_tokens_are_alike() -> None:
    texts = {tokens.mint().text for _ in range(100)}
    assert len(texts) == 100
    assert all(re.fullmatch(r"muster_[0-9a-f]{8}_[\w-]{43}", text) for text in texts)


def test_comments_and_certificates_stay(path: Path) -> None:
    path.write_text(
        "# ours\ncertificates:\n  - {san: a, role: admin}  # the launcher\n", encoding="utf-8"
    )
    first = add_token(str(path), "ada", Role.ADMIN, "", NOW, None)
    add_token(str(path), 'eve "x": {y}', Role.VIEWER, "*", NOW, NOW)
    assert [gone.id for gone in revoke(str(path), first.id)] == [first.id]
    assert "has no token 'ada'" in refusal(revoke, str(path), "ada")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ours\ncertificates:\n  - {san: a, role: admin}  # the launcher\n")
    assert [token.name for token in load_auth(str(path)).tokens] == ['eve "x": {y}']


def test_tokens_over_several_lines_go_whole(path: Path) -> None:
    one = add_token(str(path), "ada", Role.ADMIN, "", NOW, None)
    rows = path.read_text(encoding="utf-8")
    rows += f'  - id: "00000002"\n    name: bob\n    role: admin\n    sha256: "{HASH}"\n'
    path.write_text(rows + "certificates:\n  - {san: a, role: admin}\n", encoding="utf-8")
    revoke(str(path), "bob")
    left = load_auth(str(path))
    assert ([t.id for t in left.tokens], len(left.certificates)) == ([one.id], 1)
    revoke(str(path), "ada")
    assert len(load_auth(str(path)).certificates) == 1


def test_a_layout_that_cannot_be_changed_is_left_alone(path: Path) -> None:
    text = f'tokens: [{{id: "00000001", name: a, role: admin, sha256: "{HASH}"}},\n'
    text += f'  {{id: "00000002", name: b, role: admin, sha256: "{HASH}"}}]\n'
    path.write_text(text, encoding="utf-8")
    assert "edit it by hand" in refusal(revoke, str(path), "a")
    assert path.read_text(encoding="utf-8") == text


def test_the_last_administrator_is_revoked_only_by_who_says_so(path: Path) -> None:
    add_token(str(path), "ada", Role.ADMIN, "", NOW, None)
    add_token(str(path), "ci", Role.SUBMITTER, "a", NOW, None)
    asked: list[str] = []

    def no() -> bool:
        asked.append("?")
        return False

    assert [token.name for token in revoke(str(path), "ci", no)] == ["ci"]
    assert asked == []
    assert revoke(str(path), "ada", no) == []
    assert asked == ["?"]
    assert [token.name for token in load_auth(str(path)).tokens] == ["ada"]
    add_token(str(path), "eve", Role.ADMIN, "", NOW, datetime(2020, 1, 1, tzinfo=UTC))
    assert revoke(str(path), "ada", no) == []  # the other one's token has expired
    assert [token.name for token in revoke(str(path), "ada")] == ["ada"]


def test_a_token_says_as_whom_ranks_may_run(path: Path) -> None:
    made = add_token(str(path), "ci", Role.SUBMITTER, "a", NOW, None, ("ada", 'b"c'))
    found = load_auth(str(path)).by_token(made.text, NOW_NS)
    assert found == Caller("ci", Role.SUBMITTER, "a", ("ada", 'b"c'))
    assert [found.may_run_as(user) for user in ("", "ci", "ada", 'b"c', "bob")] == [
        *(True, True, True, True, False)
    ]
    told = refusal(add_token, str(path), "ci", Role.SUBMITTER, "a", NOW, None, ("",))
    assert "token.run_as: must be names of users" in told


def test_a_caller_sees_its_tenant_and_those_below_it() -> None:
    known = Tenants((Tenant("a"), Tenant("b", "a"), Tenant("c", "b"), Tenant("ab")))
    middle = Caller("ada", Role.VIEWER, "b")
    assert [t for t in ("a", "b", "c", "ab", "gone") if middle.sees(known, t)] == ["b", "c"]
    assert [t for t in ("a", "b", "c", "ab", "gone") if middle.knows(known, t)] == ["a", "b", "c"]
    assert all(Caller("root", Role.ADMIN).sees(known, t) for t in ("a", "gone"))


def test_a_token_does_not_travel_in_the_clear_and_a_certificate_takes_tls() -> None:
    told = refusal(Credentials(token="t").channel, "far.example.org:7443", ())
    assert "is not sent to far.example.org:7443" in told
    with_certificate = Credentials(certificate="c.pem", key="k.pem")
    assert "takes TLS" in refusal(with_certificate.channel, "127.0.0.1:1", ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_edited_file_keeps_its_owner_and_mode(path: Path) -> None:
    """Root edits it, the server's own user reads it."""
    add_token(str(path), "ada", Role.ADMIN, "", NOW, None)
    assert path.stat().st_mode & 0o777 == 0o640
    os.chown(path, 65_534, 65_534)
    path.chmod(0o600)
    made = add_token(str(path), "eve", Role.ADMIN, "", NOW, None)
    revoke(str(path), made.id)
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65_534, 65_534, 0o600)


def test_the_last_administrator_is_not_revoked_without_a_word(path: Path) -> None:
    file = ["--auth-file", str(path)]
    runner = CliRunner()
    assert runner.invoke(app, ["token", "new", "ada", "--role", "admin", *file]).exit_code == 0
    result = runner.invoke(app, ["token", "revoke", "ada", *file])
    assert (result.exit_code, "ada is the last administrator" in result.output) == (1, True)
    assert "ada" in runner.invoke(app, ["token", "list", *file]).output
    result = runner.invoke(app, ["token", "revoke", "ada", "--yes", *file])
    assert (result.exit_code, "revoked" in result.output) == (0, True)
