"""Make the pictures of the docs from a real run of engine, proxy, mock user and console.

.venv/bin/python -m docs.pictures            # docs/img: every screen, two sizes, dark and light
.venv/bin/python -m docs.pictures DIR        # the same into DIR
.venv/bin/python -m docs.pictures DIR rate   # the screens whose names start with "rate"
.venv/bin/python -m docs.pictures DIR loop   # the animated picture of the README alone
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from textual.pilot import Pilot

from console.app import ConsoleApp
from console.backend.options import ConsoleOptions
from console.backend.startup import open_session
from console.session.app_state import Session
from core.settings import load
from core.state import Group, State
from docs.animation import animate
from tests.support.stack import Stack, loop_up, until

ROOT = Path(__file__).parents[1]
SIZES = ((80, 24), (160, 48))
THEMES = ("dark", "light")
README = {
    "overview": (120, 36),
    "group": (120, 36),
    "rate": (120, 36),
    "progress": (124, 36),
    "progress-pair": (80, 24),
}
"""Screens on the front page and in guides: dark pictures without a size in their names."""
TO_DONE = "to the newest group that is done"
"""Placeholder for the presses of Down that lead there."""
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
    "progress": ("f8",),
    "probe-prompt": ("f8", "enter"),
    "progress-pair": ("f8", "b"),
    "progress-rewind": ("f8", "w"),
    "help": ("f2", "f12"),
    "palette": ("f1", "ctrl+p"),
    "jump": ("f2", "ctrl+o"),
    "abort": ("f2", "home", "x"),
    "stop": ("f5", "k"),
}
"""Screen -> the keys that open it."""
STILL: Mapping[str, Sequence[str]] = {"mock-picker": ("f4", "o")}
"""Screen -> the keys that open it, for screens that exist only while no mock user runs."""

LAST: Mapping[str, Sequence[str]] = {
    "history": ("f10", "home"),
    "history-compare": ("f10", "home", "space", "down", "c"),
}
"""Screen -> the keys that open it, for screens of several engine runs; the engine is restarted."""


async def home(pilot: Pilot[int]) -> None:
    """Return to the front page of the screen."""
    for _ in range(6):
        if len(pilot.app.screen_stack) == 1:
            return
        await pilot.press("escape")


async def take(
    stack: Stack, folder: Path, stops: Mapping[str, Sequence[str]], size: tuple[int, int], name: str
) -> None:
    """Save pictures of a console's screens; the console is attached to the running proxy.

    Args:
        stack: The running proxy.
        folder: Folder of the pictures.
        stops: Screen -> keys.
        size: Columns and rows.
        name: Template of the file names, with `{screen}`, `{size}` and `{theme}`.
    """
    options = ConsoleOptions(home=stack.home, settings=load(None, {}), start_engine=False)
    session, starter = open_session(options)
    app = ConsoleApp(session, starter)
    async with app.run_test(size=size) as pilot:
        for _ in range(200):
            await pilot.pause(0.05)
            if session.seen and session.state.groups:
                break
        for theme in THEMES if "{theme}" in name else THEMES[:1]:
            app.theme = theme
            for screen, keys in stops.items():
                await home(pilot)
                for key in keys:
                    await pilot.press(*(down_to_done(session.state) if key == TO_DONE else (key,)))
                await pilot.pause(1.0)
                file = name.format(screen=screen, size=f"{size[0]}x{size[1]}", theme=theme)
                (folder / file).write_text(lean(app.export_screenshot(simplify=True)))
            await home(pilot)


async def film(stack: Stack) -> str:
    """Return the animated picture of the loop, from the first request to a better policy."""
    options = ConsoleOptions(home=stack.home, settings=load(None, {}), start_engine=False)
    session, starter = open_session(options)
    app = ConsoleApp(session, starter)
    frames: list[tuple[str, float]] = []

    async with app.run_test(size=SIZES[0]) as pilot:

        async def show(seconds: float, *keys: str) -> None:
            for key in keys:
                await pilot.press(*(down_to_done(session.state) if key == TO_DONE else (key,)))
            await pilot.pause(1.0)
            frames.append((lean(app.export_screenshot(simplify=True)), seconds))

        async def seen(what: str, check: Callable[[], object], limit: float = 120) -> None:
            await asyncio.to_thread(until, what, check, limit)
            await pilot.pause(0.5)

        await seen("the first screen", lambda: session.seen)
        await show(4, "f1")
        await asyncio.to_thread(mock_user, stack)
        await seen("a finished group", lambda: any(g.phase == "DONE" for g in groups(session)))
        await show(3, "f2")
        await show(4, "home", TO_DONE, "enter")
        assert (await asyncio.to_thread(stack.run, "mode", "answer_first")).returncode == 0
        await seen("a group to rate", lambda: stack.state().waiting())
        await home(pilot)
        await show(3, "f3")
        await show(2, "1")
        assert (await asyncio.to_thread(stack.run, "mode", "off")).returncode == 0
        assert (await asyncio.to_thread(stack.run, "accept-all", "--yes")).returncode == 0
        await seen("some steps", lambda: stack.step() >= 45, 240)
        await home(pilot)
        await show(5, "f1")
    return animate(frames)


def groups(session: Session) -> list[Group]:
    """Return the groups of the console's present state."""
    return list(session.state.groups.values())


def verdict_known(state: State) -> bool:
    """Return whether the newest look of a server is better or worse than its baseline."""
    looks = [one.current for one in state.progress.values()]
    return any(one and one.verdict and one.verdict.outcome != "unknown" for one in looks)


def mock_user(stack: Stack) -> None:
    """Start the mock user on the shipped questions."""
    questions = str(ROOT / "mock/data/questions.jsonl")
    stack.start("mock", questions, "--pace", "0.6", "--passes", "9")


def second_run(stack: Stack) -> None:
    """Stop the engine, start it with another job, and let it learn for some steps."""
    assert stack.run("mode", "off").returncode == 0
    assert stack.run("engine-stop", "--yes").returncode == 0
    until("OFFLINE", lambda: stack.state().servers["embedded"].state == "OFFLINE", 60)
    assert stack.run("engine-job", "--set", "lr=1e-3").returncode == 0
    assert stack.run("engine-start").returncode == 0
    assert stack.run("runs", "name", "1", "default job").returncode == 0
    assert stack.run("runs", "note", "1", "as shipped, to compare with").returncode == 0
    assert stack.run("runs", "pin", "1", "on").returncode == 0
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

    def picked(stops: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        return {screen: keys for screen, keys in stops.items() if screen.startswith(prefix)}

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
            stack.run("try", "Why is the sky blue?")
        step = stack.step()
        until("a new step", lambda: stack.step() > step, 30)  # late in a step few groups arrive
        front = {screen: keys for screen, keys in picked(RUNNING).items() if screen in README}
        for screen in [one for one in front if one.startswith("progress")]:  # nothing waits yet
            stop = {screen: front.pop(screen)}
            asyncio.run(take(stack, folder, stop, README[screen], "{screen}.svg"))
        assert stack.run("mode", "answer_first").returncode == 0
        until("groups wait", lambda: len(stack.state().waiting()) >= 3, 60)
        for screen, keys in front.items():
            asyncio.run(take(stack, folder, {screen: keys}, README[screen], "{screen}.svg"))
        for size in SIZES:
            asyncio.run(take(stack, folder, picked(RUNNING), size, "{screen}-{size}-{theme}.svg"))
        stack.kill("mock")
        for size in SIZES:
            asyncio.run(take(stack, folder, picked(STILL), size, "{screen}-{size}-{theme}.svg"))
        if stops := picked(LAST):
            second_run(stack)
            name = "{screen}-{size}-{theme}.svg"
            asyncio.run(take(stack, folder, {"history": LAST["history"]}, SIZES[1], "{screen}.svg"))
            for size in SIZES:  # the marks are set once in each console
                asyncio.run(take(stack, folder, stops, size, name))


if __name__ == "__main__":
    main()
