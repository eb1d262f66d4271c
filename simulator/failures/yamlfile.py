"""A file of causes, for `--failures model.yaml`.

    preset: llama3            # start from its causes; leave out to start from none
    scale: 1.5                # all of the preset's rates times this
    lemons: {share: 0.012, factor: 20}      # for every cause of single hosts
    causes:
      - name: gpu
        rate: 1.3                           # failures per 1,000 unit-days
        repair: {mean_h: 190, kind: lognormal, sigma: 1.8}
      - name: tor
        rate: 0.2
        scope: rack                         # all hosts of a rack at once
        repair: {mean_h: 4}
      - name: power
        rate: 0.05
        scope: rack
        group: 12                           # racks on one feed
        repair: {mean_h: 2, kind: fixed}
      - name: infant
        rate: 2
        life: {shape: 0.6, age_days: 30}    # Weibull; shape 1, the default, is exponential
        repair: {mean_h: 24}
        # 70 % of these failures are announced, a day before on average; of 10 reports 1 is
        # followed by a failure. The health policy says what the reports do.
        precursor: {signal: ecc-correctable, recall: 0.7, precision: 0.1, lead_h: 24}

A cause of the preset's that is named again is replaced.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.structs import replace
from scheduler.core.policies.health_signals import SIGNALS, XID
from scheduler.files.field_types import one_of
from scheduler.files.job_keys import Count, Keys, Text, checked_keys
from scheduler.files.yaml12 import Document
from simulator.failures.cause import (
    HOST,
    REPAIRS,
    FailureCause,
    LemonHosts,
    Precursor,
    RepairTime,
)
from simulator.failures.presets import PRESETS, preset
from simulator.field_types import Amount, Positive

COUNTED = tuple(name for name, signal in SIGNALS.items() if signal.thresholds and name != XID)


class _RepairKeys(Keys):
    mean_h: Amount
    kind: Annotated[str, one_of(*REPAIRS)] = REPAIRS[0]
    sigma: Positive = 1.0


class _LifeKeys(Keys):
    shape: Positive = 1.0
    age_days: Amount = 0.0


class _PrecursorKeys(Keys):
    signal: Annotated[str, one_of(*COUNTED)]
    recall: Positive
    precision: Positive
    lead_h: Positive


class _CauseKeys(Keys):
    name: Text
    rate: Positive
    repair: _RepairKeys
    life: _LifeKeys = Field(default_factory=_LifeKeys)
    scope: Text = HOST
    group: Count = 1
    precursor: _PrecursorKeys | None = None


class _LemonKeys(Keys):
    share: Positive
    factor: Positive


class _FileKeys(Keys):
    preset: Text | None = None
    scale: Positive = 1.0
    lemons: _LemonKeys | None = None
    causes: list[_CauseKeys] = Field(default_factory=list)


def causes_of(document: Document) -> tuple[FailureCause, ...]:
    """Read causes of failures. Raises: InputError with every fault found, each with its line."""
    keys = checked_keys(_FileKeys, document)
    _check(document, keys)
    lemons = LemonHosts(keys.lemons.share, keys.lemons.factor) if keys.lemons else None
    causes = {c.name: c for c in preset(keys.preset, keys.scale)} if keys.preset else {}
    causes |= {entry.name: _cause(entry) for entry in keys.causes}
    hit = [c for c in causes.values() if c.scope == HOST] if lemons else []
    causes |= {c.name: replace(c, lemons=lemons) for c in hit}
    return tuple(causes.values())


def _check(document: Document, keys: _FileKeys) -> None:
    """Return the faults between keys."""
    wrong: list[tuple[str, str]] = []
    if keys.preset is not None and keys.preset not in PRESETS:
        wrong.append(("preset", f"must be one of {', '.join(PRESETS)}, not {keys.preset!r}"))
    if keys.preset is None and not keys.causes:
        wrong.append(("", "names neither a preset nor causes"))
    if keys.lemons and keys.lemons.share > 1:
        wrong.append(("lemons.share", "must be at most 1"))
    if keys.lemons and keys.lemons.factor <= 1:
        wrong.append(("lemons.factor", "must be more than 1"))
    names = [entry.name for entry in keys.causes]
    for at, name in enumerate(names):
        if name in names[:at]:
            wrong.append((f"causes.{at}.name", f"cause {name} is given twice"))
    for at, entry in enumerate(keys.causes):
        if "sigma" in entry.repair.model_fields_set and entry.repair.kind != "lognormal":
            wrong.append((f"causes.{at}.repair.sigma", "has an effect with lognormal alone"))
        if (precursor := entry.precursor) is None:
            continue
        for key in ("recall", "precision"):
            if getattr(precursor, key) > 1:
                wrong.append((f"causes.{at}.precursor.{key}", "must be at most 1"))
        if entry.scope != HOST or entry.group > 1:
            message = "is of causes of single hosts; leave scope and group out"
            wrong.append((f"causes.{at}.precursor", message))
    if wrong:
        raise document.error(*wrong)


def _cause(keys: _CauseKeys) -> FailureCause:
    repair = RepairTime(keys.repair.mean_h, keys.repair.kind, keys.repair.sigma)
    life, told = keys.life, keys.precursor
    return FailureCause(
        keys.name,
        keys.rate,
        repair,
        life.shape,
        life.age_days,
        keys.scope,
        keys.group,
        precursor=None if told is None else Precursor(**told.model_dump()),
    )
