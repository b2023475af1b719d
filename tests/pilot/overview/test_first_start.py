"""The first start of an AgentJet server shows its job before sending it."""

from typing import Any

import pytest
from textual.widgets import Input

from ajet_swarm.job.schema import MODEL, REQUIRED
from ajet_swarm.job.tree import dump_job, get, load_job
from console.screens.dialogs.confirm import ConfirmScreen
from console.screens.engine.job import JobScreen
from console.screens.engine.screen import EngineScreen
from core.control_payloads import JobInfo
from core.events import EngineChanged, JobSent
from core.jobs import default_job, server_hand_job, server_job
from core.state import State
from tests.support.console import FakeLink, run_console, state_of


def off(*more: Any) -> State:
    return state_of(EngineChanged(server="gpu", url="http://gpu:10086", state="OFFLINE"), *more)


def link(state: State, **more: Any) -> FakeLink:
    made = FakeLink(state)
    made.job_sheet = JobInfo(
        **{
            "server": "gpu",
            "embedded": False,
            "model": "a/model",
            "default": dump_job(server_job("a/model")),
            "hand": dump_job(server_hand_job("a/model")),
            **more,
        }
    )
    return made


def starts(made: FakeLink) -> list[dict[str, Any]]:
    return [args for name, args in made.commands if name == "engine.start"]


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_the_first_start_shows_the_job_and_asks(size: tuple[int, int]) -> None:
    made = link(off())
    async with run_console(link=made, size=size, at="engine") as console:
        await console.press("s")
        await console.until(lambda: isinstance(console.app.screen, ConfirmScreen))
        text = console.text()
        assert "Start gpu?" in text
        assert "Its first job from here trains a/model" in text
        assert "path: a/model" in text
        assert "Start  y" in text
        question = console.app.screen
        for path in ("searchpath", "interchange_server_port: 10086", "judge_protocol: null"):
            assert path in question._detail
        await console.press("down", "pagedown", "n")
        assert isinstance(console.app.screen, EngineScreen)
        assert not starts(made)
        await console.press("s")
        await console.until(lambda: isinstance(console.app.screen, ConfirmScreen))
        await console.press("y")
        await console.until(lambda: starts(made))
        assert starts(made) == [{"server": "gpu"}]


async def test_a_start_for_rating_shows_the_job_for_rating() -> None:
    made = link(off())
    async with run_console(link=made, at="engine") as console:
        await console.press("h")
        await console.until(lambda: isinstance(console.app.screen, ConfirmScreen))
        sent = load_job(console.app.screen._detail)
        assert get(sent, "ajet.data.train_batch_size") == 2
        assert "on 8 GPUs (assumed: the job names no number); 2 votes make one update" in (
            console.app.screen._body
        )
        assert {path: get(sent, path) for path in REQUIRED} == dict(REQUIRED)


@pytest.mark.parametrize(
    ("sheet", "before"),
    [
        ({}, [JobSent(server="gpu", yaml=dump_job(server_job("m")))]),
        ({"embedded": True, "default": dump_job(default_job())}, []),
        ({"last": True}, []),
    ],
    ids=["not the first", "the embedded engine", "the job of another client"],
)
async def test_later_starts_ask_nothing(sheet: dict[str, Any], before: list[Any]) -> None:
    made = link(off(*before), **sheet)
    async with run_console(link=made, at="engine") as console:
        await console.press("s")
        await console.until(lambda: starts(made))
        assert isinstance(console.app.screen, EngineScreen)


async def test_a_job_without_a_model_opens_the_job_screen() -> None:
    made = link(off(), model="", default=dump_job(server_job()), hand=dump_job(server_hand_job()))
    async with run_console(link=made, at="engine") as console:
        await console.press("s")
        await console.until(lambda: isinstance(console.app.screen, JobScreen))
        await console.until(lambda: "no model is named" in console.text())
        await console.press("a")
        assert not made.commands
        box = console.app.screen.query_one("#job-model", Input)
        assert box.has_focus
        box.value = "typed/model"
        await console.settle()
        console.app.screen.set_focus(None)
        await console.press("a")
        await console.until(lambda: isinstance(console.app.screen, ConfirmScreen))
        assert get(load_job(console.app.screen._detail), MODEL) == "typed/model"
        await console.press("y")
        await console.until(lambda: made.commands)
        ((name, args),) = made.commands
        assert name == "engine.apply"
        assert get(load_job(args["job"]), MODEL) == "typed/model"
        assert get(load_job(args["job"]), "ajet.trainer_common.optim.lr") is None
