"""What people wrote into an auth file stays through any edits."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

from scheduler.access.auth_file.editing import add_token, revoke
from scheduler.access.auth_file.reading import load_auth
from scheduler.identity import Role
from tests.cases import case

NOW = datetime(2026, 11, 20, tzinfo=UTC)
HASH = "ab" * 32


def test_what_people_wrote_stays_through_any_edits(tmp_path: Path) -> None:
    """Comments of a token that was revoked may go with it; no other line of them does."""
    path = tmp_path / "auth.yaml"
    for seed in range(60):
        with case(seed=seed):
            random = Random(seed)
            path.write_text(_auth_text(random), encoding="utf-8")
            before = path.read_text(encoding="utf-8")
            for _ in range(random.randint(1, 3)):
                known = load_auth(str(path)).tokens
                if known and random.random() < 0.7:
                    revoke(str(path), random.choice(known).id)
                else:
                    add_token(str(path), "ada", Role.ADMIN, "", NOW, None)
            after, left = path.read_text(encoding="utf-8"), load_auth(str(path))
            ids = {token.id for token in left.tokens}
            for line in before.splitlines():
                mark, _, comment = line.partition("#")
                is_of_token = comment[1:5] in ("note", "eol ")
                if comment and (not is_of_token or f"0000000{comment.split()[-1]}" in ids):
                    assert f"#{comment}" in after, mark
            assert len(left.certificates) == before.count("san:")


def _auth_text(random: Random) -> str:
    """Tokens of one line and of several, with comments before, between and behind them."""
    rows = ["# head"]
    certificates = ["# certs", "certificates:", "  - {san: a, role: admin}  # the launcher"]
    if is_first := random.random() < 0.3:
        rows += certificates
    rows.append("tokens:")
    for i in range(random.randint(1, 5)):
        rows += [f"  # note {i}"] if random.random() < 0.4 else []
        behind = f"  # eol {i}" if random.random() < 0.3 else ""
        if random.random() < 0.5:
            rows += [f'  - id: "0000000{i}"', f"    name: n{i}", "    role: admin"]
            rows += [f'    sha256: "{HASH}"{behind}']
        else:
            token = f'id: "0000000{i}", name: n{i}, role: admin, sha256: "{HASH}"'
            rows.append(f"  - {{{token}}}{behind}")
    if not is_first and random.random() < 0.5:
        rows += certificates
    return "\n".join(rows) + "\n"
