"""How Python runs a server."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Large pieces come and go, then one stays: how many bytes of it lie outside the heap.
_PROGRAM = """
import ctypes
from scheduler.interpreter import keep_heap_whole
if {is_kept}:
    assert keep_heap_whole()
libc = ctypes.CDLL(None)
counts = ctypes.c_size_t * 10  # struct mallinfo2; the fifth is hblkhd, bytes in mapped pieces
class Info(ctypes.Structure):
    _fields_ = [("counts", counts)]
libc.mallinfo2.restype = Info
for _ in range(3):
    large = bytearray(4_000_000)
    del large
before = libc.mallinfo2().counts[4]
large = bytearray(3_000_000)
print(libc.mallinfo2().counts[4] - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize("is_kept", [True, False])
def test_large_pieces_stay_out_of_the_heap(is_kept: bool) -> None:
    program = _PROGRAM.format(is_kept=is_kept)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) >= 3_000_000) == is_kept
