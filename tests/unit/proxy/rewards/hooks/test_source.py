"""Hooks in their own process: their folder, their input, their output, their failures."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.events import ScoringAbstained
from proxy.rewards import files
from proxy.rewards.source import Abstention, GroupContext, ScoreSheet
from tests.support.proxy.hooks import HookRewards
from tests.support.proxy.until import until
from tests.support.proxy.world import World
from tests.unit.proxy.rewards.conftest import fault, group, rewards

pytestmark = pytest.mark.slow

GOOD = """
    async def on_compute_relative_reward(valid_results, all_answers):
        return [float(len(a["content"])) for a in all_answers]
"""


def cause(sheet: ScoreSheet) -> str:
    return fault(sheet).cause


async def test_the_tutorial_interface(hooks: Any, monkeypatch: Any) -> None:
    """Two and three parameters, both modules, helper, shim, environment, notes and history."""
    monkeypatch.setenv("REWARD_MODE", "listwise")
    hooks.write("mock", "def weight():\n    return 0.25\n")
    hooks.submit("""
        from ajet.schema.task import Task

        SEEN = []

        async def on_user_submit_new_requests(request_id: str, task: Task) -> None:
            assert isinstance(task, Task)
            SEEN.append((request_id, task.task_id, task.main_query))
            task.metadata["seen"] = len(SEEN)
    """)
    hooks.reward("""
        import os
        import mock
        from ajet.schema.task import Task, WorkflowOutput
        from ajet.utils.compute_madness import has_repeat
        from on_user_submit_new_requests import SEEN

        history = []

        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            history.append(question)
            for result, answer in zip(valid_results, all_answers):
                assert result.response["choices"][0]["message"]["content"] == answer["content"]
                assert result.get("question") == question
                answer["mode_is_listwise"] = os.environ["REWARD_MODE"] == "listwise"
                answer["calls"] = len(history)
                answer["calls_reason"] = "as counted"
                answer["judge"] = result.episode_uuid + " " + SEEN[-1][2]
                answer["reward"] = 0.5
            all_answers.reverse()
            return [mock.weight() * i for i in range(len(all_answers))]
    """)
    source = await hooks.open()
    report = await source.request("r1", "t1", "hello?", {"a": 1})
    assert (report.metadata, report.repeat, report.error) == ({"a": 1, "seen": 1}, None, None)
    await source.score(group("x", "y", "z"))
    sheet = await source.score(group("x", "y", "z"))
    assert rewards(sheet) == [0.0, 0.25, 0.5]
    assert sheet.version == source.version == source.health().version
    assert source.health().ok
    first, *named = sheet.scores[1].parts
    assert (first.name, first.value, first.weight) == ("hook", 0.25, 1.0)
    assert first.reason == "judge: ep-1 hello?"
    values = {part.name: (part.value, part.weight, part.reason) for part in named}
    assert values == {
        "mode_is_listwise": (1.0, 0.0, ""),
        "calls": (2.0, 0.0, "as counted"),
        "reward": (0.5, 0.0, ""),
    }


async def test_plain_functions_one_module_and_a_wish_for_more(hooks: Any) -> None:
    hooks.reward("def on_compute_relative_reward(v, a):\n    return [1, 0]")
    source = await hooks.open()
    assert (await source.request("r", "t", "q", {"a": 1})).metadata == {"a": 1}
    assert rewards(await source.score(group("x", "y"))) == [1.0, 0.0]
    hooks.submit("def on_user_submit_new_requests(request_id, task):\n    return 8")
    version = source.version
    await until(lambda: source.version != version)
    assert (await source.request("r", "t", "q", {})).repeat == 8


async def test_calls_run_concurrently(hooks: Any) -> None:
    hooks.reward("""
        import asyncio
        arrived = []
        both = asyncio.Event()

        async def on_compute_relative_reward(valid_results, all_answers):
            arrived.append(1)
            if len(arrived) == 2:
                both.set()
            await both.wait()
            return [0.5] * len(all_answers)
    """)
    source = await hooks.open()
    sheets = await asyncio.gather(source.score(group("a")), source.score(group("b")))
    assert [rewards(sheet) for sheet in sheets] == [[0.5], [0.5]]


async def test_failing_calls_abstain_and_do_not_end_the_process(hooks: Any) -> None:
    hooks.reward("""
        import asyncio, sys

        class Odd(BaseException):
            pass

        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            if question == "raise":
                return helper(all_answers)
            if question == "few":
                return [1.0]
            if question == "nan":
                return [float("nan")] * 2
            if question == "exit":
                sys.exit(3)
            if question == "base":
                raise Odd("odd one")
            if question == "interrupt":
                raise KeyboardInterrupt
            if question == "cancelled":
                raise asyncio.CancelledError
            if question == "print":
                for n in range(20000):
                    print("x" * 100)
                sys.stderr.write("\\udcff\\n")
            return [0.0, 1.0]

        def helper(answers):
            raise ValueError("no judge today")
    """)
    hooks.submit("def on_user_submit_new_requests(request_id, task):\n    raise KeyError('who')")
    source: HookRewards = await hooks.open()
    pid = source.pid
    raising = await source.score(group("a", "b", query="raise"))
    assert cause(raising) == "ValueError: no judge today"
    assert fault(raising).file == str(hooks.path / "on_compute_relative_reward.py")
    assert fault(raising).line == 29
    assert 'raise ValueError("no judge today")' in fault(raising).traceback
    assert "host.py" not in fault(raising).traceback
    for query, value in [
        ("few", "returned 1 rewards for 2 answers, expected a list of 2"),
        ("nan", "reward 0 is nan, expected a list of 2 numbers"),
        ("exit", "SystemExit: 3"),
        ("base", "Odd: odd one"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancelled", "CancelledError"),
    ]:
        assert value in cause(await source.score(group("a", "b", query=query)))
    report = await source.request("r", "t", "q", {})
    assert (report.error.cause, report.error.line) == ("KeyError: 'who'", 2)
    assert rewards(await source.score(group("a", "b", query="print"))) == [0.0, 1.0]
    assert hooks.log.stat().st_size > 2_000_000
    assert (source.pid, source.health().ok) == (pid, True)


async def test_a_lone_surrogate_is_an_abstention_not_a_crash(hooks: Any) -> None:
    hooks.reward(GOOD)
    source = await hooks.open()
    assert "cannot be sent" in cause(await source.score(group("\ud800")))
    assert "no answers" in cause(await source.score(group()))
    assert rewards(await source.score(group("abc"))) == [3.0]


async def test_a_cancelled_caller_cancels_its_call(hooks: Any) -> None:
    hooks.reward("""
        import asyncio, pathlib
        here = pathlib.Path(__file__).parent

        async def on_compute_relative_reward(valid_results, all_answers):
            (here / "began").touch()
            try:
                await asyncio.sleep(600)
            finally:
                (here / "left").touch()
    """)
    source = await hooks.open()
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(source.score(group("a")))
        await until((hooks.path / "began").exists)
        call.cancel()
    await until((hooks.path / "left").exists)


async def test_close_reaps_the_child_and_what_it_started(hooks: Any) -> None:
    before = psutil.Process().children()  # of other tests of this process
    hooks.reward("""
        import asyncio, atexit, pathlib, subprocess, sys
        here = pathlib.Path(__file__).parent
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (here / "pid").write_text(str(sleeper.pid))
        atexit.register((here / "bye").touch)

        async def on_compute_relative_reward(valid_results, all_answers):
            (here / "began").touch()
            await asyncio.sleep(600)
    """)
    source = await hooks.open()
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(source.score(group("a")))
        await until((hooks.path / "began").exists)
        pids = [source.pid, int((hooks.path / "pid").read_text())]
        await source.close()
    assert "closed" in cause(call.result()) or "Cancelled" in cause(call.result())
    assert (hooks.path / "bye").exists()
    await until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert psutil.Process().children() == before


async def test_close_ends_a_blocked_child(hooks: Any) -> None:
    hooks.reward("""
        import ctypes, pathlib

        def on_compute_relative_reward(valid_results, all_answers):
            (pathlib.Path(__file__).parent / "began").touch()
            while True:
                ctypes.PyDLL(None).usleep(1000)  # keeps the interpreter's lock, as a loop does
    """)
    source = await hooks.open()
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(source.score(group("a")))
        await until((hooks.path / "began").exists)
        pid = source.pid
        await source.close()
    cause(call.result())
    assert not psutil.pid_exists(pid)


async def test_the_child_ends_with_the_proxy(tmp_path: Path, hooks: Any) -> None:
    """A proxy killed without a word leaves no child behind, even one whose hook loops."""
    hooks.reward("def on_compute_relative_reward(v, a):\n    while True:\n        pass")
    program = tmp_path / "proxy_like.py"
    program.write_text(
        "import asyncio, sys, pathlib\n"
        "from proxy.rewards.source import Answer, GroupContext\n"
        "from tests.support.proxy.hooks import HookRewards\n"
        "async def main():\n"
        "    source = HookRewards(pathlib.Path(sys.argv[1]))\n"
        "    await source.start()\n"
        "    answer = Answer(0, {'content': 'x'}, 'stop', 'e', 0.0, {})\n"
        "    print(source.pid, flush=True)\n"
        "    await source.score(GroupContext('g', 'r', 't', 'q', [], {}, None, (answer,)))\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(__file__).resolve().parents[5])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        str(hooks.path),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    )
    child = int(await process.stdout.readline())
    assert psutil.pid_exists(child)
    process.kill()
    await process.communicate()
    await until(lambda: not psutil.pid_exists(child) or _zombie(child))


def _zombie(pid: int) -> bool:
    """An orphan that no process reaps, on a machine without init, is gone too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_stamp_covers_only_python_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    for folder in ("inner", ".git", "__pycache__", "env"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.py").write_text("2")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert [name for name, _, _ in files.folder_stamp(tmp_path)] == ["a.py", "inner/b.py"]
    before = files.digest(tmp_path)
    (tmp_path / "notes.txt").write_text("2")
    assert files.digest(tmp_path) == before
    (tmp_path / "inner" / "b.py").write_text("3")
    assert files.digest(tmp_path) != before


def test_no_folder_has_an_empty_stamp(tmp_path: Path) -> None:
    assert files.folder_stamp(tmp_path / "missing") == ()


def test_logs_are_truncated_while_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    with file.open("ab", buffering=0) as writer:
        writer.write(b"a" * 900 + b"b" * 200)
        files.trim_log(file, 1_000)
        writer.write(b"end")
    assert file.read_bytes() == b"a" * 50 + b"b" * 200 + b"end"
    files.trim_log(file, 1_000)
    assert len(file.read_bytes()) == 253


async def test_file_and_line_reach_the_event_and_the_state(w: World) -> None:
    why = Abstention("hook", "returned 1 rewards for 2", "", "/hooks/reward.py", 12)

    async def failing(ctx: GroupContext) -> ScoreSheet:
        return ScoreSheet((), why, "v1", 0.0)

    w.source.score = failing  # type: ignore[method-assign]
    ticket = await w.ask("hello")
    await w.reply(ticket)
    (scoring_abstained,) = w.kinds(ScoringAbstained)
    assert (scoring_abstained.file, scoring_abstained.line) == ("/hooks/reward.py", 12)
    group = w.state.groups[scoring_abstained.group_id]
    assert (group.fault_file, group.fault_line) == ("/hooks/reward.py", 12)
