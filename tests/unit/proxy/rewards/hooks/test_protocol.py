import math
import pickle
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from proxy.rewards.hooks import folder as hookfolder
from proxy.rewards.hooks import tutorial_api
from proxy.rewards.hooks.check import BadResultError, checked_rewards, notes_of
from proxy.rewards.hooks.protocol import FrameError, Note, Noted, Scored, pack
from proxy.rewards.hooks.traceback import fault_of_error
from proxy.rewards.hooks.tutorial_api import EpisodeResult, has_repeat, install_shim, reward_caller


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
def test_arrays_and_tensors_count_as_what_they_hold(result: Any) -> None:
    rewards = checked_rewards(result, 2)
    assert rewards == [0.25, 1.0]
    assert all(type(reward) is float for reward in rewards)
    before = {"role": "assistant"}
    held = [Tensor(0.25), np.float32(0.25)]
    assert [notes_of([before], [{**before, "warm": one}])[0].values for one in held] == [
        {"warm": 0.25}
    ] * 2


@pytest.mark.parametrize(
    ("result", "said"),
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
def test_bad_results_say_what_came_and_what_was_expected(result: Any, said: str) -> None:
    with pytest.raises(BadResultError) as caught:
        checked_rewards(result, 2)
    assert said in str(caught.value)
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
    ("function", "given"), [(two, "two"), (three, "q"), (keyword, "q"), (third, "q"), (loose, "q")]
)
def test_signatures(function: Any, given: str) -> None:
    assert reward_caller(function)([], [], "q") == given


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
    for thing in (tutorial_api.Task, tutorial_api.WorkflowOutput, tutorial_api.has_repeat):
        monkeypatch.setattr(thing, "__module__", thing.__module__)
    assert install_shim()
    module = sys.modules["ajet.schema.task"]
    task = module.Task(task_id="t", main_query="q", metadata={"a": 1})
    assert pickle.loads(pickle.dumps(task)) == task
    assert task.model_dump()["metadata"] == {"a": 1}
    assert module.WorkflowOutput(reward=0.5).model_dump()["reward"] == 0.5
    assert sys.modules["ajet"].utils.compute_madness.has_repeat is has_repeat


def raised(code: str, file: Path) -> BaseException:
    file.write_text(code)
    try:
        exec(compile(code, str(file), "exec"), {"sys": sys})
    except BaseException as error:  # noqa: BLE001 - also SystemExit
        return error
    raise AssertionError("the code did not raise")


def test_tracebacks_are_cut_to_the_hooks_frames(tmp_path: Path) -> None:
    file = tmp_path / "hook.py"
    error = raised("import json\ndef f():\n    json.loads('{')\nf()\n", file)
    fault = fault_of_error(error, tmp_path)
    assert fault.cause.startswith("json.decoder.JSONDecodeError")
    assert (fault.file, fault.line) == (str(file), 3)
    assert "decoder.py" not in fault.traceback
    assert "test_hook_pieces" not in fault.traceback
    assert "json.loads('{')" in fault.traceback


def test_syntax_errors_have_a_place(tmp_path: Path) -> None:
    fault = fault_of_error(raised("x = 1\ndef f(:\n", tmp_path / "hook.py"), tmp_path)
    assert fault.cause.startswith("SyntaxError")
    assert fault.line == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_package.inner", "install the package no_such_package"),
        ("import ajet.copilot.job", "only ajet.schema.task and ajet.utils.compute_madness"),
    ],
)
def test_missing_packages_are_named_with_their_line(tmp_path: Path, code: str, said: str) -> None:
    fault = fault_of_error(raised(f"\n{code}\n", tmp_path / "hook.py"), tmp_path)
    assert said in fault.cause
    assert "imported at hook.py:2" in fault.cause


def test_endless_recursion_and_chains_stay_short(tmp_path: Path) -> None:
    code = (
        "def f():\n    f()\ntry:\n    f()\nexcept RecursionError as e:\n"
        "    raise ValueError('z' * 9000) from e\n"
    )
    fault = fault_of_error(raised(code, tmp_path / "hook.py"), tmp_path)
    assert len(fault.cause) < 500
    assert len(fault.traceback) < 17_000
    assert "direct cause" in fault.traceback


def test_the_stamp_sees_python_files_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    for folder in ("inner", ".git", "__pycache__", "env"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.py").write_text("2")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    seen = hookfolder.stamp(tmp_path)
    assert [name for name, _, _ in seen] == ["a.py", "inner/b.py"]
    before = hookfolder.digest(tmp_path, seen)
    (tmp_path / "notes.txt").write_text("2")
    assert hookfolder.digest(tmp_path, hookfolder.stamp(tmp_path)) == before
    (tmp_path / "inner" / "b.py").write_text("3")
    assert hookfolder.digest(tmp_path, hookfolder.stamp(tmp_path)) != before


def test_no_folder_has_an_empty_stamp(tmp_path: Path) -> None:
    assert hookfolder.stamp(tmp_path / "missing") == ()


def test_logs_are_cut_back_while_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    with file.open("ab", buffering=0) as writer:
        writer.write(b"a" * 900 + b"b" * 200)
        hookfolder.trim_log(file, 1_000)
        writer.write(b"end")
    assert file.read_bytes() == b"a" * 50 + b"b" * 200 + b"end"
    hookfolder.trim_log(file, 1_000)
    assert len(file.read_bytes()) == 253


def test_frames_refuse_what_json_cannot_say() -> None:
    frame = pack(Scored(1, [0.5], [Note({}, {})]))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = msgspec.json.decode(pack(Noted(1, {"path": Path("a")}, None))[4:])
    assert body["metadata"] == {"path": "a"}
    with pytest.raises(FrameError):
        pack(Noted(1, {"bad": "\ud800"}, None))
