"""Applications and models behind an address: the request, the answer, the errors, the dry row."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from core.events import GroupOpened
from core.runtime.home import Home
from core.state import reduce
from mock.dataset import open_dataset
from mock.run.pace import Pace
from mock.run.progress import Progress
from mock.run.results import Results
from mock.run.row_order import RowSelection
from mock.run.runner import Runner
from mock.tally import RunCounters
from mock.targets.answers import parse_events
from mock.targets.base import OUTPUT_CAP, ModelEndpoint
from mock.targets.dialects import DIALECTS, read
from mock.targets.dry_run import TargetFailed, open_target, try_target
from mock.targets.fake import FakeTarget
from mock.targets.http import HttpTarget
from mock.targets.question import Answer, Patience, Unreachable
from mock.targets.spec import HttpSpec
from tests.unit.mock.helpers import FakeControl, Target, write_rows
from tests.unit.mock.target_helpers import AT, ONCE, ask, question, spec_of, target_of

CHAT = "kind: http\nurl: http://app/chat\nbody: {words: '{query}'}\nanswer: reply.text\n"


class App:
    """An application that gives every request the same answer."""

    def __init__(self, content: Any = None, status: int = 200, **headers: str) -> None:
        self.content = {"reply": {"text": "hello"}} if content is None else content
        self.status = status
        self.headers = headers
        self.requests: list[httpx.Request] = []
        self.then: Callable[[int], httpx.Response | None] = lambda number: None

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if (other := self.then(len(self.requests))) is not None:
            return other
        content = (
            self.content if isinstance(self.content, bytes) else msgspec.json.encode(self.content)
        )
        return httpx.Response(self.status, headers=self.headers, content=content)

    def body(self, at: int = -1) -> Any:
        return msgspec.json.decode(self.requests[at].content)


def http(folder: Path, app: App, text: str = CHAT) -> HttpTarget:
    spec = spec_of(folder, text)
    assert isinstance(spec, HttpSpec)
    return HttpTarget(spec, ModelEndpoint(base_url=AT), transport=httpx.MockTransport(app.answer))


async def test_the_request_has_the_form_of_the_target_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_TOKEN", "hunter2-hunter2")
    app = App()
    text = (
        "kind: http\nurl: 'http://app/{session}/chat?q={query}'\nmethod: PUT\nanswer: reply.text\n"
        "headers: {Authorization: 'Bearer {env:KEY_OF_IT}'}\n"
        "body: {all: '{messages}', said: ['{query}', {n: 3}], model: {at: '{base_url}'}}\n"
    )
    monkeypatch.setenv("KEY_OF_IT", "hunter2-hunter2")
    nasty = 'a "b" \\ {session} & c=d/ü'
    answer = await ask(http(tmp_path, app, text), question(nasty))
    assert answer == Answer(text="hello", seconds=answer.seconds)
    (request,) = app.requests
    assert request.method == "PUT"
    assert request.url.path == "/s1/chat"
    assert request.url.params["q"] == nasty
    assert request.headers["authorization"] == "Bearer hunter2-hunter2"
    assert app.body() == {
        "all": [{"role": "user", "content": nasty}],
        "said": [nasty, {"n": 3}],
        "model": {"at": "http://127.0.0.1:9/sessions/s1/v1"},
    }
    assert request.headers["x-ajet-row"] == "row-1"
    assert request.headers["x-ajet-session"] == "s1"
    assert "x-ajet-train" not in request.headers
    await ask(http(tmp_path, app, text), question(train=False))
    assert app.requests[-1].headers["x-ajet-train"] == "no"


async def test_get_has_no_body_and_plain_text_is_an_answer(tmp_path: Path) -> None:
    app = App(b" hello there \n")
    text = "kind: http\nurl: http://app/ask?q={query}\nmethod: GET\n"
    answer = await ask(http(tmp_path, app, text))
    assert answer.text == "hello there"
    assert app.requests[0].content == b""
    assert "content-type" not in app.requests[0].headers


def page(text: str) -> bytes:
    return text.encode()


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"reply": {}}, "nothing at `reply.text`: `reply` is empty"),
        ({"answer": ""}, "nothing at `reply.text`; its fields: answer"),
        ({"reply": {"txt": "x"}}, "nothing at `reply.text`; fields of `reply`: txt"),
        ({"reply": "x"}, "nothing at `reply.text`: `reply` is text"),
        ({"reply": [1]}, "nothing at `reply.text`: `reply` is a list of 1"),
        ({"reply": {"text": " "}}, "the answer is empty"),
        ([], "nothing at `reply.text`: it is a list of 0"),
        (b"", "the answer is not JSON: nothing"),
        (b"<!DOCTYPE html><p>Sign in", "the answer is a page: <!DOCTYPE html><p>Sign in"),
        (b"sorry", "the answer is not JSON: sorry"),
        (b"\xff\xd8\xff", "the answer is not text: byte 1"),
        (b'"' + b"x" * OUTPUT_CAP + b'"', "the answer is larger than 4 MiB"),
        (b"[" * 5000, "the answer is not JSON"),
    ],
)
async def test_output_without_an_answer_is_a_failure(
    tmp_path: Path, result: Any, error: str
) -> None:
    answer = await ask(http(tmp_path, App(result)))
    assert answer.text == ""
    assert error in answer.error


async def test_refusals_quote_the_application_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_IT", "hunter2-hunter2")
    text = CHAT + "headers: {X-Key: '{env:KEY_OF_IT}'}\n"
    app = App({"error": "no such key hunter2-hunter2"}, 422)
    assert (await ask(http(tmp_path, app, text))).error == "422: no such key [hidden]"
    app.status = 401
    with pytest.raises(Unreachable, match=r"401: no such key \[hidden\]") as caught:
        await ask(http(tmp_path, app, text))
    assert caught.value.where == str(tmp_path / "own.yaml")
    app.status = 503
    assert "answers 503" in (await ask(http(tmp_path, app, text))).error


async def test_the_reason_for_a_retry_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_IT", "hunter2-hunter2")
    text = CHAT + "headers: {X-Key: '{env:KEY_OF_IT}'}\n"
    app, tally = App({"error": "busy with hunter2-hunter2"}, 503), RunCounters()

    async def stop(seconds: float) -> bool:
        return True

    target = http(tmp_path, app, text)
    assert await target.ask(question(), Patience(rest=stop, seconds=60.0, counters=tally)) is None
    await target.close()
    assert tally.retries == 1
    assert tally.waiting.endswith("503: busy with [hidden]")


async def test_an_unreachable_application_is_retried(tmp_path: Path) -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    app = App()
    target = http(tmp_path, app)
    app.then = lambda number: away(app.requests[-1]) if number < 3 else None
    answer = await target.ask(question(), replace(ONCE, seconds=60.0))
    assert answer is not None
    assert (answer.text, len(app.requests)) == ("hello", 3)
    app.then = lambda number: away(app.requests[-1])
    with pytest.raises(Unreachable, match=r"no answer for 0 s .*http://app/chat"):
        await target.ask(question(), ONCE)
    await target.close()


async def test_turns_of_a_conversation(tmp_path: Path) -> None:
    app = App({"reply": {"text": "hello"}, "chat": {"id": 77}})
    assert "one question only" in (await ask(http(tmp_path, app), question("more", 2))).error
    text = CHAT.replace("{words:", "{chat: '{app_session}', words:") + "app_session: chat.id\n"
    target = http(tmp_path, app, text)
    for turn in (question("a"), question("b", 2), question("c", session="s2")):
        assert await target.ask(turn, ONCE)
    await target.end_conversation("s1")
    assert await target.ask(question("d", 2), ONCE)
    await target.close()
    assert [app.body(at)["chat"] for at in range(4)] == ["", "77", "", ""]


# --- events -------------------------------------------------------------------------------------

SSE = CHAT + "sse: {path: 'delta.text', event: word}\n"
STREAM = (
    ': hello\r\n\r\nevent: word\r\ndata: {"delta": {"text": "Hel"}}\r\n\r\n'
    'event: note\ndata: {"delta": {"text": "no"}}\n\n'
    'event: word\nid: 3\ndata: {"delta":\ndata:  {"text": "lo"}}\n\n'
    'event: word\ndata: {}\n\ndata: [DONE]\n\nevent: word\ndata: {"delta": {"text": "late"}}\n\n'
)


async def test_events_are_joined(tmp_path: Path) -> None:
    app = App(STREAM.encode(), **{"content-type": "text/event-stream"})
    assert (await ask(http(tmp_path, app, SSE))).text == "Hello"
    last = SSE.replace("event: word", "take: last")
    assert (await ask(http(tmp_path, app, last))).text == "lo"


async def test_a_stream_that_stays_open_ends_at_its_last_event(tmp_path: Path) -> None:
    closed = []

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            for at in range(0, len(STREAM), 7):
                yield STREAM[at : at + 7].encode()
            raise AssertionError("read on behind the end")

        async def aclose(self) -> None:
            closed.append(True)

    app = App()
    app.then = lambda number: httpx.Response(200, stream=Endless())
    assert (await ask(http(tmp_path, app, SSE))).text == "Hello"
    assert closed
    named = SSE.replace("event: word", "done: note")
    assert (await ask(http(tmp_path, app, named))).text == "Hel"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("", "the answer is not an event stream: nothing"),
        ('{"error": "x"}', "the answer is not an event stream: {"),
        ("event: word\ndata: oops\n\n", "an event is not JSON: oops"),
        ("event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", "no event has text at `delta.text`; there"),
    ],
)
async def test_broken_streams_are_reported(tmp_path: Path, result: str, error: str) -> None:
    assert error in (await ask(http(tmp_path, App(result.encode()), SSE))).error


def test_events_without_data_are_ignored() -> None:
    assert list(parse_events(b"event: x\n\ndata\n\ndata: a\ndata:b\n\n: c\n\n")) == [
        ("message", ""),
        ("message", "a\nb"),
    ]


ECHO = "kind: command\ncommand: [PY, -c, 'import sys; print(sys.argv[1])', '{query}']\n"


def opened(row_id: str, kind: str = "train", group_id: str = "g1") -> GroupOpened:
    return GroupOpened(
        group_id=group_id,
        request_id="q",
        task_id="t",
        n=1,
        query="",
        body={},
        model="m",
        stream=False,
        episode_type=kind,
        row_id=row_id,
    )


class Proxy(FakeControl):
    """A proxy that sees each row's request at once; in its state, and as an event."""

    kind = "train"

    async def register_row(self, row: Any) -> str:
        register_row = await super().register_row(row)
        event = opened(row["row_id"], self.kind, f"g{len(self.rows)}")
        if row["row_id"].startswith("dry"):
            reduce(self.state, event)
        else:
            self.publish(event)
        return register_row


async def dry(folder: Path, text: str, control: FakeControl | None, url: str = AT) -> list[str]:
    spec = spec_of(folder, text)
    target = open_target(spec, ModelEndpoint(base_url=url))
    try:
        return (await try_target(target, spec, control)).lines(spec.name)
    finally:
        await target.close()


@pytest.mark.slow
async def test_the_dry_row_is_announced_as_not_trained_on(tmp_path: Path) -> None:
    control = Proxy()
    control.kind = "eval"
    result = await dry(tmp_path, ECHO + "dry: Hello there\n", control)
    assert result[0].endswith("s: Hello there")
    assert result[1] == "it reached the proxy as group g1, not trained on"
    (row,) = control.rows
    assert (row["train"], row["query"]) == (False, "Hello there")
    assert row["session"] == f"mock-{row['row_id']}"
    assert control.released == [row["row_id"]]
    control.kind = "train"
    assert "it IS trained on" in (await dry(tmp_path, ECHO, control))[1]


@pytest.mark.slow
async def test_an_unknown_outcome_of_a_dry_run_is_reported(tmp_path: Path) -> None:
    assert "may be trained on" in (await dry(tmp_path, ECHO, None))[1]
    assert "the proxy saw no request" in (await dry(tmp_path, ECHO, FakeControl()))[1]
    assert "there is no proxy" in (await dry(tmp_path, ECHO, FakeControl(down=1)))[1]


async def test_a_dry_row_without_an_answer_is_an_error_and_released(tmp_path: Path) -> None:
    control = FakeControl()
    text = "kind: command\ncommand: [PY, -c, 'import sys; sys.exit(\"no\")', '{query}']\n"
    with pytest.raises(TargetFailed, match="failed: ended with code 1: no") as caught:
        await dry(tmp_path, text, control)
    assert caught.value.where == str(tmp_path / "own.yaml")
    assert control.released == [control.rows[0]["row_id"]]


async def test_the_fake_vllm_gets_the_row_in_headers(tmp_path: Path, target: Target) -> None:
    assert (await dry(tmp_path, "kind: fake\n", None, target.url))[0].endswith("s: re: " + DRY)
    assert target.headers[0]["x-ajet-train"] == "no"
    assert target.row_ids[0].startswith("dry-")


DRY = "Say hello in one short sentence."


# --- dialects -----------------------------------------------------------------------------------

ANSWERS: dict[str, Any] = {
    "chat": {"choices": [{"message": {"content": "yes"}}]},
    "responses": {
        "output": [
            {"type": "reasoning", "content": [{"text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "yes"}]},
        ]
    },
    "messages": {
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]
    },
}
PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}


@pytest.mark.parametrize("name", ANSWERS)
async def test_each_dialect_has_its_form(tmp_path: Path, name: str) -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=ANSWERS[name])

    more = "model: own\nparams: {temperature: 0.5}\nheaders: {X-A: b}\n"
    spec = spec_of(tmp_path, f"kind: fake\ndialect: {name}\n{more}")
    made = open_target(spec, ModelEndpoint(base_url=AT), transport=httpx.MockTransport(answer))
    assert isinstance(made, FakeTarget)
    result = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert (await ask(made, question(messages=result))).text == "yes"
    (request,) = requests
    assert str(request.url) == f"http://127.0.0.1:9/v1/{PATHS[name]}"
    assert request.headers["x-a"] == "b"
    body = msgspec.json.decode(request.content)
    assert (body["model"], body["temperature"]) == ("own", 0.5)
    if name == "messages":
        assert (body["system"], body["messages"]) == ("Be brief.", result[1:])
        assert body["max_tokens"] > 0
    else:
        assert body["input" if name == "responses" else "messages"] == result


@pytest.mark.parametrize("name", DIALECTS)
def test_an_unreadable_answer_is_none(name: str) -> None:
    for bad in (b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"output": 3}', b'{"content": [1]}'):
        assert read(DIALECTS[name], bad) is None
    assert read(DIALECTS["messages"], b'{"content": []}') == ""


async def test_a_server_that_is_not_there_ends_it(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        await ask(target_of(tmp_path, "kind: fake"))


# --- in a run -----------------------------------------------------------------------------------


async def run(folder: Path, home: Home, text: str, control: FakeControl) -> tuple[Runner, Any]:
    path = write_rows(folder / "rows.jsonl", 3)
    spec = spec_of(folder, text)
    target = open_target(spec, ModelEndpoint(base_url=AT))
    with open_dataset(path) as dataset, Progress(home.root / "mock", "x", False) as progress:
        results = Results(folder / "out.jsonl", 0.1)
        runner = Runner(
            dataset, progress, target, Pace(poll=0.02), RowSelection(), control, results
        )
        await runner.run()
        results.close()
    await target.close()
    lines = (folder / "out.jsonl").read_text().splitlines()
    return runner, {row["row_id"]: row for row in map(msgspec.json.decode, lines)}


@pytest.mark.slow
async def test_rows_that_reach_no_group_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home.open(tmp_path / "home")
    runner, rows = await run(tmp_path, home, ECHO, FakeControl())
    assert (runner.counters.answered, runner.counters.unmatched) == (3, 3)
    assert caplog.text.count("no request at the proxy matched it") == 3
    assert "3 unmatched" in runner.counters.line()
    assert {row["group"] for row in rows.values()} == {None}


@pytest.mark.slow
async def test_rows_are_announced_with_their_sessions(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    control = Proxy()
    runner, rows = await run(
        tmp_path, home, ECHO.replace("'{query}'", "'{session}', '{query}'"), control
    )
    assert runner.counters.unmatched == 0
    assert {row["session"] for row in control.rows} == {row["answer"] for row in rows.values()}
    assert len({row["session"] for row in control.rows}) == 3
    assert all(row["group"] for row in rows.values())
