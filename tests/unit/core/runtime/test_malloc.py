"""Large blocks are returned to the system, also after one of their size was freed."""

import ctypes
import subprocess
import sys

import pytest

from core.runtime import malloc

SCRIPT = """
import ctypes, sys
from core.runtime.malloc import return_large_blocks

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]

if sys.argv[1] == "set":
    assert return_large_blocks()
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(3 << 20))
before = libc.mallinfo2().e  # bytes of blocks that are memory of their own
libc.malloc(3 << 20)
print(libc.mallinfo2().e - before >= 3 << 20)
"""


def _has_mallinfo2() -> bool:
    return sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallinfo2")


@pytest.mark.slow
@pytest.mark.skipif(not _has_mallinfo2(), reason="needs glibc 2.33")
@pytest.mark.parametrize(("how", "own"), [("set", "True"), ("default", "False")])
def test_a_large_block_is_memory_of_its_own(how: str, own: str) -> None:
    command = [sys.executable, "-c", SCRIPT, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == own


def test_a_system_without_glibc_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: object())
    assert not malloc.return_large_blocks()
    monkeypatch.setattr(malloc.sys, "platform", "darwin")
    assert not malloc.return_large_blocks()
