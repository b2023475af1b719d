"""Handlers of the events of the progress measurement."""

from functools import lru_cache

from core.events.progress import (
    LookAdvanced,
    LookEnded,
    LookStarted,
    PairRated,
    ProbeSetLoaded,
    PromptFigures,
    Rewound,
    TrainingPaused,
    TrainingResumed,
)
from core.reducer.common import NOTHING, Dirty, Handlers, record_of, server_of
from core.reducer.runs import note_look
from core.state import (
    LOOK_CAP,
    PAIR_CAP,
    BestLook,
    Look,
    PairRatings,
    Progress,
    RatedPair,
    RunningLook,
    State,
)


@lru_cache(maxsize=256)
def progress_changed(name: str) -> Dirty:
    """Return the keys that stand for a change of the progress measurement of one server."""
    return frozenset(("progress", f"progress:{name}"))


def _progress_of(state: State, name: str) -> Progress:
    progress = state.progress.get(name)
    if progress is None:
        progress = state.progress[name] = Progress()
    return progress


def _loaded(state: State, event: ProbeSetLoaded) -> Dirty:
    _progress_of(state, event.server).probe_set = event
    return progress_changed(event.server)


def _started(state: State, event: LookStarted) -> Dirty:
    _progress_of(state, event.server).running = record_of(RunningLook, event, since=event.at)
    return progress_changed(event.server)


def _advanced(state: State, event: LookAdvanced) -> Dirty:
    running = _progress_of(state, event.server).running
    if running is None or running.look_id != event.look_id:
        return NOTHING
    running.done = event.done
    return progress_changed(event.server)


def _ended(state: State, event: LookEnded) -> Dirty:
    progress = _progress_of(state, event.server)
    progress.running = None
    run = server_of(state, event.server).engine_run
    look = record_of(Look, event, engine_run=run, at=event.at)
    for earlier in progress.looks if look.checkpoint else ():
        if earlier.checkpoint == look.checkpoint:
            earlier.checkpoint = ""  # it was replaced
    progress.looks.append(look)
    if look.complete and look.role == "baseline":
        progress.before, progress.now = event.prompts, ()
        progress.best_rewards = None
    elif look.complete:
        progress.now = event.prompts
        _note_best(progress, look, event)
    _drop_oldest(progress)
    note_look(state, event)
    return progress_changed(event.server)


def _note_best(progress: Progress, look: Look, event: LookEnded) -> None:
    """Retain the rewards of a look that is the best verified one now."""
    best = next(iter(progress.verified), None)
    if best is look:
        rewards = tuple(PromptFigures(id=one.id, rewards=one.rewards) for one in event.prompts)
        progress.best_rewards = record_of(BestLook, event, prompts=rewards)


def _drop_oldest(progress: Progress) -> None:
    looks = progress.looks
    if len(looks) <= LOOK_CAP:
        return
    retained = (progress.baseline, progress.best, *progress.verified[:1])
    look_ids = {one.look_id for one in retained if one is not None}
    while len(looks) > LOOK_CAP:
        del looks[next(place for place, one in enumerate(looks) if one.look_id not in look_ids)]


def end_looks(state: State) -> Dirty:
    """Drop the looks that the previous proxy did not finish."""
    for progress in state.progress.values():
        progress.running = None
    return frozenset(("progress",))


def _pair_rated(state: State, event: PairRated) -> Dirty:
    progress = _progress_of(state, event.server)
    ratings = progress.pairs
    compared = event.baseline_id, event.look_id
    if ratings is None or (ratings.baseline_id, ratings.look_id) != compared:
        ratings = progress.pairs = record_of(PairRatings, event)
    known = any(one.place == (event.prompt_id, event.before, event.now) for one in ratings.pairs)
    if known or len(ratings.pairs) >= PAIR_CAP:
        return NOTHING
    ratings.pairs.append(record_of(RatedPair, event))
    return progress_changed(event.server)


def _paused(state: State, event: TrainingPaused) -> Dirty:
    _progress_of(state, event.server).paused = event.cause
    return progress_changed(event.server)


def _resumed(state: State, event: TrainingResumed) -> Dirty:
    _progress_of(state, event.server).paused = ""
    return progress_changed(event.server)


def _rewound(state: State, event: Rewound) -> Dirty:
    progress = _progress_of(state, event.server)
    progress.rewound = event
    progress.rewinds += 1
    return progress_changed(event.server)


PROGRESS_HANDLERS: Handlers = {
    ProbeSetLoaded: _loaded,
    LookStarted: _started,
    LookAdvanced: _advanced,
    LookEnded: _ended,
    Rewound: _rewound,
    PairRated: _pair_rated,
    TrainingPaused: _paused,
    TrainingResumed: _resumed,
}
