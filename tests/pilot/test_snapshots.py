"""What each screen looks like, as plain text, kept in `snapshots/`.

Renew them after a wanted change, then read the difference:

    SNAPSHOTS=renew python -m pytest -q tests/pilot/test_snapshots.py
"""

import difflib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.places import SCREENS
from core.events import ClientSeen, RatingModeChanged
from core.job_sheet import JobSheet
from core.looking import EpisodeLook, LogLook, ServerLook, TaskLook
from core.state import State
from swarm.job import BATCH, default_job, dump_job, hand_job, put
from tests.support.console import (
    NOW,
    FakeBoss,
    FakeChild,
    FakeLink,
    Seat,
    sample_events,
    seat,
    state_of,
)

FOLDER = Path(__file__).parent / "snapshots"
RENEW = os.environ.get("SNAPSHOTS") == "renew"
SIZES = ((80, 24), (160, 48))
EXTRA = {
    "group": ("f2", "home", "down", "enter"),
    "tokens": ("f2", "home", "down", "enter", "p"),
    "help": ("f2", "question_mark"),
    "jump": ("f2", "ctrl+o"),
    "abort": ("f2", "home", "down", "x"),
    "stop": ("f5", "k"),
    "part": ("f6", "enter"),
    "job": ("f5", "e"),
    "inside": ("f5", "i"),
    "tries": ("ctrl+t",),
    "quit": ("ctrl+q",),
    "line": ("colon",),
}
"""What is no screen of its own, with the keys that open it."""
STEADY = 3
"""Looks in a row that must be the same: files are read in threads."""


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def sample() -> State:
    return state_of(*sample_events(), RatingModeChanged(mode="answer_first"))


def sheet() -> JobSheet:
    """A job that was saved and differs from the one that runs."""
    runs = default_job("tiny")
    put(runs, BATCH, 8)
    job = dump_job(default_job("tiny"))
    return JobSheet(
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


def look() -> ServerLook:
    """What a server tells of what is in it."""
    episodes = [
        EpisodeLook(
            uuid=f"episode-{at}", client="ajet-console", task=f"task-{at // 4}", idle=3.0 * at
        )
        for at in range(6)
    ]
    return ServerLook(
        server="embedded",
        at=NOW,
        clients=(ClientSeen(name="ajet-console", running=6),),
        episodes=tuple(episodes),
        tasks=(TaskLook(task="task-0", clients=("ajet-console",)),),
        log=(LogLook(at=NOW - 4, tag="engine", text="step 12 begins"),),
    )


def fill_log(console: Seat) -> None:
    store = console.session.store
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


async def steady(console: Seat) -> str:
    """The text of the screen once it has come to rest."""
    seen: list[str] = []
    for _ in range(60):
        await console.settle()
        seen.append(console.text())
        if len(set(seen[-STEADY:])) == 1 and len(seen) >= STEADY:
            break
    return seen[-1] + "\n"


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "160x48"])
@pytest.mark.parametrize("name", [*(place.name for place in SCREENS), *EXTRA])
async def test_it_looks_as_it_did(name: str, size: tuple[int, int]) -> None:
    boss = FakeBoss(
        {
            "engine": FakeChild("engine", url="http://127.0.0.1:10086", pid=4242),
            "proxy": FakeChild("proxy", url="http://127.0.0.1:8000", pid=4243),
        }
    )
    link = FakeLink(sample())
    link.job_sheet = sheet()
    link.looks["embedded"] = look()
    async with seat(link=link, size=size, boss=boss) as console:
        fill_log(console)
        if name in EXTRA:
            await console.press(*EXTRA[name])
        else:
            console.app.action_go(name)
        found = await steady(console)
        if name == "quit":
            await console.press("escape")
    file = FOLDER / f"{name}-{size[0]}x{size[1]}.txt"
    if RENEW:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(found, "utf-8")
        return
    assert file.exists(), f"{file.name} is missing: SNAPSHOTS=renew makes it"
    kept = file.read_text("utf-8")
    if found != kept:
        told = difflib.unified_diff(
            kept.splitlines(), found.splitlines(), f"kept {file.name}", "now", lineterm="", n=1
        )
        pytest.fail("\n".join(told), pytrace=False)


def test_no_snapshot_is_left_over() -> None:
    names = {place.name for place in SCREENS} | set(EXTRA)
    kept = {file.stem.rpartition("-")[0] for file in FOLDER.glob("*.txt")}
    assert kept == names
