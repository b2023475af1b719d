"""Events about several episodes, split into one for each."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from core.events import EpisodeEnded, EpisodesClaimed, EpisodesEnded, Event, GenerationStarted


def singles(event: Event) -> Iterator[Event]:
    """Yield the event; with the start of generation that it includes, split if it ends episodes."""
    if isinstance(event, EpisodesEnded):
        for ended in event.episodes:
            yield EpisodeEnded(**_envelope(event), **asdict(ended))
        return
    yield event
    if isinstance(event, EpisodesClaimed) and event.expires_at:
        n, until, damping = len(event.episodes), event.expires_at, event.damping
        yield GenerationStarted(**_envelope(event), n=n, expires_at=until, damping=damping)


def _envelope(event: EpisodesEnded | EpisodesClaimed) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": event.at,
        "run_id": event.run_id,
        "server": event.server,
        "group_id": event.group_id,
    }
