"""Rewind of an AgentJet server on the Progress screen: merge command, path, changed job."""

from textual.widgets import Static

from core.control_payloads import RewindPlan
from tests.support.console import RunningConsole, run_console, sample_events, state_of
from tests.support.looks import SERVER, looks

COMMAND = "python -m verl.model_merger merge --backend fsdp --local_dir /c/actor"
PROBLEM = RewindPlan(
    server=SERVER, step=12, problem="/c/actor holds shards only \x1b[31m[red]", todo="Merge them",
    command=COMMAND,
)  # fmt: skip
PLAN = RewindPlan(
    server=SERVER, look_id="l1", step=12, effect=0.21, weights="/m", plan_id="abc",
    before="ajet:\n  model: {path: /models/base}\n", job="ajet:\n  model: {path: /m}\n",
    loss=("The optimizer state is lost.",),
)  # fmt: skip


def question(console: RunningConsole) -> str:
    return "\n".join(str(one.content) for one in console.app.screen.query(Static))


async def test_the_changed_job_and_the_loss_are_shown_and_asked_about() -> None:
    async with run_console(state_of(*sample_events(), *looks()), at="progress") as console:
        console.link.rewind_plans = [PLAN]
        await console.press("w")
        text = question(console)
        assert "to step 12?" in text
        assert "better than the baseline by 0.21" in text
        assert "The optimizer state is lost." in text
        assert "/models/base → /m" in text
        await console.press("n")
        assert console.link.commands == []
        await console.press("w", "y")
        assert console.link.commands == [("progress.rewind", {"server": SERVER, "plan_id": "abc"})]


async def test_the_merge_command_is_shown_and_a_path_can_be_named() -> None:
    async with run_console(state_of(*sample_events(), *looks()), at="progress") as console:
        console.link.rewind_plans = [PROBLEM, PLAN]
        await console.press("w")
        text = question(console)
        assert COMMAND in text
        assert "holds shards only" in text
        assert "\x1b" not in text
        await console.press("y")
        await console.press(*"/m", "enter")
        assert console.link.rewind_paths == ["", "/m"]
        await console.press("y")
        sent = {"server": SERVER, "plan_id": "abc", "path": "/m"}
        assert console.link.commands == [("progress.rewind", sent)]
