"""All-reduces as programs of single ranks, in the XML that MSCCL's interpreter runs beside NCCL.

`messages` lists who sends which chunks to whom, in an order in which each could be carried out
after the one before; `msccl_algorithm` makes of it thread blocks: one for each rank, peer,
direction and channel, whose steps go one after the other. A step waits for steps of other blocks of
its rank that wrote its chunks, or that read what it overwrites.

    chunk     a part of the vector: of n in rings and rounds, 2 a head of a node in trees
    steps     `s` sends, `rrc` adds to a chunk what arrives, `r` puts it there, `nop` waits

Source: microsoft/msccl-tools, msccl/language/ir.py; Azure/msccl-scheduler, src/parser.cc.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import quoteattr

from muster.structs import replace, struct
from placement import BadInput
from placement.workload.request import Collective, Request
from placement.workload.traffic import (
    AxisTraffic,
    axis_traffic,
    check_whole_sums,
    rounds_of,
)
from placement.workload.trees import both_trees, ranks_of_node

# Of a group: a block of the interpreter has 256 steps, a ring 2 (n-1).
MOST_RANKS = 128


@struct(frozen=True, slots=True)
class Message:
    """`count` chunks from `first` on, sent from one rank of a group to another, where they are
    added to what is there or, with `is_sum` false, take its place."""

    src: int
    dst: int
    first: int
    count: int
    is_sum: bool
    channel: int = 0


@struct(frozen=True, slots=True)
class AxisProgram:
    """The all-reduce of one axis, the same for each of its groups. `traffic`: of a ring, which
    names its ranks; `payload_bytes`: of a group's vector in a step."""

    traffic: AxisTraffic
    used: Collective
    node: int

    @property
    def payload_bytes(self) -> float:
        return self.traffic.edge_bytes * self.traffic.size / (2 * (self.traffic.size - 1))

    @property
    def chunks(self) -> int:
        """Return into how many parts of equal size the vector is cut."""
        return 2 * self.node if self.used is Collective.TREE else self.traffic.size

    def messages(self) -> list[Message]:
        """List the messages of a group."""
        return messages(self.used, self.traffic.size, self.node)


def axis_program(request: Request, per_host: int) -> AxisProgram:
    """Return the program of the axis with a collective in the job file; of dp, where none is stated
    or several. `per_host`: ranks of a host.

    Raises: BadInput where the axis does not sum whole vectors, or its messages depend on hosts.
    """
    if request.roles:
        raise BadInput("roles", "a gang of several roles has no one axis whose schedule is written")
    stated = dict(request.collectives)
    axis = next(iter(stated)) if len(stated) == 1 else "dp"
    used = stated.get(axis, Collective.RING)
    if used is Collective.HIERARCHICAL:
        message = "is hierarchical, and who sends to whom depends on domains: ring, tree and rounds"
        raise BadInput(f"collectives.{axis}", f"{message} have a schedule")
    check_whole_sums(request, axis, "a schedule is written of sums of whole vectors")
    whole = {each.axis: each for each in axis_traffic(replace(request, collectives=()))}
    if axis not in whole or not whole[axis].edge_bytes:
        raise BadInput(f"parallelism.{axis}", "nothing is sent along it: there is no schedule")
    traffic = whole[axis]
    if traffic.size > MOST_RANKS:
        message = f"groups of {traffic.size} ranks; MSCCL's interpreter has steps for {MOST_RANKS}"
        raise BadInput(f"parallelism.{axis}", message)
    return AxisProgram(traffic, used, ranks_of_node(traffic.size, traffic.stride, per_host))


def messages(used: Collective, size: int, node: int = 1) -> list[Message]:
    """List the messages of an all-reduce of `size` ranks. `node`: ranks on each host, of trees.

    Not of hierarchical ones, whose messages depend on where ranks lie.
    """
    if used is Collective.TREE:
        return [each for head in range(node) for each in _tree_messages(size, node, head)]
    rounds = [(1, size)] if used is Collective.RING else rounds_of(used, size)
    return list(_round_messages(size, rounds))


def _round_messages(size: int, rounds: Sequence[tuple[int, int]]) -> Iterator[Message]:
    """Reduce and scatter round by round, each a ring of `factor` ranks `apart`; gather backwards.

    A rank keeps a run of chunks, of which each round leaves it one part in `factor`.
    """
    kept = [(0, size)] * size  # first chunk and count, by rank
    runs = []
    for apart, factor in rounds:
        runs.append((apart, factor, kept))
        for step in range(factor - 1):
            yield from _ring_step(kept, apart, factor, step + 1, is_sum=True)
        kept = [
            (first + rank // apart % factor * (count // factor), count // factor)
            for rank, (first, count) in enumerate(kept)
        ]
    for apart, factor, before in reversed(runs):
        for step in range(factor - 1):
            yield from _ring_step(before, apart, factor, step, is_sum=False)


def _ring_step(
    kept: Sequence[tuple[int, int]], apart: int, factor: int, behind: int, *, is_sum: bool
) -> Iterator[Message]:
    """Each rank sends the next one in its ring the part that is `behind` its own."""
    for rank, (first, count) in enumerate(kept):
        place, part = rank // apart % factor, count // factor
        following = rank + ((place + 1) % factor - place) * apart
        begin = first + (place - behind) % factor * part
        yield Message(rank, following, begin, part, is_sum)


def _tree_messages(size: int, node: int, head: int) -> Iterator[Message]:
    """List the messages of both trees for the chunks of one head: along chains to the heads, up,
    down and back."""
    for number, (children, parents) in enumerate(both_trees(size // node)):
        edges = [
            (child * node + head, parent * node + head)
            for child, parent in zip(children.tolist(), parents.tolist(), strict=True)
        ]
        chains = [
            (first + (head + n + 1) % node, first + (head + n) % node)
            for first in range(0, size, node)
            for n in range(node - 1)
        ]
        downwards = [*edges, *chains]  # each rank after the one that it hears from
        chunk = 2 * head + number
        for below, above in reversed(downwards):
            yield Message(below, above, chunk, 1, True, number)
        for below, above in downwards:
            yield Message(above, below, chunk, 1, False, number)


Block = tuple[str, int, int]  # "s" or "r", the peer, the channel
Place = tuple[Block, int]  # a step of a block


@struct(frozen=True, slots=True)
class BlockStep:
    """`message`: None of a step that only waits. `after`: a step of another block."""

    kind: str
    message: Message | None
    after: Place | None


class _Rank:
    """The thread blocks of one rank in the making."""

    def __init__(self) -> None:
        self.blocks: dict[Block, list[BlockStep]] = {}
        self._written: dict[int, Place] = {}
        self._read: defaultdict[int, list[Place]] = defaultdict(list)

    def add(self, block: Block, kind: str, message: Message) -> None:
        """Add a step, after waits for all but one of the steps that must be over before it."""
        steps = self.blocks.setdefault(block, [])
        chunks = range(message.first, message.first + message.count)
        latest: dict[Block, int] = {}
        for chunk in chunks:
            before = [self._written[chunk]] if chunk in self._written else []
            before += self._read[chunk] if kind != "s" else []
            for other, number in before:
                if other != block:
                    latest[other] = max(number, latest.get(other, 0))
        *waits, last = (None, *latest.items())
        steps += [BlockStep("nop", None, wait) for wait in waits if wait]
        steps.append(BlockStep(kind, message, last))
        here = block, len(steps) - 1
        for chunk in chunks:
            if kind == "s":
                self._read[chunk].append(here)
            else:
                self._written[chunk] = here
                self._read[chunk] = []


def msccl_algorithm(
    name: str, size: int, chunks: int, sent: Iterable[Message], least: int, most: int
) -> Iterator[str]:
    """Yield the lines of the XML of an all-reduce, for vectors of `least` to `most` bytes."""
    ranks = [_Rank() for _ in range(size)]
    channels = 1
    for each in sent:
        channels = max(channels, each.channel + 1)
        ranks[each.src].add(("s", each.dst, each.channel), "s", each)
        ranks[each.dst].add(("r", each.src, each.channel), "rrc" if each.is_sum else "r", each)
    yield (
        f'<algo name={quoteattr(name)} proto="Simple" nchannels="{channels}"'
        f' nchunksperloop="{chunks}" ngpus="{size}" coll="allreduce" inplace="1" outofplace="0"'
        f' minBytes="{least}" maxBytes="{most}">'
    )
    for number, rank in enumerate(ranks):
        yield f'  <gpu id="{number}" i_chunks="{chunks}" o_chunks="0" s_chunks="0">'
        ids = {block: n for n, block in enumerate(rank.blocks)}
        awaited = {step.after for steps in rank.blocks.values() for step in steps}
        for block, steps in rank.blocks.items():
            way, peer, channel = block
            send, recv = (peer, -1) if way == "s" else (-1, peer)
            yield f'    <tb id="{ids[block]}" send="{send}" recv="{recv}" chan="{channel}">'
            for n, step in enumerate(steps):
                first, count = (step.message.first, step.message.count) if step.message else (0, 0)
                depends, on = (ids[step.after[0]], step.after[1]) if step.after else (-1, -1)
                yield (
                    f'      <step s="{n}" type="{step.kind}" srcbuf="i" srcoff="{first}" dstbuf="i"'
                    f' dstoff="{first}" cnt="{count}" depid="{depends}" deps="{on}"'
                    f' hasdep="{int((block, n) in awaited)}"/>'
                )
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"
