"""Order in which the episodes of a run start."""

import threading
from collections import Counter, deque
from collections.abc import Sequence


class EpisodeSchedule:
    """Queue of the episodes of a run, with a limit on concurrent groups.

    Args:
        keys: Group of each episode, in order.
        groups: Largest number of groups that run at once; None for no limit.
    """

    def __init__(self, keys: Sequence[str], groups: int | None) -> None:
        self._keys = keys
        self._most = groups
        self._waiting = deque(range(len(keys)))
        self._left = Counter(keys)
        self._open: set[str] = set()
        self._changed = threading.Condition()
        self._stopped = False

    def take(self) -> int | None:
        """Return the index of the next episode, or None at the end; wait while none may start."""
        with self._changed:
            while self._waiting and not self._stopped:
                for at, index in enumerate(self._waiting):
                    key = self._keys[index]
                    free = self._most is None or len(self._open) < self._most
                    if free or key in self._open:
                        self._open.add(key)
                        del self._waiting[at]
                        return index
                self._changed.wait()
            return None

    def finish(self, index: int) -> None:
        """Record that an episode is done."""
        with self._changed:
            key = self._keys[index]
            self._left[key] -= 1
            if not self._left[key]:
                self._open.discard(key)
                self._changed.notify_all()

    def stop(self) -> None:
        """Make `take` return None from now on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
