"""When certificates and tokens expire, as metrics."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from scheduler.access.certificates import read_certificate
from scheduler.server.metrics import samples
from tests.secured import House


def test_the_first_certificate_and_token_to_expire_count(tmp_path: Path) -> None:
    house = House(tmp_path)
    end = read_certificate(house.certificate).expires
    for days in (9, 5):
        until = (end - timedelta(days=days)).isoformat()
        house.token(f"u{days}", "viewer", "*", f', expires: "{until}"')
    access = house.access()
    found = {labels: value for _, labels, value in samples.of_credentials(access, end)}
    assert found == {("certificate",): 0.0, ("token",): -9 * 86_400.0}
    house.auth.write_text("nonsense: [")
    assert [labels for _, labels, _ in samples.of_credentials(access, end)] == [("certificate",)]
