"""A small trace, a small fabric and a case file for tests of compare and sweep."""

from pathlib import Path
from random import Random

ROW = "{} {} -1 {} {} -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"
FABRIC = """\
name: small
gpus_per_host: 2
tiers:
  - {name: zone, count: 2, oversubscription: 4}
  - {name: host, count: 4}
"""
CASE = """\
trace: t.swf
trace_format: swf
fabric: m.yaml
failures: poisson:rate=3000,repair_h=1
grid:
  spares: [0, 1]
  policy: [easy, fifo]
  seed: {from: 3, count: 2}
"""


def write(folder: Path, case: str = CASE) -> Path:
    """m.yaml, t.swf with twenty jobs, and case.yaml, whose path is returned."""
    random = Random(8)
    rows = [(i, i * 200, random.randrange(2000), 1 + 5 * (i % 3)) for i in range(1, 21)]
    (folder / "m.yaml").write_text(FABRIC)
    (folder / "t.swf").write_text("".join(ROW.format(*row) for row in rows))
    (folder / "case.yaml").write_text(case)
    return folder / "case.yaml"
