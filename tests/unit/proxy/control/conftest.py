"""A control API with a token of each role."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.control.client import ControlClient
from tests.support.proxy.guarded import Guarded, guarded


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as made:
        yield made


@pytest.fixture
async def rater(one: Guarded) -> AsyncIterator[ControlClient]:
    """A client with the token of a rater."""
    async with one.client("rater") as client:
        yield client


@pytest.fixture
async def owner(one: Guarded) -> AsyncIterator[ControlClient]:
    async with ControlClient(one.url, "secret") as client:
        yield client
