"""Events as a proxy in heavy use publishes them, without end: short lives, and long ones whose
answers grow."""

import itertools
import random
import time
from collections.abc import Iterable, Iterator

import msgspec

from core.events import CandidatesAnswered, EngineChanged, Event, ProxyStarted, encode
from core.state import Candidate, Group
from tests.support.sample import group_events

RUN = "bench-run"
SERVER = "swarm"
SHORT = 12
"""Number of requests in flight besides those whose answers grow."""
GROWTHS = 40
"""Number of events of a growing answer before it is complete."""
PAIR = 13
"""Number of events of a request of two candidates (asserted)."""
_TEXT = (
    "the sky is blue because light of short waves is scattered most by molecules much smaller "
    "than its wave while what comes straight from the sun has lost some of it and looks warmer"
)


def prose(words: int, seed: int) -> str:
    """Return a text that depends only on the seed."""
    pick = random.Random(seed)
    return " ".join(pick.choice(_TEXT.split()) for _ in range(words))


TEXTS = [prose(90, seed) for seed in range(64)]
LONG = [prose(400, seed) for seed in range(8)]


def query(number: int) -> str:
    """Return the query of request `number`; a filter can find the number."""
    return f"q{number:05} {TEXTS[number % 64][:90]}"


def life(number: int, candidates: int = 4) -> list[Event]:
    """Return all events of one request."""
    rewards = tuple(((number * 7 + index * 13) % 20) / 20 for index in range(candidates))
    texts = [TEXTS[(number + index) % 64] for index in range(candidates)]
    return group_events(number, query=query(number), rewards=rewards, texts=texts, server=SERVER)


def frames() -> bytes:
    """Return the feed's bytes of a request of two, with `%(group)b`, `%(at)b`, `%(s0)d` ..."""
    events = life(0, candidates=2)
    assert len(events) == PAIR, len(events)
    encoded = b""
    for place, event in enumerate(events):
        data = encode(msgspec.structs.replace(event, seq=1_234_567, at=7_654_321.5, run_id=RUN))
        seq = b"%%(s%d)d" % place
        for text, name in ((b"%", b"%%"), (b"1234567", seq), (b"7654321.5", b"%(at)b")):
            data = data.replace(text, name)
        data = data.replace(b'"g0000"', b'"%(group)b"')
        encoded += b"id: %b\nevent: %b\ndata: %b\n\n" % (seq, event.kind.encode(), data)
    return encoded


def growing(number: int) -> Iterator[Event]:
    """Yield the events of a request whose candidates answer bit by bit.

    The feed has no event for a piece of an answer: each is told as the answer so far.
    """
    for event in life(number):
        if not isinstance(event, CandidatesAnswered):
            yield event
        elif event.candidates[0].index == 0:
            for turn, index in itertools.product(range(1, GROWTHS + 1), range(4)):
                text = LONG[(number + index) % 8]
                answered = msgspec.structs.replace(
                    event.candidates[0],
                    index=index,
                    message={"role": "assistant", "content": text[: len(text) * turn // GROWTHS]},
                )
                yield msgspec.structs.replace(event, candidates=(answered,))


def start() -> list[Event]:
    """Return the events of a started proxy with a rolling engine."""
    url = "http://127.0.0.1:8000"
    return [
        ProxyStarted(
            client_uuid="bench",
            pid=1,
            url=url,
            version="0",
            servers={SERVER: "http://127.0.0.1:10086"},
            rewards="builtin",
        ),
        EngineChanged(server=SERVER, state="ROLLING", step=1),
    ]


class Traffic:
    """Endless source of requests."""

    def __init__(self, first: int) -> None:
        self._numbers = itertools.count(first)
        self._short: list[Iterator[Event]] = [iter(()) for _ in range(SHORT)]
        self._long: list[Iterator[Event]] = []

    def streams(self, candidates: int) -> None:
        """Set the number of candidates that answer bit by bit."""
        self._long = [iter(()) for _ in range(candidates // 4)]

    def mixed(self, count: int) -> Iterable[Event]:
        """Yield `count` events: half of requests that are answered at once, half of growing
        answers, one of each in turn."""
        yield from self._take(self._short, count - count // 2, grows=False)
        yield from self._take(self._long, count // 2, grows=True)

    def _take(self, running: list[Iterator[Event]], count: int, grows: bool) -> Iterable[Event]:
        for _ in range(count):
            events = running.pop(0)
            event = next(events, None)
            if event is None:
                number = next(self._numbers)
                events = growing(number) if grows else iter(life(number))
                event = next(events)
            running.append(events)
            yield msgspec.structs.replace(event, at=time.time())


def old_group(rank: int, at: float) -> Group:
    """Return a request finished long ago, for pages of the journal."""
    return Group(
        group_id=f"old{rank}",
        request_id=f"r{rank}",
        server=SERVER,
        task_id=f"r{rank}",
        n=4,
        query=query(rank),
        opened_at=at,
        phase="DONE",
        closed_at=at + 5,
        sealed_at=at + 4,
        waited=2.0,
        returned=1,
        best=1,
        spread=0.3,
        step=1,
        candidates=[
            Candidate(index=index, phase="ended", text=TEXTS[index], reward=index / 4)
            for index in range(4)
        ],
    )
