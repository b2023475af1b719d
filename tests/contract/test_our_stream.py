"""Our own client's streamed calls against the embedded engine, right and `--faithful`."""

from typing import Any

import pytest

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from ajet_swarm.protocol.schemas import Claimed, EndKind, WireOutput
from engine.app import create_app
from engine.server import lifecycle
from tests.support.engine.client import driving
from tests.support.served import served

ASK = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("faithful", [False, True], ids=["right", "faithful"])
async def test_a_streamed_answer_equals_a_whole_one(
    faithful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STOP_BLOCKS_SECONDS", 0.05)
    async with (
        driving(faithful=faithful) as d,
        served(create_app(d.engine)) as url,
        HttpTransport() as transport,
    ):
        client = SwarmWire(url, transport, "me")
        await d.start()
        episode = await client.claim()
        assert isinstance(episode, Claimed)
        deltas: list[dict[str, Any]] = []
        answer = await client.chat(episode, ASK, on_delta=deltas.append)
        whole = await client.chat(episode, ASK)
        assert "".join(delta.get("content") or "" for delta in deltas) == answer.text != ""
        assert answer.usage["completion_tokens"] > 0
        assert answer.finish_reason in ("stop", "length", "tool_calls")
        assert answer.parsed.keys() == whole.parsed.keys()
        assert answer.parsed["choices"][0].keys() == whole.parsed["choices"][0].keys()
        if not faithful:
            assert answer.parsed["ajetc"]["truncated"] is False
        ended = await client.end(episode.episode_uuid, "t", WireOutput(reward=0.5))
        assert ended.kind is EndKind.ENDED
        with pytest.raises(ChatError) as error:
            await client.chat(episode, ASK, on_delta=deltas.append)
        assert error.value.kind is ChatErrorKind.LOST_EPISODE
