"""Groups to score, and folders of hooks on disk."""

import textwrap
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.rewards.part import HookLimits
from proxy.rewards.source import Abstention, Answer, GroupContext, Reporting, ScoreSheet
from tests.support.proxy.hooks import HookRewards

QUICK = HookLimits(call_seconds=60, load_seconds=90, grace_seconds=0.3, retry_seconds=5)


def rewards(sheet: ScoreSheet) -> list[float]:
    assert sheet.abstention is None, sheet.abstention
    return [score.reward for score in sheet.scores]


def fault(sheet: ScoreSheet) -> Abstention:
    """Why a group has no scores."""
    assert sheet.scores == ()
    assert sheet.abstention is not None
    return sheet.abstention


def error_of(source: Reporting) -> Abstention:
    """The error that a source or a part reports."""
    error = source.health().error
    assert error is not None
    return error


def group(
    *texts: str | Mapping[str, Any],
    query: str = "What is the capital of France?",
    reference: str | None = None,
    finish: str = "stop",
) -> GroupContext:
    """A group with these answers."""
    answers = []
    for index, text in enumerate(texts):
        value = {"content": text} if isinstance(text, str) else dict(text)
        message = {"role": "assistant", **value}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        completion = {"id": f"c{index}", "choices": [choice]}
        answers.append(Answer(index, message, finish, f"ep-{index}", 0.5, completion))
    asked = [{"role": "user", "content": query}]
    return GroupContext("g1", "r1", "t1", query, asked, {}, reference, (*answers,))


class HookFolder:
    """A folder of hooks and the sources opened on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path.parent / "logs" / "hooks.log"
        self.sources: list[HookRewards] = []

    def reward(self, code: str) -> None:
        self.write("on_compute_relative_reward", code)

    def submit(self, code: str) -> None:
        self.write("on_user_submit_new_requests", code)

    def write(self, module: str, code: str) -> None:
        self.path.mkdir(exist_ok=True)
        (self.path / f"{module}.py").write_text(textwrap.dedent(code))

    async def open(self, limits: HookLimits = QUICK) -> HookRewards:
        source = HookRewards(self.path, limits, self.path.parent)
        self.sources.append(source)
        await source.start()
        return source


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[HookFolder]:
    folder = HookFolder(tmp_path / "hooks")
    yield folder
    for source in folder.sources:
        await source.close()
