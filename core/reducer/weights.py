"""Handlers of the events of a server's weights."""

from core.events.weights import TrainingRunIdentified
from core.reducer.common import Dirty, Handlers, record_of, server_changed, server_of
from core.reducer.runs import note_weights
from core.state import RUN_CAP, State, TrainingRun


def _identified(state: State, event: TrainingRunIdentified) -> Dirty:
    server = server_of(state, event.server)
    run = record_of(TrainingRun, event, engine_run=server.engine_run)
    if server.runs and server.runs[-1].number == event.number:
        server.runs[-1] = run
    else:
        server.runs.append(run)
        del server.runs[:-RUN_CAP]
    note_weights(state, server, event.name)
    for step in reversed(server.steps):  # those that began before it was known
        if step.run or step.engine_run != server.engine_run:
            break
        step.run = event.number
    return server_changed(event.server)


WEIGHT_HANDLERS: Handlers = {TrainingRunIdentified: _identified}
