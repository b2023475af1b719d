"""What hooks import, receive and return."""

import importlib.util
import math
import pickle
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from proxy.rewards.hooks import tutorials
from proxy.rewards.hooks.functions import BadResultError, checked_rewards, notes_of
from proxy.rewards.hooks.tutorials import (
    EpisodeResult,
    Logger,
    has_repeat,
    install_shim,
    reward_caller,
)
from proxy.rewards.part import HookLimits
from tests.unit.proxy.rewards.conftest import error_of, fault, group

HERE = {name: importlib.util.find_spec(name) is not None for name in ("loguru", "beast_logger")}


@pytest.mark.slow
async def test_the_tutorials_imports(hooks: Any) -> None:
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


@pytest.mark.slow
async def test_a_missing_openjudge_is_named_with_its_line(hooks: Any) -> None:
    if importlib.util.find_spec("openjudge") is not None:
        pytest.skip("openjudge is installed")
    hooks.reward("\nfrom openjudge.models import OpenAIChatModel\n")
    source = await hooks.open()
    error = error_of(source)
    assert (error.file, error.line) == (str(hooks.path / "on_compute_relative_reward.py"), 2)
    assert "install the package openjudge" in error.cause
    assert "on_compute_relative_reward.py:2" in error.cause


@pytest.mark.skipif(HERE["loguru"], reason="loguru is installed")
@pytest.mark.slow
async def test_a_name_that_a_stand_in_lacks_is_reported(hooks: Any) -> None:
    hooks.reward("""
        from loguru import logger

        @logger.catch
        async def on_compute_relative_reward(valid_results, all_answers):
            return [0.0]
    """)
    source = await hooks.open()
    error = error_of(source)
    assert "no loguru.logger.catch" in error.cause
    assert "install the package loguru" in error.cause
    assert error.line == 4


@pytest.mark.slow
async def test_a_coroutine_that_was_not_awaited_is_reported(hooks: Any) -> None:
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
        assert "never awaited" in fault(sheet).cause
        assert fault(sheet).line == 5


@pytest.mark.slow
async def test_an_awaitable_that_a_plain_function_returns(hooks: Any) -> None:
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


@pytest.mark.slow
async def test_two_gigabytes_under_the_usual_limit(hooks: Any) -> None:
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
    source = await hooks.open(HookLimits())
    for query, line in (("block", 8), ("pieces", 6)):
        sheet = await source.score(group("a", query=query))
        assert "MemoryError" in fault(sheet).cause
        assert fault(sheet).line == line
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
    tutorials.print_listofdict([{"content": "x\n" * 900, "reward": 1}], "answers", mod="c")
    tutorials.print_list(["one"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "--- answers"
    assert lines[1].startswith("  [0] content: x x")
    assert lines[1].endswith("... | reward: 1")
    assert lines[2:] == ["---", "  0: one"]


# --- arguments ----------------------------------------------------------------------------------


def two(valid_results: Any, all_answers: Any) -> str:
    return "two"


def three(valid_results: Any, all_answers: Any, question: str = "") -> str:
    return question


def keyword(valid_results: Any, all_answers: Any, *, question: str) -> str:
    return question


def third(results: Any, answers: Any, prompt: str) -> str:
    return prompt


def loose(*args: Any) -> str:
    return str(args[2])


@pytest.mark.parametrize(
    ("function", "value"), [(two, "two"), (three, "q"), (keyword, "q"), (third, "q"), (loose, "q")]
)
def test_signatures(function: Any, value: str) -> None:
    assert reward_caller(function)([], [], "q") == value


def one(results: Any) -> None: ...


def four(a: Any, b: Any, c: Any, d: Any) -> None: ...


def needs_more(a: Any, b: Any, question: str, extra: int) -> None: ...


@pytest.mark.parametrize("function", [one, four, needs_more])
def test_other_signatures_are_refused(function: Any) -> None:
    with pytest.raises(TypeError):
        reward_caller(function)


def test_results_answer_by_attribute_get_and_index() -> None:
    result = EpisodeResult("ep", {"id": "c"}, "why?")
    assert result.episode_uuid == result.get("episode_uuid") == result["episode_uuid"] == "ep"
    assert result.get("question") == "why?"
    assert result.get("other", 7) == 7
    assert "response" in result
    assert "other" not in result


@pytest.mark.parametrize(
    ("token", "arguments", "expected"),
    [
        (["a", "b", "c", "d", "e", "f"], {}, False),
        ("no " * 11, {"patience_max": 40}, False),
        (("no " * 11).split(), {}, True),
        (("no " * 10).split(), {}, False),
        ("abcdabcdabcd" * 20, {"remember_n_words": 4, "patience_max": 200}, True),
        ("abcdeabcdeabcde" * 20, {"remember_n_words": 4, "patience_max": 200}, False),
    ],
)
def test_has_repeat(token: Any, arguments: dict[str, int], expected: bool) -> None:
    assert has_repeat(token, **arguments) is expected


def test_the_shim_answers_agentjet_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["ajet", "ajet.schema", "ajet.schema.task", "ajet.utils", "ajet.utils.compute_madness"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)  # registers the undoing
        monkeypatch.delitem(sys.modules, name)
    for thing in (tutorials.Task, tutorials.WorkflowOutput, tutorials.has_repeat):
        monkeypatch.setattr(thing, "__module__", thing.__module__)
    assert install_shim()
    module = sys.modules["ajet.schema.task"]
    task = module.Task(task_id="t", main_query="q", metadata={"a": 1})
    assert pickle.loads(pickle.dumps(task)) == task
    assert task.model_dump()["metadata"] == {"a": 1}
    assert module.WorkflowOutput(reward=0.5).model_dump()["reward"] == 0.5
    assert sys.modules["ajet"].utils.compute_madness.has_repeat is has_repeat


@pytest.mark.parametrize(
    "result", [[1, 0.5], (True, False), [Fraction(1, 2), -1], [1e9, -1e9], [0.0, -0.0]]
)
def test_good_results(result: Any) -> None:
    rewards = checked_rewards(result, 2)
    assert rewards == [float(value) for value in result]
    assert all(type(reward) is float for reward in rewards)


class Tensor:
    """As torch's: no number by its type, and it lists what it holds."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def tolist(self) -> Any:
        return self.held


@pytest.mark.parametrize(
    "result",
    [
        np.array([0.25, 1.0]),
        np.array([0.25, 1], dtype=np.float32),
        [np.float32(0.25), np.int64(1)],
        [np.array(0.25), Tensor(1.0)],
        Tensor([0.25, 1.0]),
        (Tensor(0.25), 1),
    ],
)
def test_arrays_and_tensors_count_as_the_numbers_they_hold(result: Any) -> None:
    rewards = checked_rewards(result, 2)
    assert rewards == [0.25, 1.0]
    assert all(type(reward) is float for reward in rewards)
    before = {"role": "assistant"}
    held = [Tensor(0.25), np.float32(0.25)]
    assert [notes_of([before], [{**before, "warm": one}])[0].values for one in held] == [
        {"warm": 0.25}
    ] * 2


@pytest.mark.parametrize(
    ("result", "actual"),
    [
        (np.array([[0.5], [1.0]]), "reward 0 is list [0.5]"),
        (np.array(0.5), "returned float 0.5"),
        (np.array([0.5, np.nan]), "reward 1 is nan"),
        (np.array(["a", "b"]), "reward 0 is str 'a'"),
        (Tensor([0.5]), "returned 1 rewards for 2 answers"),
        (None, "returned None"),
        (0.5, "returned float 0.5"),
        ("ab", "returned str 'ab'"),
        ({0: 1.0, 1: 0.0}, "returned dict"),
        ([1.0], "returned 1 rewards for 2 answers"),
        ([1.0, 0.5, 0.0], "returned 3 rewards for 2 answers"),
        ([], "returned 0 rewards for 2 answers"),
        ([1.0, math.nan], "reward 1 is nan"),
        ([math.inf, 1.0], "reward 0 is inf"),
        ([1.0, 1e308], "reward 1 is 1e+308"),
        ([1.0, 10**400], "reward 1 is inf"),
        ([1.0, "0.5"], "reward 1 is str '0.5'"),
        ([None, 1.0], "reward 0 is None"),
        ([[1.0], 1.0], "reward 0 is list [1.0]"),
        ([Decimal(1), 1.0], "one for each answer; write float(...)"),
        ([1j, 1.0], "reward 0 is complex 1j"),
        (iter([1.0, 0.5]), "returned list_iterator"),
    ],
)
def test_bad_results_report_the_value_and_what_was_expected(result: Any, actual: str) -> None:
    with pytest.raises(BadResultError) as caught:
        checked_rewards(result, 2)
    assert actual in str(caught.value)
    assert "expected a list of 2 numbers" in str(caught.value)


def test_notes_are_what_the_hook_added() -> None:
    before = {"role": "assistant", "content": "x"}
    after = {
        **before,
        "content": "changed",
        "quality": 1,
        "why": "short",
        "odd": math.nan,
        "list": [1],
        "text": "y" * 5_000,
    }
    (note,) = notes_of([before], [after])
    assert note.values == {"quality": 1.0}
    assert note.texts["why"] == "short"
    assert note.texts["odd"].startswith("nan")
    assert len(note.texts["text"]) == 2_000
    assert "list" not in {**note.values, **note.texts}


def test_notes_are_bounded() -> None:
    (note,) = notes_of([{}], [{f"k{n}": n for n in range(1_000)}])
    assert len(note.values) == 64
