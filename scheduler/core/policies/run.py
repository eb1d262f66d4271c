"""What a job runs, and what muster knows of how far it has come."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from muster.structs import struct

GRACE_S: Final = 30
RANK_VARIABLES: Final = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
        *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"),
    }
)
"""Set for every rank, beside those that begin with MUSTER_."""


@struct(frozen=True, slots=True)
class RunSpec:
    """The command of every rank: argv, which no shell reads.

    `env`: (name, value), sorted. `workdir` "": the home directory of the user. `user` "": the
    default one of the host. `per_host`: processes on a host; 0: one a GPU. `grace_s`: from
    SIGTERM to SIGKILL where nothing has failed. `warm`: modules that a Python process has
    imported beforehand, from which the ranks are forked.
    """

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    user: str = ""
    per_host: int = 0
    grace_s: int = GRACE_S
    warm: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        """Whether it is `python FILE ...` or `python -m MODULE ...`, which can be forked warm."""
        if len(self.command) < 2 or not self.command[0].rpartition("/")[2].startswith("python"):
            return False
        first = self.command[1]
        return not first.startswith("-") or (first == "-m" and len(self.command) > 2)


class SavedCheckpoint(Struct, frozen=True):
    """The newest checkpoint that the ranks of a job have reported. `where`: as they call it."""

    attempt: int
    step: int
    where: str
    at_ns: int
