"""After which failures a job is started again, as far as its owner says."""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct


class StopCause(StrEnum):
    """The cause that stopped an attempt."""

    EXIT = "exit"  # a rank ended by itself, with a code other than 0
    SIGNAL = "signal"  # a rank was killed
    OOM = "oom"  # a rank ran out of memory, of its GPU or of its host
    HANG = "hang"  # steps stopped coming
    HOST = "host"  # a host failed, or could not start its ranks


class Requeueing(StrEnum):
    """Whether a gang that was stopped for the sake of others waits again."""

    ALWAYS = "always"
    NEVER = "never"  # its job has failed


@struct(frozen=True, slots=True)
class RestartRule:
    """`most`: attempts in a row that may follow a failure before anything is saved; None: as the
    tenants file says. `backoff_s`: pause before the first of them, twice as long each time; None:
    as the tenants file says. `exit`: codes after which the job is started again, None = all.
    `oom`, `hang`, `host`: whether it is after these."""

    most: int | None = None
    backoff_s: int | None = None
    exit: tuple[int, ...] | None = None
    oom: bool = True
    hang: bool = True
    host: bool = True

    def refusal(self, cause: StopCause | None, code: int) -> str:
        """Return why the job is not started again after this failure; "" when it may be."""
        if cause is StopCause.EXIT and self.exit is not None and code not in self.exit:
            codes = ", ".join(map(str, self.exit)) or "no code"
            return f"restarts.on.exit has {codes}"
        is_off = {
            StopCause.OOM: not self.oom,
            StopCause.HANG: not self.hang,
            StopCause.HOST: not self.host,
        }
        return f"restarts.on.{cause} is false" if cause is not None and is_off.get(cause) else ""


AS_TENANTS = RestartRule()
