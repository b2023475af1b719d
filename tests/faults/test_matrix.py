"""Each fault at random moments under a small steady load, and the books afterwards."""

import random
import time
from pathlib import Path

import pytest

from tests.support.faults.audit import outcomes
from tests.support.faults.field import field_of
from tests.support.faults.kinds import FAULTS, breaks

pytestmark = pytest.mark.timeout(300)

ROUNDS = 10
"""Of each fault, in the long form."""


async def broken(home: Path, monkeypatch: pytest.MonkeyPatch, seed: int, names: list[str]) -> None:
    """These faults one after the other, then the books."""
    began = time.monotonic()
    async with field_of(home, monkeypatch, seed) as field:
        for name in names:
            at = time.monotonic()
            try:
                await breaks(field, name)
            except TimeoutError:
                raise AssertionError(f"{name}: no requests are served any more") from None
            print(f"{name}: {time.monotonic() - at:.2f} s")
    books, wrong = field.books
    print(f"{time.monotonic() - began:.1f} s, {dict(field.load.tally())}")
    print(books, dict(outcomes(home / "j.db")), f"{len(field.swarm.batches)} batches")
    assert books.clean, "\n".join(map(str, [books, *wrong]))
    assert books.sent > 0


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 6))]
)
async def test_one_fault_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    names = list(FAULTS)
    random.Random(seed).shuffle(names)
    await broken(tmp_path, monkeypatch, seed, names)


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    await broken(tmp_path, monkeypatch, 7, [name] * ROUNDS)
