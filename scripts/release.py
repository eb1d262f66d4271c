"""Make a release but for its upload: `make release`.

It checks that the version has a dated chapter in CHANGELOG.md, that nothing is uncommitted and that
no other commit has its tag; builds the wheel and the sdist, and the wheel once more from the sdist;
installs the wheel into an environment of its own, with the pinned dependencies of a client, and
runs it; makes the Debian package where dpkg-deb is and the image where podman or docker answers;
writes a bill of materials (CycloneDX), the chapter of the changelog and checksums; and sets the
tag. `--try` leaves out chapter, package, image and tag, so that CI can run it on every commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.deb import make_package

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BUILDER = "hatchling==1.27.0"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class NotReleasable(Exception):
    """Something is not as a release has it; the text says what."""


def main() -> int:
    """Build and check; print what is left to do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--try", dest="is_trial", action="store_true", help="of any commit")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = str(project["version"])
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    try:
        if not options.is_trial:
            check_changelog(changelog, version)
            _check_repository(version)
        wheel, sdist = _build(ROOT, DIST)
        with tempfile.TemporaryDirectory() as folder:
            _check_sdist(sdist, wheel, Path(folder))
            python = _check_installed(wheel, version, Path(folder) / "venv")
            has_package = not options.is_trial and _make_debian_package(wheel, python)
        image = None if options.is_trial else _make_image(version)
    except NotReleasable as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    lock = (ROOT / "deploy" / "requirements.lock").read_text(encoding="utf-8")
    bill = bill_of_materials(str(project["name"]), version, lock)
    (DIST / "sbom.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    if not options.is_trial:
        (DIST / f"CHANGES-{version}.md").write_text(chapter_of(changelog), encoding="utf-8")
    files = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
    print(f"{DIST}: {', '.join(path.name for path in files)}, SHA256SUMS")
    if not options.is_trial:
        left = [] if has_package else ["the Debian package, for there is no dpkg-deb"]
        if image is None:
            left.append("the image (deploy/Containerfile), for no podman or docker answers")
        else:
            print(f"image {image}")
        _output("git", "tag", "--force", "-a", f"v{version}", "-m", f"muster {version}")
        left += [f"git push origin v{version}", f"upload {DIST}"]
        print(f"tag v{version}; left to do: {'; '.join(left)}")
    return 0


def check_changelog(text: str, version: str) -> None:
    """Raises: NotReleasable unless the first chapter is of this version and has a date."""
    head = next((row for row in text.splitlines() if row.startswith("## ")), "")
    if re.fullmatch(rf"## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", head) is None:
        wanted = f"## [{version}] - YYYY-MM-DD"
        raise NotReleasable(f"CHANGELOG.md begins with {head!r}, not with {wanted!r}")


def chapter_of(changelog: str) -> str:
    """Return the first chapter of the changelog, its heading included."""
    return "## " + changelog.split("\n## ")[1].rstrip() + "\n"


def bill_of_materials(name: str, version: str, lock: str) -> dict[str, Any]:
    """Return a CycloneDX document of what the lock file pins, with its hashes."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
        "components": list(_components(lock)),
    }


def _components(lock: str) -> Iterator[dict[str, Any]]:
    for pin in re.split(r"\n(?=\S)", lock):
        if match := _PIN.match(pin):
            hashes = [{"alg": "SHA-256", "content": digest} for digest in _HASH.findall(pin)]
            purl = f"pkg:pypi/{match[1].lower()}@{match[2]}"
            yield {
                "type": "library",
                "bom-ref": purl,
                "name": match[1],
                "version": match[2],
                "purl": purl,
                "hashes": hashes,
            }


def _check_repository(version: str) -> None:
    if _output("git", "status", "--porcelain").strip():
        raise NotReleasable("there are uncommitted changes")
    commit = "%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)"
    tagged = _output("git", "tag", "--list", f"v{version}", "--format", commit).strip()
    if tagged not in ("", _output("git", "rev-parse", "HEAD").strip()):
        raise NotReleasable(f"v{version} is the tag of another commit, {tagged[:12]}")


def _output(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _build(source: Path, target: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist of a source tree."""
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        python = _environment(Path(folder) / "venv", BUILDER)
        _run(python, "-m", "hatchling", "build", "-d", str(target), cwd=source)
    return next(target.glob("*.whl")), next(target.glob("*.tar.gz"))


def _environment(folder: Path, *packages: str) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def _run(*words: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReleasable(f"{' '.join(words[:6])}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def _check_sdist(sdist: Path, wheel: Path, folder: Path) -> None:
    """Raises: NotReleasable unless the sdist makes the same wheel."""
    shutil.unpack_archive(sdist, folder / "source")
    again, _ = _build(next((folder / "source").iterdir()), folder / "again")
    missing = contents_of(wheel) ^ contents_of(again)
    if missing:
        raise NotReleasable(f"the wheel of the sdist differs: {', '.join(sorted(missing)[:5])}")


def contents_of(wheel: Path) -> set[str]:
    """Return the names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _check_installed(wheel: Path, version: str, folder: Path) -> str:
    """Return the Python of an environment with the wheel and the pinned dependencies of a client.

    Raises: NotReleasable unless the wheel runs there.
    """
    lock = str(ROOT / "deploy" / "requirements-client.lock")
    python = _environment(folder, "--require-hashes", "-r", lock)
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel))
    _run(python, "-m", "pip", "check")  # the lock file has all that the wheel asks for
    muster = str(folder / "bin" / "muster")
    shown = _run(muster, "--version", cwd=folder)
    if version not in shown:
        raise NotReleasable(f"muster --version of the wheel prints {shown.strip()!r}")
    for words in (["agent", "--help"], ["submit", "--help"], ["jobs", "--help"]):
        _run(muster, *words, cwd=folder)
    return python


def _make_debian_package(wheel: Path, python: str) -> bool:
    """Make the package; False: dpkg-deb is not here. Raises: NotReleasable."""
    if shutil.which("dpkg-deb") is None:
        return False
    try:
        made = make_package(wheel, python)
    except subprocess.CalledProcessError as error:
        raise NotReleasable(f"the Debian package: {error}") from None
    _run("dpkg-deb", "--info", str(made))
    return True


def _make_image(version: str) -> str | None:
    """Return the name of an image that the first builder that answers has made; None: none does.

    Raises: NotReleasable when the build fails.
    """
    for builder in ("podman", "docker"):
        if (
            shutil.which(builder)
            and not subprocess.run([builder, "info"], capture_output=True).returncode
        ):
            name = f"muster:{version}"
            # The format of OCI images has no health check.
            kind = ["--format", "docker"] if builder == "podman" else []
            _run(builder, "build", *kind, "-f", "deploy/Containerfile", "-t", name, ".")
            _run(builder, "run", "--rm", name, "--version")
            return f"{name} ({builder})"
    return None


if __name__ == "__main__":
    sys.exit(main())
