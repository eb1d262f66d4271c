"""Fit the constants of the step to measured runs, and say how well families predict each other.

    python -m scripts.fit_steps STEPS.csv [--write] [--ablation]
    python -m scripts.fit_steps STEPS.csv --plot docs/img/steptime.svg    only draws

The file has the columns of `muster estimate --table` and `measured_step_s`. The model is that of
the product, placement/objective: this script stacks the parts of all rows and fits with the
product's own arithmetic. Constants are positive, so their logarithms are fitted, by Gauss-Newton
steps on residuals of the logarithm of the step that count less the larger they are. What is known
of each constant beforehand counts as a measurement (PRIORS); rates of single GPUs are drawn towards
those of their kin, and these towards those of their precision, so that families, not rows, pay for
them.

Held-out errors are of families (source, GPU, model) that a fit has not seen: halves of all
families, drawn REPEATS times by a fixed seed.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from placement.objective.axis_loads import axis_loads
from placement.objective.compute_time import ComputeParts, compute_parts, compute_seconds
from placement.objective.fitted_constants import (
    KINS,
    FittedConstants,
    precision_class,
    read_constants,
)
from placement.objective.step_time import Assumptions, Exposure, Pipeline, step_time
from placement.workload.volumes import state_share
from scheduler.console import theme
from scheduler.files.step_table import StepRow, read_table

Floats = npt.NDArray[np.float64]
FILE = Path(__file__).parents[1] / "placement" / "objective" / "fitted_constants.toml"
REPEATS = 4
NOISE = {"dense": 0.10, "experts": 0.25}  # of a step that the model has right, as a logarithm
OUTLIER = 1.5  # times the noise from which on a residual counts less


@dataclass(frozen=True)
class Prior:
    """The belief about a constant before the fit: `value`, times or over exp(`spread`)."""

    value: float
    spread: float
    source: str


PRIORS = {
    "gemm.bf16": Prior(0.66, 0.2, "share of peak of large GEMMs in training, vendors' libraries"),
    "gemm.fp8": Prior(0.58, 0.2, "the same with casts between 8 and 16 bits"),
    "gemm.fp4": Prior(0.45, 0.2, "the same with 4-bit operands"),
    "attention": Prior(0.27, 0.4, "causal FlashAttention, forward and backward (Dao 2023)"),
    "short_tokens": Prior(600, 0.7, "tokens of a micro-batch at which GEMMs take twice as long"),
    "narrow_columns": Prior(200, 0.7, "columns of a matrix on one GPU at which they do"),
    "misaligned": Prior(1.3, 0.3, "shapes no multiple of tiles (BigScience, BLOOM's tuning)"),
    "layer_bytes": Prior(262, 0.4, "reads and writes of a layer's activations, 16-bit, fused"),
    "expert_share": Prior(0.9, 0.3, "grouped GEMMs of experts against plain ones"),
    "expert_tokens": Prior(300, 1.0, "tokens of an expert at which its GEMMs take twice as long"),
    "exposed.dp": Prior(0.45, 0.7, "first gather and last reduction hide behind nothing"),
    "exposed.tp": Prior(0.2, 1.0, "overlapped with GEMMs where sequences are split"),
    "exposed.tp_whole": Prior(1.2, 0.5, "all-reduces wait, at 80 % of the links' rate"),
    "exposed.ep": Prior(0.6, 0.5, "all-to-all, in part behind shared experts or other batches"),
}
OF_KIN, OF_GPU, ATTENTION_OF_KIN = 0.3, 0.12, 0.3  # spreads of rates, as logarithms


class Table:
    """Rows as arrays, in the terms of the model."""

    def __init__(self, rows: Sequence[StepRow]) -> None:
        self.rows = [row for row in rows if row.request is not None and row.fabric is not None]
        parts, terms = [], []
        for row in self.rows:
            assert row.request is not None
            assert row.fabric is not None
            each = compute_parts(row.request, row.fabric.by_host.kinds[0])
            assert each is not None
            parts.append(each)
            terms.append(_terms(row))
        self.parts = SimpleNamespace(
            **{
                field.name: np.array([getattr(each, field.name) for each in parts])
                for field in fields(ComputeParts)  # type: ignore[arg-type]
            }
        )
        self.terms = SimpleNamespace(
            **{name: np.array([term[name] for term in terms], dtype=float) for name in terms[0]}
        )
        self.measured = np.array([float(row.cells["measured_step_s"]) for row in self.rows])
        self.gpu = np.array([row.fabric.by_host.kinds[0].name for row in self.rows])  # type: ignore[union-attr]
        precision = [row.request.model.dtype for row in self.rows]  # type: ignore[union-attr]
        self.precision = np.array([precision_class(each) for each in precision])
        self.has_experts = np.array([bool(row.request.model.experts) for row in self.rows])  # type: ignore[union-attr]
        self.family = [_family(row) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)


def _family(row: StepRow) -> tuple[str, str, str]:
    return row.cells["source"].split(":")[0], row.cells["gpu"], row.cells["model"]


def _study(family: tuple[str, str, str]) -> tuple[str, str, str]:
    """Join families that one study varied: they count as one where rows are weighed."""
    source, gpu, model = family
    return source, gpu, "bs" if model.startswith(("bs-", "bloom")) else model


def _terms(row: StepRow) -> dict[str, float]:
    """Return seconds of each axis alone, of state under `dp`, and what the pipeline adds."""
    request, fabric = row.request, row.fabric
    assert request is not None
    assert fabric is not None
    line = Pipeline.of(request)
    hosts = range(request.hosts_needed(fabric.gpus_per_host))
    seconds = dict.fromkeys(("tp", "tp_whole", "cp", "ep", "pp", "dp"), 0.0)
    hops: tuple[float, ...] = ()
    for load in axis_loads(fabric, request, hosts):
        axis, hops = load.traffic.axis, load.hops or hops
        state = float(state_share(request, axis)) * load.seconds
        seconds["dp"] += state
        is_whole = axis == "tp" and not request.training.sequence_parallel
        if load.seconds > state:
            seconds["tp_whole" if is_whole else axis] += load.seconds - state
    hiding = Exposure(request, line, 1.0, {"dp": 0.0}, 1.0)
    # Hops are short against compute where chunks hide them: only the first micro-batch waits.
    seconds["pp"] = line.wait_for_hops(hops, 1e9)
    return {**seconds, "bubble": float(line.bubble), "window": hiding.window_s}


class Fit:
    """One form of the model: its constants as a vector of logarithms. `without`: terms left out."""

    def __init__(self, table: Table, without: Sequence[str] = ()) -> None:
        self.table, self.without = table, set(without)
        kin = [KINS.get(gpu, gpu) for gpu in table.gpu]
        self.kinds = [f"{p}:{k}" for p, k in zip(table.precision, kin, strict=True)]
        self.gpus = [f"{p}:{g}" for p, g in zip(table.precision, table.gpu, strict=True)]
        self.names = [
            *PRIORS,
            *(f"kin.{key}" for key in sorted(set(self.kinds))),
            *(f"gpu.{key}" for key in sorted(set(self.gpus))),
            *(f"attention.{key}" for key in sorted(set(kin))),
        ]
        at = {name: i for i, name in enumerate(self.names)}
        self.at = at
        self.of_precision = np.array([at[f"gemm.{p}"] for p in table.precision])
        self.of_kin = np.array([at[f"kin.{key}"] for key in self.kinds])
        self.of_gpu = np.array([at[f"gpu.{key}"] for key in self.gpus])
        self.attention_of = np.array([at[f"attention.{key}"] for key in kin])
        spread = {"kin": OF_KIN, "gpu": OF_GPU, "attention": ATTENTION_OF_KIN}
        self.start = np.array([np.log(PRIORS[n].value) if n in PRIORS else 0.0 for n in self.names])
        self.spread = np.array(
            [PRIORS[n].spread if n in PRIORS else spread[n.split(".")[0]] for n in self.names]
        )

    def predict(self, x: Floats, rows: npt.NDArray[np.int64]) -> Floats:
        """Return the model's seconds of these rows."""
        value = {name: float(np.exp(x[self.at[name]])) for name in PRIORS}
        for name in self.without:
            if name in value:
                value[name] = 1.0 if name in ("misaligned", "expert_share") else 0.0
        rate = x[self.of_precision[rows]].copy()
        if "rates of GPUs" not in self.without:
            rate += x[self.of_kin[rows]] + x[self.of_gpu[rows]]
        heads = np.full(len(rows), np.log(value["attention"] or 1e9))
        if "attention of GPUs" not in self.without:
            heads += x[self.attention_of[rows]]
        rates = SimpleNamespace(gemm=np.exp(rate), attention=np.exp(heads))
        parts = SimpleNamespace(**{k: v[rows] for k, v in vars(self.table.parts).items()})
        t = SimpleNamespace(**{k: v[rows] for k, v in vars(self.table.terms).items()})
        constants = SimpleNamespace(
            **{n: value[n] for n in PRIORS if "." not in n and n != "attention"}
        )
        compute = compute_seconds(parts, rates, constants)
        return compute * (1 + t.bubble) + self._exposed_seconds(value, t, compute)

    def _exposed_seconds(self, value: dict[str, float], t: Any, compute: Floats) -> Floats:
        """Return seconds of communication that steps wait for."""
        waited = sum(value[f"exposed.{a}"] * getattr(t, a) for a in ("tp", "tp_whole", "ep"))
        waited = waited + value["exposed.tp"] * t.cp
        share = value["exposed.dp"]
        hidden = np.maximum(0.0, (1 - share) * t.dp - t.window * compute)
        return waited * (1 + t.bubble) + share * t.dp + hidden + t.pp

    def wait_uncertainty(self, draws: int = 200) -> float:
        """Return the standard deviation of the communication that a step waits for, over constants
        as likely as those fitted: a share of the step, the median of all rows on several hosts."""
        rows = np.array(
            [
                i
                for i, row in enumerate(self.table.rows)
                if row.fabric is not None and row.fabric.host_count > 1
            ]
        )
        x, covariance = self.fit_rows(np.arange(len(self.table)))
        t = SimpleNamespace(**{k: v[rows] for k, v in vars(self.table.terms).items()})
        steps, waits = self.predict(x, rows), []
        for drawn in np.random.default_rng(0).multivariate_normal(x, covariance, draws):
            value = {name: float(np.exp(drawn[self.at[name]])) for name in PRIORS}
            waits.append(self._exposed_seconds(value, t, steps) / steps)
        return float(np.median(np.std(waits, axis=0)))

    def errors(self, x: Floats, rows: npt.NDArray[np.int64]) -> Floats:
        """Return logarithms of estimate over measured."""
        return np.log(self.predict(x, rows) / self.table.measured[rows])

    def _residuals(self, x: Floats, rows: npt.NDArray[np.int64], weights: Floats) -> Floats:
        noise = np.where(self.table.has_experts[rows], NOISE["experts"], NOISE["dense"])
        z = self.errors(x, rows) / noise
        robust = np.sign(z) * OUTLIER * np.sqrt(2 * (np.sqrt(1 + (z / OUTLIER) ** 2) - 1))
        return np.concatenate([robust * weights, (x - self.start) / self.spread])

    def fit_rows(self, rows: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Fit the constants to these rows; return their logarithms and the covariance of these."""
        weights = self._weights(rows)
        x, damping = self.start.copy(), 1e-2
        r = self._residuals(x, rows, weights)
        for _ in range(60):
            jacobian = self._jacobian(x, r, rows, weights)
            curvature = jacobian.T @ jacobian
            step = np.linalg.solve(
                curvature + damping * np.diag(np.diag(curvature)), -jacobian.T @ r
            )
            moved = self._residuals(x + step, rows, weights)
            if moved @ moved < r @ r:
                is_done = abs(r @ r - moved @ moved) < 1e-7 * (r @ r)
                x, r, damping = x + step, moved, max(damping / 5, 1e-9)
                if is_done:
                    break
            else:
                damping *= 10
                if damping > 1e8:
                    break
        return x, np.linalg.inv(curvature)

    def _jacobian(
        self, x: Floats, r: Floats, rows: npt.NDArray[np.int64], weights: Floats
    ) -> Floats:
        columns = []
        for i in range(len(x)):
            moved = x.copy()
            moved[i] += 1e-5
            columns.append((self._residuals(moved, rows, weights) - r) / 1e-5)
        return np.stack(columns, axis=1)

    def _weights(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Each study counts as the square root of its rows."""
        studies = [_study(self.table.family[row]) for row in rows]
        count = {study: studies.count(study) for study in set(studies)}
        return np.array([count[study] ** -0.25 for study in studies])


def predict_unseen_families(fit: Fit, repeats: int = REPEATS) -> list[tuple[int, float]]:
    """Return rows and their errors, each of a fit to the half of the families without its own."""
    random = np.random.default_rng(0)
    families = sorted(set(fit.table.family))
    every = np.arange(len(fit.table))
    found = []
    for _ in range(repeats):
        order = random.permutation(len(families))
        half = {families[i] for i in order[: len(order) // 2]}
        is_in = np.array([family in half for family in fit.table.family])
        for seen in (is_in, ~is_in):
            x, _ = fit.fit_rows(every[seen])
            found += zip(every[~seen].tolist(), fit.errors(x, every[~seen]).tolist(), strict=True)
    return found


def predict_unseen_gpus(fit: Fit) -> list[tuple[int, float]]:
    """Return dense rows and their errors, each of a fit without any run of its GPU."""
    every, found = np.arange(len(fit.table)), []
    for gpu in sorted(set(fit.table.gpu)):
        rows = every[(fit.table.gpu == gpu) & ~fit.table.has_experts]
        if len(rows):
            x, _ = fit.fit_rows(every[fit.table.gpu != gpu])
            found += zip(rows.tolist(), fit.errors(x, rows).tolist(), strict=True)
    return found


# --- what is written down -----------------------------------------------------------


def content_of(
    fit: Fit, outside: dict[str, tuple[float, float]], resolution: float
) -> dict[str, Any]:
    """Fit all rows; return the constants as fitted_constants.toml has them."""
    x, covariance = fit.fit_rows(np.arange(len(fit.table)))

    def entry(names: Sequence[str], **more: Any) -> dict[str, Any]:
        at = [fit.at[name] for name in names]
        middle, spread = x[at].sum(), np.sqrt(covariance[np.ix_(at, at)].sum())
        low, high = np.exp(middle - 1.28 * spread), np.exp(middle + 1.28 * spread)
        numbers = [float(f"{each:.4g}") for each in (np.exp(middle), low, high)]
        return {"value": numbers[0], "low": numbers[1], "high": numbers[2], **more}

    def expected(name: str) -> dict[str, Any]:
        return entry([name], source=PRIORS[name].source)

    gemm = {p: expected(f"gemm.{p}") for p in ("bf16", "fp8", "fp4")}
    for key in sorted(set(fit.kinds) | set(fit.gpus)):
        kind, gpu = key.split(":")
        names = [f"gemm.{kind}", f"kin.{kind}:{KINS.get(gpu, gpu)}"]
        if key in fit.gpus:
            names.append(f"gpu.{key}")
        gemm[key] = entry(names, rows=fit.gpus.count(key))
    attention = {"": expected("attention")}
    for gpu in sorted({key.split(":")[1] for key in fit.kinds}):
        attention[gpu] = entry(["attention", f"attention.{gpu}"])
    kernel = {n: expected(n) for n in PRIORS if "." not in n and n != "attention"}
    exposed = {a: expected(f"exposed.{a}") for a in ("dp", "tp", "tp_whole", "ep")}
    exposed["cp"] = {**exposed["tp"], "source": "as tp: the runs do not tell them apart"}
    return {
        "gemm": gemm,
        "attention": attention,
        "kernel": kernel,
        "exposed": exposed,
        "interval": {kind: {"value": list(ends)} for kind, ends in outside.items()},
        "resolution": {"value": resolution},
    }


def toml_text(content: dict[str, Any], head: str) -> str:
    """One line an entry."""
    lines = [*(f"# {row}".rstrip() for row in head.splitlines())]
    for section, entries in content.items():
        lines += ["", f"[{section}]"]
        if section == "resolution":
            lines.append(f"value = {entries['value']!r}")
            continue
        for name, entry in entries.items():
            inner = ", ".join(f"{key} = {_toml(value)}" for key, value in entry.items())
            lines.append(f"{_toml(name)} = {{{inner}}}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(list(value)) if isinstance(value, list | tuple) else repr(value)


HEAD = """\
Constants of the step time model, written by `make fit-steps STEPS=FILE`.

Fitted to {rows} measured steps of {families} families (source, GPU, model) of public runs: MLPerf
Training v3.0 to v6.0, Megatron-Bridge 25.09 to 26.08, NeMo 24.07, llm-foundry, BigScience,
TorchTitan, Narayanan et al. 2021, Korthikanti et al. 2022. docs/steptime.md has the errors on
families held out.

value: fitted. low, high: 8 of 10. source: where the value was expected from before the fit, which
counted as a measurement. rows: runs of this GPU and precision; without, by kin and precision.

gemm        share of the dense peak, by precision, then precision:GPU. fp8: all of 8 bits.
attention   share of the 16-bit peak, by GPU; "" for any other.
kernel      short_tokens, narrow_columns, expert_tokens: at which GEMMs take twice as long as
            large ones. misaligned: times slower. layer_bytes: of a layer, column and token.
            expert_share: of the rate of other GEMMs.
exposed     share of an axis' time that the step waits for; above 1 where links reach less than
            their makers state.
interval    measured steps over estimates, 10th and 90th percentile, of families held out; of dense
            jobs, of jobs with experts, and of dense jobs on GPUs without any run.
resolution  share of the step by which two placements of a job must differ to be told apart.
"""


# --- what is printed ------------------------------------------------------------------


def error_line(label: str, errors: Floats) -> str:
    off = 100 * np.abs(np.expm1(errors))
    return (
        f"{label:34s} {len(off):5d} {np.median(off):7.1f} % {np.quantile(off, 0.9):7.1f} %"
        f" {100 * np.expm1(np.median(errors)):+7.1f} %"
    )


def median_by_row(found: Sequence[tuple[int, float]]) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the rows, and the median of the errors of each."""
    rows = sorted({row for row, _ in found})
    return np.array(rows), np.array([np.median([e for r, e in found if r == row]) for row in rows])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("steps", help="CSV file of measured steps")
    arguments.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    arguments.add_argument("--ablation", action="store_true", help="errors without each term")
    arguments.add_argument("--plot", type=Path, help="only draw estimated over measured steps")
    options = arguments.parse_args()
    table = Table(list(read_table(options.steps)))
    if options.plot:
        draw(table, options.plot)
        return
    fit = Fit(table)
    print(f"{len(table)} rows, {len(set(table.family))} families\n")
    print(
        f"{'held out, halves of families':34s} {'rows':>5s} {'median':>9s} {'p90':>9s} {'bias':>9s}"
    )
    found = predict_unseen_families(fit)
    errors = np.array([error for _, error in found])
    experts = np.array([table.has_experts[row] for row, _ in found])
    print(error_line("dense", errors[~experts]))
    print(error_line("with experts", errors[experts]))
    rows, middle = median_by_row(found)
    for kind in (False, True):
        print(f"\n{'with experts' if kind else 'dense'}, by GPU")
        chosen = table.has_experts[rows] == kind
        for gpu in sorted(set(table.gpu[rows[chosen]])):
            print(error_line(f"  {gpu}", middle[chosen & (table.gpu[rows] == gpu)]))
    print("\ndense, on GPUs of which the fit has seen no run")
    foreign = predict_unseen_gpus(fit)
    foreign_errors = np.array([error for _, error in foreign])
    print(error_line("  all", foreign_errors))
    if options.ablation:
        print("\nheld out, without a term")
        for term in [
            "nothing",
            *(n for n in PRIORS if not n.startswith("gemm")),
            "rates of GPUs",
            "attention of GPUs",
        ]:
            left = predict_unseen_families(Fit(table, (term,)), 2)
            off = np.array([error for _, error in left])
            has = np.array([table.has_experts[row] for row, _ in left])
            print(error_line(f"  {term}, dense", off[~has]))
            print(error_line(f"  {term}, experts", off[has]))
    ends = {
        "dense": _interval_ends(errors[~experts]),
        "experts": _interval_ends(errors[experts]),
        "unmeasured": _interval_ends(foreign_errors),
    }
    content = content_of(fit, ends, print_resolution(fit))
    head = HEAD.format(rows=len(table), families=len(set(table.family)))
    text = toml_text(content, head)
    if options.write:
        FILE.write_text(text)
        print(f"\nwrote {FILE}")
    print_fit_errors(table, read_constants(tomllib.loads(text)))


def _interval_ends(errors: Floats) -> tuple[float, float]:
    """Return measured over estimated, 10th and 90th percentile."""
    low, high = np.quantile(np.exp(-errors), (0.1, 0.9))
    return round(float(low), 3), round(float(high), 3)


def print_fit_errors(table: Table, constants: FittedConstants) -> None:
    """Print errors of the product itself with constants that were fitted to all rows."""
    errors = np.log(estimated(table, constants) / table.measured)
    print("\nfitted to all, by GPU")
    for gpu in sorted(set(table.gpu)):
        for kind, label in ((False, ""), (True, ", experts")):
            chosen = (table.gpu == gpu) & (table.has_experts == kind)
            if chosen.any():
                print(error_line(f"  {gpu}{label}", errors[chosen]))
    print(error_line("  dense", errors[~table.has_experts]))
    print(error_line("  with experts", errors[table.has_experts]))


def estimated(table: Table, constants: FittedConstants) -> Floats:
    """Return the seconds of each row by the product itself."""
    assumed, steps = Assumptions(constants=constants), []
    for row in table.rows:
        assert row.request is not None
        assert row.fabric is not None
        hosts = range(row.request.hosts_needed(row.fabric.gpus_per_host))
        steps.append(step_time(row.fabric, row.request, hosts, assumed).seconds)
    return np.array(steps)


def draw(table: Table, path: Path) -> None:
    """Draw what the product estimates over what was measured: a row a GPU, a mark a run."""
    ratio = estimated(table, read_constants(tomllib.loads(FILE.read_text()))) / table.measured
    gpus, runs = np.unique(table.gpu, return_counts=True)
    gpus = gpus[np.argsort(-runs, kind="stable")]
    figure, (axes,) = theme.new(0.9 + 0.3 * len(gpus))
    theme.styled(axes, grid="x")
    axes.grid(visible=False, axis="y")
    axes.axvspan(0.8, 1.25, color=theme.light("line"), alpha=0.5, linewidth=0)
    axes.axvline(1, color=theme.light("ink"), linewidth=0.8)
    for is_expert, label, colour, mark, shift in (
        (False, "dense", "blue", "o", -0.13),
        (True, "with experts", "orange", "^", 0.13),
    ):
        chosen = table.has_experts == is_expert
        at = np.array([int(np.flatnonzero(gpus == gpu)[0]) for gpu in table.gpu[chosen]]) + shift
        style: Any = {"color": theme.light(colour), "alpha": 0.55, "linewidths": 0, "s": 20}
        axes.scatter(ratio[chosen], at, marker=mark, label=label, **style)
    axes.set_xscale("log")
    ticks = (0.4, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 2.5)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    names = [f"{gpu} ({np.count_nonzero(table.gpu == gpu):,})" for gpu in gpus]
    axes.set_yticks(range(len(gpus)), names)
    axes.set_ylim(len(gpus) - 0.5, -0.5)
    axes.set_xlabel("estimated step over measured step; shaded: 25 % either way")
    theme.legend(axes)
    theme.save(figure, path.parent, path.stem, "Estimated over measured steps by GPU")
    path.with_suffix(".png").unlink()


def print_resolution(fit: Fit) -> float:
    """How close two placements of one job may come before neither model nor measurement tells them
    apart. Compute is the same on both, so its error is not in the difference: what is left is the
    spread of repeated runs, and the error of the communication by which they differ."""
    notes = (SPREAD.search(row.cells.get("note", "")) for row in fit.table.rows)
    repeated = [float(found[1]) / 100 for found in notes if found]
    runs = float(np.median(repeated)) if repeated else 0.0
    waits = fit.wait_uncertainty()
    found = float(np.hypot(runs, TRADED * waits))
    print(
        f"\nrepeated runs differ by {100 * runs:.2f} % ({len(repeated)} entries, median), waits are"
        f" known to {100 * waits:.2f} % of the step; resolution {100 * found:.2f} %"
    )
    return round(found, 4)


SPREAD = re.compile(r"spread over runs ([\d.]+)%")
TRADED = 0.25  # of what a step waits for, by which good placements of one job differ

if __name__ == "__main__":
    main()
