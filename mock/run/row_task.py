"""One row from its announcement to its result: every turn of it, each asked once."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from core.events import MockRowDone
from core.state import Group
from mock.control import Control, ControlDown, ControlRefused
from mock.dataset.rows import Turn
from mock.run.group_feed import Following
from mock.run.pace import Gate, Pace
from mock.run.progress import Progress
from mock.run.reporting import BACK_OFF
from mock.run.results import Results
from mock.run.row_order import Place
from mock.tally import Tally
from mock.targets.base import session_name
from mock.targets.openai import Answer, Question, Target
from mock.users.conversation import Lines, Over, lines_of
from mock.users.persona import UserModel

log = logging.getLogger("mock")

TEXT_CAP = 2_000
"""Characters of a query or an answer in a fact, or beside a mark; the results have them whole."""
_MATCH_LOOKS = 50
"""How often it is looked whether the news of a group has come, once there is an answer."""
_MATCH_LOOK = 0.02
_UNMATCHED_TOLD = 5
LOST = "in flight when the mock user was killed: asked, what became of it is not known"

Obey = Callable[[str], None]


class RowWork:
    """What is done with each row.

    Args:
        progress: Is told before a row is asked and after it was answered.
        target: Answers.
        pace: How patiently.
        gate: Whether anything may go out.
        tally: Counts.
        control: Where rows are announced; None without a proxy.
        following: What becomes of them there.
        user: Plays the user of rows with a persona; None when no model does.
    """

    def __init__(
        self,
        progress: Progress,
        target: Target,
        pace: Pace,
        gate: Gate,
        tally: Tally,
        control: Control | None,
        following: Following | None,
        user: UserModel | None = None,
    ) -> None:
        self._progress = progress
        self._target = target
        self._pace = pace
        self._gate = gate
        self._tally = tally
        self._control = control
        self._following = following
        self._user = user
        self._warned = False
        self.results: Results | None = None
        self.lost: list[dict[str, Any]] = []
        self.ends: list[MockRowDone] = []
        """What the proxy is told of the lost rows, as of the start that asked them."""

    def recover(self) -> None:
        """Close what a killed start had in flight: it was asked, so it is not asked again."""
        for key, asked in self._progress.lost.items():
            result = {
                "run": self._progress.run,
                "row_id": asked.row_id,
                "line": key.line,
                "pass": key.number,
                "copy": key.copy,
                "query": asked.query,
                "error": LOST,
            }
            self._progress.mark(key, result)
            self._progress.done.add(key)
            self.lost.append(result)
            if asked.row_id and asked.mock_id:
                self.ends.append(
                    MockRowDone(
                        mock_id=asked.mock_id,
                        row_id=asked.row_id,
                        query=asked.query[:TEXT_CAP],
                        ok=False,
                        seconds=0.0,
                        error=LOST,
                    )
                )

    async def row(self, place: Place, obey: Obey) -> MockRowDone | None:
        """Ask a row; None when a stop came first: the next start asks it.

        Raises:
            AjetError: no row can be asked any more.
        """
        over = False
        told: list[dict[str, Any]] = []
        try:
            over = await self._converse(place, self._lines(place), obey, told)
        except ControlRefused as error:
            if error.status in (401, 403):
                raise
            query = "" if told else place.row.query
            told.append(_result(query, place.sent_id, Answer(error=str(error))))
            over = True
        finally:
            if not over:
                self._progress.back(place.key)
            await self._target.over(self._session(place))
        if not over:
            return None
        return await self._done(place, told)

    def _lines(self, place: Place) -> Lines:
        if place.row.persona and self._user is None and not self._warned:
            self._warned = True
            log.warning(
                "rows have a persona, but no model plays the user: only their opening is asked "
                "(--user-url URL --user-model NAME)"
            )
        return lines_of(place.row, self._user, place.sent_id, self._gate.rest, self._tally)

    async def _converse(
        self, place: Place, lines: Lines, obey: Obey, told: list[dict[str, Any]]
    ) -> bool:
        """Ask every turn; False when a stop came between two."""
        row = place.row
        messages = list(row.messages)
        session = self._session(place)
        number = 0
        while True:
            number += 1
            sent_id = place.sent_id if number == 1 else f"{place.sent_id}:t{number}"
            turn = await lines.next(number, messages)
            if turn is None:
                return False
            if isinstance(turn, Over):
                _ended(turn, told, number, sent_id)
                return True
            if number > 1 or not row.query:
                messages.append({"role": "user", "content": turn.query})
            if not await self._announce(place, turn, sent_id, obey):
                return False
            if number == 1:
                query = turn.query[:TEXT_CAP]
                await asyncio.to_thread(self._progress.ask, place.key, sent_id, query)
            question = Question(
                query=turn.query,
                messages=messages,
                sent_id=sent_id,
                session=session,
                turn=number,
            )
            answer = await self._target.ask(
                question, self._gate.rest, self._pace.patience, self._tally
            )
            if answer is None:
                return False
            told.append(_result(turn.query, sent_id, answer, turn.reference))
            if answer.error:
                if number > 1:
                    told[-1]["error"] = f"turn {number}: {answer.error}"
                return True
            told[-1]["group"] = await self._group(sent_id)
            messages.append({"role": "assistant", "content": answer.text})

    async def _group(self, sent_id: str) -> str | None:
        """The group a question became; says when the way there lost its row."""
        following = self._following
        if following is None:
            return None
        group = following.group(sent_id)
        if group is None and self._target.in_session and following.seen.is_set():
            group = await self._late(following, sent_id)
        return group.group_id if group is not None else None

    async def _late(self, following: Following, sent_id: str) -> Group | None:
        """The group of an answered question, whose news may come behind the answer."""
        for _ in range(_MATCH_LOOKS if self._tally.unmatched < 3 else 0):
            await asyncio.sleep(_MATCH_LOOK)
            if (group := following.group(sent_id)) is not None:
                return group
        self._unmatched(sent_id)
        return None

    def _unmatched(self, sent_id: str) -> None:
        self._tally.unmatched += 1
        if self._tally.unmatched <= _UNMATCHED_TOLD:
            log.warning(
                "%s was answered, but no request that reached the proxy could be told as its own: "
                "no reward knows its reference",
                sent_id,
            )

    def _session(self, place: Place) -> str:
        """What the questions of a row have in common; empty where nobody needs to know."""
        row = place.row
        if not (row.then or row.persona or self._target.in_session):
            return ""
        return session_name(self._progress.mock_id, place.sent_id)

    async def _announce(self, place: Place, turn: Turn, sent_id: str, obey: Obey) -> bool:
        """Register a turn and wait as long as the directive is to pause; False on a stop."""
        if self._control is None:
            return not self._gate.stopping.is_set()
        row = place.row
        announced = {
            "row_id": sent_id,
            "query": turn.query,
            "task_id": row.task_id or row.row_id,
            "reference": turn.reference,
            "metadata": row.metadata,
            "mock_id": self._progress.mock_id,
            "session": self._session(place) if self._target.in_session else "",
        }
        deadline = time.monotonic() + self._pace.patience
        delay = 0.1
        while not self._gate.stopping.is_set():
            try:
                directive = await self._control.register_row(announced)
            except ControlDown:
                if time.monotonic() + delay > deadline:
                    raise
                await self._gate.rest(delay)
                delay = min(delay * 2, BACK_OFF)
                continue
            obey(directive)
            if directive == "run":
                return True
            await self._gate.open.wait()
        return False

    async def _done(self, place: Place, told: list[dict[str, Any]]) -> MockRowDone:
        row, last = place.row, told[-1]
        seconds = round(sum(turn["seconds"] for turn in told), 3)
        result = {
            "run": self._progress.run,
            **last,
            "row_id": place.sent_id,
            "line": row.line,
            "pass": place.key.number,
            "copy": place.key.copy,
            "seconds": seconds,
        }
        if row.then or row.persona:
            result["turns"] = told
        await asyncio.to_thread(self._progress.mark, place.key, result)
        if self.results is not None:
            self.results.add(result)
        self._tally.add(last["error"])
        return MockRowDone(
            mock_id=self._progress.mock_id,
            row_id=place.sent_id,
            query=(row.query or str(told[0]["query"]))[:TEXT_CAP],
            ok=not last["error"],
            seconds=seconds,
            error=last["error"],
            answer=last["answer"][:TEXT_CAP],
            group_id=last.get("group") or "",
            turns=sum(bool(turn["query"]) for turn in told) or 1,
        )


def _ended(over: Over, told: list[dict[str, Any]], number: int, sent_id: str) -> None:
    """Note why the user says nothing more."""
    if over.error:
        error = over.error if number == 1 else f"turn {number}: {over.error}"
        told.append(_result("", sent_id, Answer(error=error)))
    elif over.how:
        told[-1]["ended"] = over.how


def _result(
    query: str, sent_id: str, answer: Answer, reference: str | None = None
) -> dict[str, Any]:
    return {
        "row_id": sent_id,
        "query": query,
        "answer": answer.text,
        "reference": reference,
        "group": None,
        "seconds": round(answer.seconds, 3),
        "error": answer.error,
    }
