"""Limits of the hosts of a lab: cgroups of version 2, else those of version 1."""

from __future__ import annotations

from pathlib import Path

from lab.cluster import Lab, refuse

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
MEGABYTE = 1_000_000


def limit_hosts(lab: Lab, cores: float, memory_mb: int) -> Lab:
    """Give each host so many cores and so much memory, 0 for all, by cgroups of what runs there.

    Raises: InputError where this user may not make them.
    """
    quota, size = round(cores * PERIOD_US), memory_mb * MEGABYTE
    is_v2 = (ROOT / "cgroup.controllers").exists()
    bases: list[Path] = []
    try:
        for kind, value in (("cpu", quota), ("memory", size)):
            if not value:
                continue
            base = (ROOT if is_v2 else ROOT / kind) / f"muster-lab-{lab.keeper}"
            base.mkdir(exist_ok=True)
            if base not in bases:
                bases.append(base)
            if is_v2:
                for folder in (ROOT, base):
                    (folder / "cgroup.subtree_control").write_text(f"+{kind}")
            for node in lab.plan.hosts:
                group = base / node.namespace
                group.mkdir(exist_ok=True)
                if kind == "cpu":
                    name, text = (
                        ("cpu.max", f"{value} {PERIOD_US}")
                        if is_v2
                        else ("cpu.cfs_quota_us", f"{value}")
                    )
                else:
                    name, text = ("memory.max" if is_v2 else "memory.limit_in_bytes"), f"{value}"
                (group / name).write_text(text)
    except OSError as error:
        lab.changed(groups=tuple(map(str, bases))).down()
        raise refuse(
            f"no cgroups for hosts: {error.strerror} ({error.filename})", "cores"
        ) from None
    return lab.changed(groups=tuple(map(str, bases)))
