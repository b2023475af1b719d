"""Keeps a source's health and tells those who want to know when it changes."""

import logging
from collections.abc import Callable

from proxy.rewards.source import Listener, SourceHealth

log = logging.getLogger(__name__)


class HealthBoard:
    """The newest health of one source and its listeners."""

    def __init__(self, health: SourceHealth) -> None:
        self._health = health
        self._listeners: list[Listener] = []

    @property
    def now(self) -> SourceHealth:
        return self._health

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; the function returned takes it away."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def post(self, health: SourceHealth) -> None:
        """Take over `health` and tell everyone, when it is different from the last."""
        if health == self._health:
            return
        self._health = health
        self.tell()

    def tell(self) -> None:
        """Tell everyone: what a listener looks at besides health has changed."""
        health = self._health
        for listener in tuple(self._listeners):
            try:
                listener(health)
            except Exception:  # a listener's defect must not stop the reload that told it
                log.exception("a listener of reward health failed")
