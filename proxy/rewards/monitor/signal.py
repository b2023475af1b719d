"""Counts groups without a signal: their rewards are equal or almost equal."""

from collections import deque

from core.events.alerts import AlertParams, params_of

MAX_NAMED = 200
"""Maximum number of groups without a signal that an alert names."""
STEPS = 3
"""Number of newest global steps that are counted."""
MIN_GROUPS = 10
"""Number of groups needed for an alert."""
HIGH = 0.9
"""Share of groups without a signal that raises an alert."""
LOW = 0.8
"""Share below which the alert ends."""


class SignalMonitor:
    """Counts groups by server and global step, in constant time and memory."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, tuple[int, int]]] = {}
        """Groups without a signal and all groups, by server and step; newest steps last."""
        self._dead: dict[str, deque[tuple[int, str]]] = {}
        """Step and id of the newest groups without a signal, by server."""
        self._raised: set[str] = set()

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers of the counted groups."""
        return tuple(self._counts)

    def take(self, server: str, step: int, dead: bool, group_id: str = "") -> None:
        """Count one sealed group.

        Args:
            server: Name of its server.
            step: Global step of the policy that answered.
            dead: Whether it teaches nothing or almost nothing.
            group_id: Id of the group.
        """
        if dead:
            self._dead.setdefault(server, deque(maxlen=MAX_NAMED)).append((step, group_id))
        counts = self._counts.setdefault(server, {})
        without, groups = counts.get(step, (0, 0))
        counts[step] = without + dead, groups + 1
        if len(counts) > STEPS:
            del counts[next(iter(counts))]

    def lacks_signal(self, server: str) -> bool:
        """Return whether nearly all groups of the newest steps have no signal."""
        without, groups = self._total(server)
        enough = len(self._counts.get(server, {})) == STEPS and groups >= MIN_GROUPS
        bound = LOW if server in self._raised else HIGH
        if enough and without >= bound * groups:
            self._raised.add(server)
        else:
            self._raised.discard(server)
        return server in self._raised

    def groups(self, server: str) -> tuple[str, ...]:
        """Return the ids of the newest steps' groups without a signal, at most `MAX_NAMED`."""
        steps = self._counts.get(server, {})
        return tuple([name for step, name in self._dead.get(server, ()) if step in steps])

    def alert(self, server: str) -> AlertParams:
        """Return the figures of the alert."""
        without, groups = self._total(server)
        return params_of("dead", dead=without, groups=groups, steps=STEPS)

    def _total(self, server: str) -> tuple[int, int]:
        counts = self._counts.get(server, {}).values()
        return sum(without for without, _ in counts), sum(groups for _, groups in counts)
