"""The section `oidc` of the auth file: whose ID tokens count, and which claims give which role.

    oidc:
      issuer: https://sso.example.org/realms/lab
      client_id: muster
      rules:
        - {claim: groups, contains: muster-admins, role: admin}
        - {claim: groups, contains: vision, role: submitter, tenant: vision}
        - {claim: email_verified, equals: true, role: viewer, tenant: "*"}

The first rule that matches gives role and tenant; whom none matches is refused.
The user is called oidc:NAME, which no token or certificate of the file can be, so that nobody
is taken for somebody else.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo

from scheduler.access.addresses import is_loopback
from scheduler.access.auth_file.entries import EntryKeys, tenancy
from scheduler.files.errors import InputError, Problem, short
from scheduler.files.field_types import wrong_value
from scheduler.files.job_keys import Keys, Text
from scheduler.files.yaml12 import read_text
from scheduler.identity import Caller

PREFIX = "oidc:"  # of the names of users
LONGEST_NAME = 256
_LONGEST_SECRET = 4_096
_EMAIL, _SUBJECT = "email", "sub"

Claims = Mapping[str, Any]


def is_id_token(text: str) -> bool:
    """Whether a text has the form of an ID token, which no other token has."""
    return text.count(".") == 2 and text.startswith("ey")


def is_private(url: str) -> bool:
    """Return whether nobody can read along on the way to the address: it has TLS, or is of this
    machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    has_secrets = parts.username is not None or parts.password is not None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return is_safe and bool(host) and not has_secrets and not parts.fragment


def _issuer(value: Any) -> str:
    if not isinstance(value, str) or not is_private(value) or urlsplit(value).query:
        raise wrong_value(
            "must be an https:// address as the issuer writes it in its tokens"
            f" (http:// on this machine alone), not {short(value)}"
        )
    return value


def _resolve_path(value: Any, info: ValidationInfo) -> str:
    """A path as seen from the auth file."""
    if not isinstance(value, str) or not value:
        raise wrong_value(f"must be the path of a file, not {short(value)}")
    folder = (info.context or {}).get("folder", Path())
    return str(folder / value)


def _scopes(value: Any) -> tuple[str, ...]:
    words = value if isinstance(value, list) else []
    if not words or not all(
        isinstance(w, str) and w.isprintable() and w.split() == [w] for w in words
    ):
        raise wrong_value(
            f"must be a list of words such as [openid, email, groups], not {short(value)}"
        )
    if "openid" not in words:
        raise wrong_value("must have openid among them, or there is no ID token")
    return tuple(words)


def _scalar(value: Any) -> str | bool | int:
    if not isinstance(value, str | bool | int) or value == "":
        raise wrong_value(f"must be a text, a whole number, true or false, not {short(value)}")
    return value


class RuleKeys(EntryKeys):
    """A rule that gives callers with a claim a role. `claim`: its name, or with dots the way to it
    inside others (realm_access.roles). `contains`: in a list, or the value itself. `equals`: the
    value itself."""

    claim: Text
    contains: Text = ""
    equals: Annotated[str | bool | int | None, BeforeValidator(_scalar)] = None

    def matches(self, claims: Claims) -> bool:
        value = claim_of(claims, self.claim)
        if self.contains:
            return self.contains in value if isinstance(value, list) else value == self.contains
        return type(value) is type(self.equals) and value == self.equals


class OidcKeys(Keys):
    """The section `oidc` of the auth file. `client_secret_file`: of a confidential client. `ca`:
    who signs the issuer's certificate, where this machine does not trust it anyway. `label`: of the
    button of the console. `user`: the claim that names the user; without it email, else sub.
    `scopes`: what the console asks for."""

    issuer: Annotated[str, BeforeValidator(_issuer)]
    client_id: Text
    client_secret_file: Annotated[str | None, BeforeValidator(_resolve_path)] = None
    ca: Annotated[str | None, BeforeValidator(_resolve_path)] = None
    label: Text = ""
    user: Text = ""
    scopes: Annotated[tuple[str, ...], BeforeValidator(_scopes)] = ("openid", _EMAIL, "profile")
    rules: list[RuleKeys] = Field(default_factory=list)

    @property
    def shown_label(self) -> str:
        return self.label or urlsplit(self.issuer).hostname or self.issuer

    def name(self, claims: Claims) -> str | None:
        """Return the user's name; None when the claims have no name that is fit for a line of a
        log."""
        names = (self.user,) if self.user else (_EMAIL, _SUBJECT)
        claimed = next((value for key in names if (value := claim_of(claims, key))), None)
        if not isinstance(claimed, str) or not claimed.isprintable() or len(claimed) > LONGEST_NAME:
            return None
        return PREFIX + claimed

    def caller(self, name: str, claims: Claims) -> Caller | None:
        """Return the user in the role of the first rule that matches; None when none does."""
        rule = next((rule for rule in self.rules if rule.matches(claims)), None)
        return rule.caller(name) if rule else None

    def secret(self) -> str:
        """Return the client's secret, "" for a public client. Raises: InputError."""
        return read_secret(self.client_secret_file) if self.client_secret_file else ""


def claim_of(claims: Claims, name: str) -> Any:
    """Return the value of a claim; None without it. An e-mail address that the issuer says it has
    not verified counts as none, for anybody may claim any address."""
    if name == _EMAIL and claims.get("email_verified", True) not in (True, "true"):
        return None
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def read_secret(path: str) -> str:
    """Read a secret from a file. Raises: InputError."""
    text = read_text(path, _LONGEST_SECRET).strip()
    if not text or not text.isprintable():
        raise InputError(Problem("", "holds no secret: one line of text", path))
    return text


def faults(keys: OidcKeys) -> Iterator[tuple[str, str]]:
    """Return the faults (path, what is wrong) of keys that do not go together."""
    if not keys.rules:
        yield "oidc.rules", "is required: without a rule nobody has a role"
    for i, rule in enumerate(keys.rules):
        where = f"oidc.rules.{i}"
        yield from tenancy(where, rule.role, rule.tenant)
        if bool(rule.contains) == (rule.equals is not None):
            yield where, "needs either contains or equals"


def file_faults(keys: OidcKeys) -> Iterator[tuple[str, str]]:
    """Return the faults (path, what is wrong) of the files that the section names."""
    if keys.client_secret_file:
        try:
            read_secret(keys.client_secret_file)
        except InputError as error:
            yield "oidc.client_secret_file", str(error)
    if keys.ca:
        try:
            trust(keys.ca)
        except InputError as error:
            yield "oidc.ca", str(error)


def trust(ca: str | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the CA file `ca`; None: the CAs of the system. Raises:
    InputError."""
    pem = read_text(ca) if ca else None
    try:
        return ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise InputError(Problem("", "has no certificate in PEM form", ca or "")) from None
