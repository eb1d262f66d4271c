"""What is published of the jobs of real clusters, and what is chosen where nothing is.

Counts, means, medians, maxima, ends and GPU time of Acme and Philly are rows of
`cluster_summary.csv` in the AcmeTrace repository. Beside them:

- Acme (Hu et al., NSDI'24, section 3): pretraining is 3.2 % of Kalos' jobs and 94.0 % of
  its GPU time, 0.9 % and 69.5 % on Seren.
- RSC-1 and RSC-2 (Kokolis et al., HPCA'25): over 40 % of jobs have one GPU, over 90 % at
  most a host, which take under 10 % of GPU time; jobs of 256 GPUs and more take 66 % and
  52 %; 60 % complete, 24 % fail by themselves, the rest is preempted, requeued or
  cancelled; a job runs 7 days at most; 7,200 and 4,400 jobs a day fill 83 % of 16,384 and
  85 % of 8,192 GPUs, which gives the GPU time of a job.

Fields marked with `choice` are not published.
"""

from __future__ import annotations

from dataclasses import field

from muster.structs import struct

DAY_S = 86_400


@struct(frozen=True, slots=True)
class SizeGroup:
    """A published share of jobs of some sizes. `jobs`: their share of all jobs. Within the group,
    sizes are drawn in proportion to gpus ** -`fall`; None: it is fitted. `gpu_time`: their share of
    GPU time; None: what the other groups leave."""

    sizes: tuple[int, ...]
    jobs: float
    fall: float | None = 1.0
    gpu_time: float | None = None


@struct(frozen=True, slots=True)
class OutcomeShares:
    """Shares of jobs that complete, are cancelled, and fail."""

    completed: float
    cancelled: float
    failed: float


@struct(frozen=True, slots=True)
class ClusterSummary:
    """Published figures of one cluster. `gpu_s`: GPU seconds of a job, mean. None: not published.

    `spread`: of run times of jobs of one size, the sigma of their logarithm, where no median says
    it.
    """

    name: str
    groups: tuple[SizeGroup, ...]
    gpu_s: float
    max_run_s: float
    ends: OutcomeShares
    ends_by_gpu_time: OutcomeShares | None = None
    mean_gpus: float | None = None
    mean_run_s: float | None = None
    median_run_s: float | None = None
    spread: float = 2.0
    choice: str = field(default="")


def _rsc(name: str, jobs_a_day: int, gpus: int, busy: float, large: float) -> ClusterSummary:
    return ClusterSummary(
        name,
        (
            SizeGroup((1,), 0.42, gpu_time=0.02),
            SizeGroup((2, 4, 8), 0.49, gpu_time=0.07),
            SizeGroup((16, 32, 64, 128), 0.075, gpu_time=0.91 - large),
            SizeGroup((256, 512, 1024, 2048, 4096), 0.015, gpu_time=large),
        ),
        gpu_s=busy * gpus * DAY_S / jobs_a_day,
        max_run_s=7 * DAY_S,
        ends=OutcomeShares(0.600, 0.152, 0.248),
        choice="jobs from 16 to 128 GPUs 7.5 %, larger ones 1.5 %; spread of run times",
    )


SUMMARIES = (
    ClusterSummary(
        "acme-kalos",
        (
            SizeGroup((1,), 0.52),
            SizeGroup((2, 4, 8, 16, 32, 64), 0.448, fall=None),
            SizeGroup((128, 256, 512, 1024), 0.032, fall=0.0, gpu_time=0.940),
        ),
        gpu_s=(1_667_685_146 + 3_239_202_064 + 426_292_851) / 19_907,
        max_run_s=625_740,
        ends=OutcomeShares(0.541, 0.062, 0.397),
        ends_by_gpu_time=OutcomeShares(0.313, 0.607, 0.080),
        mean_gpus=26.77,
        mean_run_s=1259.689,
        median_run_s=124,
        choice="52 % of jobs have one GPU (the median says half); pretraining has 128 to 1,024",
    ),
    ClusterSummary(
        "acme-seren",
        (
            SizeGroup((1,), 0.60),
            SizeGroup((2, 4, 8, 16, 32, 64), 0.391, fall=None),
            SizeGroup((128, 256, 512, 1024), 0.009, gpu_time=0.695),
        ),
        gpu_s=(4_560_592_618 + 14_274_584_510 + 2_675_447_459) / 663_813,
        max_run_s=1_209_604,
        ends=OutcomeShares(0.497, 0.075, 0.429),
        ends_by_gpu_time=OutcomeShares(0.212, 0.664, 0.124),
        mean_gpus=5.68,
        mean_run_s=1414.335,
        median_run_s=122,
        choice="60 % of jobs have one GPU (the median says half); pretraining has 128 to 1,024",
    ),
    ClusterSummary(
        "philly",
        (
            SizeGroup((1,), 0.82),
            SizeGroup((2, 4, 8, 16, 32, 64, 128), 0.18, fall=None),
        ),
        gpu_s=(2_210_176_414 + 2_025_326_056 + 2_659_215_061) / 112_956,
        max_run_s=4_240_676,
        ends=OutcomeShares(0.604, 0.090, 0.305),
        ends_by_gpu_time=OutcomeShares(0.321, 0.294, 0.386),
        mean_gpus=1.928,
        mean_run_s=18_006.055,
        median_run_s=874,
        choice="82 % of jobs have one GPU (the median says half)",
    ),
    _rsc("rsc-1", 7_200, 16_384, 0.83, 0.66),
    _rsc("rsc-2", 4_400, 8_192, 0.85, 0.52),
)
MIXES = {summary.name: summary for summary in SUMMARIES}

# Submits by hour of the day and day of the week from Monday, in thousandths: twelve weeks
# of Philly's log from 2017-09-25 (philly-csv), hours as recorded. No other cluster
# publishes its own, so every mix has these.
BY_HOUR = (
    *(54, 41, 47, 48, 29, 48, 72, 91, 47, 43, 44, 38),
    *(32, 30, 21, 23, 37, 28, 30, 29, 43, 38, 48, 40),
)
BY_DAY = (126, 151, 161, 184, 212, 91, 75)
