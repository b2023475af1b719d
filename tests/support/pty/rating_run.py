"""A person who rates groups at a console in a terminal, and the server that gets the rewards.

The rater uses only the screen and the keys: it reads the place of each answer from the screen, and
the expected rewards follow from that alone. Each answer names its group and its number in its text,
so the server can assign the reward of an episode by itself.
"""

import asyncio
import contextlib
import json
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from ajet_swarm.common.tasks import Tasks
from console.session.rater_name import save_name
from core.state import Group, State
from tests.support.pty.screen import ScreenTerminal
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack, until

N = 4
AHEAD = 4
"""Requests that are out at once."""
SLOW = 100.0
"""Seconds after which something that should be seen is given up."""

ARRIVES = 5.0
"""Seconds in which a vote reaches the proxy."""

_PLACE = re.compile(r"^ (\d)(?: |$)")
_TOKEN = re.compile(r"\bq(\d+)a(\d)\b")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a person is: seconds, each drawn evenly from its range."""

    read: tuple[float, float]
    key: tuple[float, float]


HUMAN = Pace((4.5, 8.5), (0.18, 0.45))
FAST = Pace((0.3, 0.4), (0.01, 0.03))
"""It reads for as long as a new group takes no digit."""


@dataclass
class Outcome:
    """What became of a run.

    Attributes:
        expected: Reward of each answer by group, as the keys meant it; None for an aborted group.
        received: Reward of each answer by group, as the server received it.
        seconds: From the first group on screen to the last vote.
        moved: Seconds from the last key of a vote to the next group's being painted.
        typed: Number of keys of each vote.
        second_votes: Groups that were shown again.
    """

    expected: dict[int, dict[int, float] | None] = field(default_factory=dict)
    received: dict[int, dict[int, float]] = field(default_factory=dict)
    seconds: float = 0.0
    keys: int = 0
    undone: int = 0
    second_votes: int = 0
    kinds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    moved: list[float] = field(default_factory=list)
    typed: list[int] = field(default_factory=list)
    duplicates: int = 0

    def differing(self) -> list[int]:
        """Groups whose rewards are not what the keys meant."""
        result = []
        for group, rewards in self.expected.items():
            received = self.received.get(group, {})
            wanted = rewards or {}
            same = wanted.keys() == received.keys() and all(
                abs(received[index] - value) < 1e-9 for index, value in wanted.items()
            )
            if not same:
                result.append(group)
        return result

    @property
    def slow_move(self) -> float:
        """95 % of `moved` are at most this."""
        return statistics.quantiles(self.moved, n=20)[-1] if len(self.moved) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class RatingScreen:
    """The group on the screen, and the answer at each place."""

    group: int
    answers: tuple[int, ...]


def read_screen(rows: list[str]) -> RatingScreen | None:
    """What a person reads; None while not all answers of one group are there."""
    half = max(map(len, rows), default=0) // 2
    places: dict[bool, int] = {}
    """Place of the answer in the left and, in a grid, in the right half."""
    values: dict[int, int] = {}
    groups: set[int] = set()
    for row in rows:
        for right, text in enumerate((row, row[half:])):
            if head := _PLACE.match(text):
                places[bool(right)] = int(head[1])
        for token in _TOKEN.finditer(row):
            place = places.get(token.start() >= half, places.get(False))
            if place is not None:
                groups.add(int(token[1]))
                values.setdefault(place, int(token[2]))
    if len(groups) != 1 or sorted(values) != list(range(1, N + 1)) or len(set(values.values())) < N:
        return None
    return RatingScreen(groups.pop(), tuple(values[place] for place in range(1, N + 1)))


def is_ignored(rows: list[str]) -> bool:
    """Whether the console says that it ignored a key."""
    return any(re.search(r"\bignored\b", row) for row in rows)


class Rater:
    """Reads, decides, presses keys. Everything is drawn from one seed.

    A group may end while it is read, when a batch ends and a user waits for its episodes. The next
    one takes no keys for a moment. So the rater asks the proxy whether its vote was taken.
    """

    def __init__(
        self,
        console: ScreenTerminal,
        pace: Pace,
        outcome: Outcome,
        seed: int,
        stack: Stack,
        one_key: bool = True,
    ) -> None:
        self.console, self.pace, self.outcome, self._stack = console, pace, outcome, stack
        self._random = random.Random(seed)
        self._one_key = one_key
        self._taste: dict[int, list[int]] = {}

    def rate(self, count: int, next_one: Callable[[], None]) -> None:
        """Rate until `count` groups have their vote; `next_one` asks for one more each time."""
        outcome, began = self.outcome, time.monotonic()
        while len(outcome.expected) < count:
            screen = self._stable_screen()
            self._pause(self.pace.read)
            if screen != read_screen(self.console.look()):
                continue  # it moved while it was read
            again = screen.group in outcome.expected
            kind = "best" if again else self._kind(len(outcome.expected))
            if kind == "undo":
                if not self._change_of_mind(screen):
                    continue
                kind = "best"
            rewards = self._vote(screen, kind)
            if again:
                outcome.second_votes += not self._was_ignored()
            elif not self._is_taken(screen.group):
                next_one()
            else:
                outcome.expected[screen.group] = rewards
                outcome.kinds[kind] += 1
                next_one()
        outcome.seconds = time.monotonic() - began

    def _kind(self, number: int) -> str:
        if number % 12 == 5:
            return "undo"
        kinds, weights = ("best", "ranking", "scores", "tie", "bad"), (50, 25, 12, 4, 4)
        return self._random.choices(kinds, weights)[0]

    def _change_of_mind(self, screen: RatingScreen) -> bool:
        """Vote for the worst answer, take the vote back, wait for the group.

        Returns:
            Whether the vote was taken.
        """
        worst = screen.answers.index(self._order(screen.group)[-1]) + 1
        self._type_best(str(worst))
        self.wait(lambda rows: read_screen(rows) != screen or is_ignored(rows), "the next group")
        if not self._is_taken(screen.group):
            return False
        self._pause(self.pace.key)
        self._type("u")
        self.wait(lambda rows: read_screen(rows) == screen, "the group whose vote was taken back")
        self._pause(self.pace.read)
        self.outcome.undone += 1
        return True

    def _is_taken(self, group: int) -> bool:
        """Whether the vote on a group arrived; if it did not, what was typed is deleted."""
        end = time.monotonic() + ARRIVES
        while not is_voted(self._stack.state(), group):
            self.console.look(0.05)
            if self._was_ignored() or time.monotonic() > end:
                return False
        return True

    def _was_ignored(self) -> bool:
        """Whether keys were ignored; what was typed is deleted then."""
        if not is_ignored(self.console.look(0.05)):
            return False
        self.console.type("\x7f" * N)
        self.wait(lambda rows: not is_ignored(rows), "the end of the message")
        return True

    def _order(self, group: int) -> list[int]:
        """Answers of a group, best first, to this rater's taste."""
        if group not in self._taste:
            self._taste[group] = self._random.sample(range(N), N)
        return self._taste[group]

    def _vote(self, screen: RatingScreen, kind: str) -> dict[int, float]:
        order = self._order(screen.group)
        keys = [str(screen.answers.index(answer) + 1) for answer in order]
        before, enter = self.outcome.keys, ["\r"] if self._one_key else []
        if kind == "best":
            self._type_best(keys[0])
            rewards = {answer: float(answer == order[0]) for answer in range(N)}
        elif kind == "ranking":
            self._type(*([">", *keys[:-1], *enter] if self._one_key else keys))
            rewards = {answer: 1 - rank / (N - 1) for rank, answer in enumerate(order)}
        elif kind == "scores":
            value = {answer: 9 - 2 * rank for rank, answer in enumerate(order)}
            self._type("s", *(str(value[answer]) for answer in screen.answers), *enter)
            rewards = {answer: score / 9 for answer, score in value.items()}
        else:
            self._type(kind[0], *(enter or kind[0]))
            rewards = dict.fromkeys(range(N), 0.5 if kind == "tie" else 0.0)
        pressed = time.monotonic()
        self.wait(
            lambda rows: read_screen(rows) != screen or is_ignored(rows), "that the vote is taken"
        )
        if not is_ignored(self.console.look()):
            self.outcome.moved.append(time.monotonic() - pressed)
        self.outcome.typed.append(self.outcome.keys - before)
        return rewards

    def _type_best(self, key: str) -> None:
        self._type(*([key] if self._one_key else [key, "\r"]))

    def _stable_screen(self) -> RatingScreen:
        screens: list[RatingScreen] = []

        def stands(rows: list[str]) -> bool:
            screen = read_screen(rows)
            if screen is not None:
                screens.append(screen)
            return screen is not None

        self.wait(stands, "a group to rate")
        return screens[-1]

    def wait(self, test: Callable[[list[str]], bool], what: str) -> None:
        """Read the screen until the condition holds."""
        end = time.monotonic() + SLOW
        while not test(rows := self.console.look(0.02)):
            assert time.monotonic() < end, f"not seen: {what}\n" + "\n".join(rows)
            assert self.console.child.poll() is None, "the console ended"

    def _type(self, *keys: str) -> None:
        for key in keys:
            self._pause(self.pace.key)
            self.console.type(key)
            self.outcome.keys += 1

    def _pause(self, span: tuple[float, float]) -> None:
        """Waits as a person does, and reads on meanwhile."""
        end = time.monotonic() + self._random.uniform(*span)
        while (left := end - time.monotonic()) > 0:
            self.console.look(min(left, 0.05))


class Served:
    """The scripted server: which episode gave which answer, and each answer's reward."""

    def __init__(self, swarm: ScriptedSwarm) -> None:
        self.swarm = swarm
        self.places: dict[str, tuple[int, int]] = {}
        self._count: dict[int, int] = defaultdict(int)
        swarm.answer = self.answer

    async def answer(self, name: str, body: dict[str, Any], index: int) -> str:
        """Each episode of a group gives an answer of its own."""
        group = int(str(body["messages"][-1]["content"]).split("question ")[1].split(":")[0])
        number = self._count[group]
        self._count[group] += 1
        self.places[name] = (group, number)
        words = " ".join(random.Random(f"{group}.{number}").choices(WORDS, k=24))
        return f"q{group}a{number} {words}"

    def received(self) -> dict[int, dict[int, float]]:
        """Rewards by group and answer."""
        values: dict[int, dict[int, float]] = defaultdict(dict)
        for name, _, reward in self.swarm.reward_log:
            group, number = self.places[name]
            values[group][number] = reward
        return values


WORDS = ("water", "boils", "when", "hot", "and", "a", "pan", "with", "lid", "is", "faster")


def voted(state: State) -> int:
    """The number of groups with a vote."""
    return sum(group.rating is not None for group in state.groups.values())


def is_voted(state: State, number: int) -> bool:
    """Whether the group of a question has a vote that is sent; one after its end is not."""
    return any(
        group.rating is not None
        and (group.open or group.source == "human")
        and f"question {number}:" in group.query
        for group in state.groups.values()
    )


async def rating_run(
    home: Path,
    count: int,
    pace: Pace,
    *,
    repeats: float = 0.1,
    window: float = 4.0,
    seed: int = 5,
    confirm: str = "none",
) -> Outcome:
    """Rate `count` groups at 80x24 without a mouse; the outcome has the server's rewards.

    Args:
        home: Folder of the run.
        count: Groups that get a vote.
        pace: How fast the rater is.
        repeats: Share of the votes whose group is shown again.
        window: Seconds in which a vote can be taken back.
        seed: Of everything the rater does.
        confirm: `rating.confirm`.
    """
    outcome = Outcome()
    rating = {"mode": "answer_first", "repeats": repeats, "window": window, "confirm": confirm}
    async with (
        ScriptedSwarm(batch=8, repeat=N) as swarm,
        served_setup(home, swarm, rating) as setup,
    ):
        served, stack, client, tasks = setup
        numbers = iter(range(1, 10 * count))
        loop = asyncio.get_running_loop()

        def ask() -> None:
            loop.call_soon_threadsafe(
                lambda: tasks.spawn(ask_question(client, next(numbers)), "user")
            )

        for _ in range(AHEAD):
            ask()

        def rate_groups() -> None:
            environment = {**stack.environment, "PYTHONWARNINGS": "ignore"}
            with ScreenTerminal([], environment) as console:
                console.expect("Rate", limit=SLOW)
                console.type("3")
                rater = Rater(console, pace, outcome, seed, stack, confirm == "none")
                rater.rate(count, ask)
                # the screen moves on before the last vote is out
                rater.wait(lambda rows: voted(stack.state()) >= count, "the last vote")

        await asyncio.to_thread(rate_groups)
        wanted = {group for group, rewards in outcome.expected.items() if rewards is not None}

        def complete() -> bool:
            received = served.received()
            return all(len(received.get(group, {})) == N for group in wanted)

        end = loop.time() + 90  # `differing` reports what is missing then
        while not complete() and loop.time() < end:
            await asyncio.sleep(0.05)
        received = served.received()
        outcome.received = {
            group: received[group] for group in outcome.expected if group in received
        }
        outcome.duplicates = swarm.duplicate_ends
    return outcome


async def edit_run(home: Path, editor: str) -> tuple[list[str], Group]:
    """Edit the first answer on screen in `editor`, then vote for it.

    Returns:
        The rows when the console is back, and the group as it was sent.
    """
    rating = {"mode": "answer_first", "window": 0.5, "confirm": "enter"}
    async with (
        ScriptedSwarm(batch=8, repeat=N) as swarm,
        served_setup(home, swarm, rating) as setup,
    ):
        _, stack, client, tasks = setup
        tasks.spawn(ask_question(client, 1), "user")

        def sit() -> tuple[list[str], Group | None]:
            environment = {**stack.environment, "EDITOR": editor, "VISUAL": ""}
            with ScreenTerminal([], environment) as console:
                console.expect("Rate", limit=SLOW)
                console.type("3")
                rater = Rater(console, FAST, Outcome(), 1, stack)
                rater.wait(lambda rows: read_screen(rows) is not None, "a group to rate")
                console.type("1")
                rater.wait(lambda rows: "Enter sends it" in "".join(rows), "the ballot")
                console.type("e")
                rater.wait(_corrected, "the correction")
                rows = console.look()
                console.type("\r")
                rater.wait(lambda rows: read_screen(rows) is None, "that the vote is taken")
                return rows, until("it is sent", lambda: _done(stack), 30)

        rows, sent = await asyncio.to_thread(sit)
    assert sent is not None
    return rows, sent


def _corrected(rows: list[str]) -> bool:
    shown = "".join(rows)
    return "kept as a demonstration" in shown and "✎ edited" in shown


def _done(stack: Stack) -> Group | None:
    return next((group for group in stack.state().groups.values() if group.phase == "DONE"), None)


async def ask_question(client: httpx.AsyncClient, number: int) -> None:
    text = f"question {number}: how do I cook something warm tonight?"
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    with contextlib.suppress(httpx.HTTPError):  # the last ones are cut off with the proxy
        await client.post("/chat/completions", json=body)


@contextlib.asynccontextmanager
async def served_setup(
    home: Path, swarm: ScriptedSwarm, rating: dict[str, Any]
) -> AsyncIterator[tuple[Served, Stack, httpx.AsyncClient, Tasks]]:
    """Proxy, server and users."""
    with Stack(home) as stack:
        settings = {"swarm_url": {"scripted": swarm.url}, "rating": rating}
        stack.home.config.write_text(json.dumps(settings))
        save_name(stack.home, "pat")
        await asyncio.to_thread(stack.proxy)
        async with (
            httpx.AsyncClient(base_url=stack.base_url, timeout=900, trust_env=False) as client,
            Tasks("users") as tasks,
        ):
            served = Served(swarm)
            await asyncio.to_thread(until, "the server is seen", lambda: _rolls(stack), 30)
            yield served, stack, client, tasks


def _rolls(stack: Stack) -> bool:
    return any(server.state == "ROLLING" for server in stack.state().servers.values())
