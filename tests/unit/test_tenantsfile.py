"""Tenants files: what they mean, and what is said of one that is wrong."""

from pathlib import Path

from placement.fabric.reader import preset
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import (
    Aging,
    Defragmentation,
    GuaranteedCell,
    Preemption,
    PriorityClass,
    Restarts,
    Tenant,
    Tenants,
)
from scheduler.files.tenants import load_tenants
from tests.build import fabric
from tests.refusals import file_refusal, refusal

EXAMPLE = Path(__file__).parents[2] / "examples" / "tenants.yaml"

WHOLE = """\
half_life_h: 48
default: misc
aging: {every_h: 6, by: 10}
classes:
  production: {priority: 100}
  spot: {priority: -100, preemptible: true}
tenants:
  - name: research
    guaranteed_gpus: 32
    limit_gpus: 48
    tenants:
      - {name: vision, guaranteed_gpus: 8, weight: 2}
      - name: language
        cells: [{tier: rack, count: 1}, {tier: zone, count: 1, hosts: 1}]
  - {name: misc, limit_gpus: 16}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "tenants.yaml"
    path.write_text(text)
    return str(path)


def test_everything_there_is(tmp_path: Path) -> None:
    assert load_tenants(written(tmp_path, WHOLE)).tenants == Tenants(
        (
            Tenant("research", "", 32, 48),
            Tenant("vision", "research", 8, None, 2),
            Tenant(
                "language",
                "research",
                cells=(GuaranteedCell("rack", 1), GuaranteedCell("zone", 1, 1)),
            ),
            Tenant("misc", "", 0, 16),
        ),
        "misc",
        (PriorityClass("production", 100), PriorityClass("spot", -100, True)),
        48 * 3_600,
        Aging(6 * 3_600, 10),
    )


def test_a_default_tenant_is_added_where_none_is_named(tmp_path: Path) -> None:
    tenants = load_tenants(written(tmp_path, "tenants: [{name: a}]\n")).tenants
    assert [tenant.name for tenant in tenants.tenants] == ["a", "default"]
    assert tenants.default == "default"
    assert load_tenants(written(tmp_path, "tenants: []\n")).tenants == Tenants()


def test_the_example_goes_with_the_large_fabric() -> None:
    load_tenants(str(EXAMPLE)).check(preset("roce-24k"))


def test_preemption_defragmentation_spares_and_restarts_are_read(tmp_path: Path) -> None:
    text = (
        "preemption:\n"
        "  {enabled: false, min_run_s: 1, checkpoint_s: 2, restart_s: 3, by_usage: true}\n"
        "defragment: {every_h: 6, hosts: 4, hosts_per_gpu_hour: 2}\n"
        "spares: {failures_per_1000_host_days: 6.5, repair_h: 12, epsilon: 0.001, racks: 1}\n"
        "restarts: {attempts: 4, avoid_s: 60}\n"
    )
    found = load_tenants(written(tmp_path, text)).tenants
    assert found.preemption == Preemption(False, 1, Costs(2, 3), is_by_usage=True)
    assert found.defragmentation == Defragmentation(6 * 3_600, 4, 2)
    assert found.spares == SparePolicy(0.0065, 43_200, 0.001, racks=1)
    assert found.restarts == Restarts(attempts=4, avoid_s=60)
    fixed = load_tenants(written(tmp_path, "spares: {per_zone: 2}\n")).tenants
    assert fixed.spares == SparePolicy(per_zone=2)
    assert load_tenants(written(tmp_path, "half_life_h: 168\n")).tenants == Tenants()


def test_faults_name_file_line_and_field(tmp_path: Path) -> None:
    for text, told in {
        "tenants:\n  - name: a\n  - name: a\n": "3: tenants.1.name: tenant a is given twice",
        "tenants: [{name: 'a b'}]\n": "1: tenants.0.name: must be letters",
        "default: nobody\ntenants: [{name: a}]\n": "1: default: no tenant 'nobody'",
        "default: a\ntenants: [{name: a, tenants: [{name: b}]}]\n": "1: default: a has sub-tenants",
        "classes: {x: {priority: 1, preemptible: 1}}\n": "1: classes.x.preemptible: must be",
        "aging: {every_h: 1, by: x}\n": "1: aging.by: must be a whole number",
        "tenants:\n- name: a\n  cells: [{host: 2}]\n": "3: tenants.0.cells.0.host: unknown key",
        "spares: {repair_h: 0}\n": "1: spares.repair_h: must be a number above 0, not 0",
        "spares: {epsilon: 2}\n": "1: spares.epsilon: must be a number from 0 to 1, not 2",
        "restarts: {attempts: 0}\n": "1: restarts.attempts: must be at least 1, is 0",
    }.items():
        said = file_refusal(load_tenants, tmp_path / "tenants.yaml", text).splitlines()
        assert any(line.startswith(f"tenants.yaml:{told}") for line in said), said


def test_what_the_fabric_does_not_have_is_said_with_its_line(tmp_path: Path) -> None:
    file = load_tenants(
        written(tmp_path, WHOLE.replace("tier: rack, count: 1", "tier: rack, count: 9"))
    )
    told = refusal(file.check, fabric(2, 2, 2))
    assert "tenants.yaml:14: tenants.0.tenants.1.cells: " in told
    assert "has no 9 racks" in told
