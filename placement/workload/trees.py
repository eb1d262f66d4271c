"""Double binary trees, over which NCCL sums whole vectors: who sends how much to whom.

Half of the vector goes up and down each of two trees, whose nodes are the ranks of a group on one
host; leaves of the one are inner nodes of the other. Inside a node the ranks form a chain that ends
at the node's head. Each rank of a node is its head for an equal part of the vector, as NCCL's
channels take turns.

Source: NVIDIA/nccl, src/graph/trees.cc (ncclGetBtree, ncclGetDtree); Sanders, Speck and Traff 2009.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement.fabric.tree import Ints


def ranks_of_node(size: int, stride: int, per_host: int) -> int:
    """Return how many neighbouring ranks of a group lie on one host of `per_host` ranks; of those
    numbers the largest that divides the group."""
    return gcd(size, max(1, per_host // stride))


def tree_parents(n: int) -> Ints:
    """Return the parent of each node in NCCL's binary tree, -1 at the root, 0. Shape: (n,)."""
    import numpy as np

    nodes = np.arange(n)
    low = nodes & -nodes
    up = (nodes ^ low) | (low << 1)
    parents = np.where(up < n, up, nodes ^ low)
    parents[0] = -1
    return parents


def both_trees(n: int) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """List (children, parents) of each tree, every node after its parent. Shapes: (n - 1,).

    The second tree is the mirror image of the first for even n, and shifted by 1 for odd.
    """
    import numpy as np

    nodes = np.arange(n)
    child = np.array(sorted(range(1, n), key=lambda node: -(node & -node)), dtype=np.int64)
    parent = tree_parents(n)[child]
    other = nodes[::-1] if n % 2 == 0 else np.roll(nodes, -1)  # its number in the second tree
    return (child, parent), (other[child], other[parent])


@lru_cache(maxsize=256)
def depth_of_trees(n: int) -> int:
    """Return the messages one after the other from the root of a tree to its farthest node."""
    depth = [0] * n
    for child, parent in zip(*both_trees(n)[0], strict=True):
        depth[child] = depth[parent] + 1
    return max(depth)


@lru_cache(maxsize=256)
def tree_edges(size: int, node: int) -> tuple[Ints, Ints, Ints]:
    """List sender, receiver and parts of the vector of a group's messages, each pair of ranks once
    in each direction. Of `size` ranks `node` neighbours form a node; a part is 1 / (2 node) of the
    vector. Shapes: (messages,).
    """
    import numpy as np

    head, rank = np.arange(node), np.arange(size)
    children, parents = map(np.concatenate, zip(*both_trees(size // node), strict=True))
    low, high = ((each[:, None] * node + head).ravel() for each in (children, parents))
    # The chain of each head but one passes between a rank and the next.
    following = rank - rank % node + (rank + 1) % node
    key = np.concatenate([low * size + high, rank * size + following])
    back = np.concatenate([high * size + low, following * size + rank])
    parts = np.concatenate([np.ones_like(low), np.full(size, 2 * (node - 1))])
    keys, where = np.unique(np.concatenate([key, back]), return_inverse=True)
    total = np.bincount(where, np.concatenate([parts, parts])).astype(np.int64)
    keys, total = keys[total > 0], total[total > 0]
    return keys // size, keys % size, total
