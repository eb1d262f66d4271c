"""Dependencies: a job that waits for the end of others."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from scheduler.core.model.lifecycle import JobState

MOST_DEPENDENCIES = 100  # of one job
MOST_AWAITED = 100_000  # ends that the waiting jobs of a tenant wait for in all


class DependencyKind(StrEnum):
    """The end of another job that a job waits for, in Slurm's words."""

    AFTEROK = "afterok"  # it has completed
    AFTERNOTOK = "afternotok"  # it has failed, or was cancelled after it had started
    AFTERANY = "afterany"  # it has ended
    SINGLETON = "singleton"  # all jobs that came before, with the same name but for a number
    AFTERCORR = "aftercorr"  # the task with the same number of another array has completed


class DependencyTerm(Struct, frozen=True):
    """One dependency of a job specification. `job`: a full name, "" of SINGLETON."""

    kind: DependencyKind
    job: str = ""


class Dependency(Struct, frozen=True):
    """One job that another waits for. `uid`: of the one that is meant, whoever has its name later.
    `outcome`: how it ended, None while it lives. `has_started`: False of one that was cancelled
    before its first attempt, which is no failure that anybody can act on."""

    kind: DependencyKind
    job: str
    uid: str
    outcome: JobState | None = None
    has_started: bool = True

    @property
    def is_met(self) -> bool:
        return self.outcome is not None and self._suits(self.outcome)

    @property
    def is_never_met(self) -> bool:
        """Return whether the other job ended in another way than was waited for."""
        return self.outcome is not None and not self._suits(self.outcome)

    def _suits(self, outcome: JobState) -> bool:
        match self.kind:
            case DependencyKind.AFTEROK | DependencyKind.AFTERCORR:
                return outcome is JobState.COMPLETED
            case DependencyKind.AFTERNOTOK:
                return outcome is not JobState.COMPLETED and self.has_started
            case DependencyKind.AFTERANY | DependencyKind.SINGLETON:
                return True

    @property
    def text(self) -> str:
        """Describe the dependency: `afterok of a, which failed`."""
        ended = f", which {_ENDED[self.outcome]}" if self.outcome in _ENDED else ""
        never = "" if self.has_started or not ended else " before it started"
        return f"{self.kind} of {self.job}{ended}{never}"


_ENDED = {
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
}
