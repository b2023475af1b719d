"""What these tests share: quick clocks."""

import pytest

import proxy.submit
import swarm.watcher


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm.watcher, "NORMAL", 0.02)
    monkeypatch.setattr(swarm.watcher, "FAST", 0.01)
    monkeypatch.setattr(swarm.watcher, "SLOW", 0.05)
    monkeypatch.setattr(swarm.watcher, "POOL", 0.05)
    monkeypatch.setattr(proxy.submit, "LOOK_AGAIN", (0.0, 0.03))
    monkeypatch.setattr(proxy.submit, "REACH_FOR", 1.0)
