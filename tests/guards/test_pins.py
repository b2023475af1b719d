"""The two files of pins are equal; the one with hashes is complete and names no index."""

import re
from pathlib import Path

from docs.hashed_pins import CONSTRAINTS, HASHED, dependencies, pins

ROOT = Path(__file__).parents[2]
TEXT = HASHED.read_text(encoding="utf-8")


def test_both_files_pin_the_same_versions() -> None:
    pinned, hashed = pins(CONSTRAINTS.read_text(encoding="utf-8")), pins(TEXT)
    assert hashed == {name: pinned.get(name) for name in hashed}


def test_all_that_an_install_needs_is_pinned_with_a_hash() -> None:
    assert dependencies() <= set(pins(TEXT))
    for pin in re.split(r"^(?=\w)", TEXT, flags=re.MULTILINE)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}$", pin, re.MULTILINE), pin


def test_no_address_stands_in_it() -> None:
    assert not re.findall(r"://|--(?:extra-)?index|--find-links|\bhttps?\b", TEXT)
