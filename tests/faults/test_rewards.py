"""The fault table of rewards: each way a hook or a judge can fail, a few times over.

In every row the user gets an answer, the group gets no reward (none is made up), the cause is
reported, the proxy continues, and the next group is scored. `make test` runs the rows of one kind
one after the other in one proxy, `make soak` each twelve times, a hook in a file of its own.
"""

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ajet_swarm.api.watcher
from core.events import GroupScored, GroupSealed, ScoringAbstained
from proxy.rewards.judge import question
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import HookLimits, PartEnvironment
from proxy.rewards.source import RewardSource
from tests.support.proxy.hooks import HookRewards
from tests.support.proxy.singles import EpisodeEnded
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.judge import MISHAPS, ODD_BODIES, ScriptedJudge
from tests.support.scripted.swarm import ScriptedSwarm

TIMES = [2, pytest.param(12, marks=pytest.mark.soak)]
CALMED = HookLimits(call_seconds=30, load_seconds=90, grace_seconds=0.2, memory_bytes=600 << 20)
"""For hooks that do not end by the clock: a busy machine must not end them instead."""
SETTINGS = settings(rewards={"time_limit": 60.0}, proxy={"answer_budget": 100.0})
HOOK = "on_compute_relative_reward.py"
HEAD = 'async def on_compute_relative_reward(results, answers, question=""):\n'
GOOD = HEAD + "    return [0.1 * (place + 1) for place in range(len(answers))]\n"

HOOKS: dict[str, tuple[str, str]] = {
    "words": ('return ["good" for _ in answers]', "reward 0 is str 'good'"),
    "numbers as text": ('return ["0.5" for _ in answers]', "reward 0 is str '0.5'"),
    "one string": ('return "0.5"', "returned str"),
    "too few": ("return [0.5 for _ in answers[1:]]", "returned 3 rewards for 4 answers"),
    "too many": ("return [0.5 for _ in answers] * 2", "returned 8 rewards for 4 answers"),
    "empty": ("return []", "returned 0 rewards for 4 answers"),
    "pairs": ("return [(0.5, 'good') for _ in answers]", "reward 0 is tuple"),
    "nothing": ("pass", "returned None"),
    "holes": ("return [None for _ in answers]", "reward 0 is None"),
    "mapping": ("return {place: 0.5 for place in range(4)}", "returned dict"),
    "generator": ("return (0.5 for _ in answers)", "returned generator"),
    "nan": ("return [float('nan') for _ in answers]", "reward 0 is nan"),
    "infinity": ("return [0.1, 0.2, 0.3, float('-inf')]", "reward 3 is -inf"),
    "1e308": ("return [1e308 for _ in answers]", "reward 0 is 1e+308"),
    "huge int": ("return [10 ** 400 for _ in answers]", "reward 0 is inf"),
    "complex": ("return [1j for _ in answers]", "reward 0 is complex"),
    "not awaited": (
        "async def one():\n        return 0.5\n    return [one() for _ in answers]",
        "it was never awaited",
    ),
    "a loop in the loop": (
        "import asyncio\n    async def one():\n        return 0.5\n"
        "    work = one()\n    try:\n        return [asyncio.run(work)] * 4\n"
        "    finally:\n        work.close()",
        "cannot be called from a running event loop",
    ),
    "raises": ("return [1 / 0]", "ZeroDivisionError"),
    "leaves": ("import sys\n    sys.exit(3)", "SystemExit"),
    "keyboard": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "recursion": (
        "def down(at):\n        return down(at + 1)\n    return down(0)",
        "RecursionError",
    ),
    "answers taken away": ("answers.clear()\n    return []", "rewards for"),
    "2 GB": ("block = bytearray(2 << 30)\n    return [0.5] * 4", "MemoryError"),
    "segfault": ("import ctypes\n    ctypes.string_at(0)", "SIGSEGV"),
    "killed": (
        "import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)",
        "SIGKILL",
    ),
    "hard exit": ("import os\n    os._exit(7)", "exit code 7"),
}
ENDING = ("segfault", "killed", "hard exit")
"""Rows that end the hooks' process."""
ENDLESS: dict[str, tuple[str, str]] = {
    "loop": ("while True:\n        pass", "did not answer within"),
    "blocks": ("import time\n    time.sleep(600)", "did not answer within"),
    "sleeps": ("import asyncio\n    await asyncio.sleep(600)", "did not answer within"),
    "will not stop": (
        "import asyncio\n    while True:\n        try:\n            await asyncio.sleep(600)\n"
        "        except BaseException:\n            pass",
        "did not answer within",
    ),
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ajet_swarm.api.watcher, "NORMAL", 0.02)
    monkeypatch.setattr(ajet_swarm.api.watcher, "FAST", 0.01)
    monkeypatch.setattr(question, "BACKOFF", 0.001)


@contextlib.asynccontextmanager
async def scored_by(home: Path, source: RewardSource) -> AsyncIterator[World]:
    """A proxy with these rewards."""
    swarm = ScriptedSwarm(repeat=4)
    async with swarm, world(home, swarm, SETTINGS) as value:
        await source.start()
        value.context.rewards = source
        try:
            yield value
        finally:
            await value.closed()
            await source.close()


@contextlib.contextmanager
def naming(row: str) -> Iterator[None]:
    """Name the row in a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"row: {row}")
        raise


async def fails(w: World, times: int, words: str, text: str = "What is two and two?") -> None:
    """Send `times` requests: each gets an answer, no group a reward; the cause is reported."""
    w.events.clear()
    w.swarm.reward_log.clear()
    for _ in range(times):
        ticket = await w.ask(text)
        reply = await w.reply(ticket, 100)
        assert reply.error is None
        assert reply.index is not None
        await w.closed()
        assert w.group(ticket).phase == "ABORTED"
    abstained = w.kinds(ScoringAbstained)
    assert len(abstained) == times
    assert words in abstained[0].cause, abstained[0].cause
    assert all(one.cause for one in abstained)
    assert not w.kinds(GroupScored, GroupSealed, EpisodeEnded)
    assert w.swarm.reward_log == []


async def works(w: World, rewards: Sequence[float] | None = None) -> None:
    """The next group is scored and sent."""
    w.swarm.reward_log.clear()
    ticket = await w.ask("What is three and three?")
    reply = await w.reply(ticket, 100)
    assert reply.index is not None
    await w.closed()
    assert w.group(ticket).phase == "DONE"
    sent = sorted(reward for _, _, reward in w.swarm.reward_log)
    assert len(sent) == 4
    if rewards is not None:
        assert sent == pytest.approx(sorted(rewards))


async def until(test: Any, seconds: float = 90.0) -> None:
    async with asyncio.timeout(seconds):
        while not test():
            await asyncio.sleep(0.01)


# --- hooks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "times"),
    [
        *((row, 2) for row in ("words", *ENDING, *ENDLESS)),
        *(pytest.param(row, 12, marks=pytest.mark.soak) for row in (*HOOKS, *ENDLESS)),
    ],
)
async def test_a_failing_hook_only_costs_its_groups_rewards(
    row: str, times: int, tmp_path: Path
) -> None:
    code, words = (HOOKS | ENDLESS)[row]
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / HOOK).write_text(f"{HEAD}    {code}\n")
    file = tmp_path / "rewards.yaml"
    model = "parts:\n  mine: {{kind: hook, folder: hooks, memory_mb: 600, seconds: {}}}\n"
    file.write_text(model.format(0.5 if row in ENDLESS else CALMED.call_seconds))
    limits = msgspec.structs.replace(CALMED, retry_seconds=0.2)
    source = ComposedSource(file, PartEnvironment(tmp_path, hooks=limits), required=True)

    async def save(path: Path, text: str) -> None:
        await until(lambda: source.health().ok)
        before = source.version
        path.write_text(text)
        await until(lambda: source.health().ok and source.version not in ("", before))

    async with scored_by(tmp_path, source) as w:
        await fails(w, times, words)
        await save(file, model.format(2 * CALMED.call_seconds))
        await save(folder / HOOK, GOOD)
        await works(w, [0.1, 0.2, 0.3, 0.4])


async def test_each_row_that_ends_no_process_only_costs_its_groups_rewards(tmp_path: Path) -> None:
    """One hook file has all rows, by the question; the group after each is scored."""
    rows = {row: of for row, of in HOOKS.items() if row not in ENDING}
    folder = tmp_path / "hooks"
    folder.mkdir()
    body = "".join(
        f"    if question == {row!r}:\n" + textwrap.indent(f"    {code}\n    return None\n", "    ")
        for row, (code, _) in rows.items()
    )
    (folder / HOOK).write_text(f"{HEAD}{body}{GOOD.removeprefix(HEAD)}")
    source = HookRewards(folder, CALMED, tmp_path)
    async with scored_by(tmp_path, source) as w:
        for row, (_, words) in rows.items():
            with naming(row):
                await fails(w, 2, words, row)
                await until(lambda: source.health().ok)
                await works(w, [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("times", TIMES)
async def test_a_tuple_of_numbers_is_accepted_as_rewards(times: int, tmp_path: Path) -> None:
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / HOOK).write_text(f"{HEAD}    return (0.1, 0.2, 0.3, 0.4)\n")
    source = HookRewards(folder, CALMED, tmp_path)
    async with scored_by(tmp_path, source) as w:
        for _ in range(times):
            await works(w, [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("row", ["words", "nan", "segfault"])
async def test_one_failing_hook_among_other_parts_leaves_the_group_unrewarded(
    row: str, tmp_path: Path
) -> None:
    """Working parts do not replace the failing one."""
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / HOOK).write_text(f"{HEAD}    {HOOKS[row][0]}\n")
    file = tmp_path / "rewards.yaml"
    file.write_text("parts:\n  length: {}\n  mine: {kind: hook, folder: hooks, weight: 0.01}\n")
    source = ComposedSource(file, PartEnvironment(tmp_path, 5.0), required=True)
    async with scored_by(tmp_path, source) as w:
        await until(lambda: source.version)
        await fails(w, 2, HOOKS[row][1])
        assert {kind.part for kind in w.kinds(ScoringAbstained)} == {"mine"}


# --- the judge ----------------------------------------------------------------------------------

_CALLS: dict[str, tuple[Any, str]] = {
    **{name: (name, "") for name in MISHAPS},
    **{f"body: {name}": (name, "") for name in ODD_BODIES},
    "error 500": (500, ""),
    "error 429": (429, ""),
    "error 401": (401, ""),
    "hangs": ("hang", ""),
    "drops": ("drop", ""),
}


def judged(home: Path, url: str, **more: Any) -> ComposedSource:
    """Rewards of a judge and the built-in length."""
    result = {"url": url, "model": "judge-1", "timeout": 1, "group_seconds": 3, "retries": 1}
    actual = ", ".join(f"{name}: {value}" for name, value in (result | more).items())
    file = home / "rewards.yaml"
    file.write_text(f"parts:\n  length: {{}}\n  helpful: {{kind: judge, {actual}}}\n")
    return ComposedSource(file, PartEnvironment(home, 5.0), required=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "times", [pytest.param(1, id="1"), pytest.param(12, marks=pytest.mark.soak)]
)
async def test_a_failing_judge_only_costs_its_groups_rewards(times: int, tmp_path: Path) -> None:
    async with ScriptedJudge() as judge:
        more = {"cache": "false", "breaker_seconds": 0.05, "timeout": 0.5}
        async with scored_by(tmp_path, judged(tmp_path, judge.url, **more)) as w:
            for row, (how, words) in _CALLS.items():
                with naming(row):
                    judge.forever = how
                    await fails(w, times, words)
                    assert {kind.part for kind in w.kinds(ScoringAbstained)} == {"helpful"}
                    judge.forever = None
                    await asyncio.sleep(0.1)  # the breaker's pause, which is not reported
                    await works(w)


@pytest.mark.parametrize("times", TIMES)
async def test_an_unreachable_judge(times: int, tmp_path: Path) -> None:
    async with ScriptedJudge() as judge:
        url = judge.url
    async with scored_by(tmp_path, judged(tmp_path, url)) as w:
        await fails(w, times, "")


@pytest.mark.parametrize("times", TIMES)
async def test_a_missing_rubric_is_named_with_file_and_line_until_it_exists(
    times: int, tmp_path: Path
) -> None:
    async with ScriptedJudge() as judge:
        source = judged(tmp_path, judge.url, rubric="rubric.md")
        async with scored_by(tmp_path, source) as w:
            error = source.health().error
            assert error is not None
            assert (error.file, error.line) == (str(tmp_path / "rewards.yaml"), 3)
            assert "rubric" in error.cause
            await fails(w, times, "rubric")
            (tmp_path / "rubric.md").write_text("Short is good.")
            file = tmp_path / "rewards.yaml"
            file.write_text(file.read_text() + "# saved again\n")
            await until(lambda: source.version)
            await works(w)
