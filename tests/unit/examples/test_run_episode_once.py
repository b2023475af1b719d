"""`run_episode_once.py` of the black-box folder, by itself: item, endpoint and key as arguments."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "blackbox"
ROWS = [json.loads(line) for line in (FOLDER / "dataset.jsonl").read_text().splitlines()]


class Endpoint(ThreadingHTTPServer):
    """An OpenAI endpoint that answers `It is 7.` to every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.requests: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Answer(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(
            (self.headers["Authorization"], body["messages"][-1]["content"])
        )
        answer = {"choices": [{"message": {"role": "assistant", "content": "It is 7."}}]}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(60)


def run(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.run(
        [sys.executable, str(FOLDER / "run_episode_once.py"), *flags],
        env={**own, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize(
    ("item", "question", "reward"),
    [
        ('{"main_query": "3 + 4?", "metadata": {"answer": "7"}}', "3 + 4?", "1.0"),
        ('{"question": "3 + 5?", "answer": "8"}', "3 + 5?", "0.0"),
        ("1", ROWS[1]["main_query"], "0.0"),
        (ROWS[2]["task_id"], ROWS[2]["main_query"], "0.0"),
    ],
)
def test_an_item_is_run_and_its_reward_printed(
    endpoint: Endpoint, item: str, question: str, reward: str
) -> None:
    done = run("--item", item, "--base-url", endpoint.url, "--api-key", "secret")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f'answer "It is 7."\nreward {reward}\n'
    assert endpoint.requests == [("Bearer secret", question)]


def test_endpoint_and_key_come_from_the_environment(endpoint: Endpoint) -> None:
    item = '{"question": "3 + 4?", "answer": "7"}'
    done = run("--item", item, OPENAI_BASE_URL=endpoint.url, OPENAI_API_KEY="own")
    assert (done.returncode, done.stdout) == (0, 'answer "It is 7."\nreward 1.0\n'), done.stderr
    assert endpoint.requests == [("Bearer own", "3 + 4?")]


@pytest.mark.parametrize(
    ("flags", "result"),
    [
        (["--item", '{"question": '], "--item: not JSON: Expecting value"),
        (["--item", '{"answer": "7"}'], "--item: has none of `main_query`, `question` and `query`"),
        (["--item", '{"main_query": 3}'], "--item: `main_query` is a int, not a str"),
        (["--item", "nowhere"], "no item 'nowhere'"),
        ([], "the following arguments are required: --item"),
    ],
)
def test_wrong_use_is_reported_and_no_agent_is_run(
    endpoint: Endpoint, flags: list[str], result: str
) -> None:
    done = run(*flags, "--base-url", endpoint.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert result in done.stderr
    assert "Traceback" not in done.stderr
    assert not endpoint.requests


def test_a_missing_endpoint_and_a_missing_reward_are_reported(endpoint: Endpoint) -> None:
    done = run("--item", "0")
    assert done.returncode == 2
    assert "give --base-url URL, or set OPENAI_BASE_URL" in done.stderr
    done = run("--item", '{"question": "no answer to it"}', "--base-url", endpoint.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no reward: item item has no number in its `answer`" in done.stderr


def test_a_row_without_a_task_is_refused_before_the_agent_runs(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task": "3 + 4?", "answer": "7"}\n')
    flags = ("--item", "0", "--base-url", endpoint.url, "--api-key", "secret")
    done = run(*flags, DATASET=str(rows))
    assert done.returncode == 1
    assert "has no `query` or `question`" in done.stderr
    assert endpoint.requests == []


def test_an_agent_that_starts_while_the_script_exits_is_killed() -> None:
    program = textwrap.dedent(
        """
        import subprocess, sys, threading, time
        import run_episode_once as episode

        forked, exiting = threading.Event(), threading.Event()

        class Slow(subprocess.Popen):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                print(self.pid, flush=True)
                forked.set()
                exiting.wait(5)

        subprocess.Popen = Slow
        episode.AGENT = [sys.executable, "-c", "import time; time.sleep(600)"]
        ask = lambda: episode.run_agent("3 + 4", "http://127.0.0.1:9/v1", "none")
        asks = threading.Thread(target=ask, daemon=True)
        asks.start()
        forked.wait()
        ends = threading.Thread(target=episode.end_agents)
        ends.start()
        ends.join(0.2)
        exiting.set()
        ends.join()
        asks.join(10)
        try:
            ask()
        except RuntimeError as error:
            print(error, flush=True)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    pid, *lines = done.stdout.splitlines()
    try:
        _, left = psutil.wait_procs([psutil.Process(int(pid))], timeout=10)
    except psutil.NoSuchProcess:
        left = []
    for one in left:
        one.kill()
    assert not left
    assert lines == ["the script exits"]
