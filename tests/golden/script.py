"""A scheduler that is spoken to line by line, and says what it did.

A script is a sequence of blocks: comments, commands, `----`, and the trace they print,
up to a blank line. Times are 10s, 5m, 1h.

    fabric zones=2 racks=2 hosts=2      load a fabric and draw it
           [gpu=h100:z0,a100:z1]        with GPU models
    policy fifo                         production, easy, fifo or conservative
    tenant NAME [in=PARENT] [guaranteed=2] [limit=4] [weight=1] [cells=1xrack|1xzone:3]
    class NAME priority=5 [preemptible=yes], aging every=1h by=1, half-life 1h
    preemption min_run=10m checkpoint=30m restart=5m, preemption off
    spares lend=on|off [keep=1]         whether idle spares are lent, and how many of a zone never
    health [burn_in=yes] [clear=24h] [golden=720h] [large=64]     load this policy of health
    state HOST ...                      what each host is, and why
    report HOST SIGNAL                  any signal of health; `fail` and `repair` are short for some
    defragment every=6h [hosts=4] [hosts_per_gpu_hour=1]
    load                                load the tenants said so far; quotas are in hosts
    standing                            what each tenant holds and has used
    submit NAME hosts=4 [pp=2] [tp=4] [min_dp=2] [priority=1] [limit=1h] [spares=1|auto]
                [request_id=r1] [tenant=T] [class=C] [max_zones=1] [same=rack] [exclusive=rack]
                [avoid=zone:b] [near=b] [gpu=h100]
    cancel NAME, end NAME [failed] [attempt=1]
    fail HOST [SIGNAL], repair HOST, cordon HOST, drain HOST, uncordon HOST
    maintain NAME on=z0-r0,z1-r0-h0 from=1h to=2h [leave=wait|move|requeue] [why=firmware]
    hold NAME (jobs=a,b-*|tenant=T) [on=z0] [count=4] from=1h to=2h [leave=...] [why=...]
    change NAME ...                     as the two above, of a window that there is
    remove NAME                         a window is gone
    wait 1h                             let time pass
    schedule                            decide, and commit at once
    decide                              decide, and keep the plan
    commit                              commit the plan that was kept, on what is true now
    draw                                who holds which host
    explain NAME                        why it waits
    windows                             which there are, and their hosts
    slots SIZE,SIZE [tenant=T] [class=C] [limit=1h]    jobs of so many hosts that would start now
    defrag HOSTS [apply]                the moves that free so many hosts of one zone
    what-if NAME COND [+ COND ...]      what would become of it: `what-if a cordon z0 + cancel b`

In a drawing a host shows the first letter of its job, in capitals when it is a spare,
`.` when it is free, `x` failed, `-` cordoned and empty, `~` draining.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from placement.fabric.hostset import members
from scheduler.core import (
    Conflict,
    HostState,
    JobState,
    Plan,
    Rejected,
    SchedulingOptions,
    State,
    admit,
    apply,
    commit,
    decide,
    explain,
    replay,
)
from scheduler.core.defrag.proposal import propose
from scheduler.core.explain.slots import Asker, slots
from scheduler.core.explain.whatif import what_if
from scheduler.core.model.commands import Command, LoadHealth, LoadTenants
from scheduler.core.model.events import Event, FabricLoaded
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import IN_SERVICE
from scheduler.core.model.plan import (
    Action,
    Defragment,
    ReplaceReservedHosts,
    Requeue,
    Reserve,
    Resize,
    Start,
    WindowTransition,
)
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.health import HealthPolicy
from scheduler.core.policies.tenants import (
    Aging,
    Defragmentation,
    Preemption,
    PriorityClass,
    Tenant,
    Tenants,
)
from scheduler.core.tenancy.standing import standings
from tests.build import fabric_spec
from tests.derived import check_derived
from tests.golden.orders import COMMANDS, cell, seconds
from tests.golden.telling import clock, cuts, reserved, said

DIVIDER = "----"


def rewritten(text: str) -> str:
    """The script with what it prints in place of what it expected."""
    scheduler = Session()
    out: list[str] = []
    commands: list[str] = []
    is_trace = False
    for line in text.splitlines():
        if line == DIVIDER:
            trace = [said for command in commands for said in scheduler.run(command)]
            out += [DIVIDER, *(trace or ["(nothing)"])]
            commands, is_trace = [], True
        elif is_trace:
            is_trace = bool(line.strip())
        if not is_trace and line != DIVIDER:
            out.append(line)
            if line.strip() and not line.startswith("#"):
                commands.append(line)
    if commands:
        raise ValueError(f"no {DIVIDER} after {commands[-1]!r}")
    return "\n".join(out).rstrip("\n") + "\n"


@dataclass
class Session:
    state: State = field(default_factory=State.empty)
    now_ns: int = 0
    options: SchedulingOptions = field(default_factory=SchedulingOptions)
    plan: Plan | None = None
    tenants: Tenants = field(default_factory=lambda: Tenants(()))

    def run(self, line: str) -> Iterator[str]:
        """The lines that one command prints."""
        word, *rest = line.split()
        options = dict(item.split("=", 1) for item in rest if "=" in item)
        names = [item for item in rest if "=" not in item]
        verb = getattr(self, f"_{word.replace('-', '_')}", None)
        if verb is not None:
            yield from verb(*names, **options)
        else:
            yield from self._send(COMMANDS[word](*names, **options))

    def _fabric(self, **sizes: str) -> Iterator[str]:
        models = [pair.split(":") for pair in sizes.pop("gpu", "").split(",") if pair]
        spec = fabric_spec(**{tier: int(count) for tier, count in sizes.items()})
        spec["labels"] = {place: {"gpu": model} for model, place in models}
        self.state, self.now_ns = replay([FabricLoaded(0, spec)]), 0
        self.tenants = Tenants(())
        yield from self._draw()

    def _policy(self, policy: str) -> Iterator[str]:
        self.options = SchedulingOptions(policy=policy)
        yield f"policy is {policy}"

    def _tenant(self, name: str, **keys: str) -> Iterator[str]:
        gpus = self.state.loaded_fabric.gpus_per_host
        tenant = Tenant(
            name,
            keys.get("in", ""),
            int(keys.get("guaranteed", "0")) * gpus,
            int(keys["limit"]) * gpus if "limit" in keys else None,
            int(keys.get("weight", "1")),
            (cell(keys["cells"]),) if "cells" in keys else (),
        )
        self.tenants = replace(self.tenants, tenants=(*self.tenants.tenants, tenant))
        yield from ()

    def _class(self, name: str, priority: str, preemptible: str = "no") -> Iterator[str]:
        level = PriorityClass(name, int(priority), preemptible == "yes")
        self.tenants = replace(self.tenants, classes=(*self.tenants.classes, level))
        yield from ()

    def _aging(self, every: str, by: str) -> Iterator[str]:
        self.tenants = replace(self.tenants, aging=Aging(seconds(every), int(by)))
        yield from ()

    def _preemption(self, off: str = "", **terms: str) -> Iterator[str]:
        given = {f"{key}_s": seconds(value) for key, value in terms.items()}
        old = self.tenants.preemption
        guard_s = given.pop("min_run_s", old.min_run_s)
        preemption = Preemption(off != "off", guard_s, replace(old.costs, **given))
        self.tenants = replace(self.tenants, preemption=preemption)
        yield from ()

    def _spares(self, lend: str, keep: str = "1") -> Iterator[str]:
        policy = replace(self.tenants.spares, lend=lend == "on", keep_idle=int(keep))
        self.tenants = replace(self.tenants, spares=policy)
        yield from ()

    def _health(self, **keys: str) -> Iterator[str]:
        policy = HealthPolicy(
            has_burn_in=keys.get("burn_in") == "yes",
            clear_s=seconds(keys.get("clear", "24h")),
            golden_s=seconds(keys.get("golden", "720h")),
            large_hosts=int(keys.get("large", "64")),
        )
        yield from self._send(LoadHealth(policy))

    def _state(self, *names: str) -> Iterator[str]:
        for name in names:
            host = self.state.shown(self.state.loaded_fabric.index_by_name[name])
            yield f"{name}: {host.state}{f' ({host.reason})' if host.reason else ''}"

    def _defragment(self, every: str, **numbers: str) -> Iterator[str]:
        given = {key: int(value) for key, value in numbers.items()}
        policy = Defragmentation(seconds(every), **given)
        self.tenants = replace(self.tenants, defragmentation=policy)
        yield from ()

    def _half_life(self, duration: str) -> Iterator[str]:
        self.tenants = replace(self.tenants, half_life_s=seconds(duration))
        yield from ()

    def _load(self) -> Iterator[str]:
        everyone = (*self.tenants.tenants, Tenant(DEFAULT_TENANT))
        yield from self._send(LoadTenants(replace(self.tenants, tenants=everyone)))

    def _standing(self) -> Iterator[str]:
        gpus = self.state.loaded_fabric.gpus_per_host
        for tenant in standings(self.state, self.now_ns):
            used_h = tenant.used_gpu_s / 3600 / gpus
            yield (
                f"{tenant.tenant.name}: guaranteed {tenant.guaranteed_gpus // gpus},"
                f" holds {tenant.held_gpus // gpus}, waits for {tenant.queued_gpus // gpus},"
                f" used {used_h:.1f} host-hours ({tenant.share:.0%}),"
                f" {tenant.kept_hosts} kept"
            )

    def _wait(self, duration: str) -> Iterator[str]:
        self.now_ns += seconds(duration) * SECOND_NS
        yield f"it is {clock(self.now_ns)}"

    def _decide(self) -> Iterator[str]:
        self.plan = decide(self.state, self.now_ns, self.options)
        yield from (f"plan: {self._intent(action)}" for action in self.plan.actions)

    def _commit(self) -> Iterator[str]:
        assert self.plan is not None, "decide first"
        answer = commit(self.state, self.plan, self.now_ns)
        if isinstance(answer, Conflict):
            yield from (f"conflict: {each.detail}" for each in answer.stale)
        else:
            yield from self._record(answer)

    def _schedule(self) -> Iterator[str]:
        self.plan = decide(self.state, self.now_ns, self.options)
        yield from self._commit()

    def _explain(self, name: str) -> Iterator[str]:
        reason = explain(self.state, name, self.now_ns, self.options)
        where = f" [reserved in {', '.join(reason.reserved_in)}]" if reason.reserved_in else ""
        yield f"{name}: {reason.sentence}{where}"

    def _what_if(self, name: str, *words: str) -> Iterator[str]:
        conditions = " ".join(words).split(" + ")
        answer = what_if(self.state, name, conditions, self.now_ns, self.options)
        cut = f"; {cuts(answer.job.present.cuts)}" if answer.job.state is JobState.RUNNING else ""
        also = f"; also starts {', '.join(answer.starts)}" if answer.starts else ""
        yield f"{name}: if {', '.join(conditions)}: {answer.sentence}{cut}{also}"

    def _slots(self, sizes: str, tenant: str = "", limit: str = "", **level: str) -> Iterator[str]:
        """Sizes are in hosts."""
        gpus = self.state.loaded_fabric.gpus_per_host
        asker = Asker(tenant, level.get("class", ""), seconds(limit) if limit else None)
        wanted = [int(size) * gpus for size in sizes.split(",")]
        found = slots(self.state, self.now_ns, self.options, asker, wanted)
        for slot in found.counts:
            inside = zip(found.domains, slot.by_domain, strict=True)
            by_domain = ", ".join(f"{domain} {jobs}" for domain, jobs in inside)
            yield f"{found.tenant}: {slot.in_all} of {slot.hosts} hosts ({by_domain})"

    def _defrag(self, wanted: str, apply: str = "") -> Iterator[str]:
        found = propose(
            self.state, int(wanted), self.now_ns, self.options, self.state.tenants.preemption.costs
        )
        yield found.sentence
        for move in found.moves:
            hours = f"{move.lost_gpu_s / 3600:.1f} GPU-hours"
            yield f"move {self._intent(move.swap).removeprefix('swap ')} ({hours})"
        if apply:
            self.plan = found.plan
            yield from self._commit()

    def _draw(self) -> Iterator[str]:
        """One line a zone, one word a rack, one letter a host."""
        fabric = self.state.loaded_fabric
        zone, rack = fabric.tiers
        drawn: dict[int, dict[int, str]] = {}
        for host in range(fabric.host_count):
            racks = drawn.setdefault(int(zone.domain_by_host[host]), {})
            at = int(rack.domain_by_host[host])
            racks[at] = racks.get(at, "") + self._letter(host)
        for z, racks in drawn.items():
            words = (f"{rack.domains[r].rpartition('-')[2]} {hosts}" for r, hosts in racks.items())
            yield f"{zone.domains[z]}: {'   '.join(words)}"

    def _windows(self) -> Iterator[str]:
        for name, booking in self.state.windows.items():
            window = booking.window
            span = f"{clock(window.start_ns)} to {clock(window.end_ns)}"
            yield f"{name}: {booking.state} {span} on {' '.join(window.hosts)}"

    def _letter(self, host: int) -> str:
        state = self.state.shown(host).state
        job = next(iter(self.state.holders(host)), None)
        if state is HostState.FAILED:
            return "x"
        if state is HostState.DRAINING:
            return "~"
        if job is None:
            return "." if state in IN_SERVICE else "-"
        return job.name[0] if host in job.hosts else job.name[0].upper()

    def _send(self, command: Command) -> Iterator[str]:
        answer = admit(self.state, command, self.now_ns)
        if isinstance(answer, Rejected):
            yield f"refused ({answer.code}): {answer.message}"
        else:
            yield from self._record(answer)

    def _record(self, events: tuple[Event, ...]) -> Iterator[str]:
        for event in events:
            self.state = apply(self.state, event)
            check_derived(self.state)
            yield f"{clock(event.time_ns)} {said(event)}"

    def _intent(self, action: Action) -> str:
        names = self.state.loaded_fabric.names
        if isinstance(action, Start):
            sent = f", preempting {' '.join(action.victims)}" if action.victims else ""
            sent += "".join(f", shrinking {s.name} to dp {s.dp}" for s in action.shrinks)
            return f"start {action.name} on {' '.join(names(action.placement.hosts))}{sent}"
        if isinstance(action, Defragment):
            return f"defragment: {action.sentence}"
        if isinstance(action, Resize):
            hosts = " ".join(names(action.placement.hosts))
            return f"resize {action.name} to dp {action.dp} on {hosts}"
        if isinstance(action, Reserve):
            return f"reserve {reserved(action.starts)}"
        if isinstance(action, Requeue):
            return f"requeue {action.name}: {action.reason}"
        if isinstance(action, WindowTransition):
            return f"turn window {action.name}"
        if isinstance(action, ReplaceReservedHosts):
            return f"rehost window {action.name}: {' '.join(names(members(action.joined)))}"
        moves = (f"{names((m.left,))[0]} -> {names((m.joined,))[0]}" for m in action.moves)
        return f"swap {action.name}: {', '.join(moves) or 'restart in place'}"
