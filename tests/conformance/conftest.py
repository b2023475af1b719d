"""What these tests share: quick clocks, and the proxy with its usual settings."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.forms import front
from tests.support.proxy.front import Front
from tests.support.proxy.quick_clocks import quick


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@pytest.fixture
async def f(tmp_path: Path) -> AsyncIterator[Front]:
    """A front; after the test all of its groups are closed."""
    async with front(tmp_path) as opened:
        yield opened
