"""Size of the journal per request, before and after compression; effect of pruning on commits.

Before is schema 2: each commit's events as plain lines, every message again in each request that
has it. The events are those of a group of four candidates in five commits, as a proxy publishes
them for one user at a time. The texts are slices of this repository's own guides and sources.
"""

import asyncio
import contextlib
import itertools
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench.bars import Verdicts
from core.bus import Bus
from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidatesAnswered,
    CandidateScore,
    ClaimedEpisode,
    ClaimIntended,
    EndedEpisode,
    EpisodesClaimed,
    EpisodesEnded,
    Event,
    GroupClosed,
    GroupOpened,
    GroupScored,
    GroupSealed,
    Part,
    SentReward,
    encode_lines,
)
from core.journal.prune import PruneError, Pruner, Retention
from core.journal.stats import journal_stats
from core.journal.writer import Journal

N = 4
TURNS = 30
FILLED = 6_000
"""Number of groups of the pruned journal."""
WINDOW = 1.0
WINDOWS = 24
"""Seconds and number of the windows in which commits are timed; every other one with pruning."""
GAP = 0.02
"""Seconds between two requests in a window."""
SCHEMA_2 = """
create table events(seq integer primary key, kind text not null, group_id text, data blob not null);
create index events_by_group on events(group_id) where group_id is not null;
create table groups(
    id text primary key, opened_seq integer not null, opened_at real not null,
    phase text not null, cause text not null, query text not null, closed_seq integer);
create index groups_by_seq on groups(opened_seq);
"""

Message = dict[str, Any]


@cache
def corpus() -> str:
    """Return the text of the guides and sources of this repository."""
    root = Path(__file__).parents[1]
    files = [*sorted(root.glob("docs/**/*.md")), *sorted(root.glob("[cp]*/**/*.py"))]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


class Texts:
    """Source of distinct slices of the corpus."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def of(self, length: int) -> str:
        """Return a text of a number of characters."""
        whole = corpus()
        first = self._dice.randrange(len(whole) - length)
        return whole[first : first + length]

    def uuid(self) -> str:
        """Return an episode's uuid."""
        digits = self._dice.randbytes(16).hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def life(
    texts: Texts, messages: list[Message], answers: list[str], **more: Any
) -> list[list[Event]]:
    """Return the events of one request, grouped by commit."""
    group_id = texts.uuid().replace("-", "")[:12]
    names: dict[str, Any] = {"group_id": group_id, "server": "embedded"}
    uuids = [texts.uuid() for _ in range(N)]
    rewards = [0.7616205634243921 - index / 7 for index in range(N)]
    parts = tuple(
        Part(name=name, value=0.5130941857736147, weight=weight, reason=f"{weight} of 2 words used")
        for name, weight in (("length", 0.3), ("relevance", 0.3), ("diversity", 0.4))
    )
    body = {"model": "ajet", "messages": messages, **more}
    query = str(messages[-1]["content"])
    latency = {"queue": 0.0, "claim": 0.628, "generate": 1.038, "answered": 1.666, "submit": 0.015}
    return [
        [
            GroupOpened(
                **names,
                request_id=texts.uuid()[:16],
                task_id=f"task#{group_id}",
                n=N,
                query=query,
                body=body,
                model="ajet",
                session="c-10c7e37d93",
                turns=1 + sum(one["role"] == "assistant" for one in messages),
            ),
            ClaimIntended(**names, n=N, discard_timeout=240.0),
        ],
        [
            EpisodesClaimed(
                **names,
                episodes=tuple(
                    ClaimedEpisode(index=index, episode_uuid=one) for index, one in enumerate(uuids)
                ),
                step=26,
                expires_at=1_795_370_369.1159794,
                damping=0.2,
            )
        ],
        [
            CandidatesAnswered(
                **names,
                candidates=tuple(
                    AnsweredCandidate(
                        index=index,
                        episode_uuid=uuids[index],
                        message={"role": "assistant", "content": text},
                        finish_reason="stop",
                        seconds=1.029,
                        prompt_tokens=413,
                        completion_tokens=119,
                    )
                    for index, text in enumerate(answers)
                ),
            )
        ],
        [
            GroupScored(
                **names,
                scores=tuple(
                    CandidateScore(index=index, reward=one, parts=parts)
                    for index, one in enumerate(rewards)
                ),
                best=0,
                version="a1b2c3d4",
                seconds=0.01,
            ),
            AnswerReturned(**names, index=0, why="winner", waited=1.666),
            GroupSealed(
                **names,
                rewards=tuple(
                    SentReward(index=index, episode_uuid=uuids[index], reward=one, advantage=one)
                    for index, one in enumerate(rewards)
                ),
                best=0,
                source="auto",
                spread=0.128955,
                version="a1b2c3d4",
            ),
        ],
        [
            EpisodesEnded(
                **names,
                episodes=tuple(
                    EndedEpisode(
                        index=index, episode_uuid=uuids[index], reward=one, outcome="ended"
                    )
                    for index, one in enumerate(rewards)
                ),
            ),
            GroupClosed(**names, phase="DONE", latency=latency),
        ],
    ]


def single(count: int, length: int) -> Iterator[list[list[Event]]]:
    """Return requests of one message each."""
    texts = Texts(length)
    for _ in range(count):
        answers = [texts.of(400) for _ in range(N)]
        yield life(texts, [{"role": "user", "content": texts.of(length)}], answers)


def agent(count: int) -> tuple[list[list[list[Event]]], int]:
    """Return conversations of `TURNS` turns, and the bytes of their distinct texts."""
    texts, requests, length = Texts(1), [], 0
    system = texts.of(4_000)
    tools = [{"type": "function", "function": {"name": "f", "description": texts.of(8_000)}}]
    for _ in range(count):
        messages: list[Message] = [{"role": "system", "content": system}]
        for _ in range(TURNS):
            messages = [*messages, {"role": "user", "content": texts.of(1_500)}]
            answers = [texts.of(600) for _ in range(N)]
            requests.append(life(texts, messages, answers, tools=tools))
            messages = [*messages, {"role": "assistant", "content": answers[0]}]
            length += len(msgspec.json.encode(answers[1:]))
        length += len(msgspec.json.encode(messages[1:]))
    return requests, length + len(msgspec.json.encode([system, tools]))


def before(path: Path, requests: list[list[list[Event]]]) -> int:
    """Return the bytes of a journal of schema 2 with these requests."""
    numbers = itertools.count(1)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma page_size=8192")
        db.executescript(SCHEMA_2)
        db.execute("begin")
        for commits in requests:
            first = 0
            for events in commits:
                made = [
                    msgspec.structs.replace(
                        one, seq=next(numbers), at=1_795_370_128.4878225, run_id="b184d839d656"
                    )
                    for one in events
                ]
                first = first or made[0].seq
                row = (made[-1].seq, "events", None, encode_lines(made)[:-1])
                db.execute("insert into events values (?,?,?,?)", row)
            opened = commits[0][0]
            assert isinstance(opened, GroupOpened)
            group = (opened.group_id, first, 1.0, "DONE", "", opened.query[:200], made[-1].seq)
            db.execute("insert into groups values (?,?,?,?,?,?,?)", group)
        db.execute("commit")
    return path.stat().st_size


async def after(path: Path, requests: list[list[list[Event]]]) -> int:
    """Return the bytes of a journal of the present schema with these requests."""
    journal = Journal(path)
    bus = Bus(journal, "b184d839d656")
    for commits in requests:
        for events in commits:
            for event in events:
                bus.publish(event)
            await journal.committed(bus.state.seq)
    journal.close()
    return await asyncio.to_thread(whole_size, path)


def whole_size(path: Path) -> int:
    """Return the bytes of a journal including its log."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    return path.stat().st_size


class Gated(Pruner):
    """A pruner that works only while its gate is open."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, Retention())
        self.gate = threading.Event()

    def _pause(self, took: float) -> None:
        self.gate.wait()
        super()._pause(took)

    def all(self) -> None:
        """Prune everything allowed until it is closed."""
        with contextlib.suppress(PruneError):
            self.prune(Retention(bytes=1))


async def latencies(path: Path) -> tuple[list[float], list[float], float]:
    """Return seconds of commits without and with concurrent pruning, and pruned megabytes."""
    journal = Journal(path)
    bus = Bus(journal, "b184d839d656")
    for number, commits in enumerate(single(FILLED, 6_000)):
        for event in itertools.chain.from_iterable(commits):
            bus.publish(event)
        if number % 20 == 19:
            await journal.committed(bus.state.seq)
    with journal.reading() as db:
        full = journal_stats(db).used
    pruner = Gated(journal)
    thread = threading.Thread(target=pruner.all, daemon=True)
    thread.start()
    taken: tuple[list[float], list[float]] = ([], [])
    more = single(100_000, 1_500)
    for window in range(WINDOWS):
        beside = window % 2
        if beside and thread.is_alive():
            pruner.gate.set()
        else:
            pruner.gate.clear()
            await asyncio.sleep(0.05)  # what is under way ends
        if beside and not thread.is_alive():
            break
        end = time.monotonic() + WINDOW
        while time.monotonic() < end:
            for events in next(more):
                for event in events:
                    bus.publish(event)
                began = time.perf_counter()
                await journal.committed(bus.state.seq)
                taken[beside].append(time.perf_counter() - began)
            await asyncio.sleep(GAP)
    with journal.reading() as db:
        pruned = (full - journal_stats(db).used) / 1e6
    pruner.gate.set()
    pruner.close()
    thread.join(60)
    journal.close()
    return *taken, pruned


def p99(values: list[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return sorted(values)[int(len(values) * 0.99)] * 1e3


def main() -> None:
    """Measure all figures."""
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, length, count, bar in (
            ("1_5kB", 1_500, 400, 4_200),
            ("100kB", 100_000, 40, 45_000),
        ):
            requests = list(single(count, length))
            old = before(folder / f"{what}.old", requests) / count
            new = asyncio.run(after(folder / f"{what}.db", requests)) / count
            verdicts.info(f"journal_{what}_before", old, "bytes a request")
            verdicts.at_most(f"journal_{what}", new, bar, "bytes a request")
        conversations = 10
        requests, once = agent(conversations)
        old = before(folder / "agent.old", requests)
        new = asyncio.run(after(folder / "agent.db", requests))
        turns = TURNS * conversations
        verdicts.info("journal_agent_before", old / turns, "bytes a request")
        verdicts.at_most("journal_agent", new / turns, 5_500, "bytes a request")
        verdicts.info("journal_agent_before_of_length", old / once, "times its length")
        verdicts.at_most("journal_agent_of_length", new / once, 1.25, "times its length")
        alone, beside, pruned = asyncio.run(latencies(folder / "pruned.db"))
    verdicts.info("journal_commits", len(alone) + len(beside), "timed")
    verdicts.at_least("journal_pruned", pruned, 3, "MB")
    verdicts.info("journal_commit_p99", p99(alone), "ms")
    verdicts.at_most("journal_commit_p99_pruning", p99(beside), 2 * p99(alone) + 10, "ms")
    verdicts.close()


if __name__ == "__main__":
    main()
