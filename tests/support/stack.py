"""The real processes for tests: started, found, killed and asked from outside."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import httpx
import psutil

from core.journal.writer import Journal
from core.runtime.home import Home, RunInfo, running
from core.state import Group, Progress, State, reduce
from tests.support import forked

T = TypeVar("T")

_HTTP = httpx.Client(
    trust_env=False,
    timeout=60,
    limits=httpx.Limits(max_keepalive_connections=0),  # servers are killed and started again
)
"""One client for all questions: a new one reads all certificates, which costs 15 ms of CPU."""

START_LIMIT = 110.0
"""Seconds for a process to come up on a busy machine."""


def until(what: str, check: Callable[[], T | None], limit: float = 90.0, every: float = 0.1) -> T:
    """What `check` returns once it is true; fails with `what` after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit:g} s: {what}")
        time.sleep(every)


class Stack:
    """Engine, proxy and mock user of one home."""

    def __init__(self, root: Path, *, forks: bool = True) -> None:
        """Args:
        root: Folder of the home.
        forks: Fork the processes from one that has imported the program. Benches start new
            interpreters: a forked process has modules in memory that it does not use.
        """
        self.home = Home.open(root)
        self.children: dict[str, forked.ForkedProcess | subprocess.Popen[bytes]] = {}
        self._forks = forks
        self.environment = {
            **{key: value for key, value in os.environ.items() if not _foreign(key)},
            "AJET_CONSOLE_HOME": str(root),
            "PYTHONUNBUFFERED": "1",
            "AJET_CONSOLE__PROBE__SHARE": "0",  # the checks take processor time from others
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for role in list(self.children):
            self.kill(role)
        for role in ("mock", "proxy", "engine"):  # children of a console that was killed
            if (info := running(self.home, role)) is not None:
                with contextlib.suppress(psutil.Error):
                    child = psutil.Process(info.pid)
                    child.kill()
                    child.wait(60)
        if kind is not None:
            for log in sorted(self.home.logs.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")

    # --- processes ------------------------------------------------------------------------------

    def start(self, role: str, *args: str) -> RunInfo:
        """Start `ajet-console run ROLE ARGS` and wait until it has published itself."""
        with (self.home.logs / f"{role}.log").open("ab") as log:
            child = self._child(["run", role, *args], log)
        self.children[role] = child

        def up() -> RunInfo | None:
            assert child.poll() is None, f"{role} ended with {child.returncode}: {self.log(role)}"
            info = running(self.home, role)
            return info if info is not None and info.pid == child.pid else None

        return until(f"{role} is up", up, START_LIMIT)

    def _child(
        self, args: list[str], log: IO[bytes]
    ) -> "forked.ForkedProcess | subprocess.Popen[bytes]":
        if self._forks:
            return forked.start(args, env=self.environment, output=log)
        return subprocess.Popen(
            [sys.executable, "-m", "console", *args],
            cwd=forked.ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def engine(self, *args: str) -> RunInfo:
        """The embedded engine on a free port."""
        return self.start("engine", "--port", "0", *args)

    def proxy(self, *args: str) -> RunInfo:
        """The fake vLLM on a free port, by default on the engine of this home."""
        return self.start("proxy", "--port", "0", *args)

    def kill(self, role: str) -> None:
        """kill -9, by pid."""
        child = self.children.pop(role, None)
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGKILL)
            child.wait(60)

    def stop(self, role: str) -> int:
        """SIGTERM; returns the exit code."""
        child = self.children.pop(role)
        child.terminate()
        return child.wait(90)

    def log(self, role: str) -> str:
        """The end of a process's log."""
        path = self.home.logs / f"{role}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def run(self, *args: str, limit: float = 120.0) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return forked.run(args, env=self.environment, timeout=limit)

    # --- what can be asked ----------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """Where an OpenAI client points."""
        info = running(self.home, "proxy")
        assert info is not None
        return f"{info.url}/v1"

    @property
    def engine_url(self) -> str:
        """Where the swarm server listens."""
        info = running(self.home, "engine")
        assert info is not None
        return info.url

    def state(self) -> State:
        """The proxy's state now."""
        import msgspec

        info = running(self.home, "proxy")
        assert info is not None
        answer = _HTTP.get(
            f"{info.url}/control/snapshot",
            headers={"authorization": f"Bearer {self.home.token()}"},
        )
        assert answer.status_code == 200, answer.text
        return msgspec.convert(answer.json()["state"], State)

    def status(self) -> dict[str, Any]:
        """The engine's own word."""
        answer = _HTTP.get(f"{self.engine_url}/get_engine_status")
        return dict(answer.json())

    def progress(self) -> Progress:
        """What the proxy knows of the looks at the embedded engine."""
        return self.state().progress.get("embedded") or Progress()

    def step(self) -> int:
        """The engine's global step."""
        return int(self.status()["global_step"] or 0)

    def claimed(self) -> list[dict[str, Any]]:
        """Claimed episodes by the server's own buffer."""
        answer = _HTTP.post(f"{self.engine_url}/get_episode_buffer", json={})
        return [one for one in answer.json()["buffer"] if one["episode_status"] == "claimed"]

    def updates(self) -> list[dict[str, Any]]:
        """Statistics of the updates done."""
        answer = _HTTP.get(f"{self.engine_url}/ajetc/updates?after=0")
        body = answer.json()
        return list(body["updates"] if isinstance(body, dict) else body)

    def rolling(self, limit: float = 90.0) -> None:
        """Wait until the engine is ROLLING."""
        until("ROLLING", lambda: self.status()["engine_status"] == "ENGINE.ROLLING", limit)

    def collected(self) -> int:
        """Episodes the engine has counted for the batch that is open."""
        answer = _HTTP.get(f"{self.engine_url}/get_current_batch_rollout_pool_information")
        return int(answer.json()["completed_episodes"] or 0)

    def journal_state(self, until: int | None = None) -> State:
        """What the reducer makes of the events on disk, up to `until`; the proxy must be down."""
        journal = Journal(self.home.journal)
        state = State()
        try:
            while page := journal.events(state.seq, 5_000):
                wanted = [event for event in page if until is None or event.seq <= until]
                for event in wanted:
                    reduce(state, event)
                if len(wanted) < len(page):
                    break
        finally:
            journal.close()
        return state


def rewards_of_best(group: Group, index: int) -> list[float]:
    """Return the rewards after the vote that candidate `index` is best. Each candidate with the
    same answer gets its reward, and the embedded engine gives equal answers often."""
    best = group.candidates[index].text.strip()
    return [float(candidate.text.strip() == best) for candidate in group.candidates]


def _foreign(name: str) -> bool:
    """Whether a variable would aim a process at something outside of its test."""
    return name.startswith(("AJET", "OPENAI_", "ANTHROPIC_")) or name.lower().endswith("_proxy")


@contextlib.contextmanager
def loop_up(root: Path, *proxy_args: str, looks: bool = False) -> Iterator[Stack]:
    """Engine ROLLING and proxy up, on request with looks at the probe set."""
    with Stack(root) as stack:
        if looks:
            del stack.environment["AJET_CONSOLE__PROBE__SHARE"]
        stack.engine()
        stack.proxy(*proxy_args)
        done = stack.run("engine", "start")
        assert done.returncode == 0, done.stderr
        stack.rolling()
        yield stack


def rows_file(path: Path, count: int) -> Path:
    """A dataset of `count` rows of questions from the policy's pretraining."""
    questions = ["What is the capital of France?", "What is 3 + 4?", "Why is the sky blue?"]
    questions += [f"What is {a} + {b}?" for a in range(1, 11) for b in range(1, 11)]
    with path.open("w") as file:
        for number in range(count):
            query = questions[number % len(questions)]
            file.write(json.dumps({"id": f"row{number}", "query": query}) + "\n")
    return path
