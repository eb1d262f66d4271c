"""Which of several clusters is the best for a job."""

from typing import Any

from scheduler.client.route import ClusterView, rank
from scheduler.v1 import job_pb2, placement_pb2


def offer(outcome: str = "PLACED", step_ms: int = 0, cut: int = 0, **answer: Any) -> job_pb2.Job:
    job = job_pb2.Job()
    job.answer.outcome = placement_pb2.Outcome.Value(f"OUTCOME_{outcome}")
    for name, value in answer.items():
        setattr(job.answer, name, value)
    if step_ms:
        job.answer.placement.step_time.FromMilliseconds(step_ms)
    if cut:
        job.answer.placement.cuts.add(tier="zone", bytes_per_step=cut)
    return job


def waiting(start_s: int = 0, not_before_s: int = 0) -> job_pb2.Job:
    job = offer("INSUFFICIENT")
    if start_s:
        job.start_estimate.start_time.FromSeconds(start_s)
    if not_before_s:
        job.start_estimate.not_before_time.FromSeconds(not_before_s)
    return job


BEST_FIRST = [
    offer(step_ms=1_000, cut=5),
    offer(step_ms=1_000, cut=6),
    offer(step_ms=1_500, cut=1),
    offer(cut=1),  # its step is not known
    offer(step_ms=100, shrunk_jobs=1),
    offer(step_ms=100, shrunk_jobs=2),
    offer(step_ms=100, preempted_jobs=1),
    waiting(1_000),
    waiting(2_000),
    waiting(not_before_s=500),
    waiting(),
]


def test_offers_stand_in_this_order() -> None:
    views = [ClusterView(str(place), job) for place, job in enumerate(BEST_FIRST)]
    impossible = ClusterView("never", offer("INFEASIBLE"))
    assert rank([impossible, *views[::-1]]) == [view.name for view in views]


def test_equal_offers_stand_as_the_clusters_were_named() -> None:
    assert rank([ClusterView(name, BEST_FIRST[0]) for name in ("b", "a")]) == ["b", "a"]
