"""The deadlines of a client's episodes: all it remembers of them."""

from collections.abc import Callable
from dataclasses import dataclass

KEPT = 10.0
"""Seconds a deadline is remembered after it passed."""


@dataclass(slots=True)
class Life:
    """One episode's time. Times are seconds of one steady clock."""

    claimed_at: float
    idle: float
    """Seconds without a call after which the server takes it back."""
    deadline: float
    """From here on an end becomes an abort."""
    ending: bool = False
    """Its end, or its abort, is on the way."""


class Lives:
    """Episodes we claimed and have not ended.

    Args:
        clock: Steady seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._lives: dict[str, Life] = {}
        self.any = False
        """An episode was ever ours."""

    def __len__(self) -> int:
        return len(self._lives)

    def uuids(self) -> set[str]:
        """All of them, expired or not."""
        return set(self._lives)

    def get(self, uuid: str) -> Life | None:
        """Its time, while it is remembered."""
        return self._lives.get(uuid)

    def begin(self, uuid: str, idle: float, lifetime: float) -> None:
        """It is ours from now on."""
        now = self.clock()
        self.forget_old(now)
        self.any = True
        self._lives[uuid] = Life(now, idle, now + lifetime)

    def drop(self, uuid: str) -> None:
        """It is not ours any more."""
        self._lives.pop(uuid, None)

    def over(self, uuid: str) -> bool:
        """Whether its time is over, or it was never ours."""
        life = self._lives.get(uuid)
        return life is None or self.clock() >= life.deadline

    def may_be_taken(self, uuid: str) -> bool:
        """Whether the server may have taken it back meanwhile: ask before giving it back."""
        life = self._lives.get(uuid)
        return life is None or self.clock() - life.claimed_at >= life.idle

    def forget_old(self, now: float) -> None:
        """Drop what is long over; the server may still hold it in our name."""
        for uuid in [u for u, life in self._lives.items() if now > life.deadline + KEPT]:
            if not self._lives[uuid].ending:
                del self._lives[uuid]
