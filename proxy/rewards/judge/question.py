"""A question to a judge: answered from the cache or by calls within a budget, with one repair.

Verdicts are stored on disk, so that no question is paid for twice. Keys are hashes; values are
scores with their reasons. No prompt, answer or API key is stored.
"""

import asyncio
import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ajet_swarm.api.chat import INVALID_REQUEST
from ajet_swarm.runtime import Chance
from proxy.rewards.judge.endpoint import JudgeClient, JudgeReply
from proxy.rewards.judge.limits import Breaker, SpendCounter
from proxy.rewards.judge.prompt import BadReply, Messages, repairing
from proxy.rewards.judge.settings import JudgeFault, Options
from proxy.rewards.part import PartAbstained

log = logging.getLogger(__name__)

ROWS = 200_000
"""Maximum number of verdicts; the oldest are deleted."""
_EVERY = 1_000
"""Number of verdicts stored between two checks of their count."""
_TABLE = """
pragma journal_mode=wal;
pragma synchronous=normal;
create table if not exists verdicts (
    key blob primary key, value blob not null, at real not null
) without rowid
"""
_DELETE_OLDEST = """
delete from verdicts where key in (
    select key from verdicts order by at limit max(0, (select count(*) from verdicts) - ?)
)
"""
BACKOFF = 0.5
"""Seconds before the first retry; the wait doubles with each further one."""

T = TypeVar("T")


class GroupBudget:
    """The remaining time and retries of one group; `last` is its most recent fault."""

    def __init__(self, options: Options) -> None:
        self.until = asyncio.get_running_loop().time() + options.group_seconds
        """Time on the loop's clock at which the group abstains."""
        self.retries = options.retries
        self.last = ""


class Question(msgspec.Struct, Generic[T], frozen=True):
    """A prompt, and the reader of its reply."""

    prompt: Callable[[str], Messages]
    """Returns the prompt with the random code of its tags."""
    schema: dict[str, Any]
    name: str
    """Name of the reply's schema."""
    read: Callable[[str], T]
    """Turns the reply into a result; raises `BadReply`."""
    result: type[T]
    """Type that `read` returns, to decode it from the cache."""


class Cache:
    """A database of verdicts; one that cannot be used behaves as if it were empty.

    Args:
        file: The database; it is created if it does not exist.
        rows: See `ROWS`.
    """

    def __init__(self, file: Path, rows: int = ROWS) -> None:
        self._file = file
        self._rows = rows
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._puts = 0

    async def get(self, key: bytes) -> bytes | None:
        """Return the verdict, or None."""
        rows = await self._run("select value from verdicts where key = ?", key)
        return bytes(rows[0][0]) if rows else None

    async def put(self, key: bytes, value: bytes) -> None:
        """Store a verdict."""
        now = "(julianday('now') - 2440587.5) * 86400"
        await self._run(f"insert or replace into verdicts values (?, ?, {now})", key, value)
        self._puts += 1
        if self._puts % _EVERY == 1:
            await self._run(_DELETE_OLDEST, self._rows)

    async def close(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._close)

    async def _run(self, statement: str, *values: bytes | int) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, in a thread; none when the database cannot be used."""
        return await asyncio.to_thread(self._execute, statement, values)

    def _execute(self, statement: str, values: tuple[bytes | int, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                if self._db is None and not self._closed:
                    self._db = _opened(self._file)
                return self._db.execute(statement, values).fetchall() if self._db else []
            except (sqlite3.Error, OSError) as error:
                log.warning("the judge's cache %s cannot be used: %s", self._file, error)
        self._close()
        return []

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None


def _opened(file: Path) -> sqlite3.Connection:
    """Return the database of a file; a file that is none is replaced."""
    file.parent.mkdir(0o700, parents=True, exist_ok=True)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(file, timeout=2, isolation_level=None, check_same_thread=False)
    try:
        db.executescript(_TABLE)
    except sqlite3.Error as error:
        db.close()
        if isinstance(error, sqlite3.OperationalError):
            raise
        file.unlink()  # not a database: nothing in it is of use
        return _opened(file)
    return db


class QuestionRunner:
    """Asks the questions of one judge.

    Args:
        options: Settings of the judge.
        client: Connection to its endpoint.
        model: Name of the model.
        breaker: Shared by all questions.
        cache: Stored verdicts; None for no cache.
        spend: The judge's counts.
        on_success: Called when the endpoint has given a verdict.
        chance: Source of pauses, and of the codes in prompts.
    """

    def __init__(
        self,
        options: Options,
        client: JudgeClient,
        model: str,
        breaker: Breaker,
        cache: Cache | None,
        spend: SpendCounter,
        on_success: Callable[[], None],
        chance: Chance,
    ) -> None:
        self._options = options
        self._client = client
        self._model = model
        self._breaker = breaker
        self._cache = cache
        self._spend = spend
        self._on_success = on_success
        self._chance = chance
        self._slots = asyncio.Semaphore(options.concurrency)

    async def ask(self, question: Question[T], budget: GroupBudget) -> T:
        """Return the judge's result for a question.

        Raises:
            PartAbstained: the judge gave no usable reply.
        """
        key = self._key(question)
        if self._cache is not None and (data := await self._cache.get(key)) is not None:
            try:
                cached = msgspec.json.decode(data, type=question.result)
            except msgspec.MsgspecError:
                pass  # stored by another version of the program
            else:
                self._spend.add(hits=1)
                return cached
        async with self._breaker.admission() as is_test:
            result = await self._answer(question, budget, is_test)
            self._breaker.record_success()
            self._on_success()
        if self._cache is not None:
            await self._cache.put(key, msgspec.json.encode(result))
        return result

    def _key(self, question: Question[T]) -> bytes:
        """Return the hash of all that determines the reply; the code of tags is no part of it."""
        options = self._options
        tuned = [options.temperature, options.max_tokens, options.low, options.high, options.extra]
        what = [options.mode, [self._client.url, self._model], tuned, question.prompt("")]
        return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).digest()

    async def _answer(self, question: Question[T], budget: GroupBudget, is_test: bool) -> T:
        """Ask the question; ask for a repaired reply once if the reply is unusable."""
        messages = question.prompt(self._chance.token(8))
        faults: list[str] = []
        while True:
            reply = await self._call(question, messages, budget, is_test)
            try:
                return question.read(reply.text)
            except BadReply as bad:
                cut = f"it was cut off at the limit of tokens ({bad})"
                faults.append(cut if reply.cut and not faults else str(bad))
            budget.last = f"its reply could not be used: {faults[0]}"
            if len(faults) == 2:
                break
            self._spend.add(repairs=1)
            messages = repairing(messages, reply.text, faults[0])
        cause = f"the judge's reply could not be used: {'; asked again: '.join(faults)}"
        self._breaker.record_failure(cause, is_test)
        raise PartAbstained(cause)

    async def _call(
        self, question: Question[T], messages: Messages, budget: GroupBudget, is_test: bool
    ) -> JudgeReply:
        """Return a reply; retry faults that may pass while the budget lasts."""
        tries = 0
        while True:
            if reason := self._spend.over(self._options.spend_limit):
                raise PartAbstained(reason)
            if self._breaker.trouble and not is_test:  # it has opened since
                raise PartAbstained(self._breaker.trouble)
            try:
                async with self._slots:
                    reply = await self._client.ask(
                        self._model, messages, question.schema, question.name
                    )
            except JudgeFault as fault:
                if fault.status not in INVALID_REQUEST:  # those statuses concern this request only
                    self._breaker.record_failure(fault.text, is_test)
                budget.last = fault.text
                wait = self._wait(fault, tries, budget)
            else:
                self._pay(reply)
                return reply
            tries += 1
            budget.retries -= 1
            self._spend.add(retries=1)
            await asyncio.sleep(wait)

    def _wait(self, fault: JudgeFault, tries: int, budget: GroupBudget) -> float:
        """Return the seconds to wait before the call is repeated.

        Raises:
            PartAbstained: the call is not repeated.
        """
        cause = f"the judge failed: {fault.text}"
        if not fault.again:
            raise PartAbstained(cause)
        if budget.retries < 1:
            used = f", and the {self._options.retries} retries of the group are used up"
            raise PartAbstained(cause + (used if self._options.retries else ""))
        wait = max(BACKOFF * 2.0**tries * self._chance.uniform(0.75, 1.25), fault.wait or 0.0)
        if wait >= budget.until - asyncio.get_running_loop().time():
            raise PartAbstained(f"{cause}; there is no time to ask again in {wait:.1f} s")
        return wait

    def _pay(self, reply: JudgeReply) -> None:
        """Count an answered call, with its cost by the prices that are known."""
        prompt, completion = reply.tokens or (0, 0)
        price_in, price_out = self._options.price_in or 0.0, self._options.price_out or 0.0
        self._spend.add(
            prompt_tokens=prompt,
            completion_tokens=completion,
            untold=int(reply.tokens is None),
            cost=(prompt * price_in + completion * price_out) / 1e6,
            seconds=reply.seconds,
        )
