"""Samples as Prometheus scrapes them.

Scrapes run in a thread of their own. A state is a value, so a scrape reads one version while the
writer goes on to the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate, groupby

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from muster.structs import struct
from scheduler.access.listener import Access
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import Store
from scheduler.eventlog.store.sqlite import SqliteStore
from scheduler.observe import catalogue as c
from scheduler.observe.catalogue import MetricKind
from scheduler.observe.counters import Histogram, Labels
from scheduler.observe.instruments import Instruments
from scheduler.release import release
from scheduler.server.metrics import samples
from scheduler.server.metrics.samples import Sample
from scheduler.service.backend import RankAgents


@struct(frozen=True, slots=True)
class MetricsEndpoint:
    """Where /metrics is served; port 0 takes a free one. `is_per_job`: series for each
    running gang as well."""

    host: str
    port: int
    is_per_job: bool = False


class Gauges(Collector):
    """Serves all metrics of the catalogue. Before `attach` only what is known without a state.

    `is_per_job`: series for each running gang as well. `progress`: how far gangs are, where agents
    start them. `access`: whose certificates and tokens expire.
    """

    def __init__(
        self,
        instruments: Instruments,
        access: Access | None = None,
        *,
        is_per_job: bool = False,
    ) -> None:
        self.instruments = instruments
        self._access = access or Access()
        self.agents: RankAgents | None = None
        self._is_per_job = is_per_job
        self._writer: Writer | None = None
        self._disk: SqliteStore | None = None
        self._replay_s = 0.0
        self._began = time.perf_counter()

    def attach(self, writer: Writer, store: Store) -> None:
        """Take over what the replayed log says; before, only metrics without a state are served."""
        self._replay_s = time.perf_counter() - self._began
        self._disk = store if isinstance(store, SqliteStore) else None
        self._writer = writer

    def describe(self) -> Iterable[Metric]:
        return ()  # nothing is collected merely to be registered

    def collect(self) -> Iterator[Metric]:
        # By metric; sorting is stable, so labels keep the order in which they came.
        samples = sorted(self._samples(), key=lambda sample: sample[0].name)
        for metric, some in groupby(samples, key=lambda sample: sample[0]):
            yield _family(metric, some)

    def _samples(self) -> Iterator[Sample]:
        yield c.BUILD, (release(),), 1
        yield from samples.of_work(self.instruments)
        yield from samples.of_events(self.instruments)
        yield from samples.of_credentials(self._access, datetime.now(UTC))
        writer = self._writer
        yield c.READY, (), writer is not None
        if writer is None:
            return
        state = writer.state
        now_ns = writer.now_ns()
        yield from samples.of_state(state, now_ns)
        if self._is_per_job:
            yield from samples.of_jobs(state, now_ns)
            if self.agents is not None:
                yield from samples.of_steps(state, self.agents)
        yield c.LEADER, (), writer.is_leading
        yield c.REPLAY, (), self._replay_s
        yield c.QUEUE, (), writer.waiting
        yield c.WATCHES, (), writer.feed.streams
        yield c.LAG, (), writer.feed.lag
        if self._disk is not None:
            yield from samples.of_disk(self._disk)


def registry(gauges: Gauges) -> CollectorRegistry:
    """Return a registry with our metrics, and those that every Python process has: memory,
    descriptors, threads."""
    collectors = CollectorRegistry()
    collectors.register(gauges)
    ProcessCollector(registry=collectors)
    PlatformCollector(registry=collectors)
    GCCollector(registry=collectors)
    return collectors


def _family(metric: c.Metric, some: Iterable[Sample]) -> Metric:
    if metric.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
        for _, labels, value in some:
            assert isinstance(value, Histogram)
            _add_histogram(histogram, labels, value)
        return histogram
    make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.text, labels=metric.labels)
    for _, labels, value in some:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def _add_histogram(family: HistogramMetricFamily, labels: Labels, values: Histogram) -> None:
    bounds = [*map(float, values.bounds), float("inf")]
    below = accumulate(values.counts)
    named = (_bound(bound) for bound in bounds)
    family.add_metric(labels, list(zip(named, below, strict=True)), values.total)


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
