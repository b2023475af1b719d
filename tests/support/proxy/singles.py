"""Events about several episodes, split into one for each."""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import asdict, replace

from core.events import EndedEpisode, EpisodesEnded, Event


@dataclass(frozen=True)
class EpisodeEnded:
    """One of `EpisodesEnded`, with its group."""

    group_id: str
    index: int
    episode_uuid: str
    reward: float
    outcome: str
    text: str = ""


def singles(event: Event) -> Iterator[Event | EpisodeEnded]:
    """Yield the event, split if it ends episodes."""
    if isinstance(event, EpisodesEnded):
        for ended in event.episodes:
            yield EpisodeEnded(event.group_id, **asdict(ended))
    else:
        yield event


def episode_ended(
    group_id: str,
    index: int,
    uuid: str,
    reward: float,
    outcome: str = "ended",
    at: float = 0.0,
    server: str = "",
) -> EpisodesEnded:
    """Return the end of one episode."""
    ended = EndedEpisode(index, uuid, reward, outcome)
    return EpisodesEnded(server=server, group_id=group_id, episodes=(ended,), at=at)


def with_outcome(event: EpisodesEnded, outcome: str) -> EpisodesEnded:
    """Return `EpisodesEnded` with another outcome of all episodes."""
    episodes = tuple(replace(ended, outcome=outcome) for ended in event.episodes)
    return replace(event, episodes=episodes)
