"""What is asked of placement, and the four answers it can give.

Every value is frozen and hashable. Hosts are indices into `Fabric.hosts`.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from muster.structs import Derived, replace, struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, Constraints
from placement.fabric.hostset import HostSet
from placement.workload.parallelism import Parallelism
from placement.workload.training import AS_LLAMA3, Batch, ModelShape, Training


class Collective(StrEnum):
    """How an axis moves its bytes; what each cuts is in objective/cut.py."""

    RING = "ring"
    HIERARCHICAL = "hierarchical"
    # Between pairs of ranks 1, 2, 4 .. apart: the large messages near by, as PAT of NCCL sends
    # them too, or far away.
    HALVING_DOUBLING = "halving_doubling"
    HALVING_DOUBLING_FAR = "halving_doubling_far"
    PAT = "pat"
    TREE = "tree"  # NCCL's double binary tree over hosts, a chain inside each; sums whole vectors

    @classmethod
    def _missing_(cls, value: object) -> Collective | None:
        named = str(value).replace("-", "_")
        return next((each for each in cls if each.value == named), None)

    @property
    def is_in_rounds(self) -> bool:
        """Whether each round has partners of its own."""
        return self not in (Collective.RING, Collective.HIERARCHICAL, Collective.TREE)


class Objective(StrEnum):
    """The measure that is minimised first; the cuts, outermost first, break the ties of the
    others."""

    CUT = "cut"
    SPREAD = "spread"
    TIME = "time"


@struct(frozen=True, slots=True)
class SpareRule:
    """How many healthy hosts to hold beside the gang.

    With neither `hosts` nor `share` the rule is *auto*: as many as sizing asks for,
    or fewer when fewer are free. An exact number or share must be there.
    """

    hosts: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if self.hosts is not None and self.share is not None:
            raise BadInput("spares", "give a number of hosts or a share, not both")
        if self.hosts is not None and self.hosts < 0:
            raise BadInput("spares", f"must not be negative, is {self.hosts}")
        if self.share is not None and not 0 <= self.share <= 1:
            raise BadInput("spares", f"a share must be 0 to 1, is {self.share}")

    @property
    def is_auto(self) -> bool:
        return self.hosts is None and self.share is None

    def required(self, gang_hosts: int) -> int:
        """Return how many spares the job needs to start."""
        if self.hosts is not None:
            return self.hosts
        # ceil, with room for 0.02 * 50 landing a hair above 1
        return 0 if self.share is None else -int(-(self.share * gang_hosts - 1e-9) // 1)

    def __str__(self) -> str:
        if self.hosts is not None:
            return str(self.hosts)
        return "auto" if self.share is None else f"{self.share * 100:g}%"


AUTO = SpareRule()
NO_SPARES = SpareRule(hosts=0)
STEP_MODEL = 3  # of step times
EVEN_ALPHA = 0.5  # DP and PP groups weigh the same


@struct(frozen=True, slots=True)
class Request:
    """A gang to place: its shape, what it sends, what it holds in reserve.

    `traffic`: explicit bytes per step on one edge, by axis; wins over `model`.
    `collectives`: pattern by axis, ring where nothing is said. `training`: how the
    model's state and work are split, from which its bytes follow.
    `spread_alpha`: what a zone more of a DP group weighs in `spread`, 0 to 1; one of a
    PP group weighs the rest. `prices`: what a byte of an axis counts in the cut, in
    thousandths; 1,000 where nothing is said. `where`: on which hosts it may lie.
    `compute_s`: measured seconds of compute in one step; wins over what the model says.
    `step_model`: version of the model of its step time that was the newest when the job was given
    in; all of them are timed by the one there is.
    `cut_slack`: how much longer than the shortest a step may be for fewer bytes between zones, as
    a share of it, with the objective *time*; None: as much as the model cannot tell apart
    (`resolution` of objective/fitted_constants.py).
    `roles`: of a gang of several roles (workload/roles.py), the shape and the traffic of each;
    `parallelism` then counts the ranks of all roles, one role after the other.
    `is_on_cpus`: its ranks are, of which neither a step nor bytes are modelled.
    `gpu_watts`: that each of its GPUs is held to; 0: to none.
    """

    parallelism: Parallelism
    traffic: tuple[tuple[str, int], ...] = ()
    collectives: tuple[tuple[str, Collective], ...] = ()
    model: ModelShape | None = None
    batch: Batch | None = None
    spares: SpareRule = AUTO
    objective: Objective = Objective.CUT
    spread_alpha: float = EVEN_ALPHA
    prices: tuple[tuple[str, int], ...] = ()
    training: Training = AS_LLAMA3
    where: Constraints = ANYWHERE
    compute_s: float | None = None
    step_model: int = STEP_MODEL
    cut_slack: float | None = None
    roles: tuple[GangRole, ...] = ()
    is_on_cpus: bool = False
    gpu_watts: int = 0

    def __post_init__(self) -> None:
        if self.cut_slack is not None and not 0 <= self.cut_slack <= 1:
            raise BadInput("cut_slack", f"must be 0 to 1, is {self.cut_slack}")
        if self.compute_s is not None and not self.compute_s > 0:
            raise BadInput("compute_time_s", f"must be above 0, is {self.compute_s}")
        if not 0 <= self.spread_alpha <= 1:
            raise BadInput("spread_alpha", f"must be 0 to 1, is {self.spread_alpha}")

    def with_power_limit(self, gpu_watts: int) -> Request:
        """Return the gang with each of its GPUs held to so many watts."""
        roles = (
            replace(role, request=role.request.with_power_limit(gpu_watts)) for role in self.roles
        )
        return replace(self, gpu_watts=gpu_watts, roles=tuple(roles))

    @property
    def resized_part(self) -> Request:
        """The part whose replicas a resize changes: the last role, or the whole gang."""
        return self.roles[-1].request if self.roles else self

    @property
    def room_key(self) -> Request | Constraints:
        """Return what beside the number of its hosts decides on which ones it has room."""
        return self if self.where.has_segments else self.where

    @property
    def replicas(self) -> int:
        """Data parallel replicas of all of it, or of its last role."""
        return self.resized_part.parallelism.dp

    @property
    def has_step_time(self) -> bool:
        """Whether the request says enough to know the seconds of a step."""
        own = self.model is not None or self.compute_s is not None
        return own or any(role.request.has_step_time for role in self.roles)

    def part_gpus(self, gpus_per_host: int) -> int:
        """Return how many GPUs of its only host a job takes that does not fill it; 0 for a gang of
        whole hosts."""
        ranks = self.parallelism.world_size
        return ranks if ranks < gpus_per_host and not self.roles else 0

    def ranks_per_host(self, gpus_per_host: int) -> int:
        """Ranks on each of its hosts."""
        return self.part_gpus(gpus_per_host) or gpus_per_host

    def hosts_needed(self, gpus_per_host: int) -> int:
        """Return the number of blocks of the gang: ranks / GPUs per host; one where they fill only
        a part of it.

        Raises: BadInput when the last of several hosts would be filled only in part.
        """
        if self.roles:
            return sum(role.hosts_needed(n, gpus_per_host) for n, role in enumerate(self.roles))
        ranks = self.parallelism.world_size
        if self.part_gpus(gpus_per_host):
            return 1
        if ranks % gpus_per_host:
            sizes = " x ".join(
                f"{axis} {self.parallelism.size(axis)}" for axis in self.parallelism.axes
            )
            raise BadInput(
                "parallelism",
                f"{sizes} = {ranks} ranks do not fill whole hosts of {gpus_per_host} GPUs",
            )
        return ranks // gpus_per_host


@struct(frozen=True, slots=True)
class GangRole:
    """One role of a gang: its shape and what its ranks send each other, as a gang by itself.

    `sends`: bytes per step to other roles, by their names, spread evenly over the ranks of both.
    """

    name: str
    request: Request
    sends: tuple[tuple[str, int], ...] = ()

    def hosts_needed(self, number: int, gpus_per_host: int) -> int:
        """Return the number of blocks of the role. `number`: its place among the roles.

        Raises: BadInput when its ranks do not fill whole hosts.
        """
        ranks = self.request.parallelism.world_size
        if ranks % gpus_per_host:
            raise BadInput(
                f"roles.{number}.parallelism",
                f"{ranks} ranks of role {self.name} do not fill whole hosts of {gpus_per_host}"
                " GPUs: a role shares no host with another",
            )
        return ranks // gpus_per_host


SHARES = (25, 4, 1)  # turn by turn, one part in so many of the work allowed


@struct(frozen=True, slots=True)
class Limits:
    """How much work the last turn of a solve may do; a whole solve may take a few times as
    much. Work is counted, never timed: the same request has the same answer on any machine.

    `rounds`: of branch and price, some 10 ms each, and what CP-SAT does on small gangs; `trees`:
    slicing trees tried, some 30 us each, which annealing takes as its measure as well. 0 of both
    forbids any search, and a request then ends *undecided*. `entries`, `states` and `walk` bound
    tables, and with them memory and the longest single step; less of them proves less. `entries`:
    of tables of part sizes, a second at most; `states`: of the pricing table of a proof, some
    0.3 s a round; `walk`: steps of the dynamic programs along a frontier, about a second.
    `turns`: of proof and search, each with a larger share of all that. `without`: names of
    techniques that are left out, to measure what each of them buys.
    """

    rounds: int = 100
    trees: int = 10_000
    entries: int = 100_000_000
    states: int = 30_000_000
    walk: int = 600_000_000
    turns: int = 3
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if min(self.rounds, self.trees, self.entries, self.states, self.walk) < 0 or self.turns < 1:
            raise BadInput("limits", "must not be negative, and turns at least 1")

    @property
    def first(self) -> Limits:
        """The limits of the first turn, which are all that a quick search gets."""
        return self.part(SHARES[0])

    def may_use(self, technique: str) -> bool:
        """Return whether the technique of this name is not left out."""
        return technique not in self.without

    def part(self, share: int) -> Limits:
        """Return limits with one part in so many of rounds, trees and entries; of rounds and trees,
        if any, at least one. The other budgets stay whole."""
        return replace(
            self,
            rounds=-(-self.rounds // share),
            trees=max(min(1, self.trees), self.trees // share),
            entries=self.entries // share,
        )


UNSEARCHED = Limits(rounds=0, trees=0)


@struct(frozen=True, slots=True)
class TierCut:
    """Bytes per step that cross the boundaries of one tier, each counted once."""

    tier: str
    bytes_per_step: int
    by_axis: tuple[tuple[str, int], ...] = ()


@struct(frozen=True, slots=True)
class TierBound:
    """Bytes per step that no placement goes below on `tier` while it cuts nothing on the
    tiers outside."""

    tier: str
    bytes_per_step: int


@struct(frozen=True, slots=True)
class StepBound:
    """Seconds of a training step, and a bound below which no placement on the same free hosts goes;
    0 where that is not known."""

    seconds: float
    least_seconds: float = 0.0

    @property
    def gap(self) -> float | None:
        """Share of the bound by which the step may be longer than the best."""
        return self.seconds / self.least_seconds - 1 if self.least_seconds else None


@struct(frozen=True)
class Placement:
    """The gang's hosts in block order, its spares, and the certificate.

    `lower_bound` holds for the outermost tier: no placement of this request on these
    free hosts cuts fewer bytes there. `inner`: the same for the first tier that is cut,
    where one domain of the tier outside holds the gang; None where that is unknown.
    `notes` says in sentences what the caller should know (fewer spares than asked for, an
    axis without traffic). `moved`: blocks on another host than the hint's, if one was
    given. `step`: of a job whose compute is known. `gpus`: those of its only host that it takes,
    where it leaves the others to others; none of a gang of whole hosts.
    """

    hosts: tuple[int, ...]
    spares: tuple[int, ...] = ()
    cuts: tuple[TierCut, ...] = ()
    lower_bound: int = 0
    is_optimal: bool = False
    notes: tuple[str, ...] = field(default=())
    moved: int | None = None
    inner: TierBound | None = None
    step: StepBound | None = None
    gpus: tuple[int, ...] = ()

    @Derived
    def allocation(self) -> HostSet:
        """Hosts and spares."""
        return hostset.of(self.hosts + self.spares)

    @property
    def cut(self) -> int:
        """Bytes over the outermost tier; 0 on a fabric without tiers."""
        return self.cuts[0].bytes_per_step if self.cuts else 0

    @property
    def gap(self) -> float:
        """Share of the cut that the bound leaves open; 0 when nothing is cut."""
        return (self.cut - self.lower_bound) / self.cut if self.cut else 0.0


@struct(frozen=True, slots=True)
class Insufficient:
    """The gang fits the fabric, but not the hosts that are free now: wait. `free_by_domain`: of the
    outermost tier."""

    needed: int
    free: int
    free_by_domain: tuple[tuple[str, int], ...]
    reason: str


@struct(frozen=True, slots=True)
class Infeasible:
    """Proof that the gang never fits this fabric, however empty."""

    reason: str


@struct(frozen=True, slots=True)
class Undecided:
    """The budget was spent with nothing found and nothing proved."""

    reason: str


Answer = Placement | Insufficient | Infeasible | Undecided
