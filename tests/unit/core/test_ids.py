"""Ids are unique, also in a process that was forked."""

import subprocess
import sys

import pytest

from core.ids import hex_id

FORKED = """
import os
from core.ids import hex_id
hex_id(6)
read, write = os.pipe()
if not os.fork():
    os.write(write, hex_id(6).encode())
    os._exit(0)
print(hex_id(6), os.read(read, 100).decode())
"""


def test_ids_are_hex_digits_of_the_size_and_unique() -> None:
    ids = {hex_id(6) for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(len(identifier) == 12 and int(identifier, 16) >= 0 for identifier in ids)


@pytest.mark.slow
def test_a_forked_process_makes_other_ids() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60
    )
    first, second = done.stdout.split()
    assert first != second
