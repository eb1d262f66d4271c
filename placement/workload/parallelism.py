"""Axes, order and rank numbers.

`order` names the axes fastest-varying first, as Megatron-Core does; a rank is the
sum of index x stride over the axes. TorchTitan and DeepSpeed list meshes the other
way round (outermost first): `order` is their dimension list reversed.
"""

from __future__ import annotations

from muster.structs import struct
from placement.errors import BadInput

AXES = ("tp", "cp", "ep", "pp", "dp")
DEFAULT_ORDER = "tp-cp-ep-pp-dp"


@struct(frozen=True, slots=True)
class Parallelism:
    """Sizes per axis and the order of ranks. Axes left out have size 1.

    Raises: BadInput on a size below 1, an unknown or repeated axis in `order`, or
    an axis wider than 1 that `order` leaves out.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1
    order: str = DEFAULT_ORDER

    def __post_init__(self) -> None:
        for axis in AXES:
            if self.size(axis) < 1:
                raise BadInput(f"parallelism.{axis}", "must be at least 1")
        named = self.order.split("-")
        for axis in named:
            if axis not in AXES:
                raise BadInput(
                    "parallelism.order", f"unknown axis {axis!r}; axes are {', '.join(AXES)}"
                )
        if len(set(named)) != len(named):
            raise BadInput("parallelism.order", f"names an axis twice: {self.order}")
        for axis in AXES:
            if axis not in named and self.size(axis) > 1:
                raise BadInput(
                    "parallelism.order", f"leaves out {axis}, which has size {self.size(axis)}"
                )

    def size(self, axis: str) -> int:
        return int(getattr(self, axis))

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes, fastest-varying first; axes that `order` leaves out have size 1."""
        return tuple(self.order.split("-"))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the axes, in the order of `axes`."""
        return tuple(self.size(axis) for axis in self.axes)

    @property
    def world_size(self) -> int:
        return self.tp * self.cp * self.ep * self.pp * self.dp

    def stride(self, axis: str) -> int:
        """Return the distance in ranks between neighbours along `axis`."""
        stride = 1
        for name in self.axes:
            if name == axis:
                return stride
            stride *= self.size(name)
        return stride

    def groups(self, axis: str) -> list[list[int]]:
        """Return the ranks of each collective along `axis`, in rank order of their first member."""
        stride, size = self.stride(axis), self.size(axis)
        firsts = [r for r in range(self.world_size) if r // stride % size == 0]
        return [[first + i * stride for i in range(size)] for first in firsts]


def expert_axes(inner: int, dp: int, group: int) -> tuple[int, int]:
    """Return the ep and dp axes of a job whose experts are spread over groups of `group` ranks,
    which take the `inner` ranks of tp and cp first, then replicas.

    Raises: BadInput where groups end inside replicas.
    """
    if group > inner and (group % inner or dp % (group // inner)):
        raise BadInput("ep", f"{group} ranks are not tp x cp {inner} times a part of dp {dp}")
    ep = max(1, group // inner)
    return ep, dp // ep
