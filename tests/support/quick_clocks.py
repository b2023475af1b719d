"""The pauses between two looks at a server, made short: in-process ones change all the time."""

import pytest

import proxy.submit
import swarm.watcher


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher looks and the proxy asks again within hundredths of a second."""
    monkeypatch.setattr(swarm.watcher, "NORMAL", 0.02)
    monkeypatch.setattr(swarm.watcher, "FAST", 0.01)
    monkeypatch.setattr(swarm.watcher, "SLOW", 0.05)
    monkeypatch.setattr(swarm.watcher, "POOL", 0.05)
    monkeypatch.setattr(proxy.submit, "LOOK_AGAIN", (0.0, 0.03))
    monkeypatch.setattr(proxy.submit, "REACH_FOR", 1.0)
