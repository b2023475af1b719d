"""What the upstream refuses for good is refused for good: its status, its words, and no retry."""

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from proxy.upstream.errors import MAX_SCANNED_CHARS, MAX_TEXT_CHARS, public_text
from tests.conformance.forms import CHAT, MESSAGES, PATHS, RESPONSES, always, ask, events, settle
from tests.support.faults.load import status_of_stream
from tests.support.proxy.front import BODIES, fronted
from tests.support.scripted.swarm import Denied
from tests.support.wire import wire

VIOLATION: Any = [
    {
        "type": "string_too_short",
        "loc": ["body", "messages", 0, "role"],
        "msg": "String should have at least 1 character",
        "input": "a secret of the user's",
    }
]
NASTY = (
    "no \x1b[31mred\x1b[0m \u202etxt at http://10.1.2.3:9000/x?key=1 or gpu-7.lan:8000, "
    "sk-ajet-AbCdEf123456789012, /srv/ajet/run/model.py\nTraceback (most recent call last):\n"
    '  File "/srv/x.py", line 3'
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("status", [400, 413, 422])
async def test_the_status_of_a_refusal_is_the_users(tmp_path: Path, path: str, status: int) -> None:
    async with fronted(tmp_path) as f:
        swarm = f.world.swarm
        swarm.answer = always(Denied(status, "That cannot be read."))
        answer = await ask(f, path, BODIES[path])
        assert answer.status == status
        assert "retry-after" not in answer.headers
        body = answer.json()
        assert body["error"]["message"] == "That cannot be read."
        if path == MESSAGES:
            kind = "request_too_large" if status == 413 else "invalid_request_error"
            assert (body["type"], body["error"]["type"]) == ("error", kind)
        else:
            assert list(body["error"]) == ["message", "type", "param", "code"]
            assert body["error"]["code"] == status
            assert body["error"]["type"] != "InternalServerError"
        await settle(f)
        (group,) = f.world.state.groups.values()
        assert group.phase == "FAILED"
        assert len(swarm.claims) == len(swarm.chats) == 4  # one request for each, no further one


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_refused_at_once_has_the_status_of_any_other_answer(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 60.0)  # however slow this machine is
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(Denied(422, "That cannot be read."))
        whole = await ask(f, path, BODIES[path])
        streamed = await ask(f, path, {**BODIES[path], "stream": True, "user": "other"})
        assert (streamed.status, streamed.json()) == (whole.status, whole.json())
        assert streamed.status in (400, 422)
        assert "retry-after" not in streamed.headers
        await settle(f)


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_says_so_without_asking_to_come_back(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0)
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(Denied(422, "That cannot be read."))
        answer = await ask(f, path, {**BODIES[path], "stream": True})
        assert answer.status == 200  # not known before
        assert status_of_stream(path, answer.body.decode()) in (400, 422)
        assert b"That cannot be read." in answer.body
        assert b"ry again" not in answer.body
        if path == RESPONSES:
            last = [event for _, event in events(answer.body) if isinstance(event, dict)][-1]
            assert last["response"]["error"]["code"] == "invalid_prompt"
        await settle(f)
        assert len(f.world.swarm.chats) == 4


@pytest.mark.parametrize("detail", [VIOLATION, NASTY])
async def test_error_details_are_redacted_for_users(tmp_path: Path, detail: Any) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(Denied(422, detail))
        answer = await ask(f, CHAT, BODIES[CHAT])
        text = answer.json()["error"]["message"]
        if detail is VIOLATION:
            assert text == "body.messages.0.role: String should have at least 1 character"
        else:
            assert text.startswith("no \u241b[31mred")
            assert text.endswith("at [address] or [address], [redacted], [path]")
        for secret in ("secret", "10.1", "gpu-7", "AbCdEf", "srv", "Traceback", "\u202e"):
            assert secret not in text
        await settle(f)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (
            "at localhost:8000, a.b-c.lan:80. Ratio 1.25:10, step:12",
            "at [address], [address]. Ratio 1.25:10, step:12",
        ),
        ("x " * MAX_SCANNED_CHARS, "x " * (MAX_TEXT_CHARS // 2)),
        ("a." * MAX_SCANNED_CHARS, "422 Unprocessable Entity"),
        ("no: " + "a." * 7_000, "no: " + "a." * (MAX_TEXT_CHARS // 2 - 2)),
        ("no" + " " * MAX_SCANNED_CHARS + "more", "no"),
    ],
    ids=["hosts", "words", "a word", "dots", "blanks"],
)
def test_an_error_that_repeats_a_large_prompt_delays_no_other_request(
    text: str, result: str
) -> None:
    began = time.thread_time()
    assert public_text(text, 422) == result
    assert time.thread_time() - began < 0.3


async def test_after_one_refused_candidate_the_others_answer(tmp_path: Path) -> None:
    """A refusal may be a fault of one worker: the group continues with the others."""
    async with fronted(tmp_path) as f:
        refused: list[str] = []

        async def candidate_answer(name: str, body: dict[str, Any], index: int) -> Any:
            if not refused:
                refused.append(name)
                return Denied(422, "no")
            return f"hello from {name}"

        f.world.swarm.answer = candidate_answer
        assert (await ask(f, CHAT, BODIES[CHAT])).status == 200
        await settle(f)


# --- the last resort ----------------------------------------------------------------------------


async def test_an_unexpected_error_is_a_500_in_json(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise LookupError("sk-ajet-of-somebody")

    caplog.set_level(logging.INFO)
    async with fronted(tmp_path) as f, wire(f.url) as one:
        monkeypatch.setattr("proxy.http.middleware._strip_session", broken)
        await one.ask("GET", "/sessions/x/v1/models")
        answer = await one.answer()
        assert answer.status == 500
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"] == {
            "message": "Internal server error",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
        }
    (result,) = [record for record in caplog.records if "failed" in record.getMessage()]
    assert "LookupError in test_refused.py" in result.getMessage()
    assert result.exc_info is None
    assert "somebody" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "path",
    ["/sessions%2Fx%2Fv1%2Fmodels", "/sessions%2Fx/v1/models", "/sessions/", "/%2Fsessions/x"],
)
async def test_encoded_slashes_reach_no_other_route(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as one:
        await one.ask("GET", path)
        answer = await one.answer()
        assert (answer.status, json.loads(answer.body)) == (404, {"detail": "Not Found"})
