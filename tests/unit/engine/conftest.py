"""The tests of the policy run as the engine does: one BLAS thread, set before numpy is there."""

from collections.abc import AsyncIterator

import pytest

from engine.training import threads

threads.prepare()

from tests.support.engine.client import Driver, driving  # noqa: E402


@pytest.fixture
async def idle() -> AsyncIterator[Driver]:
    """An engine with a fake policy and without a job, and a client of it."""
    async with driving() as driver:
        yield driver


@pytest.fixture
async def d(idle: Driver) -> Driver:
    """The same with a job."""
    await idle.start()
    return idle
