"""Size of the journal per request.

    .venv/bin/python -m bench.journal_size

The events are those of a group of four candidates in five commits, as a proxy publishes them for
one user at a time. The texts are slices of this repository's own guides and sources. Conversations
of 200 turns show whether a message is stored once: their length is that of their distinct texts.
"""

import asyncio
import contextlib
import random
import sqlite3
import tempfile
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
)
from core.journal.writer import Journal

N = 4

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
                turns=1 + sum(message["role"] == "assistant" for message in messages),
            ),
            ClaimIntended(**names, n=N, discard_timeout=240.0),
        ],
        [
            EpisodesClaimed(
                **names,
                episodes=tuple(
                    ClaimedEpisode(index=index, episode_uuid=uuid)
                    for index, uuid in enumerate(uuids)
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
                        message={"role": "assistant", "content": answer},
                        finish_reason="stop",
                        seconds=1.038,
                        prompt_tokens=1_200,
                        completion_tokens=130,
                    )
                    for index, answer in enumerate(answers)
                ),
            ),
            GroupScored(
                **names,
                scores=tuple(
                    CandidateScore(index=index, reward=reward, parts=parts)
                    for index, reward in enumerate(rewards)
                ),
                best=0,
                version="a1b2c3d4",
                seconds=0.01,
            ),
            AnswerReturned(**names, index=0, why="winner", waited=1.666),
            GroupSealed(
                **names,
                rewards=tuple(
                    SentReward(index=index, reward=reward, advantage=reward)
                    for index, reward in enumerate(rewards)
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
                episodes=tuple(EndedEpisode(index=index) for index in range(N)),
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


def conversations(count: int, turns: int, length: int) -> tuple[list[list[list[Event]]], int]:
    """Return the requests of conversations, and the bytes of their distinct texts.

    Args:
        count: Number of conversations.
        turns: Requests of each.
        length: Characters of a question; 0 for conversations without any text.
    """
    texts, requests, distinct = Texts(1), [], 0
    system, answer = (texts.of(4_000), 600) if length else ("", 0)
    tools = [{"type": "function", "function": {"name": "f", "description": texts.of(8_000)}}]
    more = {"tools": tools} if length else {}
    for _ in range(count):
        messages: list[Message] = [{"role": "system", "content": system}]
        for _ in range(turns):
            messages = [*messages, {"role": "user", "content": texts.of(length)}]
            answers = [texts.of(answer) for _ in range(N)]
            requests.append(life(texts, messages, answers, **more))
            messages = [*messages, {"role": "assistant", "content": answers[0]}]
            distinct += len(msgspec.json.encode(answers))
        distinct += len(msgspec.json.encode(messages[1:]))
    return requests, distinct + len(msgspec.json.encode([system, tools]))


async def size(path: Path, requests: list[list[list[Event]]]) -> int:
    """Return the bytes of a journal with these requests."""
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


def main() -> None:
    """Measure all figures."""
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, length, count, bar in (
            ("1_5kB", 1_500, 400, 4_200),
            ("100kB", 100_000, 40, 45_000),
        ):
            taken = asyncio.run(size(folder / f"{what}.db", list(single(count, length)))) / count
            verdicts.at_most(f"journal_{what}", taken, bar, "bytes a request")
        requests, _ = conversations(2, 200, 0)
        rest = asyncio.run(size(folder / "empty.db", requests)) / len(requests)
        verdicts.at_most("journal_rest", rest, 2_000, "bytes a request without its texts")
        for turns, length in ((30, 1_500), (200, 300), (200, 1_100), (200, 2_000)):
            what = f"journal_{turns}_turns_of_{length}"
            requests, distinct = conversations(2, turns, length)
            taken = asyncio.run(size(folder / f"{what}.db", requests))
            verdicts.info(what, taken / len(requests), "bytes a request")
            texts = (taken - rest * len(requests)) / distinct
            verdicts.at_most(f"{what}_texts", texts, 2.0, "times the bytes written")
    verdicts.close()


if __name__ == "__main__":
    main()
