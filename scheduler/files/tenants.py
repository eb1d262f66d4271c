"""The tenants file: who may hold how much, priority classes, fair share and aging.

docs/scheduling.md has an example of all keys. A tenant `default`, which takes the jobs that name
none, is added where the file has none and names no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from muster.structs import struct
from placement import BadInput
from placement.fabric.tree import Fabric
from scheduler.core.names import DEFAULT_TENANT, is_name
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.spares import BY_DEFAULT as SPARES
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import (
    WEEK_S,
    Aging,
    Defragmentation,
    GuaranteedCell,
    KindQuota,
    Preemption,
    PriorityClass,
    Restarts,
    Tenant,
    Tenants,
)
from scheduler.core.tenancy import guarantees
from scheduler.files.job_keys import (
    Count,
    Flag,
    HostLabels,
    Keys,
    Number,
    Positive,
    Rank,
    Share,
    SomeSeconds,
    Text,
    checked_keys,
)
from scheduler.files.yaml12 import Document, load

HOUR_S = 3600


class _CellKeys(Keys):
    tier: Text
    count: Count
    hosts: Number = 0


class _KindKeys(Keys):
    hosts: HostLabels
    guaranteed_gpus: Number = 0
    limit_gpus: Number | None = None


class _TenantKeys(Keys):
    name: Text
    guaranteed_gpus: Number = 0
    limit_gpus: Number | None = None
    weight: Count = 1
    kinds: list[_KindKeys] = Field(default_factory=list)
    cells: list[_CellKeys] = Field(default_factory=list)
    tenants: list[_TenantKeys] = Field(default_factory=list)


class _ClassKeys(Keys):
    priority: Rank
    preemptible: Flag = False


class _AgingKeys(Keys):
    every_h: Count
    by: Count = 1


class _PreemptionKeys(Keys):
    enabled: Flag = True
    min_run_s: SomeSeconds = Preemption().min_run_s
    checkpoint_s: SomeSeconds = Costs().checkpoint_s
    restart_s: SomeSeconds = Costs().restart_s
    detect_s: SomeSeconds = Costs().detect_s
    by_usage: Flag = False


class _DefragmentKeys(Keys):
    every_h: Count
    hosts: Number = 0
    hosts_per_gpu_hour: Number = 0


class _SparesKeys(Keys):
    failures_per_1000_host_days: Positive = SPARES.failures_per_host_day * 1000
    repair_h: Positive = SPARES.repair_s / HOUR_S
    epsilon: Share = SPARES.epsilon
    prior_host_days: Number = SPARES.prior_host_days
    prior_repairs: Count = SPARES.prior_repairs
    racks: Number = SPARES.racks
    in_zone: Flag = SPARES.in_zone
    dispersion: Positive = SPARES.dispersion
    lend: Flag = SPARES.lend
    keep_idle: Number = SPARES.keep_idle
    per_zone: Number | None = SPARES.per_zone


class _RestartsKeys(Keys):
    attempts: Count = Restarts().attempts
    patience: Count = Restarts().patience
    backoff_s: SomeSeconds = Restarts().backoff_s
    most_backoff_s: SomeSeconds = Restarts().most_backoff_s
    avoid_s: SomeSeconds = Restarts().avoid_s


class _FileKeys(Keys):
    half_life_h: Count = WEEK_S // HOUR_S
    default: Text = DEFAULT_TENANT
    aging: _AgingKeys | None = None
    preemption: _PreemptionKeys = Field(default_factory=_PreemptionKeys)
    defragment: _DefragmentKeys | None = None
    spares: _SparesKeys = Field(default_factory=_SparesKeys)
    restarts: _RestartsKeys = Field(default_factory=_RestartsKeys)
    classes: dict[str, _ClassKeys] = Field(default_factory=dict)
    tenants: list[_TenantKeys] = Field(default_factory=list)


@struct(frozen=True, slots=True)
class TenantsFile:
    """Tenants and the file they came from. `paths`: where in it each of them stands."""

    tenants: Tenants
    document: Document
    paths: dict[str, str]

    def check(self, fabric: Fabric) -> None:
        """Refuse guarantees that `fabric` cannot give. Raises: InputError."""
        try:
            guarantees.check(self.tenants, fabric)
        except BadInput as error:
            _, _, rest = error.field.partition(".")
            name, _, key = rest.rpartition(".")
            path = f"{self.paths[name]}.{key}" if name in self.paths else error.field
            raise self.document.error((path, error.message)) from None


def load_tenants(path: str) -> TenantsFile:
    """Read a tenants file. Raises: InputError with every fault found, each with its line."""
    document = load(path)
    keys = checked_keys(_FileKeys, document)
    placed = list(_walk(keys.tenants, "", "tenants"))
    wrong = list(_faults(keys, placed))
    if wrong:
        raise document.error(*wrong)
    tenants = [tenant for _, tenant in placed]
    if keys.default == DEFAULT_TENANT and all(tenant.name != DEFAULT_TENANT for tenant in tenants):
        tenants.append(Tenant(DEFAULT_TENANT))
    return TenantsFile(
        Tenants(
            tuple(tenants),
            keys.default,
            tuple(PriorityClass(n, c.priority, c.preemptible) for n, c in keys.classes.items()),
            keys.half_life_h * HOUR_S,
            Aging(keys.aging.every_h * HOUR_S, keys.aging.by) if keys.aging else None,
            _preemption(keys.preemption),
            _defragmentation(keys.defragment),
            _spares(keys.spares),
            Restarts(**keys.restarts.model_dump()),
        ),
        document,
        {tenant.name: where for where, tenant in placed},
    )


def _preemption(keys: _PreemptionKeys) -> Preemption:
    costs = Costs(keys.checkpoint_s, keys.restart_s, keys.detect_s)
    return Preemption(keys.enabled, keys.min_run_s, costs, keys.by_usage)


def _defragmentation(keys: _DefragmentKeys | None) -> Defragmentation | None:
    if keys is None:
        return None
    return Defragmentation(keys.every_h * HOUR_S, keys.hosts, keys.hosts_per_gpu_hour)


def _spares(keys: _SparesKeys) -> SparePolicy:
    return SparePolicy(
        keys.failures_per_1000_host_days / 1000,
        round(keys.repair_h * HOUR_S),
        keys.epsilon,
        keys.prior_host_days,
        keys.prior_repairs,
        keys.racks,
        keys.in_zone,
        keys.dispersion,
        keys.lend,
        keys.keep_idle,
        keys.per_zone,
    )


def _walk(keys: Sequence[_TenantKeys], parent: str, path: str) -> Iterator[tuple[str, Tenant]]:
    """(path, tenant), parents before children."""
    for i, entry in enumerate(keys):
        here = f"{path}.{i}"
        shape = tuple(GuaranteedCell(cell.tier, cell.count, cell.hosts) for cell in entry.cells)
        yield (
            here,
            Tenant(
                entry.name,
                parent,
                entry.guaranteed_gpus,
                entry.limit_gpus,
                entry.weight,
                shape,
                tuple(
                    KindQuota(tuple(sorted(k.hosts.items())), k.guaranteed_gpus, k.limit_gpus)
                    for k in entry.kinds
                ),
            ),
        )
        yield from _walk(entry.tenants, entry.name, f"{here}.tenants")


def _faults(keys: _FileKeys, placed: Sequence[tuple[str, Tenant]]) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each fault between keys."""
    seen: set[str] = set()
    for path, tenant in placed:
        if not is_name(tenant.name):
            yield f"{path}.name", "must be letters, digits, '-', '_' or '.'"
        if tenant.name in seen:
            yield f"{path}.name", f"tenant {tenant.name} is given twice"
        seen.add(tenant.name)
    inner = {tenant.parent for _, tenant in placed}
    if keys.default in inner:
        yield "default", f"{keys.default} has sub-tenants: name one of them"
    elif keys.default != DEFAULT_TENANT and keys.default not in seen:
        yield "default", f"no tenant {keys.default!r}; there are {', '.join(sorted(seen))}"
    for name in keys.classes:
        if not is_name(name):
            yield f"classes.{name}", "must be letters, digits, '-', '_' or '.'"
