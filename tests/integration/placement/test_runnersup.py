"""What other layouts would have cut."""

import numpy as np

from placement.baselines import runners_up
from placement.fabric.reader import preset
from placement.objective.cut import cut
from placement.workload.request import NO_SPARES, Placement, Request
from tests.build import everything, fabric, llama3, place_checked, request


def others(on: str, req: Request) -> tuple[Placement, dict[str, int]]:
    network = preset(on)
    answer = place_checked(network, everything(network), req)
    found = runners_up(network, np.arange(network.host_count), req, answer)
    return answer, {other.name: other.cut.bytes_per_step for other in found}


def test_llama_3_is_cut_between_stages_rather_than_replicas() -> None:
    answer, cuts = others("roce-24k", llama3(2))
    boundaries, rings = 5, 6
    assert cuts["whole stages"] == boundaries * 1_024 * 1_073_741_824 == answer.cut
    assert cuts["whole replicas"] == rings * 128 * 18_875_749_650
    by_name = sorted(answer.hosts)
    network = preset("roce-24k")
    assert cuts["hosts by name"] == cut(network, llama3(2), by_name)[0].bytes_per_step


def test_nothing_to_explain_where_nothing_is_cut() -> None:
    req = request(tp=8, dp=2, traffic={"dp": 5}, spares=NO_SPARES)
    answer = place_checked(fabric(), everything(fabric()), req)
    assert runners_up(fabric(), np.arange(8), req, answer) == ()
