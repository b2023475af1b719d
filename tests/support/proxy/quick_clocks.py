"""Short pauses between two polls of a server: in-process servers change all the time."""

import pytest

import ajet_swarm.api.watcher
import ajet_swarm.episodes.ends


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher and the proxy poll again within hundredths of a second."""
    monkeypatch.setattr(ajet_swarm.api.watcher, "NORMAL", 0.02)
    monkeypatch.setattr(ajet_swarm.api.watcher, "FAST", 0.01)
    monkeypatch.setattr(ajet_swarm.api.watcher, "POOL", 0.05)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.03))
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BACK", 1.0)
