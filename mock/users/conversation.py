"""The user's side of a conversation: turns as written in the row, or played by a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ajet_swarm.common.errors import UsageError
from mock.dataset.rows import Row, Turn
from mock.targets.openai import Patience
from mock.users.persona import UserModel

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEnd:
    """The end of the user's turns."""

    how: str = ""
    """`goal` or `turns` (their limit) for a persona; empty for written turns."""
    error: str = ""
    """Why it ended early."""


class UserSide(Protocol):
    """The user's side of one conversation."""

    async def next(self, turn: int, messages: Messages) -> Turn | ConversationEnd | None:
        """Return the user's turn number `turn`, from 1; None when a stop came."""


class ScriptedUser:
    """The query and the turns written in a row."""

    def __init__(self, row: Row) -> None:
        self._turns = (_first(row), *row.then)

    async def next(self, turn: int, messages: Messages) -> Turn | ConversationEnd | None:
        return self._turns[turn - 1] if turn <= len(self._turns) else ConversationEnd()


class PersonaUser:
    """A persona: its opening, if it has one, then the turns of the model."""

    def __init__(
        self,
        row: Row,
        model: UserModel,
        sent_id: str,
        patience: Patience,
    ) -> None:
        self._row = row
        self._model = model
        self._sent_id = sent_id
        self._patience = patience

    async def next(self, turn: int, messages: Messages) -> Turn | ConversationEnd | None:
        row = self._row
        if turn == 1 and row.query:
            return _first(row)
        if turn > self._model.options.turns:
            return ConversationEnd(how="turns")
        reply = await self._model.next_message(row, messages, turn, self._sent_id, self._patience)
        if reply is None:
            return None
        if reply.error:
            return ConversationEnd(error=reply.error)
        if reply.finished and turn == 1:
            return ConversationEnd(error="the user's model ended the conversation before it began")
        if reply.finished:
            return ConversationEnd(how="goal")
        # without an opening, the row's answer refers to the whole conversation
        return Turn(query=reply.text, reference=None if row.query else row.reference)


def user_for_row(
    row: Row,
    model: UserModel | None,
    sent_id: str,
    patience: Patience,
) -> UserSide:
    """Return the user's side of a row.

    Raises:
        UsageError: a persona must start the conversation and no model plays it.
    """
    if row.persona and model is not None:
        return PersonaUser(row, model, sent_id, patience)
    if not row.query:
        raise UsageError(
            "the row is a persona without an opening, and no model plays the user",
            f"row {row.line}",
            "Give --user-url URL --user-model NAME, or `user:` in the target file",
        )
    return ScriptedUser(row)


def _first(row: Row) -> Turn:
    return Turn(query=row.query, reference=row.reference)
