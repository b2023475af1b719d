"""Answers of tries side by side: which weights each is of."""

from console.screens.progress.tries_text import answers
from core.events import EngineChanged, TrainingRunIdentified, TryAnswered, TryAsked
from tests.support.checks import missing
from tests.support.sample import NOW, state_of

SERVER = "embedded"


def test_equal_steps_of_two_training_runs_are_distinguished() -> None:
    events = [EngineChanged(server=SERVER, state="ROLLING", step=7)]
    for run in (1, 2):
        names = {"server": SERVER, "try_id": f"t{run}", "at": NOW}
        events += [
            TrainingRunIdentified(server=SERVER, number=run, name=f"chat.{run}"),
            TryAsked(**names, group_id="g", prompt="Capital?", step=7, run=run),
            TryAnswered(**names, text="Paris.", step=7, run=run),
        ]
    state = state_of(*events)
    lines = answers(state.tries, state, NOW, 100)
    head = "".join(text for text, _ in lines[0])
    assert not missing(head, "run 1 step 7", "run 2 step 7")
    first = state_of(*events[:4])
    assert "run" not in "".join(text for text, _ in answers(first.tries, first, NOW, 100)[0])
