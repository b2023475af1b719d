"""Debugging a script: the report of a failing run, and its trace."""

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from ajet_swarm.debug import Trace, main, text_of
from ajet_swarm.debug.agent import choose
from ajet_swarm.debug.trace import RecordedCall, RecordingRelay
from ajet_swarm.protocol.models import Task, WorkflowOutput
from tests.support.scripted.threaded_swarm import threaded_swarm

TASKS = [Task(task_id="a"), Task(task_id="7"), Task(task_id="c")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for name in ("run_episode_once", "get_training_dataset_item_list", "agent_roll"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "run_episode_once.py").write_text("def run_episode_once(item, url, key): ...\n")
    (tmp_path / "get_training_dataset_item_list.py").write_text(
        "def get_training_dataset_item_list():\n    return [{'task_id': 'a'}]\n"
    )
    return tmp_path


@pytest.mark.slow
def test_an_item_by_id_or_place() -> None:
    assert [choose(TASKS, name).task_id for name in ("c", "7", "0")] == ["c", "7", "a"]
    with pytest.raises(UsageError, match=r"no item '9'.*Give 0 to 2"):
        choose(TASKS, "9")


@pytest.mark.slow
def test_a_folder_without_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "get_training_dataset_item_list.py is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_a_missing_server_is_reported_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), "--swarm-url", "http://127.0.0.1:9"]) == 1
    assert "no swarm server answers" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_that_does_not_load_shows_its_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder / "run_episode_once.py"
    source.write_text("KEY = 'sk-ajet-aaaaaaaaaaaaaaaaaaaaaaaaaaaa'\nraise ValueError(KEY)\n")
    assert main([str(folder), "--swarm-url", "http://127.0.0.1:9"]) == 1
    out = capsys.readouterr().out
    assert f'File "{source}", line 2' in out
    assert "ValueError" in out
    assert "aaaaaaaa" not in out.partition("ValueError")[2]  # no key on the screen


@pytest.mark.slow
def test_a_dataset_without_items(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "get_training_dataset_item_list.py").write_text(
        "def get_training_dataset_item_list():\n    return []\n"
    )
    assert main([str(folder)]) == 2
    assert "the dataset has no item" in capsys.readouterr().err


@pytest.mark.slow
def test_hostile_text_cannot_move_the_cursor() -> None:
    call = RecordedCall(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "\x1b[2Jhi"}]}
    )
    call.status, call.text, call.answer = 200, "a\x1b]0;x\x07\nb", {}
    trace = Trace(calls=[call], output=WorkflowOutput(reward=1.0, metadata={"note": "\x1b[31m"}))
    shown = text_of(trace)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "reward 1 " in shown


@pytest.mark.slow
def test_an_error_of_the_server_is_shown() -> None:
    call = RecordedCall("/v1/chat/completions", {"messages": []}, 404, {"detail": "not found"})
    assert "HTTP 404" in text_of(Trace(calls=[call]))
    assert json.dumps({"detail": "not found"}) in text_of(Trace(calls=[call]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("return 'half'", "a reward must be one finite number, not 'half'"),
        ("raise SystemExit(0)", "run_episode_once ended the program (sys.exit(0)) instead of"),
    ],
)
def test_an_invalid_reward_is_reported_and_the_episode_given_back(
    folder: Path, capsys: pytest.CaptureFixture[str], body: str, result: str
) -> None:
    source = folder / "run_episode_once.py"
    source.write_text(f"def run_episode_once(item, url, key):\n    {body}\n")
    with threaded_swarm() as swarm:
        assert main([str(folder), "--swarm-url", swarm.url]) == 1
        assert not any(episode.claimed for episode in swarm.server.episodes.values())
    out = capsys.readouterr().out
    assert result in out
    assert 'ajet_swarm/client/episode.py"' not in out
    assert "no reward; the episode is given back" in out


@pytest.mark.slow
def test_a_module_that_exits_is_not_a_success(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run_episode_once.py").write_text("import sys\nsys.exit()\n")
    assert main([str(folder), "--swarm-url", "http://127.0.0.1:9"]) == 1
    assert "SystemExit" in capsys.readouterr().out


@pytest.mark.slow
def test_a_number_as_text_counts_as_where_it_is_trained(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run_episode_once.py").write_text(
        "def run_episode_once(item, url, key):\n    return '0.5'\n"
    )
    with threaded_swarm() as swarm:
        assert main([str(folder), "--swarm-url", swarm.url, "--json"]) == 0
        assert swarm.server.ends[0]["workflow_output"]["reward"] == 0.5
    assert json.loads(capsys.readouterr().out)["output"]["reward"] == 0.5


@pytest.mark.slow
def test_what_an_agent_prints_last_is_printed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "run_episode_once.py").write_text(
        "import atexit, sys\n"
        "def last():\n"
        "    sys.stdout.write('x' * 300_000 + 'the last word')\n"
        "def run_episode_once(item, url, key):\n"
        "    atexit.register(last)\n"
        "    return 1.0\n"
    )
    with threaded_swarm() as swarm:
        assert main([str(folder), "--swarm-url", swarm.url]) == 0
    assert "the last word" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "result"),
    [
        ("os._exit(0)", "the program ended itself (exit code 0, as with os._exit(0)) instead of"),
        ("os.kill(os.getpid(), 9)", "the program was ended by SIGKILL instead of returning"),
    ],
)
def test_an_agent_that_kills_the_process_has_failed(
    folder: Path, capfd: pytest.CaptureFixture[str], ends: str, result: str
) -> None:
    (folder / "run_episode_once.py").write_text(
        "import os, urllib.request as web\n"
        "def run_episode_once(item, url, key):\n"
        "    head = {'Authorization': f'Bearer {key}', 'Content-Type': 'application/json'}\n"
        '    body = b\'{"messages": [{"role": "user", "content": "hello there"}]}\'\n'
        "    web.urlopen(web.Request(f'{url}/chat/completions', body, head)).read()\n"
        f"    {ends}\n"
    )
    with threaded_swarm() as swarm:
        assert main([str(folder), "--swarm-url", swarm.url]) == 1
        assert not swarm.server.claimed()
        assert len(swarm.server.aborts) == 1
    out = capfd.readouterr().out
    assert result in out
    assert "item a  step 1" in out
    assert "call 1  /v1/chat/completions  HTTP 200" in out
    assert "hello there" in out
    assert "no reward; the episode is given back" in out


@pytest.mark.slow
def test_a_module_that_kills_the_process_has_failed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "run_episode_once.py").write_text("import os\nos._exit(0)\n")
    assert main([str(folder), "--swarm-url", "http://127.0.0.1:9", "--json"]) == 1
    assert "before an episode began" in json.loads(capfd.readouterr().out)["trouble"]


@pytest.mark.slow
@pytest.mark.parametrize("safe", [False, True])
def test_the_child_process_imports_from_the_same_folders(tmp_path: Path, safe: bool) -> None:
    """A package in the folder it is started from, unless Python ignores that folder."""
    agent, beside = tmp_path / "agent", tmp_path / "beside"
    agent.mkdir()
    beside.mkdir()
    (beside / "__init__.py").write_text("")
    (agent / "run_episode_once.py").write_text(
        "import beside\ndef run_episode_once(item, url, key): ...\n"
    )
    (agent / "get_training_dataset_item_list.py").write_text(
        "def get_training_dataset_item_list():\n    return [{'task_id': 'a'}]\n"
    )
    words = [*(["-P"] if safe else []), "-m", "ajet_swarm.debug", "agent", "--item", "none"]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": root},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    result = done.stdout + done.stderr
    assert ("No module named 'beside'" in result) == safe
    assert ("no item 'none'" in result) != safe


WHOLE = {
    "choices": [{"message": {"content": "five"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
STREAM = (
    b'data: {"choices":[{"delta":{"content":"fi"}}]}\n\n'
    b": keepalive\n\n"
    b'data: {"choices":[{"delta":{"content":"ve"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


class Model(BaseHTTPRequestHandler):
    """Answers whole, in a stream, or breaks off."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.headers["authorization"] == "Bearer k"
        stream = request.get("stream")
        body = STREAM if stream else json.dumps(WHOLE).encode()
        self.send_response(418 if request.get("wrong") else 200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(body) + 10 * bool(request.get("cut"))))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def relay() -> Iterator[RecordingRelay]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with RecordingRelay(f"http://127.0.0.1:{server.server_address[1]}/v1") as one:
        yield one
    server.shutdown()
    thread.join()
    server.server_close()


def ask(base_url: str, body: object) -> tuple[int, bytes]:
    host, _, path = base_url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        head = {"Authorization": "Bearer k"}
        connection.request("POST", f"/{path}/chat/completions", json.dumps(body), head)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_call_is_forwarded_and_recorded(relay: RecordingRelay) -> None:
    request = {"messages": [{"role": "user", "content": "2+3?"}]}
    status, body = ask(relay.base_url, request)
    assert (status, json.loads(body)) == (200, WHOLE)
    [call] = relay.calls
    assert (call.path, call.status, call.text) == ("/v1/chat/completions", 200, "five")
    assert (call.request, call.usage, call.finish) == (request, WHOLE["usage"], "stop")
    assert call.messages == request["messages"]


def test_a_stream_is_forwarded_unchanged_and_its_text_recorded(relay: RecordingRelay) -> None:
    assert ask(relay.base_url, {"stream": True}) == (200, STREAM)
    assert (relay.calls[0].text, relay.calls[0].finish) == ("five", "stop")


def test_an_error_is_passed_on(relay: RecordingRelay) -> None:
    assert ask(relay.base_url, {"wrong": True})[0] == 418
    assert relay.calls[0].status == 418


def test_a_truncated_answer_is_forwarded_as_truncated(relay: RecordingRelay) -> None:
    with pytest.raises(http.client.HTTPException):
        ask(relay.base_url, {"cut": True})
    assert "payload is not completed" in relay.calls[0].error


def test_an_unreachable_server_is_a_502_with_the_reason() -> None:
    with RecordingRelay("http://127.0.0.1:9/v1") as relay:
        status, body = ask(relay.base_url, {})
    assert status == 502
    assert b"Cannot connect" in body
    assert "Cannot connect" in relay.calls[0].error
