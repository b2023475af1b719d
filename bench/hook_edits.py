"""Delay from saving a hook to its effect on the console's screen, in a terminal.

    .venv/bin/python -m bench.hook_edits

A real proxy with a folder of hooks, a real console on its Rewards screen, users who ask all the
time. A good save notes a part of a new name: its effect is there when the name stands on the
screen, behind groups scored with it. A bad save has a typo: it is there when its line stands there.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from ajet_swarm.common.tasks import Tasks
from bench.bars import Verdicts
from tests.support.pty.screen import ScreenTerminal
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack, until

ROUNDS = 10
LIMIT = 30.0
EFFECT_BAR, TYPO_BAR = 2.0, 1.0

_GOOD = """async def on_compute_relative_reward(valid_results, all_answers, question=""):
    for place, answer in enumerate(all_answers):
        answer["part{number}"] = place / 10
    return [place / 10 for place in range(len(all_answers))]
"""
_TYPO = "{blank}\nfrom os import pathh{number}\n"


@dataclass(frozen=True, slots=True)
class Edits:
    """Seconds of each save."""

    effect: list[float]
    typo: list[float]

    def judge(self, verdicts: Verdicts) -> None:
        """Compare the slowest of each kind with its bar."""
        verdicts.at_most("edit_to_screen_worst", max(self.effect), EFFECT_BAR, "s")
        verdicts.at_most("typo_to_screen_worst", max(self.typo), TYPO_BAR, "s")

    def lines(self) -> list[str]:
        """Return the figures as text."""
        return [
            f"{name}: median {statistics.median(durations):.2f} s, worst {max(durations):.2f} s,"
            f" {len(durations)} saves"
            for name, durations in (("edit to its effect", self.effect), ("typo", self.typo))
        ]


async def edits(rounds: int = ROUNDS) -> Edits:
    """Save good and bad versions in turn and read the screen."""
    with tempfile.TemporaryDirectory(prefix="ajet-edits-") as place:
        folder = Path(place) / "hooks"
        folder.mkdir()
        _save(folder, _GOOD.format(number=0))
        async with ScriptedSwarm(batch=8, repeat=4) as swarm:
            with Stack(Path(place) / "home", forks=False) as stack:
                await asyncio.to_thread(
                    stack.proxy, "--swarm-url", f"one={swarm.url}", "--hooks", str(folder)
                )
                await asyncio.to_thread(until, "the server is seen", lambda: _rolls(stack))
                async with (
                    httpx.AsyncClient(base_url=stack.base_url, timeout=LIMIT) as user,
                    Tasks("users") as tasks,
                ):
                    asking = [tasks.spawn(_ask(user), f"user {n}") for n in range(2)]
                    result = await asyncio.to_thread(_sit, stack, folder, rounds)
                    for one in asking:
                        one.cancel()
    return result


def _rolls(stack: Stack) -> bool:
    return any(server.state == "ROLLING" for server in stack.state().servers.values())


async def _ask(user: httpx.AsyncClient) -> None:
    """A user who sends the next request after each answer."""
    number = 0
    while True:
        number += 1
        messages = [{"role": "user", "content": f"question {number}"}]
        await user.post("/chat/completions", json={"model": "m", "messages": messages})
        await asyncio.sleep(0.1)


def _sit(stack: Stack, folder: Path, rounds: int) -> Edits:
    effect, typo = [], []
    environment = {**stack.environment, "PYTHONWARNINGS": "ignore"}
    with ScreenTerminal([], environment, 120, 40) as console:
        console.expect("Rate", limit=LIMIT)
        console.type("6")
        _seen(console, "part0 ")
        for number in range(1, rounds + 1):
            name = f"pathh{number:03}"
            _save(folder, _TYPO.format(blank="\n" * number, number=f"{number:03}"))
            line = f"on_compute_relative_reward.py:{number + 2}"
            typo.append(_seen(console, name, line))
            _save(folder, _GOOD.format(number=number))
            effect.append(_seen(console, f"part{number} "))
    return Edits(effect, typo)


def _save(folder: Path, code: str) -> None:
    """Replace the file by a new one, as editors do."""
    (folder / "new").write_text(code, encoding="utf-8")
    (folder / "new").replace(folder / "on_compute_relative_reward.py")


def _seen(console: ScreenTerminal, *words: str) -> float:
    """Return the seconds until the screen shows all of the texts."""
    began = time.monotonic()
    while not _shows("\n".join(console.look(0.02)), words):
        if time.monotonic() - began > LIMIT:
            raise AssertionError("not seen:\n" + "\n".join(console.look()))
    return time.monotonic() - began


def _shows(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def main() -> None:
    """Run the command line."""
    result = asyncio.run(edits())
    print("\n".join(result.lines()))
    verdicts = Verdicts()
    result.judge(verdicts)
    verdicts.close()


if __name__ == "__main__":
    main()
