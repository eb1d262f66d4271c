"""Limits of the hosts of a lab: cgroups of version 2, else those of version 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.cluster import Lab, refuse

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
MEGABYTE = 1_000_000


def limit_hosts(lab: Lab, cores: float, memory_mb: int) -> Lab:
    """Limit each host to so many cores and so much memory (0 for all), by cgroups of what runs
    there. Raises: InputError where this user may not make them."""
    is_v2 = (ROOT / "cgroup.controllers").exists()
    quota, size = round(cores * PERIOD_US), memory_mb * MEGABYTE
    limits = {
        "cpu": ("cpu.max", f"{quota} {PERIOD_US}") if is_v2 else ("cpu.cfs_quota_us", f"{quota}"),
        "memory": ("memory.max" if is_v2 else "memory.limit_in_bytes", f"{size}"),
    }
    kinds = [kind for kind, value in (("cpu", quota), ("memory", size)) if value]
    name = f"muster-lab-{lab.keeper}"
    bases = {kind: (ROOT if is_v2 else ROOT / kind) / name for kind in kinds}
    lab = lab.changed(groups=tuple(dict.fromkeys(map(str, bases.values()))))
    try:
        for kind, base in bases.items():
            _limit(base, [node.namespace for node in lab.plan.hosts], *limits[kind])
    except OSError as error:
        lab.down()
        raise refuse(
            f"no cgroups for hosts: {error.strerror} ({error.filename})", "cores"
        ) from None
    return lab


def _limit(base: Path, names: Sequence[str], file: str, text: str) -> None:
    """Write a limit into a group of each name. Raises: OSError."""
    base.mkdir(exist_ok=True)
    if base.parent == ROOT:  # version 2: a controller is handed down from group to group
        for folder in (ROOT, base):
            (folder / "cgroup.subtree_control").write_text(f"+{file.partition('.')[0]}")
    for name in names:
        (base / name).mkdir(exist_ok=True)
        (base / name / file).write_text(text)
