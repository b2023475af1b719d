"""Loading, failing to load, and loading again when a file changes."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from ajet_swarm.common.tasks import Tasks
from proxy.rewards.part import HookLimits
from proxy.rewards.source import SourceHealth
from tests.support.proxy.until import until
from tests.unit.proxy.rewards.conftest import fault, group

pytestmark = pytest.mark.slow


def constant(value: float) -> str:
    return f"def on_compute_relative_reward(v, a):\n    return [{value}] * len(a)\n"


RECURSION = """def f():
    f()
try:
    f()
except RecursionError as error:
    raise ValueError("z" * 9000) from error
"""


@pytest.mark.parametrize(
    ("files", "result", "line"),
    [
        ({}, "there is no on_compute_relative_reward.py", 0),
        ({"on_user_submit_new_requests": "x = 1"}, "there is no on_compute_relative_reward", 0),
        ({"on_compute_relative_reward": "def f(:\n"}, "SyntaxError", 1),
        ({"on_compute_relative_reward": "x = 1"}, "has no function on_compute_relative_reward", 0),
        ({"on_compute_relative_reward": "import sys\nsys.exit(4)"}, "SystemExit: 4", 2),
        ({"on_compute_relative_reward": "import os\nos._exit(5)"}, "exit code 5", 0),
        ({"on_compute_relative_reward": "\nimport loguru_missing"}, "package loguru_missing", 2),
        ({"on_compute_relative_reward": "import other", "other": "\n\n1 / 0"}, "ZeroDivision", 3),
        ({"on_compute_relative_reward": "import ajet.copilot"}, "only ajet.schema.task and", 1),
        ({"on_compute_relative_reward": RECURSION}, "ValueError: zzz", 6),
        (
            {"on_compute_relative_reward": "def on_compute_relative_reward(a):\n    return []"},
            "expected (valid_results, all_answers)",
            0,
        ),
    ],
)
async def test_hooks_that_do_not_load_abstain_with_their_place(
    hooks: Any, files: dict[str, str], result: str, line: int
) -> None:
    for module, code in files.items():
        hooks.write(module, code)
    source = await hooks.open()
    sheet = await source.score(group("a", "b"))
    assert (sheet.scores, sheet.version) == ((), "")
    assert result in fault(sheet).cause
    assert fault(sheet).line == line
    assert len(fault(sheet).cause) < 500
    assert len(fault(sheet).traceback) < 17_000
    assert source.health() == SourceHealth(False, sheet.abstention, "")
    report = await source.request("r", "t", "q", {})
    assert report.error == sheet.abstention


async def test_a_failed_start_is_corrected_by_a_save(hooks: Any) -> None:
    source = await hooks.open()
    assert not source.health().ok
    hooks.reward(constant(0.5))
    await until(lambda: source.health().ok)
    assert (await source.score(group("a"))).scores[0].reward == 0.5


async def test_a_valid_save_is_loaded_and_an_invalid_one_is_not(hooks: Any) -> None:
    """Each reaches the listener; a bad one leaves the old version active."""
    hooks.reward(constant(0.1))
    source = await hooks.open(HookLimits(load_seconds=90))  # the product's own pace
    healths: list[SourceHealth] = []

    def changed(health: SourceHealth) -> None:
        if not health.waiting_for:  # a slow start of a process is no result
            healths.append(health)

    remove = source.add_listener(changed)
    first, pid = source.version, source.pid

    hooks.reward("def on_compute_relative_reward(v, a):\n    return [\n")
    await until(lambda: len(healths) == 1)
    assert (healths[0].ok, healths[0].version) == (False, first)
    assert "SyntaxError" in healths[0].error.cause
    assert healths[0].error.file == str(hooks.path / "on_compute_relative_reward.py")
    assert "return [" in healths[0].error.traceback
    sheet = await source.score(group("a"))
    assert (sheet.scores[0].reward, sheet.version, source.pid) == (0.1, first, pid)

    hooks.reward(constant(0.2))
    await until(lambda: len(healths) == 2)
    assert (healths[1].ok, healths[1].error) == (True, None)
    assert healths[1].version not in ("", first)
    sheet = await source.score(group("a"))
    assert (sheet.scores[0].reward, sheet.version) == (0.2, healths[1].version)
    await until(lambda: not psutil.pid_exists(pid))

    remove()
    hooks.reward(constant(0.3))
    await until(lambda: source.version != healths[1].version)
    assert len(healths) == 2


async def test_a_helper_of_the_same_size_within_the_same_second(hooks: Any) -> None:
    hooks.write("helper", "VALUE = 1\n")
    hooks.reward("import helper\ndef on_compute_relative_reward(v, a):\n    return [helper.VALUE]")
    source = await hooks.open()
    assert (await source.score(group("a"))).scores[0].reward == 1.0
    version = source.version
    hooks.write("helper", "VALUE = 2\n")
    await until(lambda: source.version != version)
    assert (await source.score(group("a"))).scores[0].reward == 2.0
    assert not list(hooks.path.rglob("*.pyc"))


async def test_the_old_version_completes_its_calls(hooks: Any) -> None:
    hooks.reward("""
        import asyncio, pathlib
        here = pathlib.Path(__file__).parent

        async def on_compute_relative_reward(valid_results, all_answers):
            (here / "began").touch()
            while not (here / "go").exists():
                await asyncio.sleep(0.01)
            return [0.1]
    """)
    source = await hooks.open()
    old, pid = source.version, source.pid
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(source.score(group("a")))
        await until((hooks.path / "began").exists)
        hooks.reward(constant(0.2))
        await until(lambda: source.version != old)
        assert (await source.score(group("a"))).scores[0].reward == 0.2
        assert psutil.pid_exists(pid)
        (hooks.path / "go").touch()
    assert (call.result().scores[0].reward, call.result().version) == (0.1, old)
    await until(lambda: not psutil.pid_exists(pid))


async def test_a_save_while_loading_starts_over(hooks: Any) -> None:
    hooks.reward("""
        import pathlib, time
        (pathlib.Path(__file__).parent / "loading").touch()
        time.sleep(600)
    """)
    async with asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(hooks.open())
        await until((hooks.path / "loading").exists)
        waiting = tasks.create_task(hooks.sources[0].score(group("a")))
        hooks.reward(constant(0.7))
    assert opening.result().health().ok
    assert waiting.result().scores[0].reward == 0.7


async def test_loading_beyond_the_time_limit_fails(hooks: Any) -> None:
    before = psutil.Process().children()  # of other tests of this process
    hooks.reward("while True:\n    pass")
    source = await hooks.open(HookLimits(load_seconds=0.4, call_seconds=5))
    sheet = await source.score(group("a"))
    assert "not loaded within 0.4 s" in fault(sheet).cause
    assert psutil.Process().children() == before


async def test_loading_is_tried_again_while_it_fails(hooks: Any) -> None:
    flag = hooks.path / "judge_is_up"
    hooks.reward(
        "import pathlib\n"
        "if not (pathlib.Path(__file__).parent / 'judge_is_up').exists():\n"
        "    raise ConnectionError('no judge')\n" + constant(0.5)
    )
    source = await hooks.open(HookLimits(retry_seconds=0.2))
    assert "no judge" in str(source.health().error)
    flag.touch()
    await until(lambda: source.health().ok)


async def test_a_listener_that_fails_stops_nothing(hooks: Any) -> None:
    source = await hooks.open()
    flags: list[bool] = []

    def bad(health: SourceHealth) -> None:
        raise RuntimeError("screen is gone")

    source.add_listener(bad)
    source.add_listener(lambda health: flags.append(health.ok))
    hooks.reward(constant(0.5))
    await until(lambda: flags[-1:] == [True])


async def test_the_log_is_truncated(hooks: Any) -> None:
    hooks.reward(
        "def on_compute_relative_reward(v, a):\n    print('y' * 50_000)\n    return [0.0]\n"
    )
    source = await hooks.open(HookLimits(log_bytes=20_000))
    await source.score(group("a"))
    await until(lambda: hooks.log.stat().st_size <= 20_000)


@pytest.mark.parametrize(("code", "exit_code"), [(constant(1), 0), ("x = (", 1)])
async def test_the_check_by_hand(hooks: Any, code: str, exit_code: int) -> None:
    hooks.reward(code)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "proxy.rewards.hooks.host",
        str(hooks.path),
        cwd=Path(__file__).resolve().parents[5],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == exit_code
    assert (b"loads" in out) if exit_code == 0 else (b"SyntaxError" in err)


async def test_a_traceback_shows_the_lines_that_ran_not_those_saved_since(
    hooks: Any, tmp_path: Path
) -> None:
    code = """
        import os, time

        def on_compute_relative_reward(valid_results, all_answers):
            while not os.path.exists(GATE):
                time.sleep(0.005)
            raise ValueError("as it ran")  # the old line
    """.replace("GATE", repr(str(tmp_path / "gate")))
    hooks.reward(code)
    source = await hooks.open()
    async with Tasks("test") as tasks:
        scoring = tasks.spawn(source.score(group("a")), "score")
        hooks.reward(code.replace("the old line", "the new line"))
        (tmp_path / "gate").touch()
        sheet = await scoring
    assert "# the old line" in fault(sheet).traceback
    assert "# the new line" not in fault(sheet).traceback
