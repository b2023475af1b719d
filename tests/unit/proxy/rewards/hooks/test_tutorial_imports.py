"""The imports of the tutorials' hooks: provided, or reported with the line that needs them."""

import importlib.util
import sys
from typing import Any

import pytest

from proxy.rewards.hooks import tutorials as logs
from proxy.rewards.hooks.child import HookLimits
from proxy.rewards.hooks.tutorials import Logger

pytestmark = pytest.mark.slow

HERE = {name: importlib.util.find_spec(name) is not None for name in ("loguru", "beast_logger")}


async def test_the_tutorials_imports(hooks: Any, group: Any) -> None:
    hooks.write("persona_words", "LIVELY = {'wow'}\n")
    hooks.submit("""
        from typing import Dict, List
        from loguru import logger
        from ajet.schema.task import Task

        _query_history: List[Dict] = []

        async def on_user_submit_new_requests(request_id: str, task: Task) -> None:
            _query_history.append({"request_id": request_id, "query": task.main_query})
            logger.info(f"[on_user_submit] {task.main_query[:100]} {{}}")
    """)
    hooks.reward("""
        from beast_logger import print_listofdict
        from loguru import logger
        from ajet.schema.task import WorkflowOutput
        from ajet.utils.compute_madness import has_repeat
        from persona_words import LIVELY

        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            logger.debug("scoring {} of {name}", len(all_answers), name=question)
            for result, answer in zip(valid_results, all_answers):
                answer["reward"] = float(any(w in answer["content"] for w in LIVELY))
                assert result.get("question") == question
            print_listofdict(all_answers, header="rewards", mod="rewards")
            try:
                1 / 0
            except ZeroDivisionError:
                logger.exception("went wrong")
            return [answer["reward"] for answer in all_answers]
    """)
    source = await hooks.open()
    assert source.health().ok, source.health()
    assert (await source.request("r1", "t1", "hello?", {})).error is None
    sheet = await source.score(group("wow", "no", query="the sky"))
    assert [score.reward for score in sheet.scores] == [1.0, 0.0]
    log = hooks.log.read_text()
    for value in ("[on_user_submit] hello? {}", "scoring 2 of the sky", "rewards", "went wrong"):
        assert value in log
    assert "ZeroDivisionError" in log


async def test_a_missing_openjudge_is_named_with_its_line(hooks: Any) -> None:
    if importlib.util.find_spec("openjudge") is not None:
        pytest.skip("openjudge is installed")
    hooks.reward("\nfrom openjudge.models import OpenAIChatModel\n")
    source = await hooks.open()
    error = source.health().error
    assert error is not None
    assert (error.file, error.line) == (str(hooks.path / "on_compute_relative_reward.py"), 2)
    assert "install the package openjudge" in error.cause
    assert "on_compute_relative_reward.py:2" in error.cause


@pytest.mark.skipif(HERE["loguru"], reason="loguru is installed")
async def test_a_name_that_a_stand_in_lacks_is_reported(hooks: Any, group: Any) -> None:
    hooks.reward("""
        from loguru import logger

        @logger.catch
        async def on_compute_relative_reward(valid_results, all_answers):
            return [0.0]
    """)
    source = await hooks.open()
    error = source.health().error
    assert error is not None
    assert "no loguru.logger.catch" in error.cause
    assert "install the package loguru" in error.cause
    assert error.line == 4


async def test_a_coroutine_that_was_not_awaited_is_reported(hooks: Any, group: Any) -> None:
    hooks.reward("""
        async def score(text):
            return 1.0

        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            if question == "inner":
                return inner(all_answers)
            return [score(answer["content"]) for answer in all_answers]

        async def inner(answers):
            return [1.0 for _ in answers]
    """)
    source = await hooks.open()
    for query in ("each", "inner"):
        sheet = await source.score(group("a", query=query))
        assert sheet.abstention is not None
        assert "never awaited" in sheet.abstention.cause
        assert sheet.abstention.line == 5


async def test_an_awaitable_that_a_plain_function_returns(hooks: Any, group: Any) -> None:
    hooks.reward("""
        import asyncio

        async def later(answers):
            await asyncio.sleep(0)
            return [0.25 for _ in answers]

        def on_compute_relative_reward(valid_results, all_answers):
            return later(all_answers)
    """)
    source = await hooks.open()
    sheet = await source.score(group("a", "b"))
    assert [score.reward for score in sheet.scores] == [0.25, 0.25]


async def test_two_gigabytes_under_the_usual_limit(hooks: Any, group: Any) -> None:
    """Also in small pieces; the proxy's side sees an abstention with the line."""
    hooks.reward("""
        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            held = []
            if question == "pieces":
                while True:
                    held.append(bytes(256 << 20))
            if question == "block":
                held.append(bytes(2 << 30))
            return [0.5]
    """)
    source = await hooks.open(HookLimits(poll_seconds=0.05))
    for query, line in (("block", 8), ("pieces", 6)):
        sheet = await source.score(group("a", query=query))
        assert sheet.abstention is not None
        assert "MemoryError" in sheet.abstention.cause
        assert sheet.abstention.line == line
    assert (await source.score(group("a"))).scores[0].reward == 0.5


def test_the_logger_survives_a_bad_format(capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger()
    logger.info("{missing} {}", 1)
    logger.bind(who="me").warning("{who} {n}", n=2)
    logger.opt(exception=ValueError("odd")).error("failed")
    logger.remove()
    assert logger.add(sys.stderr) == 0
    error_output = capsys.readouterr().err
    assert "KeyError in its format" in error_output
    assert "me 2" in error_output
    assert "ValueError: odd" in error_output
    assert f"{__name__}:" in error_output


def test_tables_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.print_listofdict([{"content": "x\n" * 900, "reward": 1}], "answers", mod="c")
    logs.print_list(["one"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "--- answers"
    assert lines[1].startswith("  [0] content: x x")
    assert lines[1].endswith("... | reward: 1")
    assert lines[2:] == ["---", "  0: one"]
