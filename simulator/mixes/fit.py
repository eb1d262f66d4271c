"""From a published summary to how sizes, run times and ends are drawn.

Sizes: within a group they fall off as gpus ** -a; the one `a` that is not chosen gives the
mean size. Run times: jobs of one size have one mean. In a group whose share of the GPU time
is published it follows from that share; in the others it is s x gpus ** f, with s and f from
the mean run time and the mean GPU time of a job. Around the mean they are log-normal, cut
off at the longest run, with one spread for all sizes, from the median. Ends: one set of
shares for groups with much GPU time and one for the others, from the shares by count and by
GPU time; shares below zero are set to zero.

Each unknown is found by bisection of a function that only rises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import exp, log
from statistics import NormalDist

from muster.structs import replace, struct
from simulator.mixes.published import ClusterSummary, OutcomeShares, SizeGroup

NORMAL = NormalDist()


@struct(frozen=True, slots=True)
class SizeClass:
    """Jobs of one size in a mix: their share, the mean of their run times and how they end.

    Run times are exp(N(`mu`, sigma)) below the longest run of the mix.
    """

    gpus: int
    share: float
    mean_run_s: float
    mu: float
    ends: OutcomeShares


@struct(frozen=True, slots=True)
class JobMix:
    """The distributions that jobs are drawn from. `sigma`: spread of the logarithm of run times."""

    name: str
    classes: tuple[SizeClass, ...]
    sigma: float
    max_run_s: float

    def shorter(self, run_s: float) -> float:
        """Return the share of jobs that run for at most so long."""
        return sum(
            c.share * _below(log(run_s), c.mu, self.sigma, log(self.max_run_s))
            for c in self.classes
        )


@struct(frozen=True, slots=True)
class _Part:
    """A class while it is fitted; `group`: of which published group."""

    gpus: int
    share: float
    group: SizeGroup
    mean_run_s: float = 0.0


@lru_cache(maxsize=16)
def fit(summary: ClusterSummary) -> JobMix:
    """Fit a mix to the published figures of `summary`. Cost: some milliseconds."""
    parts = _timed(_sized(summary), summary)
    sigma = summary.spread
    if summary.median_run_s is not None:
        median_s = summary.median_run_s
        # The wider the spread, the more jobs are short, the means being what they are.
        sigma = bisect(lambda s: _mix(summary, parts, s).shorter(median_s) - 0.5, 0.2, 4.5)
    return _mix(summary, parts, sigma)


def bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Find where a function that only rises is zero, or the end of the interval that is nearest to
    it."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _sized(summary: ClusterSummary) -> list[_Part]:
    """Shares of the sizes, with the mean that is published."""

    def parts(free_fall: float) -> list[_Part]:
        return [
            _Part(gpus, group.jobs * weight, group)
            for group in summary.groups
            for gpus, weight in _weights(group, free_fall)
        ]

    mean_gpus = summary.mean_gpus
    if mean_gpus is None:
        return parts(1.0)
    return parts(bisect(lambda a: mean_gpus - _mean_gpus(parts(a)), -4.0, 8.0))


def _weights(group: SizeGroup, free_fall: float) -> list[tuple[int, float]]:
    fall = free_fall if group.fall is None else group.fall
    weights = [gpus**-fall for gpus in group.sizes]
    return [(g, w / sum(weights)) for g, w in zip(group.sizes, weights, strict=True)]


def _mean_gpus(parts: Sequence[_Part]) -> float:
    return sum(part.share * part.gpus for part in parts)


def _timed(parts: list[_Part], summary: ClusterSummary) -> list[_Part]:
    """The mean run time of each size."""
    known = [_of_group(part, parts, summary) for part in parts if part.group.gpu_time is not None]
    rest = [part for part in parts if part.group.gpu_time is None]
    if not rest or summary.mean_run_s is None:
        return known
    run_s = summary.mean_run_s - sum(part.share * part.mean_run_s for part in known)
    gpu_s = summary.gpu_s - sum(part.share * part.gpus * part.mean_run_s for part in known)

    def at(rise: float) -> list[_Part]:
        scale = run_s / sum(part.share * part.gpus**rise for part in rest)
        return [replace(part, mean_run_s=scale * part.gpus**rise) for part in rest]

    rise = bisect(lambda f: _gpu_s(at(f)) - gpu_s, -3.0, 3.0)
    return sorted([*known, *at(rise)], key=lambda part: part.gpus)


def _of_group(part: _Part, parts: Sequence[_Part], summary: ClusterSummary) -> _Part:
    """With the run time that gives its group the GPU time that it is known to take."""
    held = _mean_gpus([each for each in parts if each.group is part.group])
    return replace(part, mean_run_s=(part.group.gpu_time or 0.0) * summary.gpu_s / held)


def _gpu_s(parts: Sequence[_Part]) -> float:
    return sum(part.share * part.gpus * part.mean_run_s for part in parts)


def _mix(summary: ClusterSummary, parts: Sequence[_Part], sigma: float) -> JobMix:
    ends = _ends(summary, parts)
    return JobMix(
        summary.name,
        tuple(
            SizeClass(
                part.gpus,
                part.share,
                part.mean_run_s,
                _mu(part.mean_run_s, sigma, summary.max_run_s),
                ends[_is_large(part, summary)],
            )
            for part in parts
        ),
        sigma,
        summary.max_run_s,
    )


def _mu(mean_s: float, sigma: float, max_s: float) -> float:
    """The mu of the log-normal whose part below `max_s` has this mean."""
    most = log(max_s)

    def mean(mu: float) -> float:
        above = NORMAL.cdf((most - mu) / sigma)
        kept = NORMAL.cdf((most - mu - sigma**2) / sigma)
        return exp(mu + sigma**2 / 2) * kept / above if above > 0 else max_s

    return bisect(lambda mu: mean(mu) - mean_s, log(mean_s) - 4 * sigma**2 - 4, most)


def _below(value: float, mu: float, sigma: float, most: float) -> float:
    return min(1.0, NORMAL.cdf((value - mu) / sigma) / NORMAL.cdf((most - mu) / sigma))


def _is_large(part: _Part, summary: ClusterSummary) -> bool:
    """Whether its group is known to take more of the GPU time than of the jobs; where
    nothing is known of groups, whether it has more than one GPU."""
    if all(group.gpu_time is None for group in summary.groups):
        return part.gpus > 1
    return (part.group.gpu_time or 0.0) > part.group.jobs


def _ends(summary: ClusterSummary, parts: Sequence[_Part]) -> dict[bool, OutcomeShares]:
    """How jobs end, for the small and the large ones."""
    by_time = summary.ends_by_gpu_time
    if by_time is None:
        return dict.fromkeys((False, True), summary.ends)
    large = [part for part in parts if _is_large(part, summary)]
    jobs = sum(part.share for part in large)
    time = _gpu_s(large) / _gpu_s(parts)
    pairs = [
        _split(getattr(summary.ends, name), getattr(by_time, name), jobs, time)
        for name in OutcomeShares.__match_args__
    ]
    return {is_large: _normalised([pair[is_large] for pair in pairs]) for is_large in (False, True)}


def _split(by_jobs: float, by_time: float, jobs: float, time: float) -> tuple[float, float]:
    """Shares x of the small and y of the large: (1 - jobs) x + jobs y = by_jobs, and the
    same with GPU time."""
    y = (by_time * (1 - jobs) - by_jobs * (1 - time)) / (time - jobs)
    return (by_jobs - jobs * y) / (1 - jobs), y


def _normalised(shares: Sequence[float]) -> OutcomeShares:
    kept = [max(0.0, share) for share in shares]
    return OutcomeShares(*(share / sum(kept) for share in kept))
