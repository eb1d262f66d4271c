"""What gangs read and write on the storage that they share, and how long their steps wait for it.

Reads of a dataset run ahead of the steps, so a step waits for data only where reading its bytes
takes longer than the step. Of what the storage reads, gangs that want little get it, and the rest
is shared out evenly (max-min). A checkpoint stops its gang while it is written; beside others who
write for the part m of the time it takes 1 + m times as long, as bytes do on uplinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil

from muster.structs import replace, struct
from placement import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import view_for_gang
from placement.fabric.hostset import HostSet
from placement.fabric.storage import NO_STORAGE, HostParts, Limits, Storage, find_store
from placement.fabric.tree import Fabric, Floats, masks
from placement.objective.step_time import exposure
from placement.workload.flops import parameter_count
from placement.workload.request import Request
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.job_terms import CheckpointTerms, DatasetTerms
from scheduler.core.wording import duration

GB = 1e9
ROUNDING_GB_PER_S = 1e-9
STATE_BYTES = 12  # of a parameter: fp32 copy and two moments, or fp32 parameter and moments


@struct(frozen=True, slots=True)
class CheckpointSizes:
    """Bytes of a checkpoint, in all and of the fullest host, and what the NICs of the gang and
    of one host carry in one direction. Units: bytes, bytes/s."""

    total: int
    of_host: int
    gang_bytes_per_s: float
    host_bytes_per_s: float

    def write_s(self, storage_bytes_per_s: float) -> float:
        """Return seconds to write to storage or read from it, all hosts at once."""
        return self.total / min(storage_bytes_per_s, self.gang_bytes_per_s)

    @property
    def from_peer_s(self) -> float:
        """Return the seconds in which one host loads its state from the memory of another."""
        return self.of_host / self.host_bytes_per_s


def sizes_of(fabric: Fabric, request: Request) -> CheckpointSizes | None:
    """Return the sizes of a checkpoint; None without a model. Bf16 parameters are made again from
    the fp32 copy, so they are not written; every host has an equal share of what data parallel
    ranks share out."""
    if request.model is None:
        return None
    seen = view_for_gang(fabric, request.where)
    hosts = request.hosts_needed(seen.gpus_per_host)
    total = STATE_BYTES * parameter_count(request.model)
    host_rate = seen.gpus_per_host * seen.nic_gbps * 1e9 / 8
    return CheckpointSizes(total, -(-total // hosts), hosts * host_rate, host_rate)


def bytes_of_step(request: Request, dataset: DatasetTerms) -> float:
    """Return the bytes of its dataset that all replicas together read in a step."""
    tokens = dataset.tokens
    if not tokens and request.model and request.batch:
        tokens = request.batch.global_sequences * request.model.sequence
    return tokens * dataset.token_bytes * copies_read(request, dataset)


def copies_read(request: Request, dataset: DatasetTerms) -> int:
    """Return how often each byte is read: once by each replica that has no shards of its own.

    Source: split_dataset_by_node of Hugging Face Datasets: where the number of shards does not
    divide, each node reads all of them and skips the examples of the others.
    """
    return request.replicas if dataset.shards % request.replicas else 1


@lru_cache(maxsize=4_096)
def most_read_gb_per_s(fabric: Fabric, request: Request, dataset: DatasetTerms | None) -> float:
    """Return the GB/s that a gang of full size reads in the shortest step it can have here: compute
    and bubble on the fastest GPUs that it may be given, nothing exposed. 0 without a dataset, and
    where GPUs lack the job's precision."""
    if dataset is None:
        return 0.0
    if dataset.read_gb_per_s:
        return dataset.read_gb_per_s
    try:
        rule = exposure(fabric, request)
    except BadInput:
        return 0.0
    step_s = rule.compute_s * (1 + float(rule.pipeline.bubble))
    return bytes_of_step(request, dataset) / GB / step_s


@struct(frozen=True, slots=True)
class StorageUse:
    """Reads and writes of one gang on storage.

    `read_gb_per_s`: while nothing holds up its steps, in the shortest step unless `step_s` says how
    long one takes. `step_bytes`: that each step reads, 0 where the rate is measured; `copies`: how
    often each byte is read. `sizes`: None: its checkpoints are not known. `read_store`,
    `write_store`: where its dataset and its checkpoints are. `parts`: of its hosts in domains that
    have paths to these; empty: they are not known.
    """

    read_gb_per_s: float
    step_bytes: float
    copies: int
    sizes: CheckpointSizes | None
    interval_s: float
    keep: int
    step_s: float | None = None
    read_store: Storage = NO_STORAGE
    write_store: Storage = NO_STORAGE
    parts: HostParts = ()

    def on(self, fabric: Fabric, hosts: Sequence[int]) -> StorageUse:
        """Return what the gang does to storage from these hosts."""
        tiers = {path.tier for store in (self.read_store, self.write_store) for path in store.paths}
        in_domains = Counter(
            (tier.name, fabric.domain(host, depth))
            for depth, tier in enumerate(fabric.tiers)
            if tier.name in tiers
            for host in hosts
        )
        parts = ((*place, count / len(hosts)) for place, count in in_domains.items())
        return replace(self, parts=tuple(parts))

    def at_step(self, step_s: float) -> StorageUse:
        """Return what the gang does where a step takes so long without the storage."""
        rate = self.step_bytes / GB / step_s if self.step_bytes else self.read_gb_per_s
        return replace(self, step_s=step_s, read_gb_per_s=rate)

    @property
    def dataset_limits(self) -> Limits:
        """Limits on the reads of its dataset."""
        return self.read_store.dataset_limits(self.parts)

    @property
    def readers_needed(self) -> int | None:
        """How many reader hosts its dataset takes; None where the file states none."""
        readers = self.read_store.readers
        return ceil(self.read_gb_per_s / readers.gb_per_s) if readers else None

    @property
    def write_seconds(self) -> dict[str, float]:
        """Seconds that each limit of its store alone has a checkpoint take, by the limit's text;
        empty where its size is not known."""
        return self._seconds(self.write_store.write_limits(self.parts))

    @property
    def load_s(self) -> float | None:
        """Seconds that a checkpoint takes to load; None: not known."""
        return max(self._seconds(self.write_store.read_limits(self.parts)).values(), default=None)

    def _seconds(self, limits: Limits) -> dict[str, float]:
        if self.sizes is None:
            return {}
        of_bytes = self.sizes.write_s
        return {text: of_bytes(rate * GB / part) for text, (part, rate) in limits.items()}

    @property
    def busy_shares(self) -> dict[str, float]:
        """The parts of the time in which it keeps each limit of its store busy, alone."""
        seconds = self.write_seconds
        if not seconds or not self.interval_s:
            return {}
        period_s = self.interval_s + max(seconds.values())
        return {text: write_s / period_s for text, write_s in seconds.items()}

    @property
    def stored_tb(self) -> float:
        """TB of the checkpoints that it keeps; 0 where they are not known or all stay."""
        return self.keep * self.sizes.total / 1e12 if self.sizes else 0.0


def dataset_store(fabric: Fabric, dataset: DatasetTerms | None) -> Storage:
    """Return the store that a dataset is in, the usual one without a dataset. Raises: BadInput
    where the fabric file has none of its name."""
    return find_store(fabric.stores, dataset.store if dataset else "", "dataset.store")


def storage_use(
    fabric: Fabric,
    request: Request,
    dataset: DatasetTerms | None,
    checkpoint: CheckpointTerms,
    usual: Costs,
) -> StorageUse:
    """Return what a gang does to storage. `usual`: where it states no interval.

    Raises: BadInput where the fabric file has no store of a name that the job states.
    """
    return StorageUse(
        most_read_gb_per_s(fabric, request, dataset),
        bytes_of_step(request, dataset) if dataset and not dataset.read_gb_per_s else 0.0,
        copies_read(request, dataset) if dataset else 1,
        sizes_of(fabric, request),
        float(checkpoint.costs(usual).checkpoint_s),
        checkpoint.keep,
        read_store=dataset_store(fabric, dataset),
        write_store=find_store(fabric.stores, checkpoint.store, "checkpoint.store"),
    )


def rate_beside(others: Iterable[float], most: float) -> float:
    """Return the rate that is left to one who takes all that it gets, of at most `most`, beside
    others who want these rates: shared evenly but for those who want less (max-min)."""
    wanted = sorted(others)
    sharers = len(wanted) + 1
    for rate in wanted:
        if rate * sharers >= most:
            break
        most, sharers = most - rate, sharers - 1
    return most / sharers


def within_paths(
    fabric: Fabric,
    store: Storage,
    hosts: HostSet,
    host_gb_per_s: float,
    used: Mapping[str, Floats],
) -> HostSet:
    """Return those of `hosts` on which a gang may lie whose hosts read so much each: in a domain as
    many as its path to the store has left beside the GB/s that gangs use, by tier and domain. The
    hosts that are left out are those of the fullest innermost domains."""
    most = {path.tier: path.read_gb_per_s for path in store.paths if path.read_gb_per_s}
    groups = masks(fabric, len(fabric.tiers) - 1)
    for depth, tier in enumerate(fabric.tiers):
        if tier.name not in most:
            continue
        for domain, mask in enumerate(masks(fabric, depth)):
            mine, left = hosts & mask, most[tier.name] + ROUNDING_GB_PER_S
            left -= float(used[tier.name][domain]) if tier.name in used else 0.0
            if mine.bit_count() * host_gb_per_s > left:
                kept = hostset.choose_below(left, mine, groups, lambda _: host_gb_per_s)
                hosts &= ~mine | kept
    return hosts


@struct(frozen=True, slots=True)
class StorageCost:
    """Cost of storage to a gang beside `gangs` others on its stores: `readers` of them below the
    limit that leaves its dataset the least, `writers` on the store of its checkpoints.

    `left_gb_per_s`: that it can read, None: the file does not say; `read_limit`: the text of the
    limit that leaves no more, empty: the store. `read_exposed_s`: of a step, 0 where its length is
    not known. `write_s`: of a checkpoint beside the others, `alone_s`: without them; None: not
    known; `write_limit`: the text of the limit that it waits for, empty: the store. `busy_share`:
    of the time, in which writers keep that busy, alone. `write_exposed_s`: of each step.
    `stored_tb`: checkpoints that gangs keep in its store, as far as they say how many.
    """

    use: StorageUse
    gangs: int
    readers: int
    writers: int
    left_gb_per_s: float | None
    read_exposed_s: float
    write_s: float | None
    alone_s: float | None
    busy_share: float
    write_exposed_s: float
    stored_tb: float
    read_limit: str = ""
    write_limit: str = ""

    @property
    def slowdown(self) -> float:
        """How many times as long as alone a checkpoint takes beside the others."""
        if self.write_s is None or self.alone_s is None:
            return 1 + self.busy_share
        return self.write_s / self.alone_s

    @property
    def capacity_tb(self) -> float:
        """TB that the store of its checkpoints holds; 0: not stated."""
        return self.use.write_store.capacity_tb

    @property
    def exposed_s(self) -> float:
        """Seconds of a step that wait for storage."""
        return self.read_exposed_s + self.write_exposed_s

    @property
    def is_full(self) -> bool:
        """Whether the checkpoints that gangs keep do not fit."""
        return 0 < self.capacity_tb < self.stored_tb

    @property
    def text(self) -> str:
        """`reads 12 GB/s of its dataset, and the storage leaves it 8.5 beside 2 other gangs: each
        step waits 0.41 s for data; ...`; empty where nothing is known."""
        return "; ".join(filter(None, (self._reads_text, self._writes_text, self.retention_text)))

    @property
    def _reads_text(self) -> str:
        rate, left = self.use.read_gb_per_s, self.left_gb_per_s
        if not rate:
            return ""
        text = f"reads {rate:.3g} GB/s of its dataset"
        if self.use.copies > 1:
            replicas = f"{self.use.copies:,} replicas read all of its shards"
            text += f" ({replicas}, whose number does not divide by theirs)"
        if (readers := self.use.read_store.readers) is not None:
            text += f", which takes {self.use.readers_needed:,} of {readers.hosts:,} readers"
        if left is None:
            return text
        beside = _neighbours_text(self.readers)
        limit = self.read_limit or self.use.read_store.text
        if rate > left:
            text += f", and {limit} leaves it {left:.3g}{beside}"
            waits = f": each step waits {self.read_exposed_s:.3g} s for data"
            return text + (waits if self.read_exposed_s else "")
        return f"{text} of {left:.3g} that {limit} leaves it{beside}"

    @property
    def _writes_text(self) -> str:
        if self.write_s is None or not self.use.interval_s:
            return ""
        beside = _neighbours_text(self.writers)
        alone = f"{beside} ({self.alone_s:.3g} s alone)" if beside else ""
        every = duration(round(self.use.interval_s))
        cost = f": {self.write_exposed_s:.3g} s of each step" if self.write_exposed_s else ""
        store = self.use.write_store
        where = f" in {store.text}" if store.name else ""
        where = f" over {self.write_limit}" if self.write_limit else where
        return f"a checkpoint{where} takes {self.write_s:.3g} s{alone}, every {every}{cost}"

    @property
    def retention_text(self) -> str:
        """`12 TB of checkpoints are kept of the 2,400 TB that the storage holds`, or that they
        do not fit; empty where that is not known."""
        if not self.stored_tb or not self.capacity_tb:
            return ""
        kept, most = f"{_tb_text(self.stored_tb)} of checkpoints", _tb_text(self.capacity_tb)
        store = self.use.write_store.text
        if self.is_full:
            return f"{kept} are to be kept, and {store} holds {most}"
        return f"{kept} are kept of the {most} that {store} holds"


def _neighbours_text(gangs: int) -> str:
    return f" beside {gangs:,} other gang{'' if gangs == 1 else 's'}" if gangs else ""


def _tb_text(tb: float) -> str:
    return f"{tb:,.0f} TB" if tb >= 99.5 else f"{tb:.3g} TB"


def storage_cost(own: StorageUse, others: Sequence[StorageUse]) -> StorageCost:
    """Return what storage costs a gang beside those of these others that use the same stores."""
    source, target = own.read_store, own.write_store
    readers = [each for each in others if each.read_store == source]
    writers = [each for each in others if each.write_store == target]
    limits = [each.dataset_limits for each in readers]
    left, read_limit, sharers, read_exposed_s = None, source.text, len(readers), 0.0
    for text, (part, most) in own.dataset_limits.items():
        rates = [
            each.read_gb_per_s * of_reader[text][0]
            for each, of_reader in zip(readers, limits, strict=True)
            if text in of_reader
        ]
        rate = rate_beside(rates, most) / part
        if left is None or rate < left:
            left, read_limit, sharers = rate, text, len(rates)
    if left is not None:
        read_exposed_s = max(0.0, (own.step_s or 0.0) * (own.read_gb_per_s / left - 1))
    alone = own.write_seconds
    busy = dict.fromkeys(alone or [target.text], 0.0)
    for each in writers:
        busy |= {text: busy[text] + each.busy_shares.get(text, 0.0) for text in busy}
    write_limit = max(busy, key=lambda text: alone.get(text, 0.0) * (1 + busy[text]))
    write_s = alone[write_limit] * (1 + busy[write_limit]) if alone else None
    write_exposed_s = 0.0
    if write_s is not None and own.interval_s:
        write_exposed_s = write_s * (own.step_s or 0.0) / own.interval_s
    return StorageCost(
        own,
        sum(each.read_store == source or each.write_store == target for each in others),
        sharers,
        len(writers),
        left,
        read_exposed_s,
        write_s,
        max(alone.values(), default=None),
        busy[write_limit],
        write_exposed_s,
        sum(each.stored_tb for each in (own, *writers)),
        "" if read_limit == source.text else read_limit,
        "" if write_limit == target.text else write_limit,
    )
