"""Adds and removes tokens in the text of an auth file, and leaves the rest as it is.

What people have written around them (comments, order, certificates) stays. The new
text is read again before it takes the place of the old one, in one rename.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from scheduler.access.auth_file.entries import tenancy
from scheduler.access.auth_file.reading import AuthFile, TokenKeys, from_document, load_auth
from scheduler.access.oidc.section import PREFIX
from scheduler.access.tokens import Minted, mint
from scheduler.files import atomic_file
from scheduler.files.errors import InputError, Problem
from scheduler.files.timeparse import written
from scheduler.files.yaml12 import parse, read_text
from scheduler.identity import Role

_HEAD = "tokens:"
MOST_CHARACTERS = 256  # of a name


def add_token(
    path: str,
    name: str,
    role: Role,
    tenant: str,
    now: datetime,
    expires: datetime | None,
    run_as: Sequence[str] = (),
) -> Minted:
    """Add a new token of the caller `name` to the auth file, which is made if there is none.
    Raises: InputError."""
    if wrong := next(tenancy("token", role, tenant), None):
        raise InputError(Problem(*wrong))
    if not name.strip() or not name.isprintable() or len(name) > MOST_CHARACTERS:
        rule = f"must be one line of 1 to {MOST_CHARACTERS} characters"
        raise InputError(Problem("token.name", rule))
    if name.startswith(PREFIX):
        reason = f"must not begin with {PREFIX}, as users of ID tokens do"
        raise InputError(Problem("token.name", reason))
    if "" in run_as:
        raise InputError(Problem("token.run_as", "must be names of users, or *"))
    minted = mint()
    fields = {
        "id": f'"{minted.id}"',
        "name": _quoted(name),
        "role": role.name.lower(),
        **({"tenant": _quoted(tenant)} if tenant else {}),
        **({"run_as": f"[{', '.join(map(_quoted, run_as))}]"} if run_as else {}),
        "sha256": f'"{minted.sha256}"',
        "created": _time(now),
        **({"expires": _time(expires)} if expires else {}),
    }
    row = "  - {" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"
    with _locked(path):
        if not os.path.exists(path):
            _write(path, [_HEAD, row], [minted.id])
        else:
            file = load_auth(path)
            ids = [*(token.id for token in file.tokens), minted.id]
            _write(path, _with(read_text(path).splitlines(), file, row), ids)
    return minted


def revoke(
    path: str, which: str, may_lock_out: Callable[[], bool] = lambda: True
) -> list[TokenKeys]:
    """Remove the token with the id `which`, or all tokens of that name, and return those removed.
    `may_lock_out`: is asked where no administrator is left then; False changes nothing, and none is
    removed.

    Raises: InputError, also when there is none.
    """
    with _locked(path):
        file = load_auth(path)
        revoked = [token for token in file.tokens if which in (token.id, token.name)]
        if not revoked:
            raise InputError(Problem("", f"has no token {which!r}", path))
        left = [token for token in file.tokens if token not in revoked]
        if _has_admin(file, file.tokens) and not _has_admin(file, left) and not may_lock_out():
            return []
        ids = [token.id for token in left]
        _write(path, _without(read_text(path).splitlines(), file, revoked), ids)
    return revoked


def _has_admin(file: AuthFile, tokens: Iterable[TokenKeys]) -> bool:
    """Whether somebody is an administrator by these tokens that have not expired, by a certificate
    or by a rule for ID tokens."""
    now = datetime.now(UTC)
    valid = [token for token in tokens if token.expires is None or token.expires > now]
    rules = file.oidc.rules if file.oidc is not None else ()
    return any(each.role is Role.ADMIN for each in (*valid, *file.certificates, *rules))


def _with(rows: Sequence[str], file: AuthFile, row: str) -> list[str]:
    """`row` after the last token, or under a head of its own."""
    lines = file.document.lines
    if not file.tokens:
        kept = [old for at, old in enumerate(rows, 1) if at != lines.get("tokens")]
        is_empty = not file.certificates and file.oidc is None
        return [*(_comments(kept) if is_empty else kept), _HEAD, row]
    last = _end(file, len(file.tokens) - 1)
    return [*rows[:last], row, *rows[last:]]


def _without(rows: Sequence[str], file: AuthFile, revoked: Sequence[TokenKeys]) -> list[str]:
    dropped: set[int] = set()
    for at, token in enumerate(file.tokens):
        if token in revoked:
            dropped |= set(range(file.document.lines[f"tokens.{at}"], _end(file, at) + 1))
    if len(revoked) == len(file.tokens):
        dropped.add(file.document.lines["tokens"])
    left = [row for number, row in enumerate(rows, 1) if number not in dropped]
    return left if any(map(_holds, left)) else [*left, "{}"]


def _comments(rows: Sequence[str]) -> list[str]:
    """Return the rows that hold only comments."""
    return [row for row in rows if not _holds(row)]


def _holds(row: str) -> bool:
    return bool(row.strip()) and not row.lstrip().startswith("#")


def _end(file: AuthFile, at: int) -> int:
    """The last line of a token, as far as its keys tell."""
    inside = f"tokens.{at}."
    return max(line for path, line in file.document.lines.items() if path.startswith(inside))


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """One editor at a time."""
    if not path or os.path.isdir(path):
        raise InputError(
            Problem("", "is a directory, not a file" if path else "is not a file name", path)
        )
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(Problem("", f"cannot be changed: {error.strerror}", path)) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(path: str, rows: Sequence[str], ids: Sequence[str]) -> None:
    """Put these rows in the place of the file, at once and for good.

    Raises: InputError unless they read as the tokens `ids`, so that nothing is lost.
    """
    text = "\n".join(rows) + "\n"
    try:
        read_ids = [token.id for token in from_document(parse(text, path)).tokens]
    except InputError:
        read_ids = []
    if read_ids != list(ids):
        reason = "is laid out in a way that this command cannot change: edit it by hand"
        raise InputError(Problem("", reason, path))
    there = os.stat(path) if os.path.exists(path) else None
    with atomic_file.written(Path(path), "", there.st_mode & 0o777 if there else 0o640) as out:
        if there is not None:
            with suppress(PermissionError):  # who is not root gives nothing away
                os.fchown(out.fileno(), there.st_uid, there.st_gid)
        out.write(text.encode())


def _quoted(text: str) -> str:
    """As YAML reads it back, whatever it is."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _time(time: datetime) -> str:
    return f'"{written(time)}"'
