"""Small fabrics, requests, jobs and states for the tests.

f = fabric(zones=2, racks=2, hosts=2)            8 hosts of 8 GPUs, z0-r0-h0 ... z1-r1-h1
r = gang(4, dp=4)                                4 hosts, TP inside the host
state = loaded(f)                                a cluster with nothing in it
state = run(state, submit("a", hosts=2))         admit, fail on a refusal, apply
state = schedule(state)                          decide, commit, apply
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, Constraints
from placement.fabric.hostset import HostSet
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.placer import place
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Collective, Placement, Request, SpareRule
from placement.workload.training import (
    AS_LLAMA3,
    Batch,
    ContextParallel,
    DataParallel,
    ModelShape,
    Recompute,
    Sync,
    Trained,
    Training,
)
from scheduler.core import (
    Conflict,
    Job,
    JobSpec,
    JobState,
    Plan,
    Rejected,
    SchedulingOptions,
    State,
    admit,
    commit,
    decide,
    replay,
)
from scheduler.core.fold.attempts import PlacedGang
from scheduler.core.model.commands import (
    CancelJob,
    Command,
    EndJob,
    MoveHost,
    ReportHost,
    SubmitJob,
)
from scheduler.core.model.events import Event, FabricLoaded
from scheduler.core.model.job import SECOND_NS, Attempt
from scheduler.core.model.job_array import parse_array
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.affinity import ANYBODY, Affinity
from scheduler.core.queue.policies import queue_policy
from scheduler.wire.specs import as_job_keys, spec_to_proto

MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS

# Llama 3 405B (2024), table 3; three runs of table 4 by their row.
LLAMA3 = ModelShape(
    layers=126, hidden=16_384, ffn=53_248, heads=128, kv_heads=8, vocab=128_256, sequence=8_192
)
LLAMA3_LONG = replace(LLAMA3, sequence=131_072)
LLAMA3_ROWS = {
    1: (Parallelism(tp=8, pp=16, dp=64), LLAMA3, Batch(2_048)),
    2: (Parallelism(tp=8, pp=16, dp=128), LLAMA3, Batch(2_048)),
    3: (Parallelism(tp=8, cp=16, pp=16, dp=8), LLAMA3_LONG, Batch(128)),
}

# Jiang et al. 2024, table 1; DeepSeek-V3 (2024), 4.2; Narayanan et al. 2021, table 1.
MIXTRAL = ModelShape(32, 4_096, 14_336, 32, 8, 32_000, 4_096, experts=8, experts_per_token=2)
DEEPSEEK_V3 = ModelShape(
    *(61, 7_168, 18_432, 128, 128, 129_280, 4_096),
    head_dim=128,
    query_rank=1_536,
    kv_rank=512,
    rope_dim=64,
    experts=256,
    experts_per_token=8,
    expert_ffn=2_048,
    shared_experts=1,
    dense_layers=3,
)
GPT3 = ModelShape(96, 12_288, 49_152, 96, 96, 51_200, 2_048, gated=False, tied_embeddings=True)


# --- placement ---------------------------------------------------------------


def rank_at(p: Parallelism, **index: int) -> int:
    """The rank at these coordinates; axes left out are at 0."""
    return sum(i * p.stride(axis) for axis, i in index.items())


def coordinates(p: Parallelism, rank: int) -> dict[str, int]:
    """The inverse of `rank_at`, for the axes in the order."""
    return {axis: rank // p.stride(axis) % p.size(axis) for axis in p.axes}


def fabric_spec(
    zones: int = 2,
    racks: int = 2,
    hosts: int = 2,
    *,
    gpus: int = 8,
    oversubscription: float = 7,
    name: str = "small",
) -> dict[str, Any]:
    """The content of a fabric file: zones of racks of hosts, as in RoCE-24K."""
    return {
        "name": name,
        "gpus_per_host": gpus,
        "nic_gbps": 400,
        "tiers": [
            {"name": "zone", "count": zones, "oversubscription": oversubscription},
            {"name": "rack", "count": racks},
            {"name": "host", "count": hosts},
        ],
    }


@cache
def fabric(
    zones: int = 2,
    racks: int = 2,
    hosts: int = 2,
    *,
    gpus: int = 8,
    oversubscription: float = 7,
    name: str = "small",
) -> Fabric:
    return from_spec(
        fabric_spec(zones, racks, hosts, gpus=gpus, oversubscription=oversubscription, name=name)
    )


@cache
def flat(*hosts_by_domain: int, gpus: int = 1, tier: str = "rack") -> Fabric:
    """One tier of unequal domains: flat(4, 4, 2) is r0 with r0-h0..3, r1, r2 with two."""
    return unlike(*((hosts, {}) for hosts in hosts_by_domain), gpus=gpus, tier=tier)


def unlike(
    *domains: tuple[int, dict[str, Any]], gpus: int = 8, tier: str = "zone", **keys: Any
) -> Fabric:
    """One tier of domains with keys of their own: unlike((2, {"gpu": "A100"}), (4, {}))."""
    listed = [{"name": f"{tier[0]}{i}", "hosts": n, **own} for i, (n, own) in enumerate(domains)]
    tiers = [{"name": tier}, {"name": "host"}]
    spec = {"name": "flat", "gpus_per_host": gpus, "tiers": tiers, "domains": listed}
    return from_spec({**spec, **keys})


def regular(*tiers: tuple[Any, ...], gpus: int = 8, **keys: Any) -> Fabric:
    """Equal domains, outermost tier first: regular(("zone", 2), ("host", 4), gpus=1).

    A tier may have keys of its own: ("zone", 2, {"oversubscription": 7}).
    """
    counted = [{"name": name, "count": count, **dict(*own)} for name, count, *own in tiers]
    return from_spec({"name": "regular", "gpus_per_host": gpus, "tiers": counted, **keys})


def two_tiers(*hosts_by_rack_by_zone: list[int], gpus: int = 1, **keys: dict[str, Any]) -> Fabric:
    """Unequal zones of unequal racks: two_tiers([2, 1], [3]) has zones of 3 and 3 hosts.

    `keys`: of a tier, as zone={"oversubscription": 7}.
    """
    domains = [
        {
            "name": f"z{z}",
            "domains": [{"name": f"z{z}-r{r}", "hosts": n} for r, n in enumerate(racks)],
        }
        for z, racks in enumerate(hosts_by_rack_by_zone)
    ]
    return from_spec(
        {
            "name": "uneven",
            "gpus_per_host": gpus,
            "tiers": [{"name": name, **keys.get(name, {})} for name in ("zone", "rack", "host")],
            "domains": domains,
        }
    )


def request(
    *,
    traffic: dict[str, int] | None = None,
    collectives: dict[str, Collective] | None = None,
    order: str = "tp-cp-ep-pp-dp",
    spares: SpareRule = NO_SPARES,
    model: ModelShape | None = None,
    batch: Batch | None = None,
    training: Training = AS_LLAMA3,
    **sizes: int,
) -> Request:
    """request(dp=4, pp=2, traffic={"dp": 10, "pp": 3}); one GPU a rank, sizes default to 1."""
    return Request(
        Parallelism(**sizes, order=order),
        tuple((traffic or {}).items()),
        tuple((collectives or {}).items()),
        model,
        batch,
        spares,
        training=training,
    )


# Gangs of a few ranks whose traffic has each pattern, alone and beside others.
EVERY_PATTERN = {
    "ring": request(dp=12, traffic={"dp": 7}),
    "pair": request(dp=2, cp=6, traffic={"dp": 7, "cp": 5}),
    "chain": request(pp=12, traffic={"pp": 8}),
    "wrapped chain": request(pp=6, dp=2, traffic={"pp": 12}, batch=Batch(4, virtual_stages=3)),
    "wrapped pair": request(pp=2, dp=6, traffic={"pp": 12}, batch=Batch(12, virtual_stages=2)),
    "all-to-all": request(ep=4, dp=3, traffic={"ep": 7, "dp": 2}),
    "3d": request(tp=2, pp=3, dp=4, traffic={"tp": 11, "pp": 6, "dp": 3}),
    "3d, megatron order": request(
        tp=2, pp=3, dp=4, traffic={"tp": 11, "pp": 6, "dp": 3}, order="tp-dp-pp"
    ),
    "4d": request(tp=2, cp=2, pp=3, dp=2, traffic={"tp": 11, "cp": 13, "pp": 6, "dp": 3}),
    "5d, odd order": request(
        tp=2,
        cp=1,
        ep=2,
        pp=3,
        dp=2,
        traffic={"tp": 11, "ep": 2, "pp": 6, "dp": 3},
        order="pp-ep-dp-cp-tp",
    ),
}


def training(**changes: Any) -> Training:
    """training(data_parallel="zero1", sync="micro_batch"): enums by their value."""
    kinds = {
        "data_parallel": DataParallel,
        "sync": Sync,
        "context_parallel": ContextParallel,
        "recompute": Recompute,
        "trained": Trained,
    }
    return Training(**{key: kinds.get(key, _same)(value) for key, value in changes.items()})


def _same(value: Any) -> Any:
    return value


def gang(
    hosts: int,
    *,
    gpus: int = 8,
    spares: SpareRule = NO_SPARES,
    dp_bytes: int = 10,
    pp_bytes: int = 3,
    **sizes: int,
) -> Request:
    """A job of `hosts` hosts: TP fills a host, the rest is DP unless sizes say more."""
    rest, odd = divmod(hosts, prod(sizes.values()))
    assert not odd, "sizes must divide the hosts"
    if "dp" not in sizes:
        sizes["dp"] = rest
    return request(
        tp=gpus, traffic={"tp": 1_000, "dp": dp_bytes, "pp": pp_bytes}, spares=spares, **sizes
    )


def llama3(row: int = 2, *, virtual_stages: int = 1, **changes: Any) -> Request:
    """A run of Llama 3 405B, table 4."""
    parallelism, model, batch = LLAMA3_ROWS[row]
    batch = replace(batch, virtual_stages=virtual_stages)
    return replace(Request(parallelism, model=model, batch=batch), **changes)


def exactly(n: int) -> SpareRule:
    return SpareRule(hosts=n)


def everything(fabric: Fabric) -> HostSet:
    return hostset.full(fabric.host_count)


def place_checked(
    fabric: Fabric, free: HostSet, request: Request, *more: Any, **named: Any
) -> Placement:
    """The placement of a gang that must have room, in which the referee finds no fault."""
    answer = place(fabric, free, request, *more, **named)
    assert isinstance(answer, Placement), answer
    assert violations(fabric, free, request, answer) == []
    return answer


def on(fabric: Fabric, req: Request, *hosts: int | str, spares: Iterable[int] = ()) -> Placement:
    """A placement on these hosts (indices or names) with its true cuts."""
    chosen = tuple(fabric.index_by_name[h] if isinstance(h, str) else h for h in hosts)
    return Placement(chosen, tuple(spares), cut(fabric, req, chosen))


# --- scheduler ---------------------------------------------------------------


def loaded(fabric_: Fabric | None = None) -> State:
    """A cluster in which nothing has happened yet: version 1."""
    return replay([FabricLoaded(0, (fabric_ or fabric()).spec)])


def spec(
    name: str,
    hosts: int = 1,
    *,
    priority: int = 0,
    limit_s: int | None = None,
    spares: SpareRule = NO_SPARES,
    gpus: int = 8,
    tenant: str = "",
    priority_class: str = "",
    where: Constraints = ANYWHERE,
    affinity: Affinity = ANYBODY,
    min_dp: int = 0,
    **sizes: int,
) -> JobSpec:
    request = replace(gang(hosts, gpus=gpus, spares=spares, **sizes), where=where)
    return JobSpec(
        name, request, priority, limit_s, tenant, priority_class, affinity, min_dp=min_dp
    )


def job_to_mapping(spec: JobSpec) -> dict[str, Any]:
    """Return the content of a job file that describes `spec`."""
    return as_job_keys(spec_to_proto(spec))


def submit(name: str, hosts: int = 1, *, request_id: str = "", **job: Any) -> SubmitJob:
    """submit("a", 4, priority=1, limit_s=3600, spares=exactly(1), pp=2)"""
    return SubmitJob(spec(name, hosts, **job), f"uid-{name}", request_id)


def submit_array(name: str, text: str, **fields: Any) -> SubmitJob:
    """An array of jobs of one host; `text`: its numbers, as of `muster submit --array`."""
    return SubmitJob(replace(spec(name), array=parse_array(text), **fields), f"uid-{name}")


def cancel(name: str) -> CancelJob:
    return CancelJob(name)


def end(name: str, outcome: JobState = JobState.COMPLETED, attempt: int = 0) -> EndJob:
    return EndJob(name, outcome, attempt)


def fail(host: str, signal: str = "gpu-lost") -> ReportHost:
    return ReportHost(host, signal)


def repair(host: str) -> ReportHost:
    return ReportHost(host, "repaired")


def cordon(host: str) -> MoveHost:
    return MoveHost(host, HostMove.CORDON)


def uncordon(host: str) -> MoveHost:
    return MoveHost(host, HostMove.UNCORDON)


def drain(host: str) -> MoveHost:
    return MoveHost(host, HostMove.DRAIN)


def admitted(state: State, command: Command, now_ns: int = 0) -> tuple[Event, ...]:
    """The events of a command that must not be refused."""
    events = admit(state, command, now_ns)
    assert not isinstance(events, Rejected), events
    return events


def refused(state: State, command: Command, now_ns: int = 0) -> Rejected:
    """The refusal of a command that must be refused."""
    answer = admit(state, command, now_ns)
    assert isinstance(answer, Rejected), answer
    return answer


def run(state: State, *commands: Command, now_ns: int = 0) -> State:
    """The state after these commands, each of which must be admitted."""
    for command in commands:
        state = replay(admitted(state, command, now_ns), state)
    return state


def committed(state: State, plan: Plan, now_ns: int = 0) -> tuple[Event, ...]:
    """The events of a plan that must not conflict."""
    events = commit(state, plan, now_ns)
    assert not isinstance(events, Conflict), events
    return events


def schedule(
    state: State,
    now_ns: int = 0,
    options: SchedulingOptions | None = None,
    *,
    policy: str | None = None,
) -> State:
    """Decide, commit and apply once."""
    options = options or SchedulingOptions(policy=policy or "production")
    return replay(committed(state, decide(state, now_ns, options), now_ns), state)


def started(state: State, *commands: Command, now_ns: int = 0) -> State:
    """The state after these commands and one decision."""
    return schedule(run(state, *commands, now_ns=now_ns), now_ns)


def settled(state: State, now_ns: int = 0, options: SchedulingOptions | None = None) -> State:
    """Decide, commit and apply until nothing more happens at this moment."""
    while (after := schedule(state, now_ns, options)) != state:
        state = after
    return state


def queue_order(state: State, now_ns: int, options: SchedulingOptions) -> list[str]:
    """The names of the queued jobs as a decision looks at them, when none starts."""
    policy = queue_policy(options.policy)
    order = policy.order(policy.context(state, now_ns, options, state.free))
    return [job.name for job in order.jobs(lambda *_: False)]


def running(state: State) -> set[str]:
    """Names of the running jobs."""
    return {job.name for job in state.in_state(JobState.RUNNING)}


def hosts_of(state: State, name: str) -> tuple[str, ...]:
    """Host names of a live job's gang, in block order."""
    return state.loaded_fabric.names(state.jobs[name].hosts)


def spares_of(state: State, name: str) -> tuple[str, ...]:
    return state.loaded_fabric.names(state.jobs[name].spares)


def placed(name: str, hosts: tuple[str, ...]) -> PlacedGang:
    """The first attempt of a job, begun at 0 on hosts of these names."""
    count = len(hosts)
    attempt = Attempt(hosts=tuple(range(count)))
    job = Job(spec(name), f"uid-{name}", count, count, 0, 1, attempt=1, gang=attempt)
    return PlacedGang(job, hosts, ())


def job(state: State, name: str) -> Job:
    """The live job of this name, or the newest ended one."""
    found = state.find(name)
    assert found is not None, f"no job {name}"
    return found
