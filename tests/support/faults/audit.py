"""The books after a fault: the journal's word against the swarm server's."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from core.events import Event, GroupOpened, GroupSealed
from core.journal.writer import Journal
from tests.support.faults.load import Load
from tests.support.proxy.singles import Candidates, EpisodeEnded, singles
from tests.support.scripted.pool import ScriptedPool

_UUID = re.compile("[0-9a-f]{32}")


@dataclass
class Books:
    """Counters; all but the first two have to be 0."""

    requests: int = 0
    sent: int = 0
    """Rewards that the server took."""
    claims_left: int = 0
    sent_twice: int = 0
    """Episodes ended twice, rewards reported as taken more than once, and ends that were repeated
    although the first one had a known outcome."""
    lost: int = 0
    """Sealed rewards without an outcome, and those reported as taken but not received."""
    invented: int = 0
    """Rewards at the server that were not sealed so, for that task."""
    user_5xx: int = 0
    """Anything but a 503 with Retry-After while there was no server to answer."""
    user_4xx: int = 0
    cut: int = 0
    """Connections that broke while there was a proxy."""
    hung: int = 0

    @property
    def clean(self) -> bool:
        """Nothing is wrong."""
        result = asdict(self)
        return not any(value for key, value in result.items() if key not in ("requests", "sent"))


def audit(
    journal: Path,
    swarm: ScriptedPool,
    load: Load,
    client: str,
    resent: Collection[str] | None = None,
) -> tuple[Books, list[str]]:
    """Compare; nothing may be under way any more.

    Args:
        journal: File of the journal.
        swarm: The server.
        load: The users.
        client: Uuid of the proxy.
        resent: Episodes whose end was sent again although the outcome of the first was certain;
            None if nobody noted them, then those that the server read twice and that are not told
            as unknown.

    Returns:
        The counters, and what exactly is wrong.
    """
    books = Books(requests=len(load.requests), sent=len(swarm.reward_log))
    wrong: list[str] = []
    _users(books, load, wrong)
    left = [one.uuid for one in swarm.claimed() if one.client == client]
    books.claims_left = len(left)
    wrong += [f"still claimed: {uuid}" for uuid in left]
    _rewards(books, journal, swarm, resent, wrong)
    return books, wrong


def _users(books: Books, load: Load, wrong: list[str]) -> None:
    faults = load.faults()
    books.user_5xx, books.user_4xx = len(faults["5xx"]), len(faults["4xx"])
    books.cut, books.hung = len(faults["cut"]), len(faults["hung"])
    for kind, value in faults.items():
        for one in value[:5]:
            times = f"{one.began:.2f} to {one.ended:.2f}"
            wrong.append(f"{kind}: {one.path} {one.stream} {times} {one.status} {one.text[-300:]}")
    if any(value for value in faults.values()):
        wrong.append(f"outages: {load.outages}, cuts: {load.cuts}")


def _rewards(
    books: Books,
    journal: Path,
    swarm: ScriptedPool,
    resent: Collection[str] | None,
    wrong: list[str],
) -> None:
    kinds: dict[str, str] = {}
    tasks: dict[str, str] = {}
    sealed: dict[tuple[str, str], float] = {}
    values: dict[tuple[str, str], list[str]] = {}
    candidates = Candidates()
    for event in _events(journal):
        candidates.note(event)
        if isinstance(event, GroupOpened):
            kinds[event.group_id], tasks[event.group_id] = event.episode_type, event.task_id
        elif isinstance(event, GroupSealed):
            for one in event.rewards:
                sealed[event.group_id, candidates.uuids[event.group_id, one.index]] = one.reward
        elif isinstance(event, EpisodeEnded) and kinds.get(event.group_id) == "train":
            values.setdefault((event.group_id, event.episode_uuid), []).append(event.outcome)
    received = {(uuid, task): reward for uuid, task, reward in swarm.reward_log}
    counts = Counter(uuid for uuid, _, _ in swarm.reward_log)
    for uuid, count in counts.items():
        if count > 1:
            books.sent_twice += count - 1
            wrong.append(f"taken {count} times: {uuid}")
    if resent is None:
        unknown = {uuid for (_, uuid), outcomes in values.items() if "unknown" in outcomes}
        resent = [uuid for uuid in swarm.repeated if uuid not in unknown]
    books.sent_twice += len(resent)
    wrong += [f"sent again: {uuid}" for uuid in resent]
    for (group, uuid), outcomes in values.items():
        if outcomes.count("ended") > 1:
            books.sent_twice += 1
            wrong.append(f"told as ended twice: {group} {uuid}")
    for (group, uuid), reward in sealed.items():
        outcomes = values.get((group, uuid), [])
        arrived = received.get((uuid, tasks[group]))
        if not outcomes or ("ended" in outcomes and arrived is None):
            books.lost += 1
            wrong.append(f"lost: {group} {uuid} {reward} {outcomes}")
    wanted = {(uuid, tasks[group]): reward for (group, uuid), reward in sealed.items()}
    for (uuid, task), reward in received.items():
        if wanted.get((uuid, task)) != reward:
            books.invented += 1
            wrong.append(f"invented: {uuid} {task} {reward}, sealed {wanted.get((uuid, task))}")


def _events(journal: Path):  # type: ignore[no-untyped-def] # any kind of event
    yield from singles(_stored(journal))


def _stored(journal: Path) -> Iterator[Event]:
    book = Journal(journal)
    after = 0
    try:
        while page := book.events(after, 5_000):
            yield from page
            after = page[-1].seq
    finally:
        book.close()


def outcomes(journal: Path) -> Counter[str]:
    """What became of the ends, by the journal; why, where they were not taken."""
    result: Counter[str] = Counter()
    for event in _events(journal):
        if isinstance(event, EpisodeEnded):
            why = "" if event.outcome == "ended" else f": {_UUID.sub('UUID', event.text)[:90]}"
            result[f"{event.outcome}{why}"] += 1
    return result
