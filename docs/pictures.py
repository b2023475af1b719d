"""Make the pictures of the docs from a real run of engine, proxy, mock user and console.

.venv/bin/python -m docs.pictures            # docs/img: every screen and the animated loop
.venv/bin/python -m docs.pictures DIR        # the same into DIR
.venv/bin/python -m docs.pictures DIR rate   # the screens whose names start with "rate"
.venv/bin/python -m docs.pictures DIR loop   # the animated picture of the README alone
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from console.app import ConsoleApp
from console.backend.options import ConsoleOptions
from console.backend.startup import open_session
from console.session.app_state import Session
from core.settings import load
from core.state import State
from docs.animation import animate
from tests.support.stack import Stack, loop_up, until

ROOT = Path(__file__).parents[1]
SIZE, LOOP_SIZE = (120, 36), (80, 24)
"""Columns and rows of the screens, and of the animated loop."""
TO_DONE = "to the newest group that is done"
"""Placeholder for the presses of Down that lead there."""
PROGRESS: Mapping[str, Sequence[str]] = {
    "progress": ("f8",),
    "probe-prompt": ("f8", "enter"),
    "progress-pair": ("f8", "b"),
    "progress-rewind": ("f8", "w"),
}
"""Screen -> the keys that open it, for screens that are taken before groups wait for votes."""
RUNNING: Mapping[str, Sequence[str]] = {
    "overview": ("f1",),
    "servers": ("f9",),
    "requests": ("f2", "home"),
    "group": ("f2", "home", TO_DONE, "enter"),
    "tokens": ("f2", "home", TO_DONE, "enter", "p"),
    "rate": ("f3",),
    "mock": ("f4",),
    "engine": ("f5",),
    "job": ("f5", "e"),
    "inside": ("f5", "i"),
    "tries": ("f1", "ctrl+t"),
    "rewards": ("f6",),
    "rewards-part": ("f6", "enter"),
    "log": ("f7",),
    "help": ("f2", "f12"),
    "palette": ("f1", "ctrl+p"),
    "jump": ("f2", "ctrl+o"),
    "abort": ("f2", "home", "x"),
    "stop": ("f5", "k"),
}
"""The same, while the mock user runs."""
STILL: Mapping[str, Sequence[str]] = {"mock-picker": ("f4", "o")}
"""The same, while no mock user runs."""
LAST: Mapping[str, Sequence[str]] = {
    "history": ("f10", "home"),
    "history-compare": ("f10", "home", "space", "down", "c"),
}
"""The same, for screens of several engine runs; the engine is restarted."""


async def home(pilot: Pilot[int]) -> None:
    """Return to the front page of the screen."""
    while len(pilot.app.screen_stack) > 1:
        await pilot.press("escape")


@asynccontextmanager
async def console(stack: Stack, size: tuple[int, int]) -> AsyncIterator[tuple[Pilot[int], Session]]:
    """Open a console that is attached to the running proxy."""
    options = ConsoleOptions(home=stack.home, settings=load(None, {}), start_engine=False)
    session, starter = open_session(options)
    async with ConsoleApp(session, starter).run_test(size=size) as pilot:
        await asyncio.to_thread(until, "the first screen", lambda: session.seen)
        yield pilot, session


async def picture(pilot: Pilot[int], session: Session, keys: Sequence[str]) -> str:
    """Press keys, and return the screen as SVG."""
    for key in keys:
        await pilot.press(*(down_to_done(session.state) if key == TO_DONE else (key,)))
    await pilot.pause(1.0)
    return lean(pilot.app.export_screenshot(simplify=True))


async def take(stack: Stack, folder: Path, screens: Mapping[str, Sequence[str]]) -> None:
    """Save a picture of each screen; `screens` maps its name to the keys that open it."""
    async with console(stack, SIZE) as (pilot, session):
        await asyncio.to_thread(until, "groups", lambda: session.state.groups)
        for screen, keys in screens.items():
            await home(pilot)
            (folder / f"{screen}.svg").write_text(await picture(pilot, session, keys))


async def film(stack: Stack) -> str:
    """Return the animated picture of the loop, from the first request to a better policy."""
    frames: list[tuple[str, float]] = []
    async with console(stack, LOOP_SIZE) as (pilot, session):

        async def show(seconds: float, *keys: str) -> None:
            frames.append((await picture(pilot, session, keys), seconds))

        async def seen(what: str, check: Callable[[], object], limit: float = 120) -> None:
            await asyncio.to_thread(until, what, check, limit)
            await pilot.pause(0.5)

        def done() -> bool:
            return any(group.phase == "DONE" for group in session.state.groups.values())

        await show(4, "f1")
        await asyncio.to_thread(mock_user, stack)
        await seen("a finished group", done)
        await show(3, "f2")
        await show(4, "home", TO_DONE, "enter")
        await asyncio.to_thread(command, stack, "rating", "mode", "answer_first")
        await seen("a group to rate", lambda: stack.state().waiting())
        await home(pilot)
        await show(3, "f3")
        await show(2, "1")
        await asyncio.to_thread(command, stack, "rating", "mode", "off")
        await asyncio.to_thread(command, stack, "rating", "accept-all", "--yes")
        await seen("some steps", lambda: stack.step() >= 45, 240)
        await home(pilot)
        await show(5, "f1")
    return animate(frames)


def command(stack: Stack, *args: str) -> None:
    """Run a command of `ajet-console`, which must succeed."""
    done = stack.run(*args)
    assert done.returncode == 0, (args, done.stderr)


def verdict_known(state: State) -> bool:
    """Return whether the newest look of a server is better or worse than its baseline."""
    looks = [progress.current for progress in state.progress.values()]
    return any(look and look.verdict and look.verdict.outcome != "unknown" for look in looks)


def mock_user(stack: Stack) -> None:
    """Start the mock user on the shipped questions."""
    questions = str(ROOT / "mock/data/questions.jsonl")
    stack.start("mock", questions, "--pace", "0.6", "--passes", "9")


def second_run(stack: Stack) -> None:
    """Stop the engine, start it with another job, and let it learn for some steps."""
    command(stack, "rating", "mode", "off")
    command(stack, "engine", "stop", "--yes")
    until("OFFLINE", lambda: stack.state().servers["embedded"].state == "OFFLINE", 60)
    command(stack, "engine", "job", "--set", "lr=1e-3")
    command(stack, "engine", "start")
    command(stack, "runs", "name", "1", "default job")
    command(stack, "runs", "note", "1", "as shipped, to compare with")
    command(stack, "runs", "pin", "1", "on")
    mock_user(stack)
    until("a second run", lambda: len(stack.state().engine_runs.runs) > 1, 60)
    run = stack.state().engine_runs.runs[-1].number
    until("steps of it", lambda: stack.state().engine_runs.runs[run - 1].updates >= 12, 240)


def down_to_done(state: State) -> list[str]:
    """Return the presses of Down from the newest group to the newest finished and trained one."""
    newest = reversed(state.groups.values())
    done = (group.phase == "DONE" and group.episode_type == "train" for group in newest)
    return ["down"] * next(number for number, is_done in enumerate(done) if is_done)


def lean(picture: str) -> str:
    """Return an SVG without external fonts and redundant elements."""
    picture = re.sub(r',\s*url\("[^"]*"\) format\("[^"]*"\)', "", picture)
    picture = re.sub(r"<clipPath id=\"[^\"]*-line-\d+\">.*?</clipPath>", "", picture, flags=re.S)
    picture = re.sub(r' clip-path="url\(#[^"]*-line-\d+\)"', "", picture)
    if own := re.search(r"terminal-\d+-", picture):
        picture = picture.replace(own[0], "t-")
    picture = re.sub(r"\n\s*", "\n", picture)
    # hide local paths; replacements of the same length keep the layout
    root = str(ROOT)
    picture = picture.replace(root, "~/projects/ajet-console"[: len(root)].ljust(len(root), "-"))
    picture = re.sub(r"/tmp/tmp[a-z0-9_]{8}", "~/ajet-console-0", picture)
    return picture.replace("<svg ", '<svg xml:space="preserve" ', 1)


def main() -> None:
    """Run the loop and take the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/img"
    prefix = sys.argv[2] if len(sys.argv) > 2 else ""
    folder.mkdir(parents=True, exist_ok=True)

    def take_all(stack: Stack, screens: Mapping[str, Sequence[str]]) -> None:
        picked = {name: keys for name, keys in screens.items() if name.startswith(prefix)}
        asyncio.run(take(stack, folder, picked))

    if "loop".startswith(prefix):
        with tempfile.TemporaryDirectory() as root, loop_up(Path(root)) as stack:
            (folder / "loop.svg").write_text(asyncio.run(film(stack)))
        if prefix:
            return
    with tempfile.TemporaryDirectory() as root, loop_up(Path(root), looks=True) as stack:
        mock_user(stack)
        until("some steps", lambda: stack.step() >= 8, 240)
        until("a verdict", lambda: verdict_known(stack.state()), 900)
        for _ in range(2):
            stack.run("engine", "try", "Why is the sky blue?")
        step = stack.step()
        until("a new step", lambda: stack.step() > step, 30)  # late in a step few groups arrive
        take_all(stack, PROGRESS)
        command(stack, "rating", "mode", "answer_first")
        until("groups wait", lambda: len(stack.state().waiting()) >= 3, 60)
        take_all(stack, RUNNING)
        stack.kill("mock")
        take_all(stack, STILL)
        second_run(stack)
        take_all(stack, LAST)


if __name__ == "__main__":
    main()
