"""Processing of one row, from its announcement to its result: each turn is asked once."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from core.events import MockRowDone
from core.events.mock import WAITS_FOR_VOTES
from core.state import Group
from mock.control import Control, ControlDown, ControlRefused, retried
from mock.dataset.rows import Turn
from mock.run.group_feed import GroupFeed
from mock.run.pace import Gate, Pace
from mock.run.progress import Progress
from mock.run.results import Results
from mock.run.row_order import ScheduledRow
from mock.tally import RunCounters
from mock.targets.base import session_name
from mock.targets.question import Answer, Patience, Question, Target
from mock.users.persona import ConversationEnd, UserModel, next_turn

log = logging.getLogger("mock")

TEXT_CAP = 2_000
"""Maximum length in characters of a query or an answer in an event; results contain the full
text."""
_MATCH_TRIES = 50
"""How often an answered question's group is looked up before the row counts as unmatched."""
_MATCH_INTERVAL = 0.02
_MAX_WARNINGS = 5
_VOTE_INTERVAL = 0.5
"""Seconds between two attempts to announce a row that waits for votes."""
LOST = "in flight when the mock user was killed: asked, its result is unknown"

OnDirective = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class RowTask:
    """Processor of rows."""

    progress: Progress
    """Updated before a row is asked and after it is answered."""
    target: Target
    pace: Pace
    gate: Gate
    counters: RunCounters
    control: Control | None
    """Control API that rows are announced to; None without a proxy."""
    feed: GroupFeed | None
    """Feed of the proxy's groups; None without a proxy."""
    user: UserModel | None
    """Model that plays the user of rows with a persona, or None."""
    results: Results | None = None
    _warned: bool = False

    @property
    def patience(self) -> Patience:
        return Patience(rest=self.gate.rest, seconds=self.pace.patience, counters=self.counters)

    def recover(self) -> Iterator[MockRowDone]:
        """Record the rows that a killed start had in flight as lost: they were asked, so they
        are not asked again. Yields the end of each in the name of that start."""
        for in_flight in self.progress.lost:
            key = in_flight.key
            result = {
                "run": self.progress.run,
                "row_id": in_flight.row_id,
                "line": key.line,
                "pass": key.number,
                "copy": key.copy,
                "query": in_flight.query,
                "error": LOST,
            }
            self.progress.mark(key, result)
            yield MockRowDone(
                mock_id=in_flight.mock_id,
                row_id=in_flight.row_id,
                query=in_flight.query[:TEXT_CAP],
                ok=False,
                seconds=0.0,
                error=LOST,
            )

    async def row(self, place: ScheduledRow, obey: OnDirective) -> MockRowDone | None:
        """Ask a row; return None when a stop came first: the next start asks it.

        Raises:
            AjetError: no further row can be asked.
        """
        finished = False
        turns: list[dict[str, Any]] = []
        try:
            finished = await self._converse(place, obey, turns)
        except ControlRefused as error:
            if error.status in (401, 403):
                raise
            query = "" if turns else place.row.query
            turns.append(_result(query, place.sent_id, Answer(error=str(error))))
            finished = True
        finally:
            if not finished:
                self.progress.back(place.key)
            await self.target.end_conversation(self._session(place))
        if not finished:
            return None
        return await self._done(place, turns)

    async def _converse(
        self, place: ScheduledRow, obey: OnDirective, turns: list[dict[str, Any]]
    ) -> bool:
        """Ask every turn; return False when a stop came between two."""
        row = place.row
        if row.persona and self.user is None and not self._warned:
            self._warned = True
            log.warning(
                "rows have a persona, but no model plays the user: only their openings are asked "
                "(--user-url URL --user-model NAME)"
            )
        messages = list(row.messages)
        session = self._session(place)
        number = 0
        while True:
            number += 1
            sent_id = place.sent_id if number == 1 else f"{place.sent_id}:t{number}"
            turn = await next_turn(row, self.user, number, messages, place.sent_id, self.patience)
            if turn is None:
                return False
            if isinstance(turn, ConversationEnd):
                _note_end(turn, turns, number, sent_id)
                return True
            if number > 1 or not row.query:
                messages.append({"role": "user", "content": turn.query})
            if not await self._announce(place, turn, sent_id, obey):
                return False
            if number == 1:
                query = turn.query[:TEXT_CAP]
                await asyncio.to_thread(self.progress.ask, place.key, sent_id, query)
            question = Question(
                query=turn.query,
                messages=messages,
                tools=row.tools,
                sent_id=sent_id,
                session=session,
                turn=number,
            )
            answer = await self.target.ask(question, self.patience)
            if answer is None:
                return False
            turns.append(_result(turn.query, sent_id, answer, turn.reference))
            if answer.error:
                if number > 1:
                    turns[-1]["error"] = f"turn {number}: {answer.error}"
                return True
            turns[-1]["group"] = await self._group(sent_id)
            messages.append({"role": "assistant", "content": answer.text})

    async def _group(self, sent_id: str) -> str | None:
        """Return the id of the group that a question became; warn when the application lost the
        row on the way."""
        feed = self.feed
        if feed is None:
            return None
        group = feed.group(sent_id)
        if group is None and self.target.in_session and feed.ready.is_set():
            group = await self._late(feed, sent_id)
        return group.group_id if group is not None else None

    async def _late(self, feed: GroupFeed, sent_id: str) -> Group | None:
        """Return the group of an answered question, whose event may arrive after the answer."""
        for _ in range(_MATCH_TRIES if self.counters.unmatched < 3 else 0):
            await asyncio.sleep(_MATCH_INTERVAL)
            if (group := feed.group(sent_id)) is not None:
                return group
        self._unmatched(sent_id)
        return None

    def _unmatched(self, sent_id: str) -> None:
        self.counters.unmatched += 1
        if self.counters.unmatched <= _MAX_WARNINGS:
            log.warning(
                "%s was answered, but no request at the proxy matched it: "
                "rewards cannot use its reference",
                sent_id,
            )

    def _session(self, place: ScheduledRow) -> str:
        """Return the session name shared by the turns of a row; empty when none is needed."""
        row = place.row
        if not (row.then or row.persona or self.target.in_session):
            return ""
        return session_name(self.progress.mock_id, place.sent_id)

    async def _announce(
        self, place: ScheduledRow, turn: Turn, sent_id: str, obey: OnDirective
    ) -> bool:
        """Register a turn and wait while the directive is to pause; return False on a stop."""
        if self.control is None:
            return not self.gate.stopping.is_set()
        row = place.row
        announcement = {
            "row_id": sent_id,
            "query": turn.query,
            "task_id": row.task_id or row.row_id,
            "reference": turn.reference,
            "metadata": row.metadata,
            "mock_id": self.progress.mock_id,
            "session": self._session(place) if self.target.in_session else "",
        }
        control, patience = self.control, self.patience
        while not self.gate.stopping.is_set():
            try:
                directive = await retried(
                    lambda: control.register_row(announcement), patience.rest, patience.seconds
                )
            except ControlDown:
                if self.gate.stopping.is_set():
                    return False
                raise
            if directive == "wait":
                self.counters.waiting = WAITS_FOR_VOTES
                await self.gate.rest(_VOTE_INTERVAL)
                continue
            if self.counters.waiting == WAITS_FOR_VOTES:
                self.counters.waiting = ""
            obey(directive)
            if directive == "run":
                return True
            await self.gate.open.wait()
        return False

    async def _done(self, place: ScheduledRow, turns: list[dict[str, Any]]) -> MockRowDone:
        row, last = place.row, turns[-1]
        seconds = round(sum(turn["seconds"] for turn in turns), 3)
        result = {
            "run": self.progress.run,
            **last,
            "row_id": place.sent_id,
            "line": row.line,
            "pass": place.key.number,
            "copy": place.key.copy,
            "seconds": seconds,
        }
        if row.then or row.persona:
            result["turns"] = turns
        await asyncio.to_thread(self.progress.mark, place.key, result)
        if self.results is not None:
            self.results.add(result)
        self.counters.add(last["error"])
        return MockRowDone(
            mock_id=self.progress.mock_id,
            row_id=place.sent_id,
            query=(row.query or str(turns[0]["query"]))[:TEXT_CAP],
            ok=not last["error"],
            seconds=seconds,
            error=last["error"],
            answer=last["answer"][:TEXT_CAP],
            group_id=last.get("group") or "",
            turns=sum(bool(turn["query"]) for turn in turns) or 1,
        )


def _note_end(end: ConversationEnd, turns: list[dict[str, Any]], number: int, sent_id: str) -> None:
    """Record why the conversation ended."""
    if end.error:
        error = end.error if number == 1 else f"turn {number}: {end.error}"
        turns.append(_result("", sent_id, Answer(error=error)))
    elif end.how:
        turns[-1]["ended"] = end.how


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
