"""Contexts: the servers that client commands talk to, and who they are there.

    current: prod
    contexts:
      prod: {address: "m1:7443,m2:7443", ca: ca.pem, token_file: prod.token}
      lab: {address: "127.0.0.1:7443"}

The file is $MUSTER_CONFIG, else muster/config.yaml below $XDG_CONFIG_HOME or ~/.config. Paths in it
are relative to it. What the environment or an option says wins over it. The current context's token
and certificate go to its own servers alone; whoever names the context sends them elsewhere too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.structs import struct

if TYPE_CHECKING:
    from scheduler.files.yaml12 import Document

DEFAULT_ADDRESS = "127.0.0.1:7443"
KEYS = ("address", "ca", "cert", "key", "token_file")
_PATHS = KEYS[1:]
_SECRETS = ("cert", "key", "token_file")  # they say who calls
_IN_THE_SYSTEM = "system"  # a `ca` that is no file


@struct(frozen=True, slots=True)
class Contexts:
    """The file of contexts. `by_name`: the keys of each context; `current`: "" for none."""

    path: Path
    current: str = ""
    by_name: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def config_path() -> Path:
    """Return the path of the file of contexts, which need not exist."""
    variable = os.environ.get
    if given := variable("MUSTER_CONFIG"):
        return Path(given)
    home = variable("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "muster" / "config.yaml"


def load_contexts(*, may_be_new: bool = False) -> Contexts:
    """The contexts of this user; none where there is no file, unless MUSTER_CONFIG names it.

    `may_be_new`: none then either, for the file is about to be made. Raises: InputError with the
    line.
    """
    path = config_path()
    if not path.exists() and (may_be_new or "MUSTER_CONFIG" not in os.environ):
        return Contexts(path)
    from scheduler.files.yaml12 import load

    document = load(path)
    problems = list(_problems(document.mapping()))
    if problems:
        raise document.error(*problems)
    return _contexts(path, document)


def _problems(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    problems = [
        (key, "is an unknown key; keys are current and contexts") for key in value.keys() - _TOP
    ]
    contexts = value.get("contexts") or {}
    if not isinstance(contexts, dict):
        return [*problems, ("contexts", "must be a mapping of names to contexts")]
    for name, keys in contexts.items():
        at = f"contexts.{name}"
        if not isinstance(keys, dict):
            problems.append((at, "must be a mapping of keys to values"))
            continue
        for key, text in keys.items():
            if key not in KEYS:
                problems.append((f"{at}.{key}", f"is an unknown key; keys are {', '.join(KEYS)}"))
            elif not isinstance(text, str) or not text:
                problems.append((f"{at}.{key}", "must be a text"))
    current = value.get("current")
    if current is not None and current not in contexts:
        problems.append(("current", f"is not a context: {current!r}"))
    return problems


_TOP = {"current", "contexts"}


def _contexts(path: Path, document: Document) -> Contexts:
    value = document.mapping()
    by_name = {
        str(name): {key: _resolved(path, key, text) for key, text in keys.items()}
        for name, keys in (value.get("contexts") or {}).items()
    }
    return Contexts(path, str(value.get("current") or ""), by_name)


def _resolved(path: Path, key: str, text: str) -> str:
    is_path = key in _PATHS and not (key == "ca" and text == _IN_THE_SYSTEM)
    return str(path.parent / os.path.expanduser(text)) if is_path else text


def use_context(name: str, *, may_be_unused: bool = False) -> None:
    """Put a context into the environment, where nothing else says otherwise.

    `name`: "" for the current one. `may_be_unused`: that MUSTER_CONFIG names no file is said when a
    server is asked. Raises: InputError for a faulty file or an unknown name.
    """
    is_missing = "MUSTER_CONFIG" in os.environ and not config_path().exists()
    if may_be_unused and not name and is_missing:
        _unread.append(config_path())
        return
    contexts = load_contexts()
    chosen = name or contexts.current
    if not chosen:
        return
    if chosen not in contexts.by_name:
        raise unknown(contexts, chosen)
    has_token = "MUSTER_TOKEN" in os.environ
    taken = set()
    for key, text in contexts.by_name[chosen].items():
        variable = f"MUSTER_{key.upper()}"
        if variable not in os.environ and not (key == "token_file" and has_token):
            os.environ[variable] = text
            taken.add(key)
    _current.clear()
    if not name and (secret := taken.intersection(_SECRETS)):
        own = contexts.by_name[chosen].get("address", DEFAULT_ADDRESS)
        _current[chosen] = _Current(frozenset(own.split(",")), frozenset(secret))


@struct(frozen=True, slots=True)
class _Current:
    """Servers of the current context, and its keys that are in the environment."""

    addresses: frozenset[str]
    secrets: frozenset[str]


_current: dict[str, _Current] = {}
_unread: list[Path] = []  # a file that is missing, which only matters when a server is asked


def keep_secrets_from(address: str) -> str:
    """Take the current context's credentials out of the environment unless `address` (several with
    commas) is of its servers. Returns what was kept from whom, "" for nothing. Raises: InputError
    where the file is missing."""
    if _unread:
        _unread.clear()
        load_contexts()
    kept = ""
    for name, current in _current.items():
        if others := sorted(set(address.split(",")) - current.addresses):
            for key in current.secrets:
                os.environ.pop(f"MUSTER_{key.upper()}", None)
            kept = f"{', '.join(others)} is not of context {name} and does not get its credentials"
            kept += f"; --context {name} sends them"
    _current.clear()
    return kept


def unknown(contexts: Contexts, name: str) -> Exception:
    """Return the error for an unknown context."""
    from scheduler.files.errors import InputError, Problem

    names = ", ".join(sorted(contexts.by_name)) or "none"
    return InputError(
        Problem("", f"has no context {name!r}; contexts: {names}", str(contexts.path))
    )


def quiet_grpc() -> None:
    """Keep gRPC's own log off stderr, for muster says the same in one sentence.

    Call it before gRPC is imported. To see that log, set GRPC_VERBOSITY.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def quoted(text: str) -> str:
    """Quote a text as a filter's value that means this and nothing else."""
    return '"' + re.sub(r'([\\"*])', r"\\\1", text) + '"'
