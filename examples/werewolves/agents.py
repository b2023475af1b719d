"""Players with a model each."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ajet_swarm import OpenaiBaseUrlAndApiKey, SwarmError
from examples.ask import Asker
from examples.werewolves import static
from examples.werewolves.game import Ask, Game, Move
from examples.werewolves.prompts import Limits, Messages, messages, read


@dataclass(frozen=True, slots=True)
class Model:
    """Where a player's answers come from.

    Attributes:
        api: An OpenAI endpoint; None for the scripted model of this process.
        answer_tokens: Longest answer that is asked for.
        limits: Of its prompts: windows differ.
    """

    api: OpenaiBaseUrlAndApiKey | None = None
    answer_tokens: int = 24
    limits: Limits = field(default_factory=Limits)

    def say(self, asker: Asker, asked: Messages) -> str:
        """Return its answer.

        Raises:
            SwarmError: there was none.
        """
        if self.api is None:
            return static.answer(asked[0]["content"], asked[1]["content"])
        return asker.ask(self.api, "", messages=asked, max_tokens=self.answer_tokens)


@dataclass(frozen=True, slots=True)
class Played:
    """Result of a game.

    Attributes:
        winner: `wolves` or `village`.
        asked: Moves asked of each role, speeches left out.
        unread: Of these, those that could not be read: they count as abstentions.
    """

    winner: str
    days: int
    asked: Counter[str]
    unread: Counter[str]


def play(game: Game, models: Mapping[str, Model], asker: Asker, seconds: float) -> Played:
    """Play a game to its end.

    Args:
        game: Just dealt.
        models: Who plays each role.
        asker: For their calls.
        seconds: The whole game may take so long: a server then still holds its episodes, even
            those whose players died on the first night.

    Raises:
        SwarmError: a model did not answer, or the game took too long.
    """
    asked: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def move(ask: Ask) -> Move:
        if time.monotonic() > end:
            raise SwarmError(f"a game took longer than {seconds:g} s", f"day {game.day}")
        role, model = ask.view.role, models[ask.view.role]
        made = read(ask, model.say(asker, messages(ask, model.limits)), model.limits)
        if ask.kind != "speak":
            asked[role] += 1
            unread[role] += made is None
        return made or Move()

    course = game.play()
    moves: list[Move] | None = None
    while True:
        try:
            asks = next(course) if moves is None else course.send(moves)
        except StopIteration as over:
            return Played(str(over.value), game.day, asked, unread)
        moves = [move(ask) for ask in asks]
