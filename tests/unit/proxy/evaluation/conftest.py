"""A proxy with looks: `@pytest.mark.world(share, ...)` has the arguments of `measured`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.proxy.measured import Measured, Policy, measured
from tests.unit.proxy.conftest import marked


@pytest.fixture
async def m(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Measured]:
    shares, more = marked(request)
    policy = Policy(*(shares or (1.0,)))
    async with measured(tmp_path, policy, **more) as (w, service):
        yield Measured(**vars(w), service=service, policy=policy)
