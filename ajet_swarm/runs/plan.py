"""Which episode of a run is next."""

import threading
from collections import Counter, deque
from collections.abc import Sequence


class EpisodeSchedule:
    """Which episode is next: in the list's order, with at most so many groups under way."""

    def __init__(self, keys: Sequence[str], groups: int | None) -> None:
        self._keys = keys
        self._most = groups
        self._waiting = deque(range(len(keys)))
        self._left = Counter(keys)
        self._open: set[str] = set()
        self._turn = threading.Condition()
        self._stopped = False

    def take(self) -> int | None:
        """The next one's index; waits while its group has no place. None at the end."""
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

    def over(self, index: int) -> None:
        """One is done."""
        with self._turn:
            key = self._keys[index]
            self._left[key] -= 1
            if not self._left[key]:
                self._open.discard(key)
                self._turn.notify_all()

    def stop(self) -> None:
        """Give no further one."""
        with self._turn:
            self._stopped = True
            self._turn.notify_all()
