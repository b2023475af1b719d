"""A question to a judge: answered from the cache or by calls within a budget, with one repair.

Verdicts are stored on disk, so that no question is paid for twice. Keys are hashes; values are
scores with their reasons. No prompt, answer or API key is stored.

What limits the calls of a judge: failures in a row, and the cost of a run.

The calls of a judge to its endpoint: the list of models, and one reply to a question.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ajet_swarm.api.chat import INVALID_REQUEST
from ajet_swarm.runtime import Chance, Clock
from core.events import Event, JudgeSpent
from core.openai.api import ApiAnswer, CallFailed, OpenAIApi, RequestShape
from core.openai.errors import retry_after
from proxy.rewards.judge.prompt import BadReply, Messages, repairing
from proxy.rewards.judge.settings import JudgeFault, Options
from proxy.rewards.part import PartAbstained
from proxy.upstream.errors import LATER
from proxy.upstream.transport import ModelList

BODY_LIMIT = 2 << 20
"""Maximum number of bytes of an answer that are read."""
LIST_LIMIT = 10.0
"""Time limit of the list of models in seconds."""
_RETRIED_STATUSES = LATER | {408, 409, 425}


class JudgeReply(msgspec.Struct, frozen=True):
    """The reply of a judge to one question."""

    text: str
    cut: bool
    """Whether it ended at the limit of tokens."""
    tokens: tuple[int, int] | None
    """Of the prompt and of the reply; None when the endpoint does not report them."""
    seconds: float


class JudgeClient:
    """Client of one judge's endpoint.

    Args:
        options: Settings of the judge.
        url: Base URL of the API.
        key: API key; empty to send none.
        on_sent: Called for each request that is sent.
        clock: The clocks of the process.
    """

    def __init__(
        self, options: Options, url: str, key: str, on_sent: Callable[[], None], clock: Clock
    ) -> None:
        self.url = url
        self._options = options
        self._on_sent = on_sent
        self._wall = clock.wall
        self._api = OpenAIApi(
            url,
            key=key,
            headers={
                "accept-encoding": "identity",  # a compressed body could expand to a large one
                # the endpoint may be this proxy: it must neither train on verdicts nor judge them
                "x-ajet-train": "no",
                "x-ajet-judge": "yes",
            },
            connections=options.concurrency + 2,
            body_limit=BODY_LIMIT,
            shape=RequestShape(form="schema"),
            clock=clock.monotonic,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def models(self) -> list[str] | None:
        """Return the names of the models that the endpoint lists; None if it has no such route.

        Raises:
            JudgeFault: the endpoint gave no answer, or refused the key.
        """
        seconds = min(LIST_LIMIT, self._options.timeout)
        try:
            answer = await self._api.call("GET", "/models", None, seconds=seconds)
        except CallFailed as failure:
            raise self._no_answer(failure) from None
        if answer.status in (401, 403) or answer.status in LATER or answer.status >= 500:
            raise self._refused(answer)
        try:
            listed = msgspec.json.decode(answer.body, type=ModelList)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return [model.id for model in listed.data] if answer.status == 200 else None

    async def ask(
        self, model: str, messages: Messages, schema: dict[str, Any], name: str
    ) -> JudgeReply:
        """Return the reply to one question.

        Raises:
            JudgeFault: the endpoint gave no usable reply.
        """

        def body(shape: RequestShape) -> dict[str, Any]:
            self._on_sent()
            return self._body(shape, model, messages, {"name": name, "schema": schema})

        seconds = self._options.timeout
        try:
            answer = await self._api.adapt(body, "/chat/completions", seconds=seconds)
        except CallFailed as failure:
            raise self._no_answer(failure) from None
        if answer.status != 200:
            raise self._refused(answer)
        return self._reply(answer)

    def _body(
        self, shape: RequestShape, model: str, messages: Messages, form: Mapping[str, Any]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "messages": messages if shape.system else _merged(messages),
            shape.limit: self._options.max_tokens,
            **self._options.extra,
        }
        if shape.temperature and "temperature" not in self._options.extra:
            body["temperature"] = self._options.temperature
        if shape.form == "schema":
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"strict": True, **form},
            }
        elif shape.form == "object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _no_answer(self, failure: CallFailed) -> JudgeFault:
        if failure.kind in ("late", "too_large"):
            return JudgeFault(failure.text, again=failure.kind == "late")
        return JudgeFault(f"no answer from {self.url}: {failure.text}", again=True)

    def _reply(self, answer: ApiAnswer) -> JudgeReply:
        try:
            completion = msgspec.json.decode(answer.body, type=_Completion)
            choice = completion.choices[0]
        except (msgspec.MsgspecError, IndexError, RecursionError):
            kind = answer.headers.get("content-type", "").partition(";")[0] or "no type"
            raise JudgeFault(
                f"the reply is not a chat completion ({kind}, {len(answer.body)} bytes)", again=True
            ) from None
        return JudgeReply(
            text=self._api.hide(choice.message.content or ""),
            cut=choice.finish_reason == "length",
            tokens=_tokens(completion.usage),
            seconds=answer.seconds,
        )

    def _refused(self, answer: ApiAnswer) -> JudgeFault:
        again = answer.status in _RETRIED_STATUSES or answer.status >= 500
        wait = retry_after(answer.headers, self._wall)
        return JudgeFault(answer.fault, again=again, wait=wait, status=answer.status)


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: Any = None


def _tokens(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    prompt, reply = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    valid = all(type(count) is int and 0 <= count < 1 << 40 for count in (prompt, reply))
    return (prompt, reply) if valid else None  # type: ignore[return-value]  # both are int here


def _merged(messages: Messages) -> Messages:
    """Return the messages for a model without a system role."""
    if messages[0]["role"] != "system" or len(messages) < 2:
        return messages
    first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
    return [first, *messages[2:]]


EVERY = 1.0
"""Minimum seconds between two events of one judge."""


class Breaker:
    """Opens after a number of failures in a row; after a while it lets one question through.

    Args:
        after: Number of failures in a row.
        seconds: How long it stays open.
        on_change: Called when it opens and when it closes.

    Attributes:
        trouble: Why requests are suspended; empty while they are not.
    """

    def __init__(self, after: int, seconds: float, on_change: Callable[[], None]) -> None:
        self._after = after
        self._seconds = seconds
        self._on_change = on_change
        self._failures = 0
        self.trouble = ""
        self._until = 0.0
        """Time on the loop's clock at which an open breaker is tested."""
        self._test = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def admission(self) -> AsyncIterator[bool]:
        """Wait for permission to send a question; yield whether it tests the open breaker.

        Raises:
            PartAbstained: the breaker is open.
        """
        if self.trouble:
            async with self._test:  # one question tests the open breaker, the others wait for it
                if self.trouble:
                    remaining = self._until - asyncio.get_running_loop().time()
                    if remaining > 0:
                        raise PartAbstained(
                            f"{self.trouble}; the next attempt is in {remaining:.0f} s"
                        )
                    yield True
                    return
        yield False

    def record_success(self) -> None:
        """Record a usable reply; close the breaker."""
        was_open = bool(self.trouble)
        self._failures, self.trouble = 0, ""
        if was_open:
            self._on_change()

    def record_failure(self, cause: str, is_test: bool = False) -> None:
        """Record a failed call or an unusable reply; open the breaker after too many."""
        self._failures += 1
        if self._failures < self._after or (self.trouble and not is_test):
            return
        self._until = asyncio.get_running_loop().time() + self._seconds
        times = "" if self._failures == 1 else f" {self._failures} times in a row"
        self.trouble = f"the judge failed{times}: {cause}"
        self._on_change()


class SpendCounter:
    """The counts and cost of one judge, published at most once a second.

    Attributes:
        now: The counts.
        publish: Publishes them; None while there is no bus.
    """

    def __init__(self, name: str, publish: Callable[[Event], object] | None = None) -> None:
        self.now = JudgeSpent(judge=name)
        self.publish = publish
        self._published_at = -EVERY
        self._timer: asyncio.TimerHandle | None = None

    def add(self, **counts: float) -> None:
        """Add to counts; the names are fields of `JudgeSpent`."""
        self.change(**{name: getattr(self.now, name) + count for name, count in counts.items()})

    def change(self, **facts: object) -> None:
        """Set fields, and publish the counts soon if that changes any."""
        changed = msgspec.structs.replace(self.now, **facts)
        if changed == self.now:
            return
        self.now = changed
        if self._timer is not None or self.publish is None:
            return
        loop = asyncio.get_running_loop()
        wait = self._published_at + EVERY - loop.time()
        if wait <= 0:
            self._publish_now()
        else:
            self._timer = loop.call_later(wait, self._publish_now)

    def over(self, limit: float | None) -> str:
        """Return why no further call may be made; empty while the limit of the cost allows one."""
        if limit is None or self.now.cost < limit:
            return ""
        return f"the judge has spent {self.now.cost:.2f} of the {limit:.2f} it may spend in a run"

    def flush(self) -> None:
        """Publish changes that are not published yet."""
        if self._timer is not None:
            self._publish_now()

    def _publish_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.publish is not None:
            self._published_at = asyncio.get_running_loop().time()
            # a copy, because publishing adds the time to the event
            self.publish(msgspec.structs.replace(self.now))


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


@dataclass
class QuestionRunner:
    """Asks the questions of one judge."""

    options: Options
    client: JudgeClient
    """Connection to its endpoint."""
    model: str
    breaker: Breaker
    """Shared by all questions."""
    cache: Cache | None
    """Stored verdicts; None for no cache."""
    spend: SpendCounter
    """The judge's counts."""
    on_success: Callable[[], None]
    """Called when the endpoint has given a verdict."""
    chance: Chance
    """Source of pauses, and of the codes in prompts."""

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.options.concurrency)

    async def ask(self, question: Question[T], budget: GroupBudget) -> T:
        """Return the judge's result for a question.

        Raises:
            PartAbstained: the judge gave no usable reply.
        """
        key = self._key(question)
        if self.cache is not None and (data := await self.cache.get(key)) is not None:
            try:
                cached = msgspec.json.decode(data, type=question.result)
            except msgspec.MsgspecError:
                pass  # stored by another version of the program
            else:
                self.spend.add(hits=1)
                return cached
        async with self.breaker.admission() as is_test:
            result = await self._answer(question, budget, is_test)
            self.breaker.record_success()
            self.on_success()
        if self.cache is not None:
            await self.cache.put(key, msgspec.json.encode(result))
        return result

    def _key(self, question: Question[T]) -> bytes:
        """Return the hash of all that determines the reply; the code of tags is no part of it."""
        options = self.options
        tuned = [options.temperature, options.max_tokens, options.low, options.high, options.extra]
        what = [options.mode, [self.client.url, self.model], tuned, question.prompt("")]
        return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).digest()

    async def _answer(self, question: Question[T], budget: GroupBudget, is_test: bool) -> T:
        """Ask the question; ask for a repaired reply once if the reply is unusable."""
        messages = question.prompt(self.chance.token(8))
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
            self.spend.add(repairs=1)
            messages = repairing(messages, reply.text, faults[0])
        cause = f"the judge's reply could not be used: {'; asked again: '.join(faults)}"
        self.breaker.record_failure(cause, is_test)
        raise PartAbstained(cause)

    async def _call(
        self, question: Question[T], messages: Messages, budget: GroupBudget, is_test: bool
    ) -> JudgeReply:
        """Return a reply; retry faults that may pass while the budget lasts."""
        tries = 0
        while True:
            if reason := self.spend.over(self.options.spend_limit):
                raise PartAbstained(reason)
            if self.breaker.trouble and not is_test:  # it has opened since
                raise PartAbstained(self.breaker.trouble)
            try:
                async with self._slots:
                    reply = await self.client.ask(
                        self.model, messages, question.schema, question.name
                    )
            except JudgeFault as fault:
                if fault.status not in INVALID_REQUEST:  # those statuses concern this request only
                    self.breaker.record_failure(fault.text, is_test)
                budget.last = fault.text
                wait = self._wait(fault, tries, budget)
            else:
                self._pay(reply)
                return reply
            tries += 1
            budget.retries -= 1
            self.spend.add(retries=1)
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
            used = f", and the {self.options.retries} retries of the group are used up"
            raise PartAbstained(cause + (used if self.options.retries else ""))
        wait = max(BACKOFF * 2.0**tries * self.chance.uniform(0.75, 1.25), fault.wait or 0.0)
        if wait >= budget.until - asyncio.get_running_loop().time():
            raise PartAbstained(f"{cause}; there is no time to ask again in {wait:.1f} s")
        return wait

    def _pay(self, reply: JudgeReply) -> None:
        """Count an answered call, with its cost by the prices that are known."""
        prompt, completion = reply.tokens or (0, 0)
        price_in, price_out = self.options.price_in or 0.0, self.options.price_out or 0.0
        self.spend.add(
            prompt_tokens=prompt,
            completion_tokens=completion,
            untold=int(reply.tokens is None),
            cost=(prompt * price_in + completion * price_out) / 1e6,
            seconds=reply.seconds,
        )
