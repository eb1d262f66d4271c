"""Nodes whose Ready condition comes and goes.

kube-controller-manager evicts no pod of a node that is not ready for a moment, for pods tolerate
that for some seconds. Nor does a gang leave a host for it here; and a node that has fallen before
within an hour is taken back only once it has been ready for a while, longer each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.files.health.found import NodeState

FALL_S: Final = 3.0  # for which a node may be not ready
# For which a node that fell twice has to be ready, and twice as long each time.
STEADY_S: Final = 60.0
_MOST_STEADY_S: Final = 600.0
_REMEMBERED_S: Final = 3600.0


class FlappingNodes:
    """Delays what nodes report that change between ready and not ready. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._falls_s: dict[str, list[float]] = {}
        self._since_s: dict[str, float] = {}  # of nodes of which a change is not told yet
        self._down: set[str] = set()  # of nodes of which it has been told that they are down

    @property
    def is_waiting(self) -> bool:
        """Return whether a report of a node is being delayed."""
        return bool(self._since_s)

    def standing(self, node: str, standing: NodeState | None) -> NodeState | None:
        """Return the state in which the node counts; None for the same as before."""
        now_s = self._clock()
        is_down = standing is NodeState.DOWN
        if standing is None or is_down == (node in self._down):
            self._since_s.pop(node, None)
            return standing
        since_s = self._since_s.setdefault(node, now_s)
        if now_s - since_s < (FALL_S if is_down else self._steady_s(node, now_s)):
            return None
        del self._since_s[node]
        if is_down:
            self._down.add(node)
            self._falls_s.setdefault(node, []).append(now_s)
        else:
            self._down.discard(node)
        return standing

    def _steady_s(self, node: str, now_s: float) -> float:
        falls_s = [at for at in self._falls_s.get(node, ()) if now_s - at < _REMEMBERED_S]
        self._falls_s[node] = falls_s
        return min(_MOST_STEADY_S, STEADY_S * 2 ** (len(falls_s) - 2)) if len(falls_s) > 1 else 0.0
