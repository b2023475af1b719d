"""A target to ask, and all that a run needs beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.runtime.home import Home
from tests.unit.mock.helpers import Stage, Target, serving


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    """A server that answers."""
    async with serving() as target:
        yield target


@pytest.fixture
def stage(home: Home, tmp_path: Path, target: Target) -> Stage:
    return Stage(home, tmp_path, target)
