"""The copies of one job on this host, as files in memory.

    UID/own/                         the user's: what ranks of this host write (muster.progress)
    UID/kept/                        copies of ranks of other hosts, or fetched from there
      rank-3.attempt-1.step-120      the user's, who may read it

Of each job up to three steps are kept: the newest of which the server says that all hosts have
their copies, so that a failure in the middle of a renewal leaves the one before whole; the newest;
and between them one that all hosts choose alike, so that it has time to come everywhere where ranks
write more often than a renewal takes.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import stat
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, NamedTuple

import msgspec

from scheduler.v1 import agent_pb2

KEPT_STEPS = 3
_MOST_FILES = 2_048  # of a folder that are looked at, for ranks may write any number
_NAME = re.compile(r"rank-(\d{1,9})\.attempt-(\d{1,9})\.step-(\d{1,18})")

Version = tuple[int, int]  # attempt and step
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
NOTHING: Version = (0, 0)


class CopyName(NamedTuple):
    """Names the copy of one rank."""

    rank: Count
    attempt: Count
    step: Count

    @property
    def version(self) -> Version:
        return (self.attempt, self.step)

    @property
    def file(self) -> str:
        return f"rank-{self.rank}.attempt-{self.attempt}.step-{self.step}"

    @staticmethod
    def parse(text: str) -> CopyName | None:
        """Read the name of a file; None: it is that of no copy."""
        match = _NAME.fullmatch(text)
        return CopyName(*map(int, match.groups())) if match else None


@dataclass(eq=False)
class JobCopies:
    """Copies of one job. `attempt`: the newest that is prepared here. `targets`: HOST:PORT of the
    agents that keep copies of this host's ranks. `most`: bytes of one rank's copy. `floor`: the
    newest step of which all hosts are known to have all copies. `is_begun`: whether ranks of
    `attempt` have been started; until then nothing is removed."""

    uid: str
    folder: Path
    user: pwd.struct_passwd
    attempt: int = 0
    secret: bytes = b""
    targets: tuple[str, ...] = ()
    most: int = 0
    floor: Version = NOTHING
    is_begun: bool = False
    sent: set[tuple[str, CopyName]] = field(default_factory=set)
    reported: agent_pb2.HeldCopies | None = None

    @property
    def own_folder(self) -> Path:
        return self.folder / "own"

    @property
    def peer_folder(self) -> Path:
        return self.folder / "kept"

    def make_folders(self) -> None:
        """Make what is missing; what another user had here is removed. Raises: OSError."""
        self.folder.mkdir(mode=0o711, exist_ok=True)
        if self.own_folder.exists() and self.own_folder.stat().st_uid != self.user.pw_uid:
            shutil.rmtree(self.own_folder)
            shutil.rmtree(self.peer_folder, ignore_errors=True)
        self.own_folder.mkdir(mode=0o700, exist_ok=True)
        self.peer_folder.mkdir(mode=0o711, exist_ok=True)
        for path in (self.folder.parent, self.folder, self.peer_folder):
            path.chmod(0o711)  # whatever the umask
        for path in self.peer_folder.glob("*.partial"):
            path.unlink(missing_ok=True)
        os.chown(self.own_folder, self.user.pw_uid, self.user.pw_gid)

    def files(self, folder: Path) -> dict[CopyName, os.stat_result]:
        """Return the copies in one of its folders."""
        statuses = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_FILES):
                name = CopyName.parse(entry.name)
                if name is None:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_uid == self.user.pw_uid:
                        statuses[name] = status
        return statuses

    def open(self, name: CopyName) -> IO[bytes]:
        """Open a copy of the job. What the user may have put in its place is not followed.

        Raises: OSError.
        """
        path = self.own_folder / name.file
        path = path if os.path.lexists(path) else self.peer_folder / name.file
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != self.user.pw_uid:
            os.close(file)
            raise FileNotFoundError(f"{name.file} is no copy")
        return os.fdopen(file, "rb", buffering=0)

    def steps_to_keep(self, steps: Iterable[Version]) -> set[Version]:
        """Return `floor`, the newest of these steps, and the one after `floor` that the highest
        power of two divides: all hosts agree on it, and keep it for longer and longer."""
        later = [version for version in steps if version > self.floor]
        lasting = max(later, key=lambda v: (v[0], v[1] & -v[1], v[1]), default=NOTHING)
        return {self.floor, lasting, max(later, default=NOTHING)}

    def keep_only(self, folder: Path, versions: Collection[Version]) -> None:
        """Remove the copies of all other steps from one of its folders."""
        for name in self.files(folder):
            if name.version not in versions:
                (folder / name.file).unlink(missing_ok=True)

    def remove_old(self, folder: Path, *coming: Version) -> bool:
        """Remove the copies of steps that are not to be kept from one of its folders. Return
        whether those of the `coming` ones are."""
        versions = self.steps_to_keep({*coming, *(name.version for name in self.files(folder))})
        self.keep_only(folder, versions)
        return versions.issuperset(coming)


def put_aside(folder: Path) -> Path:
    """Return the folder under a name that no job has, so that it can be removed in a while."""
    aside = folder.with_name(f"{folder.name}.{time.monotonic_ns()}")
    with contextlib.suppress(OSError):
        folder.rename(aside)
    return aside
