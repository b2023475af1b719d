"""Order of the episodes of a run."""

import threading
from collections import Counter, deque
from collections.abc import Sequence


class EpisodeSchedule:
    """Gives out the episodes of a run in order, with a limit on the groups that run at once."""

    def __init__(self, keys: Sequence[str], groups: int | None) -> None:
        self._keys = keys
        self._most = groups
        self._waiting = deque(range(len(keys)))
        self._left = Counter(keys)
        self._open: set[str] = set()
        self._turn = threading.Condition()
        self._stopped = False

    def take(self) -> int | None:
        """Return the index of the next episode; None at the end. Wait while no group may start."""
        with self._turn:
            while self._waiting and not self._stopped:
                for at, index in enumerate(self._waiting):
                    key = self._keys[index]
                    free = self._most is None or len(self._open) < self._most
                    if free or key in self._open:
                        self._open.add(key)
                        del self._waiting[at]
                        return index
                self._turn.wait()
            return None

    def finish(self, index: int) -> None:
        """Record that an episode is done."""
        with self._turn:
            key = self._keys[index]
            self._left[key] -= 1
            if not self._left[key]:
                self._open.discard(key)
                self._turn.notify_all()

    def stop(self) -> None:
        """Give out no further episode."""
        with self._turn:
            self._stopped = True
            self._turn.notify_all()
