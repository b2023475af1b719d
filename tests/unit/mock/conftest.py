"""A target to ask."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.unit.mock.helpers import Target, serve


@pytest_asyncio.fixture
async def target() -> AsyncIterator[Target]:
    """A server that answers."""
    made = Target()
    async with serve(made.answer) as port:
        made.url = f"http://127.0.0.1:{port}/v1"
        yield made
