"""Who may run what on this host: the allow-list, a file of the host that no server can change.

    users: [alice, bob]            whom ranks may run as
    default_user: alice            of jobs that name none
    workdirs: [/home, /scratch]    below which their working directory lies
    without_cgroups: true          ranks run although the host has no cgroups to end them by
    exec: false                    whether users run commands beside their ranks; true by default
    gates: [/usr/sbin/nhc]         gates of the site that run as the agent's own user

Without a file an agent runs ranks as its own user alone, in any directory; one that is root runs
none at all.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.structs import struct
from scheduler.agent.ranks.supervisor import entry_of, own_entry
from scheduler.files.errors import InputError, Problem, short
from scheduler.files.yaml12 import load


class NotAllowed(Exception):
    """This host refuses what the server asks for; the text says why."""


@struct(frozen=True, slots=True)
class AllowList:
    """`workdirs` empty: any directory that the user can enter."""

    users: frozenset[str]
    default_user: str = ""
    workdirs: tuple[str, ...] = ()
    without_cgroups: bool = False
    has_commands: bool = True
    gates: frozenset[str] = frozenset()

    @property
    def own_name(self) -> str:
        """The name of the agent's own user."""
        return own_entry().pw_name

    def user(self, wanted: str) -> pwd.struct_passwd:
        """The user as whom ranks run. Raises: NotAllowed."""
        name = wanted or self.default_user
        if not self.users:
            raise NotAllowed("the agent is root here and has no allow-list (--allow)")
        if not name:
            raise NotAllowed("the job names no user, and this host has no default_user")
        if name not in self.users:
            raise NotAllowed(f"nothing runs as {name} on this host")
        try:
            entry = entry_of(name)
        except KeyError:
            raise NotAllowed(f"there is no user {name} on this host") from None
        if os.geteuid() not in (0, entry.pw_uid):
            raise NotAllowed(f"the agent is not root, so it cannot run anything as {name}")
        return entry

    def commands_beside(self, user: str) -> None:
        """Check that commands may be run beside the ranks of `user`. Raises: NotAllowed."""
        if not self.has_commands:
            raise NotAllowed("this host runs no commands beside ranks (exec of its allow-list)")
        self.user(user)

    def workdir(self, wanted: str, user: pwd.struct_passwd) -> str:
        """The working directory. Raises: NotAllowed."""
        path = os.path.realpath(wanted or user.pw_dir)  # a link may lead elsewhere
        roots = [os.path.realpath(root) for root in self.workdirs]
        if roots and not any(os.path.commonpath((path, root)) == root for root in roots):
            raise NotAllowed(f"{wanted or path} is not below {' or '.join(self.workdirs)}")
        if not _may_be(path, stat.S_ISDIR):
            raise NotAllowed(f"there is no directory {wanted or path}")
        return path


def program(command: str, workdir: str, search: str) -> str:
    """The file that `command` names, as exec finds it. Raises: NotAllowed."""
    path = os.path.join(workdir, command) if "/" in command else shutil.which(command, path=search)
    if path is None or not _may_be(path, stat.S_ISREG):
        raise NotAllowed(f"there is no program {command}")
    return path


def _may_be(path: str, kind: Callable[[int], bool]) -> bool:
    """Also of what the agent may not see: on a network file system that takes root for nobody the
    user sees more, and the rank finds out."""
    try:
        return kind(os.stat(path).st_mode)
    except PermissionError:
        return True
    except OSError:
        return False


def own_user() -> AllowList:
    """Allow the agent's own user, unless that is root: for agents without a file."""
    name = own_entry().pw_name
    return AllowList(frozenset({name}), name) if os.geteuid() else AllowList(frozenset())


def load_allow_list(path: str) -> AllowList:
    """Read what an agent may run on its host. Raises: InputError."""
    document = load(path)
    if os.stat(path).st_mode & stat.S_IWOTH:
        raise InputError(Problem("", "is writable by everybody: chmod o-w", path))
    keys = document.mapping()
    known = ("users", "default_user", "workdirs", "without_cgroups", "exec", "gates")
    faults = [
        (str(key), f"unknown key; known are {', '.join(known)}") for key in keys if key not in known
    ]
    users, default = keys.get("users", []), keys.get("default_user", "")
    if not _are_texts(users) or not users:
        faults.append(("users", f"must be a list of users, not {short(users)}"))
    elif default and default not in users:
        faults.append(("default_user", f"{short(default)} is not one of users"))
    workdirs, gates = keys.get("workdirs", []), keys.get("gates", [])
    for name, paths in (("workdirs", workdirs), ("gates", gates)):
        if not _are_texts(paths) or not all(Path(path).is_absolute() for path in paths):
            faults.append((name, f"must be a list of absolute paths, not {short(paths)}"))
    flags = {"without_cgroups": False, "exec": True}
    for key, usual in flags.items():
        flags[key] = keys.get(key, usual)
        if not isinstance(flags[key], bool):
            faults.append((key, f"must be true or false, not {short(flags[key])}"))
    if faults:
        raise document.error(*faults)
    return AllowList(
        frozenset(users),
        default,
        tuple(workdirs),
        flags["without_cgroups"],
        flags["exec"],
        frozenset(gates),
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
