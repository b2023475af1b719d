"""Looks after a restart of the engine: weights that continue the training, and others."""

from pathlib import Path

import pytest

from core.events import LookStarted, TrainingRunIdentified
from proxy.servers.reader import ServerReader
from tests.support.proxy.measured import Policy, ended, measured, progress
from tests.support.proxy.world import World


@pytest.fixture
def no_run_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test alone report training runs, as `identify` does: the reader would number the
    same start a second time."""
    monkeypatch.setattr(ServerReader, "on_status", lambda reader, status: None)


def identify(w: World, number: int, name: str, start: str = "") -> None:
    w.context.bus.publish(TrainingRunIdentified(server="s", number=number, name=name, start=start))


async def start_again(w: World) -> None:
    """Stop the engine and start it at the step that it had."""
    starts = w.state.servers["s"].engine_run
    w.swarm.state = "OFFLINE"
    await w.until(lambda: w.state.servers["s"].state == "OFFLINE")
    w.swarm.state = "ROLLING"
    await w.until(lambda: w.state.servers["s"].engine_run > starts)


@pytest.mark.usefixtures("no_run_reader")
async def test_other_weights_at_the_same_step_are_measured_and_not_comparable(
    tmp_path: Path,
) -> None:
    async with measured(tmp_path, Policy(0.5)) as (w, service):
        identify(w, 1, "aaaa1111")
        await ended(w, 1)
        service.demand("baseline")
        assert (await ended(w, 2)).run == 1
        await start_again(w)
        identify(w, 2, "bbbb2222")
        third = await ended(w, 3)  # without a command, although the step is the same
        assert (third.step, third.run, third.role) == (1, 2, "baseline")
        assert third.restarted == (
            "the engine has other weights, of training run 2: not comparable"
        )
        assert w.kinds(LookStarted)[-1].run == 2
        assert [one.run for one in progress(w).looks[1:]] == [1, 2]


@pytest.mark.usefixtures("no_run_reader")
@pytest.mark.parametrize(
    ("first", "second", "start", "alone"),
    [
        ((1, "aaaa1111"), (1, "aaaa1111"), "", False),
        ((1, "chat.1"), (2, "chat.2"), "", True),
        ((1, "aaaa1111"), (2, "bbbb2222"), "progress-1", True),
    ],
    ids=["the embedded engine continues", "a trainer resumes its experiment", "rewind"],
)
async def test_a_restart_that_continues_the_training_continues_the_comparison(
    tmp_path: Path, first: tuple[int, str], second: tuple[int, str], start: str, alone: bool
) -> None:
    async with measured(tmp_path, Policy(0.5)) as (w, service):
        identify(w, *first)
        await ended(w, 1)
        service.demand("baseline")
        baseline = await ended(w, 2)
        if start:
            service.reaction.rewound(baseline.look_id, start)
        await start_again(w)
        identify(w, *second, start)
        if not alone:
            assert not service._due(), "its weights were measured"
            service.demand("look")
        third = await ended(w, 3)
        assert (third.role, third.restarted, third.run) == ("look", "", second[0])
        assert third.baseline_id == baseline.look_id
