"""The health file: what it says, and what is said of one that is wrong."""

from pathlib import Path

from scheduler.core.policies.health import (
    AS_STATED,
    HealthPolicy,
    LemonAction,
    PreventionAction,
    ProbeAction,
    ProbePolicy,
)
from scheduler.core.policies.health_signals import DAY_S, HOUR_S, Effect, Threshold
from scheduler.core.policies.xids import Blame
from scheduler.files.health.policyfile import load_health
from tests.refusals import file_refusal

EXAMPLE = Path(__file__).parents[3] / "examples" / "health.yaml"


def read(tmp_path: Path, text: str) -> HealthPolicy:
    path = tmp_path / "health.yaml"
    path.write_text(text)
    return load_health(str(path))


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "{}") == AS_STATED


def test_the_example() -> None:
    policy = load_health(str(EXAMPLE))
    assert policy.signal("thermal").thresholds == ()
    rule = policy.signal("ecc-correctable")
    assert rule.thresholds[0] == Threshold(500, DAY_S, Effect.SUSPECT)
    assert rule.thresholds[1] == Threshold(2_000, 7 * DAY_S, Effect.RMA, per_gpu=True)
    assert rule.has_value
    assert policy.blame(94) is Blame.FATAL
    assert policy.blame(79) is Blame.FATAL
    assert (policy.clear_s, policy.has_burn_in, policy.early_s) == (48 * HOUR_S, True, 14 * DAY_S)
    assert (policy.golden_s, policy.large_hosts) == (28 * DAY_S, 128)
    assert policy.lemons.action is LemonAction.RMA
    assert policy.prevention.action is PreventionAction.SHOW
    assert (policy.prevention.ratio("link-flap"), policy.prevention.ratio("thermal")) == (40, 1)
    assert policy.probes == ProbePolicy(600, ProbeAction.ACT)


def test_probes_report_first_and_a_signal_may_send_a_host_back(tmp_path: Path) -> None:
    assert AS_STATED.probes == ProbePolicy(600, ProbeAction.REPORT)
    policy = read(tmp_path, "probes: {every_min: 0}\nsignals: {row-remap-failure: rma}")
    assert policy.probes == ProbePolicy(0, ProbeAction.REPORT)
    assert policy.signal("row-remap-failure").effect is Effect.RMA


def test_what_is_wrong_is_named_with_file_line_and_field(tmp_path: Path) -> None:
    for text, message in {
        "signls: {}": "1: signls: unknown key 'signls', did you mean signals?",
        "signals: {tor-down: note}": "is not a signal that can be changed",
        "signals: {thermal: repair}": "1: signals.thermal: must be one of note, suspect",
        "signals: {xid: fail}": "signals.xid: give thresholds here",
        "signals:\n  xid: [{count: 0, within_h: 1, then: fail}]": "2: signals.xid.0.count",
        "signals: {thermal: [{count: 1, within_h: 200, then: fail}]}": "must be at most 168",
        "signals: {thermal: [{count: 1, within_h: 2, then: pass}]}": "0.then: must be one of",
        "xids: {a: fatal}": "xids.a: must be the code of an XID",
        "xids: {79: deadly}": "must be 'application', 'counts', 'retire' or 'fatal'",
        "lemons: {days: 60}": "lemons.days: must be at most 28",
        "probes: {every_min: -1}": "1: probes.every_min: must not be negative",
        "prevention:\n  ratios: {smoke: 3}": "2: prevention.ratios.smoke: is not a signal that",
        "prevention: {ratios: {thermal: 0.5}}": "prevention.ratios.thermal: must be at least 1",
        "prevention: {early_life_ratio: 0.5}": "1: prevention.early_life_ratio: must be at least",
    }.items():
        found = file_refusal(load_health, tmp_path / "health.yaml", text)
        assert found.startswith("health.yaml:")
        assert message in found
