"""Events about several episodes, split into one for each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from core.events import EpisodesClaimed, EpisodesEnded, Event, GroupSealed


@dataclass(frozen=True)
class EpisodeEnded:
    """One of `EpisodesEnded`, with its group, its episode and its reward."""

    group_id: str
    index: int
    episode_uuid: str
    """Of the newest claim; empty without one."""
    reward: float | None
    """As sealed; None before."""
    outcome: str
    text: str = ""


class Candidates:
    """Episode and reward of each candidate, by the events so far."""

    def __init__(self) -> None:
        self.uuids: dict[tuple[str, int], str] = {}
        self.rewards: dict[tuple[str, int], float] = {}

    def note(self, event: Event) -> None:
        """Take in the next event."""
        if isinstance(event, EpisodesClaimed):
            for claim in event.episodes:
                self.uuids[event.group_id, claim.index] = claim.episode_uuid
        elif isinstance(event, GroupSealed):
            for sent in event.rewards:
                self.rewards[event.group_id, sent.index] = sent.reward


def singles(events: Iterable[Event]) -> Iterator[Event | EpisodeEnded]:
    """Yield the events of a journal from its beginning, those that end episodes split."""
    candidates = Candidates()
    for event in events:
        candidates.note(event)
        if not isinstance(event, EpisodesEnded):
            yield event
            continue
        for ended in event.episodes:
            key = event.group_id, ended.index
            uuid, reward = candidates.uuids.get(key, ""), candidates.rewards.get(key)
            yield EpisodeEnded(*key, uuid, reward, ended.outcome, ended.text)


def with_outcome(event: EpisodesEnded, outcome: str) -> EpisodesEnded:
    """Return `EpisodesEnded` with another outcome of all episodes."""
    episodes = tuple(replace(ended, outcome=outcome) for ended in event.episodes)
    return replace(event, episodes=episodes)
