"""The example folder does what its README describes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy.hooks import HookRewards

EXAMPLE = Path(__file__).resolve().parents[5] / "examples" / "hooks" / "enthusiasm"


@pytest.mark.slow
async def test_enthusiasm_wins_and_circles_lose(tmp_path: Path, group: Any) -> None:
    source = HookRewards(EXAMPLE, home=tmp_path)
    await source.start()
    try:
        report = await source.request("r1", "t1", "What about Paris?", {"row": 7})
        assert report.error is None
        assert report.metadata == {
            "row": 7,
            "objective": "answer with enthusiasm",
            "asked_before": 0,
        }
        sheet = await source.score(
            group(
                "Wow, Paris is amazing! I love its wonderful museums!",
                "Paris is a city in France with museums.",
                "Unfortunately that is a boring topic.",
                "great " * 40,
                {"content": None, "tool_calls": []},
                query="What about Paris and its museums?",
            )
        )
    finally:
        await source.close()
    assert sheet.abstention is None
    rewards = [score.reward for score in sheet.scores]
    assert 1 >= rewards[0] > rewards[1] > rewards[2] > rewards[3] == rewards[4] == 0
    parts = {part.name: part for part in sheet.scores[3].parts}
    assert set(parts) == {"hook", "enthusiasm", "relevance", "diversity", "quality"}
    assert parts["quality"].reason == "empty, or turning in circles"
    assert not list(EXAMPLE.rglob("*.pyc"))
