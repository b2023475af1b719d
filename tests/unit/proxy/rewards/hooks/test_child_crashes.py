"""Hooks that loop, block, crash or use up memory: their process ends, the proxy continues."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from proxy.rewards.part import HookLimits
from proxy.rewards.source import ScoreSheet, SourceHealth
from tests.unit.proxy.rewards.conftest import fault, rewards

pytestmark = pytest.mark.slow

GOOD = """
    async def on_compute_relative_reward(valid_results, all_answers):
        return [float(len(a["content"])) for a in all_answers]
"""
SHORT = HookLimits(call_seconds=0.5, load_seconds=90, grace_seconds=0.2, retry_seconds=5)


def cause(sheet: ScoreSheet) -> str:
    return fault(sheet).cause


CRASHING = """
    import asyncio, ctypes, os, signal
    count = [0]

    async def on_compute_relative_reward(valid_results, all_answers, question=""):
        count[0] += 1
        if question == "loop":
            while True:
                pass
        if question == "sleep":
            await asyncio.sleep(600)
        if question == "wait":
            await asyncio.sleep(0.3)
        if question == "killed":
            await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        if question == "deaf":
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    pass
        if question == "exit":
            os._exit(7)
        if question == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if question == "pointer":
            ctypes.string_at(0)
        if question == "memory":
            hog = bytearray(1 << 33)
        if question == "task":
            async def leave():
                raise SystemExit(9)
            await asyncio.gather(leave())
        if question == "held":
            pause = ctypes.PyDLL(None).usleep
            while True:
                pause(1000)
        return [float(count[0])] * len(all_answers)
"""
"""The endless loop of `held` keeps the interpreter's lock as `loop` does, and uses no CPU time."""


async def test_a_loop_is_killed_and_named(hooks: Any, group: Any, until: Any) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open(SHORT)
    pid = source.pid
    sheet = await source.score(group("a", query="loop"))
    assert "did not answer within 0.5 s" in cause(sheet)
    assert fault(sheet).late
    assert fault(sheet).line in (8, 9)
    assert "while True" in fault(sheet).traceback or "pass" in fault(sheet).traceback
    await until(lambda: source.health().ok)
    assert source.pid != pid
    assert not psutil.pid_exists(pid)
    assert rewards(await source.score(group("a"))) == [1.0]


async def test_an_endless_loop_does_not_affect_other_groups_in_its_process(
    hooks: Any, group: Any
) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open(msgspec.structs.replace(SHORT, call_seconds=3.0))
    queries = ["sleep", "held", "a", "b"]
    sleep, loop, *others = await asyncio.gather(
        *(source.score(group("a", query=query)) for query in queries)
    )
    assert "it was killed" in cause(loop)
    assert fault(loop).line in (37, 38)
    assert "did not answer" in cause(sleep)
    assert fault(sleep).line == 11
    assert {rewards(other)[0] for other in others} <= {1.0, 2.0, 3.0}


@pytest.mark.parametrize("query", ["exit", "segfault", "killed"])
async def test_a_crash_affects_only_the_group_that_caused_it(
    hooks: Any, group: Any, query: str
) -> None:
    """Also where the culprit is unknown: all are scored once more, one by one."""
    hooks.reward(CRASHING)
    source = await hooks.open()
    waiting = [source.score(group("a", query="wait")) for _ in range(3)]
    *others, bad = await asyncio.gather(*waiting, source.score(group("a", query=query)))
    assert [rewards(other)[0] > 0 for other in others] == [True] * 3
    result = cause(bad)
    assert "the hooks' process ended" in result
    assert ("SIGKILL" in result) == (query == "killed")


async def test_a_group_that_ends_the_process_twice_abstains(hooks: Any, group: Any) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open()
    sheets = await asyncio.gather(*(source.score(group("a", query="killed")) for _ in range(2)))
    assert all("SIGKILL" in cause(sheet) for sheet in sheets)
    assert rewards(await source.score(group("a"))) == [1.0]


async def test_a_slow_call_is_cancelled_without_harm_to_others(hooks: Any, group: Any) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open(SHORT)
    pid = source.pid
    sheet = await source.score(group("a", query="sleep"))
    assert "did not answer within 0.5 s" in cause(sheet)
    assert fault(sheet).late
    assert fault(sheet).line == 11
    assert source.pid == pid
    assert rewards(await source.score(group("a"))) == [2.0]  # the history is still there


async def test_blocking_calls_fail_only_the_late_ones(hooks: Any, group: Any) -> None:
    """A hook that waits for its judge without await: only late answers abstain."""
    hooks.reward("""
        import time
        count = [0]

        async def on_compute_relative_reward(valid_results, all_answers):
            count[0] += 1
            time.sleep(0.3)
            return [float(count[0])]
    """)
    source = await hooks.open(msgspec.structs.replace(SHORT, call_seconds=1.0))
    pid = source.pid
    sheets = await asyncio.gather(*(source.score(group("a")) for _ in range(8)))
    good = [sheet for sheet in sheets if sheet.abstention is None]
    late = [sheet for sheet in sheets if sheet.abstention is not None]
    assert good
    assert late
    for sheet in late:
        assert "did not answer within 1 s" in cause(sheet)
        assert fault(sheet).late
        assert fault(sheet).line == 7
    assert any("calls block its thread" in cause(sheet) for sheet in late)
    while (sheet := await source.score(group("a"))).abstention is not None:
        assert "calls block its thread" in cause(sheet)
    assert rewards(sheet)[0] > len(good)
    assert source.pid == pid


async def test_an_endless_loop_of_a_cancelled_call_is_killed_for_the_next(
    hooks: Any, group: Any, until: Any, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    hooks.reward(f"""
        import ctypes

        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            if question == "loop":
                open({str(begun)!r}, "w").close()
                while True:
                    ctypes.PyDLL(None).usleep(1000)  # keeps the interpreter's lock, as a loop does
            return [1.0]
    """)
    source = await hooks.open(msgspec.structs.replace(SHORT, call_seconds=2.0))
    pid = source.pid
    async with asyncio.TaskGroup() as tasks:
        left = tasks.create_task(source.score(group("a", query="loop")))
        await until(begun.exists)
        left.cancel()
    assert rewards(await source.score(group("b"))) == [1.0]
    assert not psutil.pid_exists(pid)
    assert source.health().ok


async def test_a_hook_that_cancels_itself_and_others_abstains_at_once(
    hooks: Any, group: Any
) -> None:
    """A call that another one cancels before it began also gets an answer."""
    hooks.reward("""
        import asyncio

        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            if question == "all":
                for task in asyncio.all_tasks():
                    task.cancel()
                await asyncio.sleep(600)
            return [1.0]
    """)
    source = await hooks.open()
    pid = source.pid
    sheets = await asyncio.gather(*(source.score(group("a", query="all")) for _ in range(3)))
    assert all("cancelled by a hook" in cause(sheet) for sheet in sheets)
    assert sheets[0].abstention is not None
    assert sheets[0].abstention.line == 8
    assert rewards(await source.score(group("a"))) == [1.0]
    assert source.pid == pid


async def test_a_call_that_ignores_cancellation_is_killed(hooks: Any, group: Any) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open(SHORT)
    first, second = await asyncio.gather(
        source.score(group("a", query="deaf")), source.score(group("b", query="deaf"))
    )
    assert "did not answer" in cause(first)
    assert "did not answer" in cause(second)
    assert rewards(await source.score(group("a"))) == [1.0]


@pytest.mark.parametrize(
    ("query", "result"),
    [
        ("exit", "exit code 7"),
        ("segfault", "SIGSEGV"),
        ("pointer", "SIGSEGV"),
        ("task", "exit code 9"),
    ],
)
async def test_the_end_of_the_process_is_an_abstention(
    hooks: Any, group: Any, query: str, result: str
) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open()
    changes: list[SourceHealth] = []
    source.add_listener(changes.append)
    assert result in cause(await source.score(group("a", query=query)))
    assert rewards(await source.score(group("a"))) == [1.0]
    assert [change.ok for change in changes] == [False, True]
    assert changes[0].error is not None
    assert changes[0].error.crashed
    assert "it is started again, and groups wait for it" in changes[0].error.cause


async def test_too_much_memory(hooks: Any, group: Any) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open(HookLimits(memory_bytes=512 << 20))
    sheet = await source.score(group("a", query="memory"))
    assert "MemoryError" in cause(sheet)
    assert fault(sheet).line == 30
    assert rewards(await source.score(group("a"))) == [1.0]


async def test_repeated_crashes_delay_the_next_start(hooks: Any, group: Any, until: Any) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open()
    for _ in range(4):
        cause(await source.score(group("a", query="exit")))
    await until(lambda: source.pid == 0)
    assert "4th time" in cause(await source.score(group("a")))
    hooks.reward(GOOD)  # a save is always tried at once
    await until(lambda: source.health().ok)
