"""Make a Debian package of server and agent, as `make release` does: `python -m scripts.deb`.

It holds the wheel in dist/ and the pinned packages of deploy/requirements.lock under /opt/muster,
for the Python that makes it; the units, and files to begin with as examples. Its installation
starts nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
UNITS = ("muster.service", "muster-agent.service")
EXAMPLES = ("muster.yaml", "auth.yaml", "agent.yaml")
_LAUNCHER = """#!/opt/muster/bin/python
import sys

from scheduler.cli import main

sys.exit(main())
"""
# A virtual environment: processes that a server starts with its own Python find the packages too.
_ENVIRONMENT = """home = /usr/bin
include-system-site-packages = false
version = {python}
"""
# The user and folders of docs/operations.md, "Install"; an upgrade finds them there.
_AFTER = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
  getent passwd muster > /dev/null || useradd --system --home-dir /var/lib/muster muster
  install -d -o root -g muster -m 2750 /etc/muster
  install -d -o muster -g muster -m 0750 /var/lib/muster
fi
"""


def main() -> int:
    """Make the package of the wheel in dist/ for this Python."""
    wheel = next(DIST.glob("*.whl"), None)
    if wheel is None:
        print("no package: dist/ has no wheel; make release ARGS=--try makes it", file=sys.stderr)
        return 1
    print(make_package(wheel, sys.executable))
    return 0


def make_package(wheel: Path, interpreter: str) -> Path:
    """Return a package beside the wheel. `interpreter`: a Python of this version, with pip.

    Raises: CalledProcessError when pip or dpkg-deb fails.
    """
    version, python = wheel.name.split("-")[1], f"{sys.version_info[0]}.{sys.version_info[1]}"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        stage(root, python, version)
        target = ["install", "--quiet", "--no-compile", "--target", str(root / _packages(python))]
        lock = str(ROOT / "deploy" / "requirements.lock")
        pip = [interpreter, "-m", "pip"]
        subprocess.run([*pip, *target, "--require-hashes", "-r", lock], check=True)
        subprocess.run([*pip, *target, "--no-deps", str(wheel)], check=True)
        size_kb = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
        (root / "DEBIAN/control").write_text(control(version, python, size_kb))
        made = wheel.parent / f"muster-scheduler_{version}_{_architecture()}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "--build", str(root), str(made)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return made


def stage(root: Path, python: str, version: str = "0") -> None:
    """Lay out all of the package but the Python packages in the folder `root`."""
    for folder in ("DEBIAN", "opt/muster/bin", "lib/systemd/system", "usr/bin"):
        (root / folder).mkdir(parents=True)
    examples = root / "usr/share/doc/muster/examples"
    examples.mkdir(parents=True)
    for names, target in ((UNITS, root / "lib/systemd/system"), (EXAMPLES, examples)):
        for name in names:
            shutil.copy(ROOT / "deploy" / name, target)
    launcher = root / "opt/muster/bin/muster"
    launcher.write_text(_LAUNCHER)
    (root / "opt/muster/pyvenv.cfg").write_text(_ENVIRONMENT.format(python=python))
    (root / "opt/muster/bin/python").symlink_to(f"/usr/bin/python{python}")
    after = root / "DEBIAN/postinst"
    after.write_text(_AFTER)
    for path in (launcher, after):
        path.chmod(0o755)
    (root / "usr/bin/muster").symlink_to("/opt/muster/bin/muster")
    (root / "DEBIAN/control").write_text(control(version, python, 0))


def _packages(python: str) -> str:
    """Return the folder of the packages below the root."""
    return f"opt/muster/lib/python{python}/site-packages"


def control(version: str, python: str, size_kb: int) -> str:
    """Return the control file. `python`: the version that its compiled packages are for."""
    major, minor = map(int, python.split("."))
    return f"""Package: muster-scheduler
Version: {version}
Architecture: {_architecture()}
Maintainer: muster <muster@example.org>
Depends: python3 (>= {python}), python3 (<< {major}.{minor + 1})
Installed-Size: {size_kb}
Section: admin
Priority: optional
Description: gang scheduler for large-model training
 Places jobs of thousands of ranks on the hosts of a modelled network with a lower bound,
 holds them in a durable queue, starts their processes and swaps hosts that fail.
"""


def _architecture() -> str:
    done = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True)
    return done.stdout.strip() or "amd64"


if __name__ == "__main__":
    sys.exit(main())
