"""Which of several offers is best, and what is said of the others."""

from itertools import pairwise

from scheduler.client.route import Offer, StartKind, compared, offer_of, rank
from scheduler.v1 import job_pb2, placement_pb2

BEST_FIRST = [
    (Offer(StartKind.NOW, step_s=1.0, cut_bytes=5), ""),
    (Offer(StartKind.NOW, step_s=1.0, cut_bytes=6), "more bytes cross its outermost tier"),
    (Offer(StartKind.NOW, step_s=1.5, cut_bytes=1), "its step is 50 % longer"),
    (Offer(StartKind.NOW, cut_bytes=1), "its step is not known"),
    (Offer(StartKind.BY_STOPPING_OTHERS, shrunk=1, step_s=0.1), "would stop other jobs"),
    (Offer(StartKind.BY_STOPPING_OTHERS, shrunk=2, step_s=0.1), "would stop other jobs"),
    (Offer(StartKind.BY_STOPPING_OTHERS, preempted=1, step_s=0.1), "would stop other jobs"),
    (Offer(StartKind.LATER, 1_000), "starts later"),
    (Offer(StartKind.LATER, 2_000), "starts later"),
    (Offer(StartKind.NOT_BEFORE, 500), "its start is not foreseen"),
    (Offer(StartKind.UNKNOWN), "its start is not known"),
    (Offer(StartKind.NEVER), "never fits"),
]


def test_offers_stand_in_this_order() -> None:
    offers = {str(place): offer for place, (offer, _) in enumerate(BEST_FIRST)}
    shuffled = dict(sorted(offers.items(), key=lambda item: hash(item[1])))
    assert rank(shuffled) == list(offers)
    assert all(a.key < b.key for a, b in pairwise(offers.values()))


def test_equal_offers_stand_as_the_clusters_were_named() -> None:
    offer = Offer(StartKind.NOW, step_s=1.0, cut_bytes=5)
    assert rank({"b": offer, "a": offer}) == ["b", "a"]
    assert compared(offer, offer) == "as good, and named later"


def test_what_decides_against_an_offer() -> None:
    for offer, words in BEST_FIRST[1:]:
        assert compared(offer, BEST_FIRST[0][0]) == words


def test_what_decides_between_offers_that_stop_others() -> None:
    def stops(preempted: int, shrunk: int) -> Offer:
        return Offer(StartKind.BY_STOPPING_OTHERS, preempted=preempted, shrunk=shrunk)

    assert compared(stops(3, 0), stops(1, 5)) == "would preempt 2 more"
    assert compared(stops(1, 2), stops(1, 1)) == "would shrink 1 more"


def test_an_offer_is_what_a_dry_run_answers() -> None:
    answer = job_pb2.Job()
    answer.answer.outcome = placement_pb2.OUTCOME_PLACED
    assert offer_of(answer) == Offer(StartKind.NOW, cut_bytes=0)
    answer.answer.placement.step_time.FromMilliseconds(250)
    answer.answer.placement.cuts.add(tier="zone", bytes_per_step=7)
    answer.answer.preempted_jobs = 2
    assert offer_of(answer) == Offer(
        StartKind.BY_STOPPING_OTHERS, preempted=2, step_s=0.25, cut_bytes=7
    )
    waits = job_pb2.Job()
    waits.answer.outcome = placement_pb2.OUTCOME_INSUFFICIENT
    waits.answer.reason = "needs 2"
    assert offer_of(waits) == Offer(StartKind.UNKNOWN, reason="needs 2")
    waits.start_estimate.not_before_time.FromSeconds(9)
    assert offer_of(waits) == Offer(StartKind.NOT_BEFORE, 9.0, reason="needs 2")
    waits.start_estimate.start_time.FromSeconds(8)
    assert offer_of(waits) == Offer(StartKind.LATER, 8.0, reason="needs 2")
    waits.answer.outcome = placement_pb2.OUTCOME_INFEASIBLE
    assert offer_of(waits).is_impossible
