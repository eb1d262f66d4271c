"""The referee, against an edge list counted by networkx and every arrangement of a small ring."""

from itertools import permutations
from random import Random

import networkx as nx
import numpy as np
import pytest

from placement.objective.cut import cut_by_axis
from placement.workload.request import Request
from tests.build import EVERY_PATTERN


def edges(req: Request) -> dict[str, list[tuple[int, int, int]]]:
    """(from, to, bytes) by axis, written out from the definition (docs/traffic.md).

    Rings, chains and all-to-all only; bytes are given explicitly.
    """
    sent = dict(req.traffic)
    chunks = req.batch.virtual_stages if req.batch else 1
    made: dict[str, list[tuple[int, int, int]]] = {}
    for axis in req.parallelism.axes:
        w = sent.get(axis, 0)
        mine = made.setdefault(axis, [])
        for group in req.parallelism.groups(axis):
            n = len(group)
            if n == 1:
                continue
            if axis == "pp":
                mine += [(group[i], group[i + 1], w) for i in range(n - 1)]
                mine.append((group[-1], group[0], w * (chunks - 1) // chunks))
            elif axis == "ep":
                mine += [(a, b, w) for a, b in permutations(group, 2)]
            else:
                mine += [(group[i], group[(i + 1) % n], w) for i in range(n)]
    return made


def networkx_cut(req: Request, gpus: int, domain_by_block: list[int]) -> dict[str, int]:
    """Bytes by axis: half the sum over domains of the edges that leave one."""
    counted = {}
    for axis, made in edges(req).items():
        graph = nx.MultiGraph()
        graph.add_nodes_from(range(req.parallelism.world_size))
        graph.add_edges_from((a, b, {"weight": w}) for a, b, w in made)
        domain_by_rank = [d for d in domain_by_block for _ in range(gpus)]
        leaving = sum(
            nx.cut_size(graph, {r for r, d in enumerate(domain_by_rank) if d == z}, weight="weight")
            for z in set(domain_by_rank)
        )
        assert leaving % 2 == 0
        if leaving:
            counted[axis] = int(leaving) // 2
    return counted


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("req", EVERY_PATTERN.values(), ids=EVERY_PATTERN)
def test_referee_agrees_with_networkx(req: Request, gpus: int) -> None:
    random = Random(f"{req.parallelism}")
    blocks = req.parallelism.world_size // gpus
    for domains in (1, 2, 3, blocks):
        for _ in range(5):
            domain_by_block = [random.randrange(domains) for _ in range(blocks)]
            found = dict(cut_by_axis(req, gpus, np.array(domain_by_block)))
            assert found == networkx_cut(req, gpus, domain_by_block)
