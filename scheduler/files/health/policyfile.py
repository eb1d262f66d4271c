"""The health file: what reports do, and what the scheduler does with hosts by itself.

    signals:
      thermal: note                                        # one effect, however many there are
      ecc-correctable: [{count: 500, within_h: 24, then: suspect, per_gpu: true}]
      row-remap-failure: rma                               # out of service, and back to its maker
    xids: {94: fatal, 63: application}
    suspect: {clear_h: 24}
    burn_in: {after_repair: true, early_life_days: 30}
    golden: {clean_days: 30, large_gang_hosts: 64}
    lemons: {action: rma, at_least: 2, out_count: 4, xid_cnt: 3}
    prevention: {action: show, ratios: {link-flap: 40}, evidence: 20}
    probes: {every_min: 10, then: act}                     # what agents find by themselves

Every key is optional; what is left out is as the tables in docs/lifecycle.md say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from muster.structs import replace
from scheduler.core.model.records.host import DAYS
from scheduler.core.policies.health import (
    AS_STATED,
    HealthPolicy,
    HealthRule,
    LemonAction,
    LemonPolicy,
    PreventionAction,
    PreventionPolicy,
    ProbeAction,
    ProbePolicy,
)
from scheduler.core.policies.health_signals import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    SIGNALS,
    XID,
    Effect,
    Signal,
    Threshold,
)
from scheduler.core.policies.xids import MOST, Blame
from scheduler.files.field_types import choice, one_of, wrong_value
from scheduler.files.job_keys import (
    Count,
    Flag,
    Keys,
    Number,
    Positive,
    checked_keys,
    message_of,
    path_of,
    whole_number_between,
)
from scheduler.files.yaml12 import load

EFFECTS = (Effect.NOTE, Effect.SUSPECT, Effect.RETIRE, Effect.FAIL, Effect.RMA)
MOST_HOURS = 7 * 24  # that thresholds look back
_L = LemonPolicy()
_P = PreventionPolicy()
_PROBES = ProbePolicy()


class _ThresholdKeys(Keys):
    count: Count
    within_h: Annotated[int, whole_number_between(1, MOST_HOURS)]
    then: Annotated[Effect, one_of(*EFFECTS)]
    per_gpu: Flag = False


def _read_rule(value: Any) -> str | list[_ThresholdKeys]:
    """The effect of a signal, or its thresholds."""
    if not isinstance(value, list):
        return choice(value, EFFECTS, "a list of thresholds")
    thresholds = []
    for number, entry in enumerate(value):
        try:
            thresholds.append(_ThresholdKeys.model_validate(entry))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            inside = f"{number}.{path_of(fault)}".rstrip(".")
            raise wrong_value(message_of(fault, _ThresholdKeys), inside) from None
    return thresholds


class _SuspectKeys(Keys):
    clear_h: Count = AS_STATED.clear_s // HOUR_S


class _BurnInKeys(Keys):
    after_repair: Flag = False
    early_life_days: Number = AS_STATED.early_s // DAY_S


class _GoldenKeys(Keys):
    clean_days: Number = AS_STATED.golden_s // DAY_S
    large_gang_hosts: Count = AS_STATED.large_hosts


class _LemonKeys(Keys):
    days: Count = _L.days
    at_least: Count = _L.at_least
    action: LemonAction = _L.action
    excl_jobid_count: Number = _L.excl_jobid_count
    xid_cnt: Number = _L.xid_cnt
    tickets: Number = _L.tickets
    out_count: Number = _L.out_count
    multi_node_node_fails: Number = _L.multi_node_node_fails
    single_node_node_fails: Number = _L.single_node_node_fails
    single_node_failure_percent: Number = _L.single_node_failure_percent


class _PreventionKeys(Keys):
    action: PreventionAction = _P.action
    ratios: dict[str, Positive] = Field(default_factory=dict)
    early_life_ratio: Positive = _P.early_ratio
    evidence: Number = _P.evidence


class _ProbeKeys(Keys):
    every_min: Number = _PROBES.every_s // MINUTE_S
    then: ProbeAction = _PROBES.then


class _FileKeys(Keys):
    signals: dict[str, Annotated[Any, BeforeValidator(_read_rule)]] = Field(default_factory=dict)
    xids: dict[Any, Blame] = Field(default_factory=dict)
    suspect: _SuspectKeys = Field(default_factory=_SuspectKeys)
    burn_in: _BurnInKeys = Field(default_factory=_BurnInKeys)
    golden: _GoldenKeys = Field(default_factory=_GoldenKeys)
    lemons: _LemonKeys = Field(default_factory=_LemonKeys)
    prevention: _PreventionKeys = Field(default_factory=_PreventionKeys)
    probes: _ProbeKeys = Field(default_factory=_ProbeKeys)


def load_health(path: str) -> HealthPolicy:
    """Read a health policy file. Raises: InputError with every fault found, each with its line."""
    document = load(path)
    keys = checked_keys(_FileKeys, document)
    wrong = list(_faults(keys))
    if wrong:
        raise document.error(*wrong)
    prevention, burn_in = keys.prevention, keys.burn_in
    return HealthPolicy(
        tuple(HealthRule(name, _rule(name, value)) for name, value in keys.signals.items()),
        tuple((int(code), blame) for code, blame in keys.xids.items()),
        keys.suspect.clear_h * HOUR_S,
        burn_in.after_repair,
        burn_in.early_life_days * DAY_S,
        keys.golden.clean_days * DAY_S,
        keys.golden.large_gang_hosts,
        LemonPolicy(**vars(keys.lemons)),
        PreventionPolicy(
            prevention.action,
            tuple(prevention.ratios.items()),
            prevention.evidence,
            prevention.early_life_ratio,
        ),
        ProbePolicy(keys.probes.every_min * MINUTE_S, keys.probes.then),
    )


def _rule(name: str, value: str | list[_ThresholdKeys]) -> Signal:
    """The signal of the table with another effect, or other thresholds."""
    if isinstance(value, str):
        return replace(SIGNALS[name], effect=Effect(value), thresholds=())
    thresholds = tuple(
        Threshold(each.count, each.within_h * HOUR_S, each.then, each.per_gpu) for each in value
    )
    return replace(SIGNALS[name], effect=Effect.NOTE, thresholds=thresholds)


def _faults(keys: _FileKeys) -> Iterator[tuple[str, str]]:
    changeable = [n for n, s in SIGNALS.items() if s.is_trouble and not s.is_domain]
    for name, value in keys.signals.items():
        field = f"signals.{name}"
        if name not in changeable:
            yield field, f"is not a signal that can be changed; known are {', '.join(changeable)}"
        elif isinstance(value, str) and name == XID:
            yield field, "give thresholds here, and the effect of single codes under xids"
    for code in keys.xids:
        if not str(code).isdecimal() or not 0 < int(code) <= MOST:
            yield f"xids.{code}", f"must be the code of an XID, 1 to {MOST:,}"
    yield from _prevention_faults(keys.prevention, changeable)
    if keys.lemons.days > DAYS:
        yield "lemons.days", f"must be at most {DAYS}, for which records are kept"


def _prevention_faults(
    keys: _PreventionKeys, changeable: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for name, ratio in keys.ratios.items():
        if name not in changeable:
            known = ", ".join(changeable)
            yield f"prevention.ratios.{name}", f"is not a signal that counts; known are {known}"
        elif ratio < 1:
            yield f"prevention.ratios.{name}", f"must be at least 1, not {ratio:g}"
    if keys.early_life_ratio < 1:
        message = f"must be at least 1, not {keys.early_life_ratio:g}"
        yield "prevention.early_life_ratio", message
