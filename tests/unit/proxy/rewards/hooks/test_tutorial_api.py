"""The objects passed to hooks, their signatures, and the stand-in for AgentJet."""

import pickle
import sys
from typing import Any

import pytest

from proxy.rewards.hooks import tutorials
from proxy.rewards.hooks.tutorials import EpisodeResult, has_repeat, install_shim, reward_caller


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
