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
from typing import Any

from pydantic import Field, ValidationError

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
from scheduler.files.job_keys import (
    Count,
    Flag,
    Keys,
    Number,
    Positive,
    checked_keys,
    message_of,
    path_of,
)
from scheduler.files.yaml12 import load

EFFECTS = (Effect.NOTE, Effect.SUSPECT, Effect.RETIRE, Effect.FAIL, Effect.RMA)
MOST_HOURS = 7 * 24  # that thresholds look back
_L = LemonPolicy()
_P = PreventionPolicy()
_PROBES = ProbePolicy()


class _ThresholdKeys(Keys):
    count: Count
    within_h: Count
    then: Effect
    per_gpu: Flag = False


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
    signals: dict[str, Any] = Field(default_factory=dict)
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
    return HealthPolicy(
        tuple(HealthRule(name, _rule(name, value)) for name, value in keys.signals.items()),
        tuple((int(code), blame) for code, blame in keys.xids.items()),
        keys.suspect.clear_h * HOUR_S,
        keys.burn_in.after_repair,
        keys.burn_in.early_life_days * DAY_S,
        keys.golden.clean_days * DAY_S,
        keys.golden.large_gang_hosts,
        LemonPolicy(**keys.lemons.model_dump()),
        PreventionPolicy(
            keys.prevention.action,
            tuple(keys.prevention.ratios.items()),
            keys.prevention.evidence,
            keys.prevention.early_life_ratio,
        ),
        ProbePolicy(keys.probes.every_min * MINUTE_S, keys.probes.then),
    )


def _rule(name: str, value: Any) -> Signal:
    """The signal of the table with another effect, or other thresholds."""
    if isinstance(value, str):
        return replace(SIGNALS[name], effect=Effect(value), thresholds=())
    thresholds = tuple(
        Threshold(t.count, t.within_h * HOUR_S, t.then, t.per_gpu)
        for t in map(_ThresholdKeys.model_validate, value)
    )
    return replace(SIGNALS[name], effect=Effect.NOTE, thresholds=thresholds)


def _faults(keys: _FileKeys) -> Iterator[tuple[str, str]]:
    changeable = [n for n, s in SIGNALS.items() if s.is_trouble and not s.is_domain]
    effects = ", ".join(EFFECTS)
    for name, value in keys.signals.items():
        field = f"signals.{name}"
        if name not in changeable:
            yield field, f"is not a signal that can be changed; known are {', '.join(changeable)}"
        elif isinstance(value, str):
            if value not in EFFECTS:
                yield field, f"must be one of {effects}, or a list of thresholds, not {value!r}"
            elif name == XID:
                yield field, "give thresholds here, and the effect of single codes under xids"
        elif not isinstance(value, list):
            yield field, f"must be one of {effects}, or a list of thresholds"
        else:
            for i, entry in enumerate(value):
                yield from _threshold_faults(f"{field}.{i}", entry)
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


def _threshold_faults(field: str, entry: Any) -> Iterator[tuple[str, str]]:
    try:
        threshold = _ThresholdKeys.model_validate(entry)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path = path_of(fault)
            message = message_of(fault, _ThresholdKeys)
            yield (f"{field}.{path}" if path else field), message
        return
    if threshold.then not in EFFECTS:
        yield f"{field}.then", f"must be one of {', '.join(EFFECTS)}"
    if threshold.within_h > MOST_HOURS:
        yield f"{field}.within_h", f"must be at most {MOST_HOURS}"
