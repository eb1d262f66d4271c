"""How well stragglers are found: precision and recall over gangs of which the truth is known.

python -m bench.bench_stragglers        the tables of docs/stragglers.md
"""

from __future__ import annotations

from tests.stragglers_made import case, quality


def main() -> None:
    for groups in (False, True):
        print("ranks and collectives" if groups else "ranks alone")
        print("| hosts | slower | noise of a step | precision | recall |\n|---|---|---|---|---|")
        for hosts in (8, 64, 256):
            for slower, noise in ((0.3, 0.05), (0.1, 0.03), (0.05, 0.03), (0.03, 0.03)):
                seeds = range(100, 140 if hosts < 256 else 110)
                made = [case(seed, hosts, slower, noise, groups=groups) for seed in seeds]
                precision, recall = quality(made)
                shares = f"{slower:.0%} | {noise:.0%} | {precision:.2f} | {recall:.2f}"
                print(f"| {hosts} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
