"""The supervisor with real child processes."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from console.backend.processes import role_args
from console.backend.supervisor import ROTATE_BYTES, ChildFailed, ChildState, Supervisor
from core.runtime.home import Home, RunInfo
from core.settings import load
from tests.support.checks import missing

pytestmark = pytest.mark.process

_CHILD = """
import os, signal, subprocess, sys, time
from pathlib import Path
from core.runtime.home import Home, Role
root, role, how, *rest = sys.argv[1:]
if how == "dies":
    sys.stderr.write("first line\\nit went wrong: sk-abcdefghijklmnop\\n")
    sys.exit(3)
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif how == "thinks":
    def end(*_):
        while not Path(root, "end").exists():
            time.sleep(0.01)
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with Role(Home(Path(root)), role) as held:
    if how == "slow":
        time.sleep(60)
    if how == "parent":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        Path(root, "grandchild").write_text(str(child.pid))
    port = 4711 if "--port" in rest else 0
    held.publish(url="http://127.0.0.1:1", port=port, extra={"args": " ".join(rest)})
    sys.stderr.write("2026-01-31 12:00:00,123 INFO child: ready\\n")
    sys.stderr.flush()
    time.sleep(60)
"""


async def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


class Rig:
    """A supervisor whose children behave as configured."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.how = "well"
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
        self.supervisor = Supervisor(home, load(None, {}), self._command, environment)

    async def started(self, role: str = "proxy", args: Sequence[str] = ()) -> RunInfo:
        """Start a child, and wait until it is ready."""
        await self.supervisor.start(role, args)
        return await self.supervisor.wait_ready(role, 90)

    def _command(self, role: str, args: Sequence[str]) -> Sequence[str]:
        return [sys.executable, "-c", _CHILD, str(self.home.root), role, self.how, *args]


@pytest_asyncio.fixture
async def rig(home: Home) -> AsyncIterator[Rig]:
    made = Rig(home)
    yield made
    await made.supervisor.stop_all(1.0)


async def test_a_child_is_started_found_and_stopped(rig: Rig) -> None:
    supervisor = rig.supervisor
    assert supervisor.state("proxy").phase == "stopped"
    await supervisor.start("proxy", ["--x", "1"])
    assert supervisor.state("proxy").phase == "starting"
    info = await supervisor.wait_ready("proxy", 90)
    assert info.extra["args"] == "--x 1"
    state = supervisor.poll()["proxy"]
    assert (state.phase, state.pid, state.url) == ("running", info.pid, "http://127.0.0.1:1")
    assert os.getsid(info.pid) == info.pid
    await until(lambda: "ready" in supervisor.state("proxy").detail)
    await supervisor.stop("proxy")
    state = supervisor.state("proxy")
    assert (state.phase, state.exit_code, state.alive) == ("stopped", 0, False)
    assert not psutil.pid_exists(info.pid)
    assert supervisor.find("proxy") is None


async def test_starting_twice_starts_once(rig: Rig) -> None:
    supervisor = rig.supervisor
    await asyncio.gather(supervisor.start("engine"), supervisor.start("engine"))
    first = (await supervisor.wait_ready("engine", 90)).pid
    await supervisor.start("engine")
    assert supervisor.state("engine").pid == first


async def test_a_process_of_another_console_is_restarted_with_its_own_arguments(
    rig: Rig, home: Home
) -> None:
    first = await rig.started("proxy", ["--port", "0", "--hooks", "theirs"])
    other = Rig(home).supervisor
    assert (await other.wait_ready("proxy", 90)).pid == first.pid
    await other.restart("proxy")
    second = await other.wait_ready("proxy", 90)
    assert second.pid != first.pid
    assert second.extra["args"] == "--port 4711 --hooks theirs"
    os.kill(second.pid, signal.SIGKILL)
    await until(lambda: other.state("proxy").phase == "exited")
    await other.restart("proxy")
    assert (await other.wait_ready("proxy", 90)).extra["args"] == "--port 4711 --hooks theirs"
    await other.stop("proxy")


async def test_a_killed_attached_process_counts_as_exited(rig: Rig, home: Home) -> None:
    info = await rig.started()
    other = Rig(home).supervisor
    await until(lambda: "ready" in other.poll()["proxy"].detail)
    assert other.state("proxy").phase == "attached"
    os.kill(info.pid, signal.SIGKILL)
    await until(lambda: rig.supervisor.poll()["proxy"].phase == "exited")
    state = other.poll()["proxy"]
    assert (state.phase, state.pid, state.exit_code) == ("exited", None, None)
    assert "ready" in state.tail[-1]
    assert not state.alive


async def test_concurrent_polls_return_the_same_state(rig: Rig) -> None:
    await rig.started()
    looks = [asyncio.to_thread(rig.supervisor.poll) for _ in range(20)]
    result = await asyncio.gather(*looks, rig.supervisor.stop("proxy"))
    phases = {state["proxy"].phase for state in result[:-1] if state}
    assert phases <= {"running", "stopping", "stopped"}
    assert rig.supervisor.state("proxy").phase == "stopped"


async def test_a_killed_child_is_noticed_and_reaped(rig: Rig) -> None:
    supervisor = rig.supervisor
    pid = (await rig.started()).pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: supervisor.poll()["proxy"].phase == "exited")
    state = supervisor.state("proxy")
    assert state.exit_code == -signal.SIGKILL
    assert state.detail.startswith("killed by SIGKILL")
    assert not psutil.pid_exists(pid)
    assert (await rig.started()).pid != pid


async def test_a_child_that_ends_before_it_is_ready_reports_the_reason(rig: Rig) -> None:
    rig.how = "dies"
    supervisor = rig.supervisor
    supervisor.log("engine").write_text("an older run\n")
    await supervisor.start("engine")
    with pytest.raises(ChildFailed) as caught:
        await supervisor.wait_ready("engine", 90)
    assert not missing(str(caught.value), "exit code 3", "it went wrong")
    assert "sk-abc" not in str(caught.value)
    assert "older run" not in str(caught.value)
    state = supervisor.state("engine")
    assert (state.phase, state.exit_code, state.tail[0]) == ("exited", 3, "first line")


async def test_a_child_that_is_not_ready_in_time_is_an_error(rig: Rig) -> None:
    rig.how = "slow"
    await rig.supervisor.start("engine")
    with pytest.raises(ChildFailed, match=r"not ready after 0\.1 s"):
        await rig.supervisor.wait_ready("engine", 0.1)
    assert rig.supervisor.state("engine").phase == "starting"


async def test_a_child_that_ignores_sigterm_is_killed(rig: Rig) -> None:
    rig.how = "stubborn"
    pid = (await rig.started()).pid
    await rig.supervisor.stop("proxy", grace=0.1)
    assert rig.supervisor.state("proxy").exit_code == -signal.SIGKILL
    assert not psutil.pid_exists(pid)


async def test_an_interrupted_stop_still_ends_in_the_stopped_state(rig: Rig) -> None:
    rig.how = "thinks"
    await rig.started()
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(rig.supervisor.stop("proxy", grace=60))
        await until(lambda: rig.supervisor.state("proxy").phase == "stopping")
        stopping.cancel()
    state = rig.supervisor.state("proxy")
    assert (state.phase, state.alive) == ("stopping", True)
    (rig.home.root / "end").touch()
    await until(lambda: rig.supervisor.state("proxy").phase != "stopping")
    state = rig.supervisor.state("proxy")
    assert (state.phase, state.pid, state.exit_code) == ("stopped", None, 0)
    rig.how = "well"
    await rig.started()


async def test_the_children_of_an_ended_child_are_killed(rig: Rig) -> None:
    rig.how = "parent"
    await rig.started()
    grandchild = int((rig.home.root / "grandchild").read_text())
    assert psutil.pid_exists(grandchild)
    await rig.supervisor.stop("proxy")
    await until(
        lambda: (
            not psutil.pid_exists(grandchild)
            or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
        )
    )


async def test_a_second_supervisor_finds_and_stops_released_processes(rig: Rig, home: Home) -> None:
    info = await rig.started()
    other = Rig(home).supervisor
    state = other.state("proxy")
    assert (state.phase, state.pid, state.url) == ("attached", info.pid, info.url)
    await other.start("proxy")
    assert other.state("proxy").pid == info.pid
    assert (await other.wait_ready("proxy", 90)).pid == info.pid
    await other.stop("proxy")
    assert other.state("proxy").phase == "stopped"
    await until(lambda: rig.supervisor.state("proxy").phase == "exited")


async def test_released_children_keep_running(rig: Rig, home: Home) -> None:
    info = await rig.started()
    rig.supervisor.release()
    assert rig.supervisor.state("proxy").phase == "attached"
    assert psutil.pid_exists(info.pid)
    os.kill(info.pid, signal.SIGKILL)
    os.waitpid(info.pid, 0)
    assert rig.supervisor.state("proxy").phase == "exited"


async def test_a_large_log_is_rotated_at_start(rig: Rig) -> None:
    supervisor = rig.supervisor
    supervisor.log("proxy").write_bytes(b"x" * (ROTATE_BYTES + 1))
    await rig.started()
    assert supervisor.log("proxy").stat().st_size < 1000
    assert supervisor.log("proxy").with_name("proxy.log.1").stat().st_size == ROTATE_BYTES + 1


def test_the_end_of_a_log_is_safe_to_show(home: Home) -> None:
    supervisor = Supervisor(home, load(None, {}))
    assert supervisor.tail("proxy") == []
    lines = [f"line {n}" for n in range(100)]
    supervisor.log("proxy").write_text("\n".join([*lines, "\x1b[31mred sk-abcdefghijklmnop", ""]))
    assert supervisor.tail("proxy", 3) == ["line 98", "line 99", "␛[31mred [redacted]"]


def test_a_missing_program_is_an_error(home: Home) -> None:
    supervisor = Supervisor(home, load(None, {}), lambda role, args: ["/no/such/program"])

    async def start() -> None:
        await supervisor.start("proxy")

    with pytest.raises(ChildFailed, match="/no/such/program"):
        asyncio.run(start())
    assert supervisor.state("proxy").phase == "stopped"


def test_settings_reach_the_children_and_keys_do_not() -> None:
    flags = {"proxy.port": 8001, "proxy.api_key": "secret", "rewards.hooks": "/h", "engine.port": 0}
    servers = {"a": "http://x:1", "b": "embedded"}
    settings = load(None, {}, {"swarm_url": servers, **flags})
    args = role_args("proxy", settings)
    assert args[:6] == ["--host", "127.0.0.1", "--port", "8001", "--hooks", "/h"]
    assert args[6:] == ["--swarm-url", "a=http://x:1", "--swarm-url", "b=embedded"]
    assert "secret" not in args
    expected = ["--host", "127.0.0.1", "--port", "0", "--backend", "numpy", "--model", "tiny"]
    assert (role_args("engine", settings), role_args("mock", settings)) == (expected, [])


@pytest.mark.parametrize(
    ("code", "last", "result"),
    [
        (-9, "2026-01-31 12:00:00,123 INFO proxy.control.dispatch: rated", "killed by SIGKILL"),
        (None, "2026-01-31 12:00:00,123 WARNING proxy: slow", "exited unexpectedly"),
        (
            1,
            "2026-01-31 12:00:00,1 ERROR proxy: full",
            "1: 2026-01-31 12:00:00,1 ERROR proxy: full",
        ),
        (1, "ValueError: bad", "ended with exit code 1: ValueError: bad"),
        (None, "", "exited unexpectedly"),
    ],
)
def test_only_an_error_line_explains_the_end_of_a_process(
    code: int | None, last: str, result: str
) -> None:
    state = ChildState("proxy", "exited", None, code, tail=("before", last) if last else ())
    assert state.detail.endswith(result)


async def test_the_real_command_line_runs_from_any_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mock").mkdir()
    (tmp_path / "mock" / "__init__.py").write_text("raise SystemExit('the wrong mock')")
    monkeypatch.chdir(tmp_path)
    supervisor = Supervisor(home, load(None, {}))
    await supervisor.start("mock", ["gone.jsonl", "--base-url", "http://127.0.0.1:9/v1"])
    await until(lambda: supervisor.state("mock").phase == "exited", 20)
    assert "gone.jsonl" in supervisor.state("mock").detail
    assert supervisor.state("mock").exit_code == 2
