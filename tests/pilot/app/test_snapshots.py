"""Each screen as plain text, compared with the files in `snapshots/`.

Renew them after a wanted change, then read the difference:

    SNAPSHOTS=renew python -m pytest -q tests/pilot/app/test_snapshots.py
"""

import asyncio
import difflib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.schema import BATCH
from ajet_swarm.job.tree import dump_job, put
from console.models.screen_registry import SCREENS
from console.replay.app import ReplayApp
from console.replay.player import Replay
from core.control_payloads import EpisodeDetails, JobInfo, LogLine, ServerDetails, TaskDetails
from core.events import (
    AlertRaised,
    ClientSeen,
    GroupMarked,
    MockFinished,
    RatingModeChanged,
    RewardPart,
    RewardsChanged,
)
from core.jobs import default_job, hand_job
from core.journal.read_only import JournalFile
from core.journal.writer import Journal
from core.state import State
from tests.support.console import (
    FakeChild,
    FakeLink,
    FakeProcessManager,
    FakeReply,
    RunningConsole,
    rest,
    run_console,
    screen_rows,
)
from tests.support.looks import ANSWERS, looks, pair_data, vote_data
from tests.support.sample import NOW, sample_events, stamp, state_of

Tour = AsyncIterator[str]
"""A way through the console; it yields the name of each view it stops at."""

FOLDER = Path(__file__).parent / "snapshots"
RENEW = os.environ.get("SNAPSHOTS") == "renew"
SIZES = ((80, 24), (160, 48))
STEADY = 3
"""Number of equal screens in a row: threads read files meanwhile."""


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def sample() -> State:
    return state_of(*sample_events(), *looks(), RatingModeChanged(mode="answer_first"))


def sheet() -> JobInfo:
    """A job that was saved and differs from the one that runs."""
    runs = default_job("tiny")
    put(runs, BATCH, 8)
    job = dump_job(default_job("tiny"))
    return JobInfo(
        server="embedded",
        saved=job,
        saved_at=NOW - 600,
        path="jobs/embedded.yaml",
        running=dump_job(runs),
        source="as the engine has read it",
        whole=True,
        default=job,
        hand=dump_job(hand_job("tiny")),
    )


def server_details() -> ServerDetails:
    """What a server reports of its contents."""
    episodes = [
        EpisodeDetails(
            uuid=f"episode-{at}", client="ajet-console", task=f"task-{at // 4}", idle=3.0 * at
        )
        for at in range(6)
    ]
    return ServerDetails(
        server="embedded",
        at=NOW,
        clients=(ClientSeen(name="ajet-console", running=6),),
        episodes=tuple(episodes),
        tasks=(TaskDetails(task="task-0", clients=("ajet-console",)),),
        log=(LogLine(at=NOW - 4, tag="engine", text="step 12 begins"),),
    )


def fill_log(console: RunningConsole) -> None:
    store = console.session.log_store
    for number in range(12):
        store.add("proxy", f"INFO request r{number} answered in 6.1 s", NOW - 60 + number)
    for text in (
        "ERROR the reward function failed",
        "Traceback (most recent call last):",
        '  File "on_compute_relative_reward.py", line 12, in reward',
        "    return 1 / len(text)",
        "ZeroDivisionError: division by zero",
    ):
        store.add("proxy", text, NOW - 20)
    store.add("engine", "INFO step 12 begins", NOW - 10)
    store.add("mock", "WARNING row 5: 503, no candidate in time", NOW - 9)
    console.session.touch(["log"])


async def steady(console: RunningConsole) -> str:
    """The text of the screen once it has come to rest."""
    texts: list[str] = []
    for _ in range(60):
        await console.settle()
        texts.append("\n".join(screen_rows(console.app)))
        if len(set(texts[-STEADY:])) == 1 and len(texts) >= STEADY:
            break
    return texts[-1] + "\n"


async def pressed(console: RunningConsole, *keys: str) -> None:
    """Keys; another screen is whole before anything covers it."""
    for key in keys:
        await (console.press if key[1:].isdigit() else console.pilot.press)(key)
    await console.settle()


async def wait_for_text(console: RunningConsole, words: str) -> None:
    """Wait until the screen contains these words."""
    async with asyncio.timeout(60):
        while words not in console.text():
            await console.settle()


# --- tours ---------------------------------------------------------------------------------------


async def screens(console: RunningConsole) -> Tour:
    for place in SCREENS:
        console.app.action_go(place.name)
        if place.name == "mock" and console.app.size.width > 100:
            await wait_for_text(console, "cannot be read")  # it reads the dataset
        yield place.name


async def groups(console: RunningConsole) -> Tour:
    press = partial(pressed, console)
    await press("colon")
    yield "line"
    await press("escape", "f2", "question_mark")
    yield "help"
    await press("escape", "ctrl+o")
    yield "jump"
    await press("escape", "home", "down", "x")
    yield "abort"
    await press("escape", "enter")
    yield "group"
    await press("p")
    yield "tokens"
    await press("escape", "escape", "ctrl+t")
    yield "tries"
    await press("escape", "escape", "f2")
    for group in list(console.link.state.groups)[-3:]:
        console.link.publish(GroupMarked(server="embedded", group_id=group, marked=True))
    await console.settle()
    await press("semicolon")
    yield "bulk"


async def engine(console: RunningConsole) -> Tour:
    press = partial(pressed, console)
    await press("f5", "k")
    yield "stop"
    await press("escape", "e")
    yield "job"
    await press("escape", "i")
    yield "inside"
    await press("escape", "f1", "ctrl+q")
    yield "quit"
    await press("escape", "f2", "ctrl+p")
    yield "palette"
    await press(*"zzqq")
    await wait_for_text(console, "Nothing matches")
    yield "palette-nothing"
    await press("escape")


async def others(console: RunningConsole) -> Tour:
    press = partial(pressed, console)
    await press("f3", "o")
    yield "mode"
    await press("escape", "f6", "enter")
    yield "part"
    parts = (
        RewardPart(name="length", kind="length", weight=0.5),
        RewardPart(name="format", kind="finished", gate=True),
        RewardPart(name="newest", kind="diversity", weight=0.3),
        RewardPart(name="politeness", kind="judge", enabled=False),
    )
    changed = RewardsChanged(
        source="/h/rewards.yaml", ok=True, version="v2", parts=parts, at=NOW - 9
    )
    console.link.publish(changed)
    await press("escape", "f6")
    yield "rewards-parts"
    await press("i", "right")
    yield "what-if"
    await press("escape", "f7", "home", "up", "up", "up")
    yield "log-line"
    console.link.publish(MockFinished(mock_id="m1", how="stopped", at=NOW - 1))
    await console.settle()
    await press("f4")
    await wait_for_text(console, "cannot be read")
    yield "mock-form"
    await press("o")
    await wait_for_text(console, "sums.jsonl")
    await press("down")
    await wait_for_text(console, "1 cannot be used")
    yield "picker"
    await press("escape")


async def progress(console: RunningConsole) -> Tour:
    await pressed(console, "f8", "enter")
    yield "probe-prompt"
    await pressed(console, "escape", "t")
    yield "trust"
    console.link.reply = FakeReply(True, "a pair", pair_data("p1", *reversed(ANSWERS["capital"])))
    await pressed(console, "escape", "b")
    yield "blind-pair"
    console.link.reply = FakeReply(True, "voted", vote_data(1.0))
    await pressed(console, "1")
    yield "blind-pair-rated"
    console.link.reply = FakeReply()
    await pressed(console, "escape")


async def alerts(console: RunningConsole) -> Tour:
    console.link.publish(
        AlertRaised(
            key="refused:embedded",
            alert_kind="refused",
            cause="users are answered 503: embedded is OFFLINE since the last stop of somebody "
            "else, and 14 requests of three applications were turned away in the last minute alone",
            todo="5 opens Engine: `s` starts it; until then every application that asks is told to "
            "come back in ten seconds, and most of them do",
            level="error",
            at=NOW - 5,
        ),
        AlertRaised(
            key="dead",
            alert_kind="dead",
            cause="17 of the last 20 groups are dead: equal rewards, most of them for answers of "
            "one word, for which no part of the reward knows any difference",
            todo="Look at the reward parts of a dead group (2, then dead:yes)",
            at=NOW - 60,
        ),
    )
    await console.press("f1")
    yield "overview-alerts"


TOURS = (screens, groups, engine, others, progress, alerts)


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with two datasets."""
    rows = ({"query": f"How much is {at} + {at}?", "answer": str(2 * at)} for at in range(40))
    (tmp_path / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "chats.jsonl").write_text('{"turns": ["Hello", "and then?"]}\nnonsense\n')
    for at, name in enumerate(("sums.jsonl", "chats.jsonl")):
        os.utime(tmp_path / name, (NOW + at, NOW + at))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("datasets")
@pytest.mark.parametrize("size", SIZES, ids=["80x24", "160x48"])
@pytest.mark.parametrize("tour", TOURS, ids=lambda tour: tour.__name__)
async def test_every_screen_matches_its_snapshot(
    tour: Callable[[RunningConsole], Tour], size: tuple[int, int]
) -> None:
    processes = FakeProcessManager(
        {
            "engine": FakeChild("engine", url="http://127.0.0.1:10086", pid=4242),
            "proxy": FakeChild("proxy", url="http://127.0.0.1:8000", pid=4243),
        }
    )
    link = FakeLink(sample())
    link.job_sheet = sheet()
    link.looks["embedded"] = server_details()
    lines: list[str] = []
    async with run_console(link=link, size=size, processes=processes) as console:
        fill_log(console)
        async for name in tour(console):
            console.app.clear_notifications()
            lines += differences(name, size, await steady(console))
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


async def test_the_start_matches_its_snapshot() -> None:
    link = FakeLink(sample())
    link.broken = AjetError("the proxy is not there yet")
    lines: list[str] = []
    async with run_console(link=link, size=SIZES[0]) as console:
        session = console.session
        session.step("home", "done", "/home/anna/.local/share/ajet-console", title="Home")
        session.step("engine", "doing", "loads its policy", title="Engine")
        session.step("proxy", "waiting", title="Fake vLLM")
        for size in SIZES:
            await console.pilot.resize_terminal(*size)
            lines += differences("startup", size, await steady(console))
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


async def test_a_replay_matches_its_snapshot(tmp_path: Path) -> None:
    made = Journal(tmp_path / "journal.db")
    for seq, event in enumerate(sample_events(), 1):
        made.append(stamp(event, seq))
    made.close()
    lines: list[str] = []
    file = JournalFile(tmp_path / "journal.db")
    app = ReplayApp(Replay(file, 0, file.last_seq()))
    async with app.run_test(size=SIZES[0]) as pilot:
        while not app.session.seen:
            await pilot.pause(0.02)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            for _ in range(STEADY):
                app.flush()
                await pilot.pause()
                await rest(app)
            lines += differences("replay", size, "\n".join(screen_rows(app)) + "\n")
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def differences(name: str, size: tuple[int, int], screen_text: str) -> list[str]:
    """The differences from the stored snapshot; none while snapshots are renewed."""
    file = FOLDER / f"{name}-{size[0]}x{size[1]}.txt"
    if RENEW:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(screen_text, "utf-8")
        return []
    if not file.exists():
        return [f"{file.name} is missing: SNAPSHOTS=renew makes it"]
    text = file.read_text("utf-8")
    if screen_text == text:
        return []
    pair = text.splitlines(), screen_text.splitlines()
    return list(difflib.unified_diff(*pair, f"stored {file.name}", "now", lineterm="", n=1))


def test_no_snapshot_is_left_over() -> None:
    text = Path(__file__).read_text("utf-8")
    shown = {place.name for place in SCREENS} | {"startup", "replay"}
    shown |= set(re.findall(r'yield "([a-z-]+)"', text))
    stored = {file.stem.rpartition("-")[0] for file in FOLDER.glob("*.txt")}
    assert stored == shown
