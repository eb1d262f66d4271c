"""What the log is told of probes: that something is wrong, and reports where the site wants."""

from types import SimpleNamespace
from typing import Any

from scheduler.core import HostState, State
from scheduler.core.model.commands import LoadHealth, ReportHost
from scheduler.core.policies.health import HealthPolicy, HealthRule, ProbeAction, ProbePolicy
from scheduler.core.policies.health_signals import SIGNALS
from scheduler.launch.probes import HostProbes
from scheduler.v1 import agent_pb2
from tests.build import fabric, loaded, repair, run

H, OTHER = "z0-r0-h0", "z0-r0-h1"


class ProbedFabric:
    """Two hosts of eight GPUs, whose reports are written down at once."""

    def __init__(self, then: ProbeAction = ProbeAction.REPORT, **more: Any) -> None:
        self.state: State = loaded(fabric(zones=1, racks=1, hosts=2, gpus=8))
        self.policy(ProbePolicy(then=then), **more)
        self.sent: list[tuple[str, agent_pb2.ProbeHost]] = []
        self.reports: list[tuple[str, str, int | None, int]] = []
        self.connected = {H}
        sessions: Any = SimpleNamespace(connected=self.connected, send=self._send)
        self.probes = HostProbes(sessions, self._submit)
        self.now_ns = 0

    def policy(self, probes: ProbePolicy, **more: Any) -> None:
        self.state = run(self.state, LoadHealth(HealthPolicy(probes=probes, **more)))

    def _send(self, host: str, message: agent_pb2.SessionResponse) -> None:
        self.sent.append((host, message.probe_host))

    def _submit(self, command: Any) -> None:
        assert isinstance(command, ReportHost)
        self.reports.append((command.signal, command.detail, command.gpu, command.value))
        self.state = run(self.state, command, now_ns=self.now_ns)

    def probed(
        self, *findings: dict[str, Any], after_s: int = 60
    ) -> list[tuple[str, str, int | None, int]]:
        """The reports that one probe leads to."""
        self.reports.clear()
        self.now_ns += after_s * 10**9
        made = [agent_pb2.Finding(**finding) for finding in findings]
        word = agent_pb2.HostProbed(readings="8 GPUs", findings=made)
        self.probes.on_probed(self.state, H, word, self.now_ns)
        return list(self.reports)

    def ordered(self) -> list[tuple[str, float, int]]:
        self.sent.clear()
        self.probes.order(self.state)
        return [(host, order.every.ToSeconds(), order.gpus) for host, order in self.sent]

    @property
    def host_state(self) -> HostState:
        return self.state.host(0).state


FAILED_ROW = {"signal": "row-remap-failure", "detail": "a row could not be remapped", "gpu": 3}
LANES = {"signal": "pcie-degraded", "detail": "0000:01:00.0 has 8 of 16 lanes"}
FLAPS = {"signal": "link-flap", "detail": "mlx5_0/1: 2 link downed", "value": 2}
SAID = "row-remap-failure, GPU 3: a row could not be remapped"


def test_agents_are_told_once_and_again_where_something_is_another() -> None:
    world = ProbedFabric()
    assert world.ordered() == [(H, 600, 8)]
    assert world.ordered() == []
    world.connected.add(OTHER)
    assert world.ordered() == [(OTHER, 600, 8)]
    world.probes.on_hello(H)  # another agent process
    assert world.ordered() == [(H, 600, 8)]
    world.policy(ProbePolicy(every_s=60))
    assert sorted(world.ordered()) == [(H, 60, 8), (OTHER, 60, 8)]
    world.probes.forget()
    assert len(world.ordered()) == 2


def test_by_default_what_is_wrong_is_said_once_and_the_host_serves_on() -> None:
    world = ProbedFabric()
    assert world.probed() == []
    assert world.probed(FAILED_ROW) == [("probed", SAID, None, 0)]
    assert world.probed(FAILED_ROW) == []
    assert (world.host_state, world.state.record(0).findings) == (HostState.HEALTHY, SAID)
    assert world.probed() == [("probed", "", None, 0)]
    assert world.state.record(0).findings == ""


def test_a_host_is_news_once_a_minute_and_not_for_other_numbers() -> None:
    world = ProbedFabric()
    assert world.probed(LANES)
    assert not any(world.probed(*found, after_s=19) for found in ((), (LANES,), (FAILED_ROW,)))
    assert world.probed(FAILED_ROW, after_s=3) == [("probed", SAID, None, 0)]
    world = ProbedFabric()
    assert len(world.probed(FLAPS)) == 1
    assert world.probed(FLAPS | {"detail": "mlx5_0/1: 9 link downed", "value": 9}) == []
    assert len(world.probed(FLAPS, LANES)) == 1


def test_what_was_read_last_is_kept_with_its_time() -> None:
    world = ProbedFabric()
    assert world.probes.reading(H) is None
    world.probed()
    assert world.probes.reading(H) == (60 * 10**9, "8 GPUs")
    world.probes.forget()
    assert world.probes.reading(H) is None
    world.probes.on_probed(world.state, "gone", agent_pb2.HostProbed(readings="x"), 1)
    assert world.probes.reading("gone") is None  # the fabric lacks it


def test_where_the_site_acts_each_finding_is_a_report_of_its_signal() -> None:
    world = ProbedFabric(ProbeAction.ACT)
    detail = "probe: a row could not be remapped"
    assert world.probed(FAILED_ROW)[1:] == [("row-remap-failure", detail, 3, 0)]
    assert world.host_state is HostState.FAILED
    assert world.probed(FAILED_ROW) == []
    world.state = run(world.state, repair(H), now_ns=world.now_ns + 1)
    assert world.probed(FAILED_ROW) == [("row-remap-failure", detail, 3, 0)]  # it was not mended
    assert world.host_state is HostState.FAILED


def test_errors_add_up_and_what_only_lasts_is_not_reported_again() -> None:
    note = HealthRule("pcie-degraded", SIGNALS["link-errors"].__class__("", thresholds=()))
    world = ProbedFabric(ProbeAction.ACT, rules=(note,))
    told = [signal for signal, *_ in world.probed(LANES, FLAPS)]
    assert told == ["probed", "pcie-degraded", "link-flap"]
    assert world.probed(LANES, FLAPS) == [("link-flap", "probe: mlx5_0/1: 2 link downed", None, 2)]
    assert world.host_state is HostState.SUSPECT  # four flaps within an hour


def test_an_agent_reports_troubles_of_its_own_host_alone() -> None:
    for signal in ["repaired", "installed", "tor-down", "xid", "measured", "no"]:
        world = ProbedFabric(ProbeAction.ACT)
        assert world.probed({"signal": signal, "detail": "a=1"}) == []
