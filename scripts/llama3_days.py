"""54 days of Llama 3 405B on 16,384 GPUs, and what if.

    python -m scripts.llama3_days [SEEDS] [--png FILE]

Replays examples/llama3-54-days.jsonl under each variant and seed and prints, as Markdown,
the table of variants, the waterfall and the causes beside table 5. docs/llama3-54-days.md
has what it printed. Exit code 1 when the run is not consistent with what was published: 466
interruptions further than two standard deviations from the mean of the seeds, or a seed with no
more than 90 % effective training time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from scheduler.console import theme
from scheduler.core import State
from scheduler.core.fold.attempts import AttemptStopped, EffectReader, attempt_changes
from scheduler.core.fold.effects import HostTransition
from scheduler.core.model.events import Event
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.health import HealthPolicy
from simulator.collectors.metrics import Metrics
from simulator.experiment import Experiment
from simulator.failures import Outage, parse
from simulator.failures.presets import LLAMA3
from simulator.replay import Replay
from simulator.timing import load_time_model
from simulator.traces.load import TraceFile, find_format
from simulator.traces.record import SECOND_NS, BadRecord

TRACE = Path(__file__).parents[1] / "examples" / "llama3-54-days.jsonl"
DAYS, SEEDS = 54, 5
PLANNED = 47  # interruptions for maintenance, which table 5 leaves out (Llama 3, 3.3.4)
FAILURES = "llama3;poisson:rate=0.425,repair_h=1,cause=planned"  # 47 of 2,048 hosts in 54 days
PUBLISHED = sum(count for _, count, _ in LLAMA3) + PLANNED
LEAST_ETTR = 0.90
SLOW = ",".join(
    f"detection.by_cause.{name}=600" for name, _, _ in LLAMA3 if name != "silent-data-corruption"
)


def smaller(racks: int) -> Fabric:
    """RoCE-24K with fewer racks in each of its 8 zones."""
    tiers = [
        {"name": "zone", "count": 8, "oversubscription": 7},
        {"name": "rack", "count": racks},
        {"name": "host", "count": 2},
    ]
    return from_spec({"name": f"roce-{racks * 16}", "gpus_per_host": 8, "tiers": tiers})


@dataclass(frozen=True, slots=True)
class Variant:
    """`costs`: by which the scheduler counts; None: those of the time model. `health`: its
    policy."""

    name: str
    racks: int = 192
    times: str = "llama3"
    costs: Costs | None = None
    health: HealthPolicy | None = None

    @property
    def fabric(self) -> Fabric:
        return preset("roce-24k") if self.racks == 192 else smaller(self.racks)


VARIANTS = (
    Variant("the run: 1,024 further hosts"),
    Variant("64 further hosts, 8 a zone", racks=132),
    Variant("no spares: 2,048 hosts", racks=128),
    Variant("slow detection: 10 min", times=f"llama3,detection.default_s=600,{SLOW}"),
    Variant("checkpoints 30 min apart", times="llama3,checkpoint.interval_s=1800"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """`parts`: seconds of the job by what they went to. `retired`: hosts that the gang was to leave
    before they failed, `false_swaps` of them without need."""

    ettr: float
    causes: Counter[str]
    parts: dict[str, float]
    retired: int = 0
    false_swaps: int = 0

    @property
    def interruptions(self) -> int:
        return self.causes.total()


def refused(path: Path, bad: BadRecord) -> None:
    raise ValueError(f"{path}:{bad.line}: {bad.detail}")


def run(variant: Variant, seed: int) -> Result:
    fabric = variant.fabric
    return replayed(variant, fabric, parse(FAILURES)(fabric, seed))


def replayed(variant: Variant, fabric: Fabric, outages: Iterable[Outage]) -> Result:
    """Replay the 54 days with these outages."""
    experiment = Experiment(
        fabric,
        costs=variant.costs or load_time_model(variant.times).costs,
        decision_ns=SECOND_NS,
        times=load_time_model(variant.times),
        until_ns=DAYS * 86_400 * SECOND_NS,
        health=variant.health,
    )
    metrics, causes = Metrics(), Counter[str]()
    moves = Counter[HostMove]()
    effects = EffectReader()

    def sink(event: Event, state: State) -> None:
        metrics.feed(event, state)
        done = effects.read(event, state)
        moves.update(e.move for e in done if isinstance(e, HostTransition))
        stops = [c for c in attempt_changes(done) if isinstance(c, AttemptStopped)]
        if stops:
            causes[next(e.detail for e in done if isinstance(e, HostTransition))] += len(stops)

    jobs = TraceFile(TRACE, find_format("muster"), refused)
    replay = Replay(experiment, jobs, sink, outages)
    metrics.follow(replay)
    replay.run()
    parts = metrics.parts()
    retired = moves[HostMove.RETIRE]
    return Result(parts["ettr"], causes, parts["job_s"], retired, replay.false_swaps)


def run_reported(variant: Variant, seed: int) -> Result:
    """A run, with a line on stderr when it is over."""
    result = run(variant, seed)
    line = f"{variant.name}, seed {seed}: {result.interruptions} stops, {result.ettr:.4f}"
    print(line, file=sys.stderr, flush=True)
    return result


def spread(values: Sequence[float], text_of: Callable[[float], str]) -> str:
    """Mean, and the standard deviation over seeds."""
    deviation = stdev(values) if len(values) > 1 else 0.0
    return f"{text_of(fmean(values))} ± {text_of(deviation)}"


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def variants(by_variant: dict[Variant, list[Result]]) -> Iterable[str]:
    yield "| variant | interruptions | effective training time | lowest seed |"
    yield "|---|---|---|---|"
    for variant, results in by_variant.items():
        ettrs = [result.ettr for result in results]
        stops = spread([float(result.interruptions) for result in results], "{:.0f}".format)
        yield f"| {variant.name} | {stops} | {spread(ettrs, percent)} | {percent(min(ettrs))} |"


def waterfall(results: Sequence[Result]) -> dict[str, float]:
    """Shares of the 54 days, mean over seeds, largest first."""
    names = {name for result in results for name in result.parts}
    shares = {
        name: fmean(result.parts[name] / sum(result.parts.values()) for result in results)
        for name in sorted(names)
    }
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def causes(results: Sequence[Result]) -> Iterable[str]:
    yield "| cause | published | replayed, mean |"
    yield "|---|---|---|"
    for name, count in (*((name, count) for name, count, _ in LLAMA3), ("planned", PLANNED)):
        yield f"| {name} | {count} | {fmean(result.causes[name] for result in results):.1f} |"
    total = fmean(result.interruptions for result in results)
    yield f"| all | {PUBLISHED} | {total:.1f} |"


def inconsistencies(results: Sequence[Result]) -> Iterable[str]:
    """Yield the published values that the seeds rule out."""
    stops = [float(result.interruptions) for result in results]
    if abs(fmean(stops) - PUBLISHED) > 2 * stdev(stops):
        yield f"{PUBLISHED} interruptions are more than two deviations from {fmean(stops):.0f}"
    lowest = min(result.ettr for result in results)
    if lowest <= LEAST_ETTR:
        yield f"a seed has {percent(lowest)} effective training time, not more than 90 %"


def draw(shares: dict[str, float], path: str) -> None:
    """Draw what the time went to that was not productive, the largest part first."""
    lost = {name: share for name, share in shares.items() if name != "productive" and share > 0}
    figure, (axes,) = theme.new(0.3 * len(lost) + 0.7)
    theme.styled(axes, grid="")
    axes.grid(visible=False)
    colour = theme.light("map-stopped")
    axes.barh(list(lost), [100 * share for share in lost.values()], color=colour, height=0.66)
    for name, share in lost.items():
        axes.annotate(f" {percent(share)}", (100 * share, name), va="center", fontsize=theme.SMALL)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    productive = percent(shares["productive"])
    theme.titled(axes, f"{productive} of 54 days were productive; the rest went to")
    with theme.drawing():
        figure.savefig(path, dpi=theme.DPI, facecolor=theme.light("card"))


def main(arguments: list[str]) -> int:
    picture = arguments[arguments.index("--png") + 1] if "--png" in arguments else None
    seeds = int(arguments[0]) if arguments and arguments[0].isdigit() else SEEDS
    results = {
        variant: [run_reported(variant, seed) for seed in range(seeds)] for variant in VARIANTS
    }
    main_run = results[VARIANTS[0]]
    shares = waterfall(main_run)
    print(*variants(results), sep="\n")
    print("\n| went to | share of 54 days |\n|---|---|")
    print(*(f"| {name} | {percent(share)} |" for name, share in shares.items() if share), sep="\n")
    print("", *causes(main_run), sep="\n")
    if picture:
        draw(shares, picture)
    wrong = list(inconsistencies(main_run)) if seeds > 1 else []
    for sentence in wrong:
        print(f"llama3_days: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
