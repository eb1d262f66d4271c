"""Snapshots as a release with fewer fields of the state would have written them."""

import zlib


def older(body: bytes, *lost: bytes) -> bytes:
    """As it was before states had the fields `lost`."""
    first, _, *lines = zlib.decompress(body).splitlines()
    kept = [line for line in lines if line.split(b"\t")[0] not in lost]
    return zlib.compress(b"\n".join((first, b'fields\t\t"0"', *kept)) + b"\n")
