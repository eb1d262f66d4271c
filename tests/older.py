"""Snapshots as older releases wrote them."""

from __future__ import annotations

import zlib


def older(body: bytes, *lost: bytes) -> bytes:
    """As format 1 had it, before there were these fields of the state."""
    _, _, *lines = zlib.decompress(body).splitlines()
    kept = [line for line in lines if line.split(b"\t")[0] not in (b"seen_ns", *lost)]
    return zlib.compress(b"\n".join((b"muster snapshot 1", *kept)) + b"\n")
