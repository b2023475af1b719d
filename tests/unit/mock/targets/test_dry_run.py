"""The dry row, the three dialects of the fake vLLM, and rows that reach no group."""

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
from mock.targets.base import ModelEndpoint
from mock.targets.dialects import DIALECTS, read
from mock.targets.dry_run import TargetFailed, open_target, try_target
from mock.targets.fake import FakeTarget
from mock.targets.question import Unreachable
from tests.unit.mock.helpers import FakeControl, Target, write_rows
from tests.unit.mock.target_helpers import AT, ask, question, spec_of, target_of

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
