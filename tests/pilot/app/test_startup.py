"""Start of the console: started and found processes, the job of a fresh engine (fakes)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.tasks import Tasks
from console.backend.options import ConsoleOptions
from console.backend.startup import Backend
from console.backend.supervisor import ChildFailed, ChildState, Supervisor
from console.session.app_state import Session
from core.events import EngineChanged, MockStarted
from core.runtime.home import Home, RunInfo
from core.runtime.sockets import bind
from core.settings import EngineSettings, Settings
from tests.support.checks import missing
from tests.support.console import FakeLink
from tests.support.sample import sample_events, state_of


class FakeSupervisor(Supervisor):
    """A supervisor that starts no process."""

    def __init__(self, home: Home, settings: Settings) -> None:
        super().__init__(home, settings)
        self.began: list[tuple[str, tuple[str, ...]]] = []
        self.states: dict[str, ChildState] = {}
        self.urls = {"engine": "http://e:1", "proxy": "http://p:1", "mock": ""}
        self.fails: set[str] = set()
        self.swarm = ""
        self.stopped = self.released = False
        self.grace: float | None = None

    def up(self, role: str, phase: Any = "running") -> None:
        self.states[role] = ChildState(role, phase, 7, url=self.urls[role])

    async def start(self, role: str, args: Sequence[str] = ()) -> None:
        self.began.append((role, tuple(args)))
        if role in self.fails:
            self.states[role] = ChildState(role, "exited", None, 2, tail=("boom [/b]",))
        else:
            self.up(role)

    async def wait_ready(self, role: str, timeout: float = 60.0) -> RunInfo:
        info = self.find(role)
        if info is None:
            raise ChildFailed(f"{role} ended with exit code 2\n  boom")
        return info

    async def restart(self, role: str, grace: float | None = None) -> None:
        await self.start(role)

    async def stop_all(self, grace: float | None = None) -> None:
        self.stopped, self.grace = True, grace

    def release(self) -> None:
        self.released = True

    def find(self, role: str) -> RunInfo | None:
        state = self.states.get(role)
        if state is None or not state.alive:
            return None
        swarm = self.swarm if role == "proxy" else ""
        return RunInfo(role=role, pid=7, started_at=0.0, url=self.urls[role], swarm=swarm)

    def state(self, role: str) -> ChildState:
        return self.states.get(role, ChildState(role))

    def poll(self) -> Mapping[str, ChildState]:
        return {role: self.state(role) for role in ("engine", "proxy", "mock")}


class World:
    """One console's backend with fake processes and a fake link."""

    def __init__(self, tmp_path: Path, swarm: str = "embedded", port: int = 0, **more: Any) -> None:
        settings = Settings(swarm_url=swarm, engine=EngineSettings(port=port))
        self.options = ConsoleOptions(home=Home.open(tmp_path), settings=settings, **more)
        self.supervisor = FakeSupervisor(self.options.home, settings)
        self.link = FakeLink(state_of(*sample_events()[:2]))
        self.connected: list[tuple[str, str]] = []
        self.session = Session()
        self.backend = Backend(self.options, self.supervisor, self._connect)

    @asynccontextmanager
    async def _connect(self, url: str, token: str) -> AsyncIterator[FakeLink]:
        self.connected.append((url, token))
        yield self.link

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Tasks("test") as tasks:
            tasks.spawn(self.backend.run(self.session), "backend")
            yield

    @property
    def ordered(self) -> list[str]:
        return [name for name, _ in self.link.commands]


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.01)


async def test_a_fresh_start_starts_engine_and_proxy_and_sends_the_job(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await until(lambda: world.ordered)
        assert world.session.seen
        assert {role for role, _ in world.supervisor.began} == {"engine", "proxy"}
        (flags,) = [flags for role, flags in world.supervisor.began if role == "proxy"]
        assert flags[:2] == ("--next-port", "--engine-starts-by")
        assert float(flags[2]) > time.time()
        assert world.link.commands == [("engine.start", {"server": "embedded"})]
        assert world.session.steps["engine"].phase == "done"
        assert world.session.processes is world.backend
        await until(lambda: set(world.session.children) == {"engine", "proxy"})
        assert world.connected == [("http://p:1", world.options.home.token())]
    assert world.supervisor.released
    assert not world.supervisor.stopped


@pytest.mark.parametrize("next_port", [True, False])
async def test_a_taken_port_of_the_engine_is_replaced_whatever_the_proxys(
    tmp_path: Path, next_port: bool
) -> None:
    """`--port` names the port of the fake vLLM."""
    with closing(bind("127.0.0.1", 0)) as taken:
        world = World(tmp_path, port=taken.getsockname()[1], next_port=next_port)
        async with world.running():
            await until(lambda: world.ordered)
    assert ("engine", ("--port", "0")) in world.supervisor.began
    (flags,) = [flags for role, flags in world.supervisor.began if role == "proxy"]
    assert ("--next-port" in flags) == next_port


async def test_running_processes_are_attached_to_without_sending_a_job(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.supervisor.up("engine", "attached")
    world.supervisor.up("proxy", "attached")
    async with world.running():
        await until(lambda: world.session.seen and world.session.children)
        await asyncio.sleep(0.3)
        assert (world.supervisor.began, world.ordered) == ([], [])
        assert "found running" in world.session.steps["engine"].detail


async def test_flags_that_differ_from_a_running_proxy_are_reported_once(tmp_path: Path) -> None:
    world = World(tmp_path, "http://gpu:10086", proxy_flags=frozenset({"--swarm-url"}))
    world.supervisor.up("proxy", "attached")
    world.supervisor.swarm = "swarm=http://old:10086"
    async with world.running():
        await until(lambda: world.session.seen)
        assert len(world.session.messages) == 1
        text, level = world.session.messages[0]
        assert level == "warning"
        assert not missing(text, "http://old:10086, not http://gpu:10086", "Ctrl+Q, then s")
        assert sum(text == log.text for log in world.session.logs("console")) == 1


@pytest.mark.parametrize("ours", [True, False])
async def test_a_killed_mock_user_is_reported_as_failed(tmp_path: Path, ours: bool) -> None:
    world = World(tmp_path)
    if ours:
        (tmp_path / "mock").mkdir()
        (tmp_path / "mock" / "mock-a-1.jsonl").write_text("")
    world.supervisor.up("mock")
    world.link.publish(MockStarted(mock_id="mock-a-1", dataset="d", target="proxy", total=9))
    async with world.running():
        await until(lambda: "mock" in world.session.children and world.session.seen)
        assert world.session.mock_running
        world.supervisor.states["mock"] = ChildState("mock", "exited", None, -9)
        await until(lambda: not world.session.mock_running)
        if ours:
            await until(lambda: world.link.facts)
            await until(lambda: world.session.state.mock and world.session.state.mock.ended_at)
            assert world.session.state.mock is not None
            assert world.session.state.mock.phase == "failed"
            assert world.session.state.mock.cause == "killed by SIGKILL"
        else:
            await asyncio.sleep(1.5)
    assert world.link.facts == (["mock-a-1:end"] if ours else [])


async def test_a_rolling_engine_is_not_started_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.link.publish(EngineChanged(server="embedded", state="ROLLING", step=3))
    async with world.running():
        await until(lambda: world.session.seen)
        await asyncio.sleep(0.3)
        assert world.ordered == []


@pytest.mark.parametrize(
    ("swarm", "more"), [("http://gpu:10086", {}), ("embedded", {"start_engine": False})]
)
async def test_no_engine_is_started_without_a_request(
    tmp_path: Path, swarm: str, more: dict[str, Any]
) -> None:
    world = World(tmp_path, swarm, **more)
    async with world.running():
        await until(lambda: world.session.seen)
        await asyncio.sleep(0.3)
        assert ([role for role, _ in world.supervisor.began], world.ordered) == (["proxy"], [])


async def test_a_failed_engine_start_is_shown_while_the_proxy_serves(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.supervisor.fails.add("engine")
    async with world.running():
        await until(lambda: world.session.seen and "engine" in world.session.children)
        step = world.session.steps["engine"]
        assert (step.phase, step.detail) == ("failed", "engine ended with exit code 2")
        assert step.lines == ("boom [/b]",)
        await until(lambda: any("exit" in log.text for log in world.session.logs("console")))
        assert world.ordered == []
        world.supervisor.fails.clear()
        outcome = await world.session.command("engine.restart_process")
        assert outcome.ok
        assert "runs again" in outcome.message
        await until(lambda: world.ordered == ["engine.start"])


async def test_a_proxy_with_a_new_port_is_followed(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await until(lambda: world.session.seen)
        world.supervisor.urls["proxy"] = "http://p:2"
        assert (await world.session.command("proxy.restart")).ok
        await until(lambda: len(world.connected) == 2)
        assert world.connected[1][0] == "http://p:2"


async def test_a_proxy_can_be_started_again_after_a_failed_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.supervisor.fails.add("proxy")
    async with world.running():
        await until(lambda: world.session.steps.get("proxy") and "proxy" in world.session.children)
        await until(lambda: world.session.steps["proxy"].phase == "failed")
        world.supervisor.fails.clear()
        await world.session.command("proxy.restart")
        await until(lambda: world.session.seen)


@pytest.mark.parametrize(("now", "grace"), [(False, None), (True, 0.0)])
async def test_stopping_closes_the_feed_first(
    tmp_path: Path, now: bool, grace: float | None
) -> None:
    world = World(tmp_path)
    async with world.running():
        await until(lambda: world.link.after)
        assert world.link.followers == 1
        await world.backend.stop_all(now=now)
        assert world.supervisor.stopped
        assert (world.supervisor.grace, world.link.followers) == (grace, 0)


async def test_attach_starts_nothing(tmp_path: Path) -> None:
    token = tmp_path / "their-token"
    token.write_text("secret\n")
    world = World(tmp_path / "home", attach="http://far:8000", token_file=token)
    async with world.running():
        await until(lambda: world.session.seen)
        assert world.supervisor.began == []
        assert world.session.processes is None
        assert world.connected == [("http://far:8000", "secret")]
        assert "started no process" in (await world.session.command("mock.start")).message


async def test_the_mock_user_receives_its_arguments_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await until(lambda: world.session.seen)
        outcome = await world.session.command("mock.start", dataset="a.jsonl", concurrency=2)
        assert outcome.ok
        assert world.supervisor.began[-1] == ("mock", ("a.jsonl", "--concurrency", "2"))
        again = await world.session.command("mock.start")
        assert not again.ok
        assert "already runs" in again.message


async def test_child_logs_are_read_without_secret_keys(tmp_path: Path) -> None:
    world = World(tmp_path)
    logs = world.options.home.logs
    (logs / "proxy.log").write_text(
        "2026-11-21 03:29:29,100 INFO proxy: key sk-abcdefghijklmnop\n"
        "2026-11-21 03:29:31,100 ERROR proxy: failed\nTraceback (most recent call last):\n  boom\n"
    )
    (logs / "engine.log").write_text("2026-11-21 03:29:30,000 WARNING engine: slow\n")
    async with world.running():
        await until(lambda: len(world.session.logs("proxy")) == 4)
        lines = [log for log in world.session.logs() if log.source != "console"]
        assert [line.text for line in lines] == [
            "proxy: key [redacted]",
            "engine: slow",
            "proxy: failed",
            "Traceback (most recent call last):",
            "  boom",
        ]
        assert [line.level for line in lines] == ["info", "warning", "error", "error", "error"]
