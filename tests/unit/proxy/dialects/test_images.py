"""Images: refused for models without vision, forwarded otherwise, never stored as data."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from core.commands.spec import NotNow
from core.control_payloads import EngineInfo
from core.events import GroupOpened, RequestRefused
from core.settings import SettingsError, load
from proxy.control.group_commands import opened_by
from proxy.dialects.images import image_labels, without_images
from proxy.rewards.source import GroupContext
from tests.support.proxy.front import Front, fronted
from tests.support.proxy.observed import Observed
from tests.support.proxy.world import settings
from tests.support.stored import stored_bytes

DATA = bytes(range(256)) * 400
PNG = f"data:image/png;base64,{base64.b64encode(DATA).decode()}"
WORDS = "[image 102.4 kB png]"
SEES = settings(servers={"s": {"vision": True}})
PART = {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}
CHAT = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, PART]}]}
ANTHROPIC = {
    "max_tokens": 64,
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PNG[22:]},
                },
            ],
        }
    ],
}
RESPONSES = {
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": PNG},
            ],
        }
    ]
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": ANTHROPIC,
    "/v1/responses": RESPONSES,
}
PLAIN = {"model": "any", "messages": [{"role": "user", "content": "hi"}]}


def opened(f: Front) -> GroupOpened:
    (event,) = f.world.kinds(GroupOpened)
    return event


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_a_text_only_server_refuses_an_image(f: Front, path: str, stream: bool) -> None:
    answer = await f.client.post(path, json={"model": "any", "stream": stream, **BODIES[path]})
    assert answer.status_code == 400
    body = answer.json()["error"]["message"]
    assert body == (
        "Server `s` accepts text only, but the request contains an image. "
        "Set servers.s.vision: true if its model accepts images."
    )
    if path == "/v1/messages":
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert not f.world.swarm.most_claimed
    (refused,) = f.world.kinds(RequestRefused)
    assert refused.status == 400
    assert (await f.client.post("/v1/chat/completions", json=PLAIN)).status_code == 200


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/v1/chat/completions", {"type": "file", "file": {"file_id": "f"}}),
        ("/v1/chat/completions", {"type": "input_audio", "input_audio": {"data": ""}}),
        ("/v1/responses", {"type": "input_file", "file_data": "data:application/pdf;base64,AA=="}),
    ],
)
async def test_a_server_that_drops_files_refuses_those_of_the_newest_turn(
    tmp_path: Path, path: str, part: dict[str, Any]
) -> None:
    name = "input" if path == "/v1/responses" else "messages"
    asked = {"role": "user", "content": [part]}
    async with fronted(tmp_path) as f:
        answer = await f.client.post(path, json={"model": "any", name: [asked]})
        assert answer.status_code == 400
        assert "Server `s` does not accept content parts of type" in answer.text
        turns = [asked, {"role": "assistant", "content": "The beginning of the answer"}]
        assert (await f.client.post(path, json={"model": "any", name: turns})).status_code == 400
        turns = [asked, {"role": "assistant", "content": "No."}, {"role": "user", "content": "?"}]
        assert (await f.client.post(path, json={"model": "any", name: turns})).status_code == 200


@pytest.mark.parametrize("path", BODIES)
async def test_a_server_with_vision_gets_the_image_and_the_journal_a_label(
    tmp_path: Path, path: str
) -> None:
    contexts: list[GroupContext] = []

    async def scorer(ctx: GroupContext) -> list[float]:
        contexts.append(ctx)
        return [float(answer.index) for answer in ctx.answers]

    async with fronted(tmp_path, configured=SEES) as f:
        f.world.source.scorer = scorer
        answer = await f.client.post(path, json={"model": "any", **BODIES[path]})
        assert answer.status_code == 200
        await f.world.closed()
        assert len(f.world.swarm.chats) == 4
        for _, body, _ in f.world.swarm.chats:
            text, image = body["messages"][-1]["content"]
            assert text == {"type": "text", "text": "What is it?"}
            assert image["image_url"]["url"] == PNG
            if path == "/v1/chat/completions":
                assert image == PART
        # the text of the task is its text; people read of the image
        event = opened(f)
        assert (event.query, event.images) == ("What is it?", (WORDS,))
        (group,) = f.world.state.groups.values()
        assert group.query == f"What is it? {WORDS}"
        (result,) = (part for part in event.body["messages"][-1]["content"] if "sha256" in part)
        digest = hashlib.sha256(DATA).hexdigest()[:16]
        assert result == {"type": "image", "text": WORDS, "bytes": len(DATA), "sha256": digest}
        assert contexts[0].query == "What is it?"
        assert result in contexts[0].messages[-1]["content"]
        await f.world.context.journal.committed(f.world.context.bus.state.seq)
        stored = stored_bytes(*tmp_path.glob("j.db*"))
        assert WORDS.encode() in stored
        assert PNG[22:90].encode() not in stored
        with pytest.raises(NotNow, match=r"images of group .* are not kept"):
            opened_by(f.world.context, group.group_id)


@pytest.mark.world(SEES)
async def test_the_embedded_engine_is_text_only_whatever_is_set(f: Front) -> None:
    f.world.server.info = EngineInfo(context=2048)
    answer = await f.client.post("/v1/chat/completions", json={"model": "any", **CHAT})
    assert answer.status_code == 400
    assert "is the embedded engine, which accepts text only" in answer.json()["error"]["message"]


async def test_in_observe_mode_the_upstream_decides(o: Observed) -> None:
    answer = await o.post(**CHAT)
    assert answer.status_code == 200
    await o.world.closed()
    assert all(body["messages"][-1]["content"][-1] == PART for body, _ in o.upstream.calls)
    (event,) = o.world.kinds(GroupOpened)
    assert "base64" not in json.dumps(event.body)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url", "image_url": "data:image/jpeg;base64,QUJD"}, "[image 3 B jpeg]"),
        ({"image_url": {"url": "DATA:image/svg+xml;utf8,<svg/>"}}, "[image 6 B svg+xml]"),
        ({"type": "image_url", "image_url": {"url": "data:;base64,Q"}}, "[image 1 B]"),
        (
            {"type": "image_url", "image_url": {"url": "https://h.example/a.png?key=hunter2"}},
            "[image from h.example/a.png]",
        ),
        ({"type": "image_url", "image_url": {"url": "https://u:hunter2@h/\x1b[2J"}}, None),
        ({"type": "image_url", "image_url": {"url": "hunter2" * 100_000}}, "[image]"),
        ({"type": "image_url", "image_url": {"url": "http://[bad"}}, "[image]"),
        ({"type": "image_embeds", "image_embeds": "hunter2"}, "[image]"),
        ({"type": "image_url", "image_url": 7}, "[image]"),
    ],
)
def test_an_image_has_a_short_label(part: dict[str, Any], words: str | None) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, part, "b"]}
    shown = without_images([message])
    assert shown is not None
    result = json.dumps(shown)
    assert "hunter2" not in result
    assert "\\u001b" not in result
    assert len(result) < 300
    if words is not None:
        assert image_labels(shown) == (words,)
    assert message["content"][1] is part


def test_text_alone_is_left_as_it_is() -> None:
    parts = [{"type": "text", "text": "an image_url"}, {"type": "input_audio", "data": "A"}]
    assert without_images([{"role": "user", "content": parts}, {"role": "tool"}]) is None
    assert image_labels(None) == ()


def test_many_images_are_counted() -> None:
    shown = without_images([{"role": "user", "content": [PART] * 7}, {"role": "assistant"}])
    assert image_labels(shown) == (*[WORDS] * 4, "[3 more images]")


def test_vision_is_set_by_the_servers_name(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("swarm_url: {gpu: 'http://h:1', b: embedded}\nservers: {gpu: {vision: yes}}\n")
    result = load(file, {"AJET_CONSOLE__SERVERS__B__VISION": "true"}, {})
    assert {name: one.vision for name, one in result.server.items()} == {"gpu": True, "b": True}
    assert load(None, {}).server == {}
    for text, words in (("{gpu: {visoin: true}}", "visoin"), ("{gpu: {vision: 7}}", "true or")):
        file.write_text(f"servers: {text}\n")
        with pytest.raises(SettingsError, match=words):
            load(file, {})
