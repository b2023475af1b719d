"""Makes the pictures of the docs from a real run: engine, proxy, mock user and console.

.venv/bin/python docs/pictures.py            # docs/img/*.svg
.venv/bin/python docs/pictures.py DIR        # every screen at 80x24 and 160x48 into DIR
"""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from console.app import ConsoleApp
from console.options import ConsoleOptions
from console.startup import open_session
from core.settings import load
from tests.support.stack import Stack, loop_up, until

ROOT = Path(__file__).parents[1]
SCREENS = ("overview", "requests", "group", "tokens", "rate", "mock", "engine", "log")


async def take(stack: Stack, folder: Path, name: str, size: tuple[int, int], theme: str) -> None:
    """One picture of one screen of a console that is attached to the running proxy."""
    options = ConsoleOptions(home=stack.home, settings=load(None, {}))
    session, starter = open_session(options)
    app = ConsoleApp(session, starter, theme=theme)
    async with app.run_test(size=size) as pilot:
        for _ in range(100):
            await pilot.pause(0.05)
            if session.state.groups:
                break
        app.action_go("requests" if name in ("group", "tokens") else name)
        await pilot.pause(0.5)
        if name in ("group", "tokens"):
            await pilot.press("down", "down", "down", "enter")
            await pilot.pause(0.8)
        if name == "tokens":
            await pilot.press("p")
            await pilot.pause(0.8)
        await pilot.pause(0.6)
        file = f"{name}-{size[0]}x{size[1]}-{theme}.svg" if folder != ROOT / "docs/img" else ""
        picture = app.export_screenshot()
        picture = re.sub(r',\s*url\("[^"]*"\) format\("[^"]*"\)', "", picture)  # fetch no fonts
        picture = picture.replace("<svg ", '<svg xml:space="preserve" ', 1)
        (folder / (file or f"{name}.svg")).write_text(picture)


def main() -> None:
    """Run the loop for a while, then look at it."""
    whole = len(sys.argv) > 1
    folder = Path(sys.argv[1]) if whole else ROOT / "docs/img"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, loop_up(Path(home)) as stack:
        stack.start("mock", str(ROOT / "mock/data/questions.jsonl"), "--pace", "0.6")
        until("some steps", lambda: stack.step() >= 8, 120)
        assert stack.run("mode", "answer_first").returncode == 0
        until("groups wait", lambda: len(stack.state().waiting()) >= 3, 60)
        if not whole:
            for name in ("overview", "group", "rate"):
                asyncio.run(take(stack, folder, name, (120, 36), "dark"))
            return
        for name in SCREENS:
            for size in ((80, 24), (160, 48)):
                asyncio.run(take(stack, folder, name, size, "dark"))
        asyncio.run(take(stack, folder, "overview", (120, 36), "light"))


if __name__ == "__main__":
    main()
