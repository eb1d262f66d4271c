"""python -m bench: how good placements are, how fast, and against whom."""

from __future__ import annotations

import sys

from bench.bench_placement import main

sys.exit(main())
