"""Players with a model each; all players of one turn are called concurrently."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx

from ajet_swarm.common.errors import AjetError
from examples.werewolves import static
from examples.werewolves.game import Ask, Game, Move
from examples.werewolves.prompts import Limits, Messages, messages, read


class NoAnswerError(AjetError):
    """A model did not answer, so the game cannot continue."""


@dataclass(frozen=True, slots=True)
class Model:
    """An OpenAI endpoint and its request parameters.

    Attributes:
        base_url: Empty for the scripted model of this process.
        answer_tokens: Longest answer that is asked for.
        limits: Of its prompts: windows differ.
        seconds: One answer may take so long.
    """

    base_url: str = ""
    api_key: str = field(default="none", repr=False)
    name: str = "policy"
    answer_tokens: int = 24
    limits: Limits = field(default_factory=Limits)
    seconds: float = 60.0

    async def say(self, http: httpx.AsyncClient, asked: Messages) -> str:
        """Its answer.

        Raises:
            NoAnswerError: there was none.
        """
        if not self.base_url:
            return static.answer(asked[0]["content"], asked[1]["content"])
        body = {"model": self.name, "messages": asked, "max_tokens": self.answer_tokens}
        try:
            reply = await http.post(
                f"{self.base_url.rstrip('/')}/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {self.api_key}"},
                timeout=self.seconds,
            )
            reply.raise_for_status()
            completion: Any = reply.json()
            # Servers up to 2026-05 say an error in a 200, which has no choices.
            return str(completion["choices"][0]["message"]["content"] or "")
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise NoAnswerError(
                f"a model did not answer: {error!r:.200}", self.base_url, "Is its server there?"
            ) from error


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


async def play(game: Game, models: Mapping[str, Model], seconds: float) -> Played:
    """Play a game to its end.

    Args:
        game: Just dealt.
        models: Who plays each role.
        seconds: The whole game may take so long: a server then still holds its episodes, even
            those whose players died on the first night.

    Raises:
        NoAnswerError: a model did not answer, or the game took too long.
    """
    asked: Counter[str] = Counter()
    unread: Counter[str] = Counter()

    async def turn(http: httpx.AsyncClient, ask: Ask) -> Move:
        role = ask.view.role
        model = models[role]
        move = read(ask, await model.say(http, messages(ask, model.limits)), model.limits)
        if ask.kind != "speak":
            asked[role] += 1
            unread[role] += move is None
        return move or Move()

    course = game.play()
    moves: list[Move] | None = None
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(trust_env=False, verify=_tls()) as http,
        ):
            while True:
                try:
                    asks = next(course) if moves is None else course.send(moves)
                except StopIteration as over:
                    return Played(str(over.value), game.day, asked, unread)
                moves = await _together([turn(http, ask) for ask in asks])
    except TimeoutError:
        raise NoAnswerError(f"a game took longer than {seconds:g} s", f"day {game.day}") from None


async def _together(turns: Sequence[Coroutine[Any, Any, Move]]) -> list[Move]:
    """Run all concurrently; the first error cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(turn) for turn in turns]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


@cache
def _tls() -> ssl.SSLContext:
    """Return the cached TLS context, which takes longer to create than a call."""
    return ssl.create_default_context()
