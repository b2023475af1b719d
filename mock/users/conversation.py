"""What the user of a row says, one thing after the other: as it is written, or as it is played."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ajet_swarm.common.errors import UsageError
from mock.dataset.rows import Row, Turn
from mock.tally import Tally
from mock.users.persona import UserModel

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The user says nothing more."""

    how: str = ""
    """`goal` or `turns` (the most of them) for a persona; empty for what is written."""
    error: str = ""
    """Why it ended before its end."""


class Lines(Protocol):
    """The user's part in one conversation."""

    async def next(self, turn: int, messages: Messages) -> Turn | Over | None:
        """What the user says as number `turn`, from 1; None when a stop came."""


class Written:
    """The query and turns of a row."""

    def __init__(self, row: Row) -> None:
        self._turns = (_first(row), *row.then)

    async def next(self, turn: int, messages: Messages) -> Turn | Over | None:
        """See `Lines`."""
        return self._turns[turn - 1] if turn <= len(self._turns) else Over()


class Played:
    """A persona: its opening, if it has one, then what the model says."""

    def __init__(
        self,
        row: Row,
        model: UserModel,
        sent_id: str,
        rest: Callable[[float], Awaitable[bool]],
        tally: Tally,
    ) -> None:
        self._row = row
        self._model = model
        self._sent_id = sent_id
        self._rest = rest
        self._tally = tally

    async def next(self, turn: int, messages: Messages) -> Turn | Over | None:
        """See `Lines`."""
        row = self._row
        if turn == 1 and row.query:
            return _first(row)
        if turn > self._model.options.turns:
            return Over(how="turns")
        said = await self._model.say(row, messages, turn, self._sent_id, self._rest, self._tally)
        if said is None:
            return None
        if said.error:
            return Over(error=said.error)
        if said.over and turn == 1:
            return Over(error="the user's model ended the conversation before it began")
        if said.over:
            return Over(how="goal")
        # what a row without an opening holds as its answer is about all of the conversation
        return Turn(query=said.text, reference=None if row.query else row.reference)


def lines_of(
    row: Row,
    model: UserModel | None,
    sent_id: str,
    rest: Callable[[float], Awaitable[bool]],
    tally: Tally,
) -> Lines:
    """The user's part in a row.

    Raises:
        UsageError: a persona is to begin, and no model plays it.
    """
    if row.persona and model is not None:
        return Played(row, model, sent_id, rest, tally)
    if not row.query:
        raise UsageError(
            "the row is a persona without an opening, and no model plays the user",
            f"row {row.line}",
            "Name one: --user-url URL --user-model NAME, or `user:` in the target file",
        )
    return Written(row)


def _first(row: Row) -> Turn:
    return Turn(query=row.query, reference=row.reference)
