"""The endpoint of the judge."""

from collections.abc import AsyncIterator

import pytest

from tests.support.scripted.judge import ScriptedJudge


@pytest.fixture
async def judge() -> AsyncIterator[ScriptedJudge]:
    async with ScriptedJudge() as value:
        yield value
