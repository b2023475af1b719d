"""Hooks that loop, block, crash or use up memory: their process ends, the proxy continues.

A call has a minute, and so has a cancelled one to end, so that a busy machine ends none of them. A
test skips that minute on its own clock once the hook has begun, or has reported its place.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from proxy.rewards.hooks import child, protocol
from proxy.rewards.hooks.protocol import CancelCall, FromChild, ScoreCall, Scored, Stack, ToChild
from proxy.rewards.part import HookLimits
from proxy.rewards.source import ScoreSheet, SourceHealth
from tests.support.capped_clock import skip
from tests.support.proxy.hooks import HookRewards
from tests.support.proxy.until import until
from tests.unit.proxy.rewards.conftest import HookFolder, fault, group, rewards

pytestmark = pytest.mark.slow

GOOD = """
    async def on_compute_relative_reward(valid_results, all_answers):
        return [float(len(a["content"])) for a in all_answers]
"""
LIMIT = 60.0
LIMITS = HookLimits(call_seconds=LIMIT, load_seconds=90, grace_seconds=LIMIT, retry_seconds=5)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], int]:
    """Return how many messages of a type have passed between proxy and hooks."""
    messages: list[ToChild | FromChild] = []

    def pack(message: ToChild) -> bytes:
        messages.append(message)
        return protocol.pack(message)

    async def read(reader: asyncio.StreamReader) -> FromChild:
        messages.append(message := await protocol.read_from_child(reader))
        return message

    monkeypatch.setattr(child, "pack", pack)
    monkeypatch.setattr(child, "read_from_child", read)
    return lambda kind: sum(isinstance(message, kind) for message in messages)


def cause(sheet: ScoreSheet) -> str:
    return fault(sheet).cause


CRASHING = """
    import asyncio, ctypes, os, pathlib, signal
    count = [0]
    here = pathlib.Path(__file__).parent

    async def on_compute_relative_reward(valid_results, all_answers, question=""):
        count[0] += 1
        (here / question).touch()
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
                asyncio.get_running_loop().call_soon(waits)
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

    def waits():
        with (here / "waits").open("a") as file:
            file.write("x")
"""
"""The endless loop of `held` keeps the interpreter's lock as `loop` does, and uses no CPU time."""


@pytest.fixture
async def source(hooks: HookFolder, passed: Callable[[type], int]) -> HookRewards:
    """Of the hooks that crash; its messages are counted."""
    hooks.reward(CRASHING)
    return await hooks.open(LIMITS)


async def test_a_loop_is_killed_and_named(
    hooks: HookFolder, source: HookRewards, passed: Callable[[type], int]
) -> None:
    pid = source.pid
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(source.score(group("a", query="loop")))
        await until((hooks.path / "loop").exists)
        skip(LIMIT)
        await until(lambda: passed(Stack))
        skip(LIMIT)
    sheet = call.result()
    assert "did not answer within 60 s" in cause(sheet)
    assert fault(sheet).late
    assert fault(sheet).line in (10, 11)
    assert "while True" in fault(sheet).traceback or "pass" in fault(sheet).traceback
    await until(lambda: source.health().ok)
    assert source.pid != pid
    assert not psutil.pid_exists(pid)
    assert rewards(await source.score(group("a"))) == [1.0]


async def test_an_endless_loop_does_not_affect_other_groups_in_its_process(
    hooks: HookFolder, source: HookRewards, passed: Callable[[type], int]
) -> None:
    async with asyncio.TaskGroup() as tasks:
        sleep, loop, *others = [
            tasks.create_task(source.score(group("a", query=query)))
            for query in ("sleep", "held", "a", "b")
        ]
        await until((hooks.path / "held").exists)
        await until(lambda: passed(ScoreCall) == 4)
        (hooks.path / "sleep").unlink()
        skip(LIMIT)
        await until(lambda: passed(Stack) == 4)
        skip(LIMIT)
        sheets = await asyncio.gather(*others)
        await until((hooks.path / "sleep").exists)
        skip(LIMIT)
    assert "it was killed" in cause(loop.result())
    assert fault(loop.result()).line in (40, 41)
    assert "did not answer" in cause(sleep.result())
    assert fault(sleep.result()).line == 13
    assert {rewards(sheet)[0] for sheet in sheets} <= {1.0, 2.0, 3.0}


@pytest.mark.parametrize("query", ["exit", "segfault", "killed"])
async def test_a_crash_affects_only_its_own_group(source: HookRewards, query: str) -> None:
    """Also where the culprit is unknown: all are scored once more, one by one."""
    waiting = [source.score(group("a", query="wait")) for _ in range(3)]
    *others, bad = await asyncio.gather(*waiting, source.score(group("a", query=query)))
    assert [rewards(other)[0] > 0 for other in others] == [True] * 3
    result = cause(bad)
    assert "the hooks' process ended" in result
    assert ("SIGKILL" in result) == (query == "killed")


async def test_a_group_that_ends_the_process_twice_abstains(source: HookRewards) -> None:
    sheets = await asyncio.gather(*(source.score(group("a", query="killed")) for _ in range(2)))
    assert all("SIGKILL" in cause(sheet) for sheet in sheets)
    assert rewards(await source.score(group("a"))) == [1.0]


async def test_a_slow_call_is_cancelled_without_harm_to_others(
    hooks: HookFolder, source: HookRewards
) -> None:
    pid = source.pid
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(source.score(group("a", query="sleep")))
        await until((hooks.path / "sleep").exists)
        skip(LIMIT)
    sheet = call.result()
    assert "did not answer within 60 s" in cause(sheet)
    assert fault(sheet).late
    assert fault(sheet).line == 13
    assert source.pid == pid
    assert rewards(await source.score(group("a"))) == [2.0]  # the history is still there


async def test_a_process_that_does_not_run_is_not_killed(
    hooks: HookFolder, passed: Callable[[type], int]
) -> None:
    """As on a machine that is too busy for it."""
    hooks.reward("""
        import asyncio, pathlib
        waiting = pathlib.Path(__file__).parent / "waiting"
        count = [0]

        async def on_compute_relative_reward(valid_results, all_answers, question=""):
            count[0] += 1
            if question == "sleep":
                asyncio.get_running_loop().call_soon(waiting.touch)
                await asyncio.sleep(600)
            return [float(count[0])]
    """)
    source = await hooks.open(LIMITS)
    process = psutil.Process(source.pid)
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(source.score(group("a", query="sleep")))
        await until((hooks.path / "waiting").exists)
        process.suspend()
        await until(lambda: process.status() == psutil.STATUS_STOPPED)
        skip(LIMIT)
        await until(lambda: passed(CancelCall))
        skip(LIMIT)
        done, _ = await asyncio.wait([call], timeout=0.1)
        assert not done
        process.resume()
    assert fault(call.result()).late
    assert fault(call.result()).line == 10
    assert rewards(await source.score(group("a"))) == [2.0]
    assert source.pid == process.pid


async def test_blocking_calls_fail_only_the_late_ones(
    hooks: HookFolder, passed: Callable[[type], int], tmp_path: Path
) -> None:
    """A hook that waits for its judge without await: only late answers abstain."""
    os.mkfifo(tmp_path / "judge")
    judge = os.open(tmp_path / "judge", os.O_RDWR)
    grace = 10.0
    hooks.reward(f"""
        import os, time
        judge = os.open({str(tmp_path / "judge")!r}, os.O_RDONLY)
        count = [0]
        now = time.monotonic
        time.monotonic = lambda: now() + {LIMIT}  # as on the test's clock, after its skip

        async def on_compute_relative_reward(valid_results, all_answers):
            count[0] += 1
            open(f"{tmp_path}/begun-{{count[0]}}", "w").close()
            os.read(judge, 1)
            return [float(count[0])]
    """)
    source = await hooks.open(HookLimits(LIMIT, 90, grace, retry_seconds=5))
    pid = source.pid
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(source.score(group("a"))) for _ in range(8)]
        os.write(judge, b"12")
        await until((tmp_path / "begun-3").exists)
        await until(lambda: passed(Scored) == 2)
        skip(LIMIT)
        await until(lambda: passed(Stack) == 6)
        skip(grace)
    good, late = [], []
    for call in calls:
        (late if call.result().abstention else good).append(call.result())
    assert [rewards(sheet) for sheet in good] == [[1.0], [2.0]]
    assert len(late) == 6
    for sheet in late:
        assert "did not answer within 60 s: calls block its thread" in cause(sheet)
        assert fault(sheet).late
        assert fault(sheet).line in (10, 11)
    os.write(judge, b"3456789")
    assert rewards(await source.score(group("a")))[0] > len(good)
    assert source.pid == pid
    os.close(judge)


async def test_an_endless_loop_of_a_cancelled_call_is_killed_for_the_next(
    hooks: HookFolder, source: HookRewards, passed: Callable[[type], int]
) -> None:
    pid = source.pid
    async with asyncio.TaskGroup() as tasks:
        left = tasks.create_task(source.score(group("a", query="held")))
        await until((hooks.path / "held").exists)
        left.cancel()
        following = tasks.create_task(source.score(group("b")))
        await until(lambda: passed(ScoreCall) == 2)
        skip(LIMIT)
        await until(lambda: passed(Stack) == 2)
        skip(LIMIT)
    assert rewards(following.result()) == [1.0]
    assert not psutil.pid_exists(pid)
    assert source.health().ok


async def test_a_hook_that_cancels_itself_and_others_abstains_at_once(hooks: HookFolder) -> None:
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
    assert sheets[0].abstention.line == 8
    assert rewards(await source.score(group("a"))) == [1.0]
    assert source.pid == pid


async def test_a_call_that_ignores_cancellation_is_killed(
    hooks: HookFolder, source: HookRewards
) -> None:
    waits = hooks.path / "waits"
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(source.score(group("a", query="deaf"))) for _ in range(2)]
        await until(lambda: waits.exists() and waits.read_text() == "xx")
        skip(LIMIT)
        await until(lambda: waits.read_text() == "xxxx")
        skip(LIMIT)
    assert all("did not answer" in cause(call.result()) for call in calls)
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
    source: HookRewards, query: str, result: str
) -> None:
    changes: list[SourceHealth] = []
    source.add_listener(changes.append)
    assert result in cause(await source.score(group("a", query=query)))
    assert rewards(await source.score(group("a"))) == [1.0]
    assert [change.ok for change in changes] == [False, True]
    assert changes[0].error.crashed
    assert "it is started again, and groups wait for it" in changes[0].error.cause


async def test_too_much_memory(hooks: HookFolder) -> None:
    hooks.reward(CRASHING)
    source = await hooks.open(HookLimits(memory_bytes=512 << 20))
    sheet = await source.score(group("a", query="memory"))
    assert "MemoryError" in cause(sheet)
    assert fault(sheet).line == 33
    assert rewards(await source.score(group("a"))) == [1.0]


async def test_repeated_crashes_delay_the_next_start(
    hooks: HookFolder, source: HookRewards
) -> None:
    for _ in range(4):
        cause(await source.score(group("a", query="exit")))
    await until(lambda: source.pid == 0)
    assert "4th time" in cause(await source.score(group("a")))
    hooks.reward(GOOD)  # a save is always tried at once
    await until(lambda: source.health().ok)
