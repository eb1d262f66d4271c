"""What small domains cut at least, against every partition of a handful of blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placement import company
from placement.pieces import Group, PieceGraph, graph_of_pieces
from placement.tiny import best_partition

BLOCKS = 6


@st.composite
def graphs(draw: st.DrawFn) -> PieceGraph:
    links: list[dict[int, int]] = [{} for _ in range(BLOCKS)]
    pairs = st.tuples(st.integers(0, BLOCKS - 1), st.integers(0, BLOCKS - 1))
    for (a, b), weight in draw(st.dictionaries(pairs, st.integers(1, 9), max_size=9)).items():
        if a != b:
            links[a][b] = links[b][a] = weight
    members = st.sets(st.integers(0, BLOCKS - 1), min_size=2).map(sorted)
    group = st.builds(
        lambda some, weight, is_clique: Group(tuple((v, 1) for v in some), weight, is_clique),
        members,
        st.integers(1, 9),
        st.booleans(),
    )
    return PieceGraph((1,) * BLOCKS, tuple(links), tuple(draw(st.lists(group, max_size=3))))


@given(graphs(), st.lists(st.integers(0, 4), min_size=BLOCKS, max_size=BLOCKS + 3))
def test_no_packing_beats_the_bound(graph: PieceGraph, room: list[int]) -> None:
    if sum(room) < BLOCKS:
        room = [*room, *[1] * BLOCKS]
    best = best_partition(graph_of_pieces(graph), room).tolist()
    assert company.least_cut(graph, room) <= graph.cost(best)


@given(graphs())
def test_alone_everything_is_cut(graph: PieceGraph) -> None:
    assert company.least_cut(graph, [1] * BLOCKS) == graph.cost(range(BLOCKS))


def test_a_ring_in_pairs_is_bounded_exactly() -> None:
    links = tuple({(v - 1) % 8: 3, (v + 1) % 8: 3} for v in range(8))
    ring = PieceGraph((1,) * 8, links, ())
    assert company.least_cut(ring, [2] * 4) == ring.cost([v // 2 for v in range(8)])
