"""Frames between the proxy and the hooks' process."""

from pathlib import Path

import msgspec
import pytest

from proxy.rewards.hooks.protocol import FrameError, Note, Noted, Scored, pack


def test_values_that_json_cannot_represent_are_refused() -> None:
    frame = pack(Scored(1, [0.5], [Note({}, {})]))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = msgspec.json.decode(pack(Noted(1, {"path": Path("a")}, None))[4:])
    assert body["metadata"] == {"path": "a"}
    with pytest.raises(FrameError):
        pack(Noted(1, {"bad": "\ud800"}, None))
