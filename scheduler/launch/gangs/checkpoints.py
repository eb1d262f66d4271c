"""The newest checkpoint of each job that runs: as its ranks have said, or as the log has it."""

from __future__ import annotations

from muster.structs import replace, struct
from scheduler.core import Job, State
from scheduler.core.model.run_lineage import resume_point
from scheduler.launch.gangs.gang import LaunchedGang

LOG_EVERY_S = 60.0  # checkpoints of one job that are written down, besides an attempt's last


@struct(frozen=True, slots=True)
class NewestCheckpoint:
    """The newest checkpoint of a job. `logged_s`: when the log had one of its job last."""

    step: int
    where: str
    logged_s: float


class Checkpoints:
    """Newest checkpoint of each job, by uid, until the job is over."""

    def __init__(self) -> None:
        self._newest: dict[str, NewestCheckpoint] = {}

    def recall(self, job: Job, now_s: float, now_ns: int) -> None:
        """Take over what the log knows of a job's checkpoints, unless more is known."""
        if job.saved is not None and job.uid not in self._newest:
            age_s = max(0, now_ns - job.saved.at_ns) / 1e9
            in_log = NewestCheckpoint(job.saved.step, job.saved.where, now_s - age_s)
            self._newest[job.uid] = in_log

    def note(self, gang: LaunchedGang, step: int, where: str) -> bool:
        """Note what ranks have saved; return whether it is newer than what they said before."""
        if not where or (gang.saved and gang.saved[0] >= step):
            return False
        gang.saved = (step, where)
        logged_s = self._logged_s(gang)
        self._newest[gang.uid] = NewestCheckpoint(step, where, logged_s)
        return True

    def is_due(self, gang: LaunchedGang, now_s: float) -> bool:
        """Return whether the log is to be told of the newest checkpoint of this attempt by now."""
        return gang.saved != gang.logged and now_s - self._logged_s(gang) >= LOG_EVERY_S

    def write_down(self, gang: LaunchedGang, now_s: float) -> tuple[int, str] | None:
        """Return the checkpoint of this attempt that the log is to be told of now; None where there
        is nothing new."""
        if gang.saved is None or gang.saved == gang.logged:
            return None
        gang.logged = gang.saved
        if (known := self._newest.get(gang.uid)) is not None:
            self._newest[gang.uid] = replace(known, logged_s=now_s)
        return gang.saved

    def resume_point(self, gang: LaunchedGang, state: State) -> tuple[int, str, str]:
        """Return step and place of the checkpoint that the gang goes on from, and the uid of the
        ended job that saved it, where the job itself has saved nothing."""
        if (own := self._newest.get(gang.uid)) is not None:
            return (own.step, own.where, "")
        point = resume_point(state.lineages, gang.placed.job)
        if point is None:
            return (0, "", "")
        return (point.step, point.where, point.uid if point.uid in state.ended else "")

    def forget(self, uid: str) -> None:
        """Forget the checkpoints of a job that is over."""
        self._newest.pop(uid, None)

    def _logged_s(self, gang: LaunchedGang) -> float:
        known = self._newest.get(gang.uid)
        return float("-inf") if known is None else known.logged_s
