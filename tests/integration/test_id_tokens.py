"""ID tokens: which ones let in, as whom, and what an issuer that is away or changes does to it."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa

from scheduler.access.auth_file.editing import add_token
from scheduler.access.auth_file.reading import load_auth
from scheduler.access.authenticate import Authenticator, CallerNames
from scheduler.access.oidc import http
from scheduler.access.oidc import issuer as issuer_module
from scheduler.access.oidc.http import IssuerFailed, ask
from scheduler.access.oidc.issuer import Issuer
from scheduler.files.errors import InputError
from scheduler.identity import Caller, Role
from scheduler.service.errors import ApiError
from tests.cases import case
from tests.issuer import CLIENT, FakeIssuer, key_of, signed_by_hand, unsigned
from tests.refusals import file_refusal
from tests.secured import replace
from tests.unit.scheduler.test_authfile import HASH, NOW

RULES = (
    "{claim: groups, contains: muster-admins, role: admin}",
    "{claim: groups, contains: vision, role: submitter, tenant: vision}",
    "{claim: realm_access.roles, contains: watcher, role: viewer, tenant: '*'}",
    "{claim: staff, equals: true, role: launcher, tenant: speech}",
    "{claim: email, equals: root@example.org, role: operator}",
)
ADA = Caller("oidc:ada@example.org", Role.SUBMITTER, "vision")


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with FakeIssuer() as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "auth.yaml"


class Door:
    """An auth file in use; `ask` asks again while keys are being fetched."""

    def __init__(self, path: Path, issuer: FakeIssuer, rules: Any = RULES, more: str = "") -> None:
        self.path, self.issuer = path, issuer
        replace(path, issuer.section(rules, more))
        self.asked = Authenticator(str(path), time.time_ns)

    def once(self, token: str) -> Caller:
        return self.asked.caller(token, CallerNames(), "calls")

    def ask(self, token: str) -> Caller:
        for _ in range(500):
            try:
                return self.once(token)
            except ApiError as error:
                if error.code is not grpc.StatusCode.UNAVAILABLE:
                    raise
            time.sleep(0.01)
        raise AssertionError("the keys never came")

    def refused(self, token: str) -> str:
        with pytest.raises(ApiError) as caught:
            self.ask(token)
        assert token not in caught.value.message
        return f"{caught.value.code.name}: {caught.value.message}"


@pytest.fixture
def door(path: Path, issuer: FakeIssuer) -> Door:
    return Door(path, issuer)


def ada(issuer: FakeIssuer, **changed: Any) -> str:
    return issuer.token(**({"email": "ada@example.org", "groups": ["x", "vision"]} | changed))


def test_a_token_of_the_issuer_lets_its_user_in(door: Door, issuer: FakeIssuer) -> None:
    assert door.ask(ada(issuer)) == ADA
    assert door.ask(ada(issuer, algorithm="ES256")) == ADA
    assert door.ask(ada(issuer, aud=[CLIENT, "other"], azp=CLIENT)) == ADA
    assert door.ask(ada(issuer, nbf=int(time.time()) - 5)) == ADA
    assert door.ask(ada(issuer, exp=time.time() - 5)) == ADA  # clocks differ a little


def test_the_first_rule_that_matches_gives_role_and_tenant(door: Door, issuer: FakeIssuer) -> None:
    cases: tuple[tuple[dict[str, Any], Role, str], ...] = (
        ({"groups": ["vision", "muster-admins"]}, Role.ADMIN, ""),
        ({"groups": "vision"}, Role.SUBMITTER, "vision"),
        ({"realm_access": {"roles": ["watcher"]}}, Role.VIEWER, ""),
        ({"realm_access.roles": ["watcher"]}, Role.VIEWER, ""),
        ({"staff": True}, Role.LAUNCHER, "speech"),
    )
    for claims, role, tenant in cases:
        token = issuer.token(email="ada@example.org", **claims)
        assert door.ask(token) == Caller("oidc:ada@example.org", role, tenant), claims


def test_a_token_makes_nobody_a_user_of_hosts_but_those_of_its_rule(
    path: Path, issuer: FakeIssuer
) -> None:
    rule = "{claim: groups, contains: vision, role: submitter, tenant: vision, run_as: [batch]}"
    door = Door(path, issuer, (rule,))
    for claims in (
        {"email": None, "sub": "root"},
        {"run_as": ["root", "*"], "name": "root", "preferred_username": "root"},
        {"user": {"run_as": ["*"]}, "role": "admin", "email": "vision-batch"},
        {"email": "*"},
    ):
        found = door.ask(ada(issuer, **claims))
        users = ("batch", "root", "ada", "vision-batch", "*", "ada@example.org", "0")
        assert [user for user in users if found.may_run_as(user)] == ["batch"], claims
        assert found.role is Role.SUBMITTER


def test_whom_no_rule_matches_is_refused(door: Door, issuer: FakeIssuer) -> None:
    cases: tuple[dict[str, Any], ...] = (
        {},
        {"groups": ["muster-adminsx"]},
        {"groups": {"vision": 1}},
        {"staff": "true"},
        {"staff": 1},
        {"realm_access": ["watcher"]},
        {"realm_access": {"roles": None}},
        {"email": "root@example.org", "email_verified": False},
        {"email": "root@example.org", "email_verified": "false"},
        {"email": ["root@example.org"], "email_verified": None},
    )
    for claims in cases:
        assert door.refused(issuer.token(**claims)).startswith("PERMISSION_DENIED: "), claims


def test_a_user_is_named_by_email_else_subject_or_by_the_claim_that_is_said(
    door: Door, issuer: FakeIssuer, path: Path
) -> None:
    assert door.ask(ada(issuer, email=None)).name == "oidc:u-1"
    assert door.ask(ada(issuer, email_verified=False)).name == "oidc:u-1"
    assert door.ask(ada(issuer, email_verified=True)).name == "oidc:ada@example.org"
    assert "names no user" in door.refused(ada(issuer, email="a\nb"))
    assert "names no user" in door.refused(ada(issuer, email="a" * 257))
    replace(path, issuer.section(RULES, "  user: preferred_username\n"))
    door.asked.look()
    assert door.ask(ada(issuer, preferred_username="ada")).name == "oidc:ada"
    assert "claim preferred_username is missing" in door.refused(ada(issuer))


FOREIGN = rsa.generate_private_key(65_537, 2_048)  # a key of nobody
WRONG: dict[str, tuple[Callable[[FakeIssuer], str], str]] = {
    "audience": (lambda i: ada(i, aud="other"), "for another client than muster"),
    "party": (lambda i: ada(i, azp="other"), "for another client"),
    "no party": (lambda i: ada(i, aud=[CLIENT, "other"]), "for another client"),
    "no audience": (lambda i: ada(i, aud=None), "for another client"),
    "issuer": (lambda i: ada(i, iss=i.url + "/"), "is of another issuer"),
    "expired": (lambda i: ada(i, exp=int(time.time()) - 31), "has expired: sign in again"),
    "no expiry": (lambda i: ada(i, exp=None), "has no exp"),
    "no issue": (lambda i: ada(i, iat=None), "has no iat"),
    "before": (lambda i: ada(i, nbf=int(time.time()) + 60), "is not valid yet"),
    "issued later": (lambda i: ada(i, iat=int(time.time()) + 60), "is not valid yet"),
    "begun but issued later": (
        lambda i: ada(i, iat=int(time.time()) + 60, nbf=int(time.time()) - 60),
        "is not valid yet",
    ),
    "no subject": (lambda i: ada(i, sub=None), "has no subject"),
    "none": (lambda i: unsigned(i.claims(groups=["vision"])), "not 'none'"),
    "public key as secret": (
        lambda i: signed_by_hand(i.claims(groups=["vision"]), i.public_pem()),
        "that RS256 and ES256 sign, not 'HS256'",
    ),
    "PS256": (lambda i: ada(i, algorithm="PS256"), "not 'PS256'"),
    "other key": (lambda i: ada(i, key=FOREIGN), "signature of the ID token is wrong"),
    "short key": (lambda i: ada(i, kid="short"), "by a key that"),
    "encryption key": (lambda i: ada(i, kid="enc", key=FOREIGN), "by a key that"),
    "secret of the issuer": (lambda i: ada(i, kid="oct", key=FOREIGN), "by a key that"),
    "key of another algorithm": (lambda i: ada(i, kid="e1", key=FOREIGN), "by a key that"),
    "cut": (lambda i: ada(i)[:-4] + "AAAA", "signature of the ID token is wrong"),
    "changed": (lambda i: _changed(i), "signature of the ID token is wrong"),
    "garbage": (lambda i: "ey.ey.ey", "header cannot be read"),
    "nested": (lambda i: _nested(), "header cannot be read"),
    "long": (lambda i: ada(i, x="y" * 16_384), "is longer than"),
    "access token": (lambda i: ada(i, header={"typ": "at+jwt"}), "header is of another kind"),
    "critical": (lambda i: ada(i, header={"crit": ["x"], "x": 1}), "header"),
    "bearer": (lambda i: ada(i, typ="Bearer"), "one of another kind"),
    "logout": (lambda i: ada(i, events={}), "one of another kind"),
}


def _changed(issuer: FakeIssuer) -> str:
    head, _, signature = ada(issuer).split(".")
    return f"{head}.{ada(issuer, groups=['muster-admins']).split('.')[1]}.{signature}"


def _nested() -> str:
    head = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 9_000).decode().rstrip("=")
    return f"{head}.e30.AA"


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")
def test_a_token_that_is_wrong_is_refused(door: Door, issuer: FakeIssuer) -> None:
    for wrong, (make, words) in WRONG.items():
        with case(wrong=wrong):
            message = door.refused(make(issuer))
            assert message.startswith("UNAUTHENTICATED: ")
            assert words in message
            assert door.ask(ada(issuer)) == ADA


JUNK = (None, True, False, -1, 1.5, 10**400, "", "x", [], {}, ["vision"], [[]], {"roles": 1})
JUNK += (float("nan"), float("inf"), "a\nb")
NAMES = ("iss", "aud", "azp", "sub", "exp", "iat", "nbf", "email", "email_verified", "groups")
NAMES += ("typ", "events", "realm_access", "staff")


def test_claims_of_any_shape_end_in_a_caller_or_a_refusal(door: Door, issuer: FakeIssuer) -> None:
    """Never in a fault of the server; and what says nothing of issuer or time lets nobody in."""
    for name, junk in product(NAMES, JUNK):
        claims = issuer.claims(email="ada@example.org", groups=["vision"]) | {name: junk}
        body = json.dumps(claims).encode()  # PyJWT itself makes no token of some of these
        try:
            found = door.ask(jwt.PyJWS().encode(body, key_of("k1"), "RS256", {"kid": "k1"}))
        except ApiError:
            continue
        assert name not in ("iss", "aud", "exp"), (name, junk)
        assert found.name.startswith("oidc:")
        assert found.role in (Role.SUBMITTER, Role.VIEWER)


def test_a_token_without_the_id_of_its_key_needs_an_issuer_with_one(
    door: Door, issuer: FakeIssuer
) -> None:
    token = ada(issuer, header={"kid": None})
    assert door.ask(token) == ADA
    issuer.rotate(keep=True)
    assert "by a key that" in Door(door.path, issuer).refused(token)


def test_keys_are_fetched_once_and_again_for_a_new_one(
    door: Door, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_module, "PAUSE_S", 0.2)
    for _ in range(50):
        assert door.ask(ada(issuer)) == ADA
    assert issuer.asked.count("/jwks") == 1
    issuer.rotate(keep=True)
    time.sleep(0.2)
    assert door.ask(ada(issuer)) == ADA
    assert door.ask(ada(issuer, kid="k1")) == ADA
    assert issuer.asked.count("/jwks") == 2
    monkeypatch.setattr(issuer_module, "PAUSE_S", 60.0)  # unknown ones are looked for now and then
    for i in range(50):
        assert "by a key that" in door.refused(ada(issuer, kid=f"x{i}", key=FOREIGN))
    assert issuer.asked.count("/jwks") == 2


def test_a_withdrawn_key_counts_no_longer(
    door: Door, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for tokens that were found good."""
    monkeypatch.setattr(issuer_module, "PAUSE_S", 0.0)
    token = ada(issuer)
    assert door.ask(token) == ADA
    issuer.rotate()
    monkeypatch.setattr(issuer_module, "FRESH_S", 0.0)
    door.once(token)  # still good, and lets keys be fetched
    monkeypatch.setattr(issuer_module, "FRESH_S", 300.0)
    monkeypatch.setattr(issuer_module, "PAUSE_S", 10.0)
    door.asked.id_tokens.issuer(door.asked.id_tokens.section()).wait(5)  # type: ignore[arg-type]
    assert "by a key that" in door.refused(token)
    assert door.ask(ada(issuer)) == ADA


def test_an_issuer_that_is_away_keeps_nobody_else_waiting(
    path: Path, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_module, "PAUSE_S", 0.3)
    issuer.may_answer.clear()
    door = Door(path, issuer)
    made = add_token(str(path), "bob", Role.ADMIN, "", NOW, None)
    door.asked.look()
    with pytest.raises(ApiError, match="are being fetched") as caught:
        door.once(ada(issuer))
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert door.once(made.text) == Caller("bob", Role.ADMIN)
    issuer.is_down = True
    issuer.may_answer.set()
    assert "are not known: HTTP status 503" in door.refused(ada(issuer))
    issuer.is_down = False
    time.sleep(0.3)
    assert door.ask(ada(issuer)) == ADA
    issuer.is_down = True
    monkeypatch.setattr(issuer_module, "FRESH_S", 0.0)
    time.sleep(0.3)
    assert door.ask(ada(issuer)) == ADA  # by the keys that are known


def test_an_issuer_that_says_what_it_should_not_gives_no_keys(
    path: Path, issuer: FakeIssuer
) -> None:
    for said, words in (
        ({"issuer": "http://127.0.0.1:1"}, "it calls itself 'http://127.0.0.1:1'"),
        ({"jwks_uri": "http://keys.example.org"}, "its jwks_uri is not an https:// address"),
        ({"token_endpoint": None}, "its token_endpoint is not an https:// address"),
        ({"jwks_uri": "https://127.0.0.1:1/jwks"}, "Connection refused"),
    ):
        issuer.discovery = said
        message = Door(path, issuer).refused(ada(issuer))
        assert ("are not known: " in message, words in message) == (True, True), message


def test_one_fetch_is_under_way_at_a_time(issuer: FakeIssuer) -> None:
    asked = Issuer(issuer.url)
    issuer.may_answer.clear()
    with ThreadPoolExecutor(20) as pool:
        for _ in range(20):
            pool.submit(asked.begin)
    issuer.may_answer.set()
    asked.wait(60)
    assert asked.metadata() is not None
    assert issuer.asked == ["/.well-known/openid-configuration", "/jwks"]


OIDC = "oidc: {issuer: 'https://a.example', client_id: m"
VIEW = "rules: [{claim: g, contains: x, role: viewer, tenant: '*'}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "oidc:\n  issuer: http://a.example",
            "auth.yaml:2: oidc.issuer: must be an https:// address",
        ),
        ("oidc:\n  issuer: https://a.example", "auth.yaml:1: oidc.client_id: is required"),
        (OIDC + "}", "auth.yaml:1: oidc.rules: is required: without a rule nobody has a role"),
        (OIDC + ", rules: [{claim: g, role: admin}]}", "rules.0: needs either contains or equals"),
        (
            OIDC + ", rules: [{claim: g, contains: x, equals: y, role: admin}]}",
            "oidc.rules.0: needs either contains or equals",
        ),
        (
            OIDC + ",\n rules: [{claim: g, contains: x, role: viewer}]}",
            "auth.yaml:2: oidc.rules.0.tenant: is required of a viewer",
        ),
        (OIDC + ", rules: [{claim: g, contain: x, role: admin}]}", "did you mean contains?"),
        (OIDC + ", rules: [{claim: g, equals: 1.5, role: admin}]}", "must be a text, a whole numb"),
        (OIDC + f", scopes: [email], {VIEW}}}", "oidc.scopes: must have openid among them"),
        (
            OIDC + f",\n client_secret_file: gone, {VIEW}}}",
            "auth.yaml:2: oidc.client_secret_file: gone: no such file",
        ),
        (OIDC + f", ca: auth.yaml, {VIEW}}}", "oidc.ca: auth.yaml: has no certificate"),
        (
            f'tokens: [{{id: "00000001", name: "oidc:a", role: admin, sha256: "{HASH}"}}]',
            "tokens.0.name: must not begin with oidc:",
        ),
        ("certificates: [{san: 'oidc:a', role: admin}]", "must not begin with oidc:"),
    ],
)
def test_a_fault_of_the_section_is_named_with_its_line(
    path: Path, text: str, expected: str
) -> None:
    assert expected in file_refusal(load_auth, path, text)


def test_no_token_is_made_for_the_name_of_a_user_of_the_issuer(path: Path) -> None:
    with pytest.raises(InputError, match="must not begin with oidc:"):
        add_token(str(path), "oidc:ada@example.org", Role.ADMIN, "", NOW, None)


def test_a_changed_section_counts_at_once(door: Door, issuer: FakeIssuer, path: Path) -> None:
    token = ada(issuer)
    assert door.ask(token) == ADA
    replace(path, issuer.section(RULES[:1]))
    door.asked.look()
    assert "has no role" in door.refused(token)
    replace(path, "{}\n")
    door.asked.look()
    assert "the token is not known" in door.refused(token)


def test_an_issuer_is_trusted_by_the_authority_that_the_section_names(path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(path.parent / "ca.pem"))
    with FakeIssuer(shown=authority.issue_cert("127.0.0.1")) as issuer:
        assert "certificate verify failed" in Door(path, issuer).refused(ada(issuer))
        assert Door(path, issuer, more="  ca: ca.pem\n").ask(ada(issuer)) == ADA


@contextmanager
def answering(sent: bytes, pause_s: float = 0.0, part: int = 1 << 20) -> Iterator[str]:
    """The address of a server that answers by the bytes `sent`, a part every `pause_s`."""

    def answer() -> None:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.recv(65_536)
            for at in range(0, len(sent), part):
                connection.sendall(sent[at : at + part])
                time.sleep(pause_s)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        pool.submit(answer)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "302, a redirect"),
        (b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n<html>", "HTTP status 500"),
        (b'HTTP/1.1 400 No\r\nConnection: close\r\n\r\n{"error": "a\\nb"}', "400 (a\\nb)"),
        (OK + b"<html>", "the answer is not a JSON object"),
        (OK + b"[1]", "the answer is not a JSON object"),
        (OK + b"[" * 90_000, "the answer is not a JSON object"),
        (OK + b" " * (1 << 20) + b"{}", "the answer is longer than 1 MiB"),
        (b"SSH-2.0\r\n\r\n", "SSH-2.0"),
        (b"", "Remote end closed connection"),
    ],
)
def test_what_an_issuer_answers_is_read_with_care(sent: bytes, words: str) -> None:
    with answering(sent) as url, pytest.raises(IssuerFailed) as caught:
        ask(url, None)
    assert words in str(caught.value)


def test_an_issuer_has_so_much_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither silence nor a byte now and then makes it longer."""
    monkeypatch.setattr(http, "TIMEOUT_S", 0.3)
    with answering(OK + b" " * 400, 0.05, 40) as url, pytest.raises(IssuerFailed) as caught:
        ask(url, None)
    assert "longer than 0.3 s" in str(caught.value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(IssuerFailed, match="timed out"):
            ask(url, None)
