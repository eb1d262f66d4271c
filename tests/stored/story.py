"""A log with every kind of event: what a server of this version writes when these things happen.

Commands go through admission, and plans through decisions and commits, as on a server. Only what
agents and the server's own tasks report is written down here, for no command makes it.
"""

from collections.abc import Iterator
from typing import get_args

from muster.structs import replace
from scheduler.core.model.commands import (
    ChangeFabric,
    Command,
    HoldJob,
    OpenChannel,
    ReleaseJob,
    RequeueJob,
    UpdateJob,
)
from scheduler.core.model.events import (
    CheckpointSaved,
    Event,
    FabricLoaded,
    GangHung,
    GangLaunched,
    HostsJudged,
    LaunchFailed,
    NamesQualified,
    RankFailed,
    RequestAnswered,
    RoleRestarted,
)
from scheduler.core.model.job import SECOND_NS
from tests.build import fabric_spec, submit
from tests.golden.script import Session

FABRIC = fabric_spec()
# A line of a golden script, a command, or an event that is reported; its time is that of the story.
STORY: tuple[str | Command | Event, ...] = (
    NamesQualified(0),
    "health burn_in=yes",
    "tenant nlp",
    "class spot priority=-5 preemptible=yes",
    "class urgent priority=9",
    "preemption min_run=1m checkpoint=1m restart=1m",
    "spares lend=on keep=0",
    "load",
    "submit gang hosts=2 spares=1 request_id=r1",
    "schedule",
    GangLaunched(0, "gang", 1),
    OpenChannel("gang", "uid-gang", 1, 0, "z0-r0-h0", ("bash",)),
    CheckpointSaved(0, "gang", 1, 100, "/ckpt/100"),
    RoleRestarted(0, "gang", 1, "rollout", 3, "z0-r0-h1", "exit status 1", code=1),
    "wait 1h",
    "report z0-r0-h0 gpu-lost",
    "report z0-r0-h0 ecc-correctable",
    "schedule",
    RankFailed(0, "gang", 2, 3, "z0-r0-h1", "exit status 1", code=1, step=120),
    GangHung(0, "gang", 2, "no step for 10 min"),
    LaunchFailed(0, "gang", 2, "z0-r0-h1", "exec: no such file"),
    "wait 10m",
    "schedule",
    RequeueJob("gang", "a new image", request_id="r2"),
    "schedule",
    HostsJudged(0),
    RequestAnswered(0, "r3", "HoldJob gang", "uid-gang"),
    "submit elastic hosts=4 min_dp=2 class=spot",
    "schedule",
    "submit now hosts=2 class=urgent limit=1h",
    "wait 10m",
    "schedule",
    "submit next hosts=4 limit=1h",
    "schedule",
    HoldJob("next", reason="until Monday"),
    ReleaseJob("next"),
    UpdateJob("next", ("labels",), labels=(("team", "nlp"),)),
    replace(submit("later"), spec=replace(submit("later").spec, begin_ns=86_400 * SECOND_NS)),
    "end gang",
    "end now",
    "end elastic",
    "cancel next",
    "schedule",
    "link z0 7/8",
    "drain-link z1",
    "uncordon-link z1",
    "cordon z1-r1-h1",
    "maintain firmware on=z0-r0 from=2h to=3h leave=requeue why=firmware",
    "maintain cables on=z0-r1 from=200h to=201h",
    "wait 50m",
    "schedule",
    "remove cables",
    "wait 1h",
    "schedule",
    "repair z0-r0-h0",
    "report z0-r0-h0 stress-test-passed",
    "uncordon z1-r1-h1",
    "submit owner hosts=3 spares=1 limit=100h",
    "submit spot hosts=4 class=spot limit=100h",
    "schedule",
    "submit borrower hosts=1 class=spot limit=100h",
    "schedule",
    "wait 10m",
    "submit first hosts=4 class=urgent limit=1h",
    "schedule",
    "submit whole hosts=8 limit=1h",
    "policy conservative",
    "schedule",
    "policy production",
    *(f"cancel {name}" for name in ("owner", "spot", "borrower", "first", "whole")),
    "defragment every=1h hosts=4 hosts_per_gpu_hour=1",
    "load",
    "submit a hosts=2",
    "submit b hosts=2",
    "submit c hosts=2",
    "schedule",
    "end b",
    "wait 2h",
    "schedule",
    "wait 24h",
    "schedule",
    ChangeFabric(fabric_spec(2, 2, 3)),
)


class _Recorder(Session):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def _record(self, events: tuple[Event, ...]) -> Iterator[str]:
        self.events += events
        yield from super()._record(events)

    def carry_out(self, part: str | Command | Event) -> list[str]:
        """Do a part of the story; return what a golden script would print."""
        if isinstance(part, str):
            return list(self.run(part))
        if isinstance(part, get_args(Event)):
            return list(self._record((replace(part, time_ns=self.now_ns),)))
        return list(self._send(part))


def story_events() -> list[Event]:
    """Return the events of the story. Raises: ValueError when a part of it is refused."""
    recorder = _Recorder()
    recorder.carry_out(FabricLoaded(0, FABRIC))
    for part in STORY:
        for line in recorder.carry_out(part):
            if line.startswith("refused"):
                raise ValueError(f"{part}: {line}")
    return recorder.events
