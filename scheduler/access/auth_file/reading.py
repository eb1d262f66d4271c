"""The auth file: tokens and client certificates, each with its role and tenant, and whose ID tokens
count (oidc/section.py). docs/operations.md has an example.

Viewers, launchers, submitters and coordinators have a tenant, "*" for all of them; operators and
admins look after everybody and have none. `name` is the user of the jobs that one submits.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from scheduler.access import tokens
from scheduler.access.auth_file.entries import EntryKeys, tenancy
from scheduler.access.oidc import section
from scheduler.access.oidc.section import PREFIX, OidcKeys, file_faults
from scheduler.core.model.job import SECOND_NS
from scheduler.files.errors import InputError, Problem, short
from scheduler.files.field_types import wrong_value
from scheduler.files.job_keys import Keys, Text, checked_keys
from scheduler.files.yaml12 import Document, load
from scheduler.identity import Caller


def _hex(value: Any, digits: int) -> str:
    text = str(value).zfill(digits) if isinstance(value, int) else value  # 00001234 is text too
    if not isinstance(text, str) or not re.fullmatch(f"[0-9a-f]{{{digits}}}", text):
        raise wrong_value(f"must be {digits} hexadecimal digits in quotes, not {short(value)}")
    return text


def read_time(value: Any) -> datetime:
    """Parse an ISO 8601 date or time. Raises: PydanticCustomError for anything else."""
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise wrong_value(
            f"must be a time such as 2027-01-31 or 2027-01-31T12:00Z, not {short(value)}"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class TokenKeys(EntryKeys):
    id: Annotated[str, BeforeValidator(lambda value: _hex(value, 8))]
    name: Text
    sha256: Annotated[str, BeforeValidator(lambda value: _hex(value, 64))]
    created: Annotated[datetime | None, BeforeValidator(read_time)] = None
    expires: Annotated[datetime | None, BeforeValidator(read_time)] = None


class CertificateKeys(EntryKeys):
    """Keys that identify a caller by certificate. `san`: any subject alternative name.
    `common_name`: of the subject."""

    san: Text = ""
    common_name: Text = ""
    name: Text = ""


class _FileKeys(Keys):
    tokens: list[TokenKeys] = Field(default_factory=list)
    certificates: list[CertificateKeys] = Field(default_factory=list)
    oidc: OidcKeys | None = None


@dataclass(frozen=True, slots=True)  # its secrets stay out of its repr
class AuthFile:
    """All callers whom the server admits, and the document that lists them."""

    tokens: tuple[TokenKeys, ...]
    certificates: tuple[CertificateKeys, ...]
    oidc: OidcKeys | None
    document: Document
    _token_by_id: dict[str, TokenKeys] = field(repr=False)
    _caller_by_name: dict[tuple[str, str], Caller] = field(repr=False)

    def by_token(self, text: str, now_ns: int) -> Caller | None:
        """Return the owner of this token; None when it is unknown, revoked or expired."""
        known = self._token_by_id.get(tokens.id_of(text) or "")
        if known is None or not tokens.matches(text, known.sha256):
            return None
        if known.expires and now_ns >= known.expires.timestamp() * SECOND_NS:
            return None
        return known.caller(known.name)

    def by_certificate(self, sans: Iterable[str], common_name: str) -> Caller | None:
        """Return the caller of a verified certificate: by alternative names, then subject."""
        wanted = [("san", san) for san in sans] + [("common_name", common_name)]
        return next(filter(None, map(self._caller_by_name.get, wanted)), None)


def load_auth(path: str) -> AuthFile:
    """Read the auth file. Raises: InputError with every fault found, each with its line."""
    _check_writers(path)
    file = from_document(load(path))
    if file.oidc and (wrong := list(file_faults(file.oidc))):
        raise file.document.error(*wrong)
    return file


def from_document(document: Document) -> AuthFile:
    """Read a parsed auth file. Files that it names are not read. Raises: as `load_auth`."""
    keys = checked_keys(_FileKeys, document, folder=Path(document.source).parent)
    if wrong := list(_faults(keys)):
        raise document.error(*wrong)
    return AuthFile(
        tuple(keys.tokens),
        tuple(keys.certificates),
        keys.oidc,
        document,
        {token.id: token for token in keys.tokens},
        {_key(entry): entry.caller(entry.name or _key(entry)[1]) for entry in keys.certificates},
    )


def _check_writers(path: str) -> None:
    """Whoever may write the file may be anybody: refuse one that is open to all."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # said by whoever reads it
    if mode & stat.S_IWOTH:
        raise InputError(Problem("", "is writable by everybody: chmod o-w", path))


def _key(entry: CertificateKeys) -> tuple[str, str]:
    return ("san", entry.san) if entry.san else ("common_name", entry.common_name)


def _faults(keys: _FileKeys) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each fault between keys."""
    placed = [(f"tokens.{i}", entry) for i, entry in enumerate(keys.tokens)]
    ids: set[str] = set()
    for where, token in placed:
        yield from tenancy(where, token.role, token.tenant)
        if token.id in ids:
            yield f"{where}.id", f"token {token.id} is given twice"
        ids.add(token.id)
        yield from _naming(where, token.name)
    seen: set[tuple[str, str]] = set()
    for i, entry in enumerate(keys.certificates):
        where = f"certificates.{i}"
        yield from tenancy(where, entry.role, entry.tenant)
        if bool(entry.san) == bool(entry.common_name):
            yield where, "needs either san or common_name"
        if _key(entry) in seen:
            yield where, f"{_key(entry)[1]} is given twice"
        seen.add(_key(entry))
        yield from _naming(where, entry.name or _key(entry)[1])
    if keys.oidc:
        yield from section.faults(keys.oidc)


def _naming(where: str, name: str) -> Iterator[tuple[str, str]]:
    if name.startswith(PREFIX):
        yield f"{where}.name", f"must not begin with {PREFIX}, as users of ID tokens do"
