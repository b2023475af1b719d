"""Collects the episode events of one group and publishes one event for each turn of the loop.

Claims, answers and ends of a group mostly arrive together; one event for all of them takes its
readers and the journal a quarter of the time.
"""

import asyncio

from core.bus import Bus
from core.events import (
    AnsweredCandidate,
    CandidatesAnswered,
    ClaimedEpisode,
    EndedEpisode,
    EpisodesClaimed,
    EpisodesEnded,
)


class EpisodeEventBatch:
    """The pending episode events of one run; published before the turn of the loop ends, or by
    `flush`.

    Args:
        bus: Where events are published.
        server: Name of the server of the run.
        group_id: The group of the run.
        loop: The loop of the run.
    """

    __slots__ = (
        "_answered",
        "_bus",
        "_claimed",
        "_damping",
        "_ended",
        "_expires_at",
        "_group_id",
        "_loop",
        "_run",
        "_server",
        "_step",
    )

    def __init__(
        self, bus: Bus, server: str, group_id: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._bus = bus
        self._server = server
        self._group_id = group_id
        self._loop = loop
        self._claimed: list[ClaimedEpisode] = []
        self._answered: list[AnsweredCandidate] = []
        self._ended: list[EndedEpisode] = []
        self._step: int | None = None
        self._run = 0
        self._expires_at = self._damping = 0.0

    def claimed(self, index: int, uuid: str, attempt: int, step: int | None, run: int) -> None:
        """Add a claimed episode of the candidate with this index, see `ClaimedEpisode`."""
        if not (self._claimed or self._answered or self._ended):
            self._loop.call_soon(self.flush)
        self._claimed.append(ClaimedEpisode(index, uuid, attempt))
        self._step, self._run = step, run

    def announce_start(self, n: int, expires_at: float, damping: float) -> bool:
        """Announce the start of generation with the claims, if those of all `n` episodes are
        pending.

        See `EpisodesClaimed`.

        Returns:
            False if the start has to be announced by an event of its own.
        """
        if len(self._claimed) != n:
            return False
        self._expires_at, self._damping = expires_at, damping
        return True

    def answered(self, answer: AnsweredCandidate, *, last: bool = False) -> None:
        """Add the answer of a candidate.

        Args:
            answer: The answer.
            last: The caller calls `flush` next, so no call is scheduled.
        """
        if not (last or self._claimed or self._answered or self._ended):
            self._loop.call_soon(self.flush)
        self._answered.append(answer)

    def ended(self, index: int, uuid: str, reward: float, outcome: str, text: str) -> None:
        """Add the outcome of a reward, see `EpisodeEnded`."""
        if not (self._claimed or self._answered or self._ended):
            self._loop.call_soon(self.flush)
        self._ended.append(EndedEpisode(index, uuid, reward, outcome, text))

    def flush(self) -> None:
        """Publish what is pending."""
        if not (self._claimed or self._answered or self._ended):
            return
        claimed, self._claimed = self._claimed, []
        answered, self._answered = self._answered, []
        ended, self._ended = self._ended, []
        if claimed:
            self._bus.publish(
                EpisodesClaimed(
                    server=self._server,
                    group_id=self._group_id,
                    episodes=tuple(claimed),
                    step=self._step,
                    run=self._run,
                    expires_at=self._expires_at,
                    damping=self._damping,
                )
            )
            self._expires_at = self._damping = 0.0
        if answered:
            self._bus.publish(
                CandidatesAnswered(
                    server=self._server, group_id=self._group_id, candidates=tuple(answered)
                )
            )
        if ended:
            self._bus.publish(
                EpisodesEnded(server=self._server, group_id=self._group_id, episodes=tuple(ended))
            )
