"""kill -9 of each process in the middle of work, at random moments."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.events import Event, GroupSealed
from core.journal.writer import Journal
from core.runtime.home import running
from tests.support.proxy.singles import EpisodeEnded, singles
from tests.support.pty.terminal import Terminal
from tests.support.stack import Stack, loop_up, rows_file, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

SEEDS = [pytest.param(1), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 7))]
"""One run in `make test`, five more in `make soak`."""


def kills(seed: int) -> range:
    """One kill in `make test`, two in `make soak`; the mock user is killed twice in both."""
    return range(1 if seed == 1 else 2)


@dataclass
class RunningConsole:
    """Engine, proxy and journal, with the counts of earlier tests."""

    stack: Stack
    counted: int = 0
    """Samples that the engine had counted when the test began."""
    sealed: int = 0
    """Rewards in the journal when the test began."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The processes of all tests that start none of their own."""
    with loop_up(tmp_path_factory.mktemp("kills") / "home") as stack:
        yield stack


@pytest.fixture
def run_console(shared: Stack) -> RunningConsole:
    """Engine ROLLING and proxy up, with nothing to do."""
    if running(shared.home, "proxy") is None:
        shared.proxy()
        until("it sees the engine", lambda: rolling_by_proxy(shared))
    return RunningConsole(shared, counted(shared), sealed_and_ended(shared)[0])


def rolling_by_proxy(stack: Stack) -> bool:
    return [server.state for server in stack.state().servers.values()] == ["ROLLING"]


def counted(stack: Stack) -> int:
    """Samples that the engine has counted, read between two updates: during one, its batch is
    neither in the pool nor among the updates."""

    def read() -> tuple[int] | None:
        stack.rolling()
        updates, collected = stack.updates(), stack.collected()
        still = stack.status()["engine_status"] == "ENGINE.ROLLING"
        if not still or stack.updates() != updates:
            return None
        return (sum(int(update["samples"]) for update in updates) + collected,)

    return until("no update is in progress", read, 60)[0]


def sealed_and_ended(stack: Stack) -> tuple[int, Counter[str]]:
    """How many rewards the journal has, and how often each episode was sent one."""
    journal = Journal(stack.home.journal)
    events: list[Event] = []
    while page := journal.events(events[-1].seq if events else 0, 5_000):
        events += page
    journal.close()
    sealed = sum(len(event.rewards) for event in events if isinstance(event, GroupSealed))
    ended = Counter(
        event.episode_uuid
        for event in singles(events)
        if isinstance(event, EpisodeEnded) and event.outcome == "ended"
    )
    return sealed, ended


def mock_in_background(stack: Stack, dataset: Path) -> None:
    """Replay a dataset no faster than eight rows a second: on no machine it ends too early."""
    stack.start("mock", str(dataset), "--concurrency", "4", "--pace", "0.5")


def busy(stack: Stack, more: int = 3) -> None:
    """More groups are opened than there are now: work is in its middle."""
    groups = stack.state().totals.groups
    until("work", lambda: stack.state().totals.groups >= groups + more, 90)


def at_random(stack: Stack, rng: random.Random) -> None:
    """Some events later: a moment that differs with the seed."""
    target = stack.state().seq + rng.randint(1, 40)
    until("some events", lambda: stack.state().seq >= target, 90, every=0.02)


def check_clean(run_console: RunningConsole) -> None:
    """Nothing claimed, nothing sent twice, and state equals journal."""
    stack = run_console.stack
    until("all groups closed", lambda: not stack.state().open_groups(), 90)
    until("nothing claimed", lambda: not stack.claimed(), 60)
    shown = stack.state()
    samples = counted(stack) - run_console.counted
    stack.stop("proxy")
    assert shown == stack.journal_state(shown.seq)
    sealed, ended = sealed_and_ended(stack)
    assert ended, "no reward was ever sent"
    assert max(ended.values()) == 1
    assert samples <= sealed - run_console.sealed, "the engine counted a reward twice"


@pytest.mark.parametrize("seed", SEEDS)
def test_kill_the_proxy(tmp_path: Path, run_console: RunningConsole, seed: int) -> None:
    rng, stack = random.Random(seed), run_console.stack
    port = running(stack.home, "proxy").port  # type: ignore[union-attr] # it is up
    mock_in_background(stack, rows_file(tmp_path / "rows.jsonl", 12 + 16 * len(kills(seed))))
    for _ in kills(seed):
        busy(stack)
        at_random(stack, rng)
        stack.kill("proxy")
        stack.start("proxy", "--port", str(port))
    until("the mock user is done", lambda: stack.children["mock"].poll() is not None, 120)
    assert stack.children["mock"].returncode == 0, stack.log("mock")
    check_clean(run_console)


@pytest.mark.parametrize("seed", SEEDS)
def test_kill_the_engine(tmp_path: Path, run_console: RunningConsole, seed: int) -> None:
    rng, stack = random.Random(seed), run_console.stack
    mock_in_background(stack, rows_file(tmp_path / "rows.jsonl", 12 + 16 * len(kills(seed))))
    for _ in kills(seed):
        before = stack.step()
        until("an update", lambda before=before: stack.step() > before, 60)  # type: ignore[misc]  # bound at once
        at_random(stack, rng)
        done = max(int(update["step"]) for update in stack.updates())
        stack.kill("engine")
        stack.engine()
        assert stack.status()["engine_status"] == "ENGINE.OFFLINE"
        until("found again", lambda: started(stack), 90)
        stack.rolling()
        assert stack.step() >= done + 1, "it goes on from its last update"
    until("the mock user is done", lambda: stack.children["mock"].poll() is not None, 120)
    check_clean(run_console)


def started(stack: Stack) -> bool:
    return stack.run("engine", "start").returncode == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_kill_the_mock_user(tmp_path: Path, run_console: RunningConsole, seed: int) -> None:
    rng, stack = random.Random(seed), run_console.stack
    dataset = rows_file(tmp_path / "rows.jsonl", 32)
    before = stack.state().mock
    killed, runs = before.mock_id if before is not None else "", 0
    for _ in range(2):
        mock_in_background(stack, dataset)
        until("a row is done", lambda killed=killed: rows_done(stack, killed), 60)  # type: ignore[misc]  # bound at once
        at_random(stack, rng)
        stack.kill("mock")
        mock = stack.state().mock
        assert mock is not None
        assert bool(mock.already) is bool(runs), "the second goes on where the first was"
        killed, already, runs = mock.mock_id, mock.already, runs + 1
    again = stack.run("run", "mock", str(dataset), "--concurrency", "4")
    assert again.returncode == 0, again.stderr
    state = stack.state()
    assert state.mock is not None
    assert state.mock.already > already
    assert state.mock.already + state.mock.done == 32
    check_clean(run_console)


def rows_done(stack: Stack, killed: str) -> int:
    """Rows done by a mock user other than the killed one."""
    mock = stack.state().mock
    return mock.done if mock is not None and mock.mock_id != killed else 0


@pytest.mark.parametrize("seed", SEEDS)
def test_kill_the_console(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with Stack(tmp_path / "home") as stack:
        environment = {
            **stack.environment,
            "AJET_CONSOLE__PROXY__PORT": "0",
            "AJET_CONSOLE__ENGINE__PORT": "0",
        }
        pids: dict[str, int] = {}
        for turn in kills(seed):
            with Terminal([], environment) as console:
                console.expect("ROLLING", limit=60)
                mock_in_background(stack, rows_file(tmp_path / f"rows{turn}.jsonl", 24))
                busy(stack)
                at_random(stack, rng)
                pids = pids or {role: pid(stack, role) for role in ("engine", "proxy")}
                assert {role: pid(stack, role) for role in pids} == pids, "it re-attached"
                console.kill()
            until("the mock user is done", lambda: stack.children["mock"].poll() is not None, 120)
            assert stack.children["mock"].returncode == 0, stack.log("mock")
        with Terminal([], environment) as console:
            console.expect("ROLLING", limit=60)
            assert {role: pid(stack, role) for role in pids} == pids, "it re-attached"
            until("attached", lambda: stack.state().consoles == 1, 90)
            until("nothing claimed", lambda: not stack.claimed(), 60)
            console.type("\x11")
            console.expect("Leave running", limit=10)
            console.type("s")
            assert console.wait() == 0
        until("all stopped", lambda: not any(running(stack.home, role) for role in pids), 90)


def pid(stack: Stack, role: str) -> int:
    info = running(stack.home, role)
    assert info is not None, f"{role} runs on without the console"
    return info.pid
