"""Check the types of the console's JavaScript by tsc, which reads its JSDoc.

    python -m scripts.console_types        needs npm; says so and passes where it is absent

The compiler is of the version and digest in tests/tsc, installed once into build/tsc. Vendored
files are left alone: they are as published.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "scheduler" / "console" / "static"
OPTIONS = ("--allowJs", "--checkJs", "--noEmit", "--pretty", "false", "--skipLibCheck")
OPTIONS += ("--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler")
OPTIONS += ("--lib", "dom,dom.iterable,dom.asynciterable,es2023")


def compiler(folder: Path) -> Path | None:
    """None: it cannot be installed here, and why has been said."""
    made = folder / "node_modules" / "typescript" / "bin" / "tsc"
    if made.is_file():
        return made
    if shutil.which("npm") is None or shutil.which("node") is None:
        print("types of the console: skipped, needs npm (Debian: npm)")
        return None
    shutil.copytree(ROOT / "tests" / "tsc", folder, dirs_exist_ok=True)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        print(f"types of the console: skipped, npm: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return made


def faults(tsc: Path, files: list[Path]) -> list[str]:
    """A line each, of own files alone."""
    command = ["node", str(tsc), *OPTIONS, *map(str, files)]
    done = subprocess.run(command, cwd=STATIC, capture_output=True, text=True)
    rows = done.stdout.splitlines()
    if done.returncode and not any("error TS" in row for row in rows):
        return [done.stdout + done.stderr]
    own = [row for row in rows if "error TS" in row and not row.startswith("vendor/")]
    return [f"scheduler/console/static/{row}" for row in own]


def main() -> int:
    tsc = compiler(ROOT / "build" / "tsc")
    if tsc is None:
        return 0
    found = faults(tsc, sorted(STATIC.glob("*.js")))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
