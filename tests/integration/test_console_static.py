"""What the console serves as files: vendored sources as published, and nothing from elsewhere."""

import hashlib
import re
from pathlib import Path

import pytest

from scheduler.console.app import STATIC, content_policy
from scripts import console_types

# Packages with their licences, and the digest of each of their files as published: dist/preact.mjs,
# hooks/dist/hooks.mjs and dist/htm.module.js, and icons.
VENDORED = {"preact 11.2.0": "MIT", "htm 3.1.1": "Apache-2.0", "lucide-static 1.62.0": "ISC"}
SHA256 = {
    "preact.js": "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55",
    "hooks.js": "e862ab2973aa6455eaa0f77c5d832d2157d6be59a17c8ba546550a575b58c6b4",
    "htm.js": "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
    "circle-check.svg": "e2ca9809114ccead18bf1ca51d1dd43f78f953363588c1f35fdbdb5a80726ef9",
    "circle-dashed.svg": "f461e11fe599cddb206c3c41c7574e413efa6412b3ab48bb345d44432b79f215",
    "circle-pause.svg": "8dfaf9a102e25214db2911e57128fb8075e9931b79c6af072b98334ddfbb14af",
    "circle-x.svg": "6381cc14a5085c777fa1326f63987586cf69295472691686ed00a6230c1e5794",
    "triangle-alert.svg": "8fae33ea4b3f26693773ed2545080ffed5bd42aad9b59084a2ea753827c0763c",
    "wrench.svg": "9d40848c6c0e2778d62815343cda3fece0628bbec8fad7ba47b4322319bdaca0",
}
LICENCES = {
    "LICENSE.preact": ("The MIT License", "Jason Miller"),
    "LICENSE.lucide": ("ISC License", "Cole Bemis"),
    "LICENSE.htm": ("Apache License", "Version 2.0"),
}
OWN = sorted(path for path in STATIC.glob("*") if path.is_file())


def test_vendored_files_are_as_published() -> None:
    vendor = STATIC / "vendor"
    assert {path.name for path in vendor.iterdir()} == {*SHA256, *LICENCES}
    for name, digest in SHA256.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name
    for name, words in LICENCES.items():
        text = (vendor / name).read_text(encoding="utf-8")
        assert all(word in text for word in words), name


def test_the_documentation_names_what_is_vendored() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "console.md").read_text(encoding="utf-8")
    for package, licence in VENDORED.items():
        assert (package in page, licence in page) == (True, True), package


def test_own_files_name_no_other_server_and_import_files_that_are_served() -> None:
    """The one address is the name of the language of the icon."""
    for path in OWN:
        text = path.read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path
        for name in re.findall(r'from "([^"]+)"', text):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_the_policy_allows_the_import_map_and_nothing_inline() -> None:
    policy = dict(part.strip().split(" ", 1) for part in content_policy().split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'self' 'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert policy["style-src"] == policy["connect-src"] == policy["img-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)


def test_types_of_javascript_are_checked(tmp_path: Path) -> None:
    tsc = console_types.compiler(console_types.ROOT / "build" / "tsc")
    if tsc is None:
        pytest.skip("needs npm, for typescript (Debian: npm)")
    wrong = tmp_path / "wrong.js"
    wrong.write_text("/** @param {number} a */\nexport const f = (a) => a;\nf('1');\n")
    (fault,) = console_types.faults(tsc, [wrong])
    assert "wrong.js(3,3)" in fault
