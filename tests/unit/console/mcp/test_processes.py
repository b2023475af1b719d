"""The start of the mock user by an agent: a dry run, then its first state."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError
from console.backend.supervisor import Supervisor
from console.mcp.confirmation import needs_confirmation
from console.mcp.processes import Processes
from core.commands.plan import Plan
from core.runtime.home import Home, Role
from core.settings import load
from core.state import Mock, Progress, Server, State

pytestmark = pytest.mark.process

ASKS = '{"ok": true, "steps": [{"message": "would ask 3 rows"}]}'
REFUSED = (
    '{"ok": false, "steps": [], '
    '"error": {"message": "there is no dataset `x`", "where": "x", "todo": "Name one"}}'
)
PUBLISHES = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from core.runtime.home import Home, Role
with Role(Home.at(Path({home!r})), "mock") as role:
    role.publish(extra={{"mock_id": "m1"}})
    time.sleep(60)
"""


def supervised(home: Home, start: str, check: str = f"print({ASKS!r})") -> Supervisor:
    """A supervisor whose mock user is a script, with another one for its dry run."""

    def command(role: str, args: Sequence[str]) -> Sequence[str]:
        return [sys.executable, "-c", check if "--dry-run" in args else start, *args]

    return Supervisor(home, load(None, {}), command)


async def plan(home: Home, check: str, **args: object) -> Plan:
    made = Processes(home, load(None, {}), supervised(home, "", check))
    return await made.plan("mock.start", args, state_of())


def state_of(state: State | None = None) -> Callable[[], Awaitable[State]]:
    async def snapshot() -> State:
        return state or State()

    return snapshot


async def start(home: Home, script: str, *states: State) -> str:
    """Plan and execute `mock.start`; the proxy has each state in turn, the last one for ever."""
    left, supervisor = list(states), supervised(home, script)

    async def snapshot() -> State:
        return left.pop(0) if len(left) > 1 else left[0]

    made = Processes(home, load(None, {}), supervisor)
    try:
        return await made.execute(await made.plan("mock.start", {}, snapshot), snapshot)
    finally:
        await supervisor.stop("mock", 0.0)


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


async def test_a_plan_is_what_the_command_line_would_do(place: Home) -> None:
    shows = "import sys, json; print(json.dumps({'steps': [{'message': str(sys.argv[1:])}]}))"
    planned = await plan(place, shows, dataset="--target=x", seed=3)
    assert planned.args == {"dataset": "--target=x", "seed": 3}
    words = ["./--target=x", "--seed", "3", "--dry-run", "--json"]  # a name, and no flag
    assert planned.message == str(words)
    with pytest.raises(AjetError, match="there is no dataset `x`"):
        await plan(place, f"print({REFUSED!r})", dataset="x")
    with pytest.raises(AjetError, match=r"cannot be checked: .*7"):
        await plan(place, "raise SystemExit(7)")


async def test_a_dataset_that_is_not_of_the_home_needs_a_confirmation(
    place: Home, tmp_path: Path
) -> None:
    own = place.root / "datasets"
    own.mkdir(exist_ok=True)
    secret = tmp_path / "secret.jsonl"
    secret.write_text("{}")
    (own / "mine.jsonl").write_text("{}")
    (own / "link.jsonl").symlink_to(secret)
    expected = {
        "": False,
        "mine.jsonl": False,
        str(own / "mine.jsonl"): False,
        str(secret): True,
        "link.jsonl": True,
        "../../secret.jsonl": True,
        "/etc": True,
    }
    for dataset, confirm in expected.items():
        planned = await plan(place, f"print({ASKS!r})", dataset=dataset)
        assert needs_confirmation(planned) == confirm, dataset


async def test_a_start_while_training_is_paused_needs_an_override(place: Home) -> None:
    servers = {"gpu": Server(name="gpu", url="http://gpu")}
    progress = {"gpu": Progress(paused="paused by the operator")}
    paused = state_of(State(servers=servers, progress=progress))
    made = Processes(place, load(None, {}), supervised(place, ""))
    assert not (await made.plan("mock.start", {}, paused)).loses  # it asks another proxy
    with Role(place, "proxy") as role:
        role.publish()
        with pytest.raises(AjetError, match="training on gpu is paused by the operator") as error:
            await made.plan("mock.start", {}, paused)
        assert "progress_resume" in error.value.todo
        assert "override" in error.value.todo
        planned = await made.plan("mock.start", {"override": True}, paused)
        assert "answered untrained" in planned.loses
        assert not (await made.plan("mock.start", {"override": True}, state_of())).loses


async def test_a_start_is_reported_with_its_first_state(place: Home) -> None:
    ended = Mock(mock_id="m1", dataset="d", target="t", total=1, phase="failed", ended_at=1.0)
    runs = Mock(mock_id="m1", dataset="d", target="t", total=1)
    root = str(Path(__file__).parents[4])
    script = PUBLISHES.format(root=root, home=str(place.root))
    message = await start(place, script, State(), State(mock=ended), State(mock=runs))
    assert message.startswith("the mock user is running")


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("import sys; sys.exit('ajet-console: d.csv: no usable row')", "failed: .*no usable row"),
        ("import os; os.kill(os.getpid(), 9)", "failed: .*killed"),
    ],
)
async def test_a_run_that_dies_at_once_is_an_error(place: Home, script: str, result: str) -> None:
    with pytest.raises(AjetError, match=result):
        await start(place, script, State())


async def test_a_run_that_is_short_has_finished(place: Home) -> None:
    assert "has finished" in await start(place, "pass", State())
