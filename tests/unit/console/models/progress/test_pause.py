"""Where training is paused, in words for other screens."""

from console.models.progress.pause import pause_text
from console.session.app_state import Session
from core.events import TrainingPaused, TrainingResumed
from core.reducer import reduce
from tests.support.console import sample_events, state_of


def test_each_server_is_named_with_the_reason_and_the_way_out() -> None:
    session = Session()
    session.state = state_of(*sample_events()[:2])
    assert pause_text(session) == ""
    reduce(session.state, TrainingPaused(server="embedded", cause="paused by the operator"))
    reduce(session.state, TrainingPaused(server="removed", cause="paused by the operator"))
    words = "Training on embedded is paused by the operator: nothing is trained."
    assert pause_text(session) == f"{words} 8 then r resumes"
    viewer = Session(read_only=True)
    viewer.state = session.state
    assert pause_text(viewer) == words
    reduce(session.state, TrainingResumed(server="embedded"))
    assert pause_text(session) == ""
