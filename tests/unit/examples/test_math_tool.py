"""The calculator of `examples.math --tool`, and one episode with it, good calls and bad ones."""

import json
from typing import Any

import pytest

from ajet_swarm import OpenaiBaseUrlAndApiKey, Task
from examples.ask import Asker
from examples.math.tool import CALCULATOR, TURNS, calculate, products, solve

TASK = Task(main_query="What is 3 * 15?", task_id="t", metadata={"answer": 45})


def call(arguments: str, name: str = "calculator") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("made", "result"),
    [
        (call('{"expression": "3 * 15"}'), "45"),
        (call('{"expression": "(2 + 3) / 2"}'), "5/2"),
        (call('{"expression": "9**9**9"}'), "error: no arithmetic"),
        (call('{"expression": "__import__(\'os\').getpid()"}'), "error: no arithmetic"),
        (call('{"expression": "1/0"}'), "error: no arithmetic"),
        (call('{"expression": "' + "(" * 40 + '"}'), "error: no arithmetic"),
        (call('{"query": "3 * 15"}'), "error: give the expression"),
        (call("3 * 15"), "error: give the expression"),
        (call("[]"), "error: give the expression"),
        (call("{}", "shell"), "error: there is no tool shell"),
        ({"id": "c1"}, "error: there is no tool None"),
    ],
)
def test_what_the_calculator_says(made: dict[str, Any], result: str) -> None:
    assert calculate(made) == result


class Script(Asker):
    """Answers from a list, and keeps what it was asked."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        super().__init__()
        self.left = list(messages)
        self.requests: list[dict[str, Any]] = []

    def message(self, api: OpenaiBaseUrlAndApiKey, **request: Any) -> dict[str, Any]:
        self.requests.append(json.loads(json.dumps(request)))
        return self.left.pop(0)


CALL = {"role": "assistant", "content": None, "tool_calls": [call('{"expression": "3*15"}')]}


def test_the_result_is_sent_back_and_the_answer_is_scored() -> None:
    with Script(CALL, {"content": "The answer is 45."}) as asker:
        tried = solve(asker, TASK, OpenaiBaseUrlAndApiKey(), [CALCULATOR])
        assert (tried.right, tried.called) == (True, True)
        tool_message = asker.requests[1]["messages"][-1]
        assert tool_message == {"role": "tool", "tool_call_id": "c1", "content": "45"}
        assert all(request["tools"] == [CALCULATOR] for request in asker.requests)


def test_a_wrong_answer_and_a_policy_that_only_calls_get_nothing() -> None:
    with Script(CALL, {"content": "It is 54."}) as asker:
        assert not solve(asker, TASK, OpenaiBaseUrlAndApiKey(), [CALCULATOR]).right
    with Script(*[CALL] * TURNS) as asker:
        tried = solve(asker, TASK, OpenaiBaseUrlAndApiKey(), [CALCULATOR])
        assert (tried.right, len(asker.requests)) == (False, TURNS)


def test_without_a_tool_none_is_offered() -> None:
    with Script({"content": None}) as asker:
        assert not solve(asker, TASK, OpenaiBaseUrlAndApiKey(), ()).right
        assert "tools" not in asker.requests[0]


@pytest.mark.slow
def test_no_held_out_product_is_trained_on_in_any_order() -> None:
    held, drilled = ({task.metadata["answer"] for task in products(kind)} for kind in (True, False))
    assert len(held) > 5
    assert len(drilled) > 5
    pairs = [
        {frozenset(task.task_id.split("/")[0].split("x")) for task in products(kind)}
        for kind in (True, False)
    ]
    assert not pairs[0] & pairs[1]
    assert len({task.task_id for task in products(False)}) == len(products(False))
