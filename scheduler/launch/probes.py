"""Probes: has agents read the health of their hosts, and tells the log what they have found.

What was read is kept here, for whoever asks about a host; the log has what is wrong, each time
that it changes, and where the health policy says `then: act` a report of each finding. A host that
is out of service is not reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from placement.fabric.tree import Fabric
from scheduler.core import State
from scheduler.core.model.commands import MoveHost, ReportHost
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import IN_SERVICE
from scheduler.core.policies.health import ProbeAction
from scheduler.core.policies.health_signals import PROBED, SIGNALS, XID
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.service.backend import HostReading
from scheduler.v1 import agent_pb2

MOST_TEXT = 600  # characters of what is wrong with one host
MOST_FINDINGS = 64
LEAST_BETWEEN_NS = 60 * SECOND_NS  # from one change of a host's findings in the log to the next

Submit = Callable[[MoveHost | ReportHost], None]
Reported = tuple[str, int | None, int]  # signal, GPU, and since when the host was in its state


class HostProbes:
    """`submit`: has a report carried out."""

    def __init__(self, sessions: AgentSessions, submit: Submit) -> None:
        self._sessions, self._submit = sessions, submit
        self._terms: tuple[int, Fabric] | None = None  # of what agents were told
        self._told: set[str] = set()  # hosts whose agents were told since they came
        self._readings: dict[str, HostReading] = {}
        self._reported: dict[str, set[Reported]] = {}  # by host, of its newest probe
        self._changed_ns: dict[str, int] = {}  # by host, when the log was told of a change last

    def forget(self) -> None:
        """Tell agents anew: another server may have led."""
        self._told.clear()
        self._readings.clear()
        self._reported.clear()
        self._changed_ns.clear()

    def reading(self, host: str) -> HostReading | None:
        """Return what its agent has read last, None where it has not since this server leads."""
        return self._readings.get(host)

    def on_hello(self, host: str) -> None:
        """Tell its agent at the next look, for it is another one."""
        self._told.discard(host)

    def order(self, state: State) -> None:
        """Tell agents that have connected how often to probe which GPUs; tell all of them again
        when the policy or the fabric changes."""
        terms = (every_s, fabric) = state.health.probes.every_s, state.loaded_fabric
        if self._terms != terms:
            self._terms = terms
            self._told.clear()
        for host in self._sessions.connected - self._told:
            if (index := fabric.index_by_name.get(host)) is None:
                continue
            order = agent_pb2.ProbeHost(gpus=int(fabric.by_host.gpus[index]))
            order.every.FromSeconds(every_s)
            self._sessions.send(host, agent_pb2.SessionResponse(probe_host=order))
            self._told.add(host)

    def on_probed(self, state: State, host: str, word: agent_pb2.HostProbed, now_ns: int) -> None:
        """Note what was read, and report what is wrong; the log hears once a minute at most that a
        host has other findings."""
        if (index := state.loaded_fabric.index_by_name.get(host)) is None:
            return
        self._readings[host] = HostReading(now_ns, word.readings[:MOST_TEXT])
        findings = [f for f in word.findings[:MOST_FINDINGS] if _is_trouble(f.signal)]
        text = findings_text(findings)
        is_due = now_ns >= self._changed_ns.get(host, -LEAST_BETWEEN_NS) + LEAST_BETWEEN_NS
        if is_due and _subjects(text) != _subjects(state.record(index).findings):
            self._changed_ns[host] = now_ns
            self._submit(ReportHost(host, PROBED, text))
        known, held = self._reported.pop(host, set()), state.host(index)
        acts = state.health.probes.then is ProbeAction.ACT and held.state in IN_SERVICE
        for finding in findings if acts else ():
            gpu = finding.gpu if finding.HasField("gpu") else None
            key = (finding.signal, gpu, held.since_ns)
            self._reported.setdefault(host, set()).add(key)
            if key in known and not state.health.signal(finding.signal).thresholds:
                continue  # that it is so still is no news
            value = finding.value if SIGNALS[finding.signal].has_value else 0
            detail = f"probe: {finding.detail[:MOST_TEXT]}"
            self._submit(ReportHost(host, finding.signal, detail, value=value, gpu=gpu))


def findings_text(findings: Iterable[agent_pb2.Finding]) -> str:
    """Return `row-remap-failure, GPU 3: a row could not be remapped; link-flap: ...`."""
    said = (
        f"{f.signal}{f', GPU {f.gpu}' if f.HasField('gpu') else ''}: {f.detail}" for f in findings
    )
    return "; ".join(said)[:MOST_TEXT]


def _subjects(text: str) -> set[str]:
    """Return what is wrong without its numbers, which differ in each probe."""
    return {part.partition(": ")[0] for part in text.split("; ")}


def _is_trouble(signal: str) -> bool:
    """Whether an agent may report it of its own host by itself."""
    known = SIGNALS.get(signal)
    return known is not None and known.is_trouble and not known.is_domain and signal != XID
