"""The progress measurement of one server: probe set, looks, newest verdict, and their handlers."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from core import events
from core.state.common import NOTHING, Dirty, Handler, Handlers, record_of
from core.state.runs import note_look
from core.state.server import server_of
from core.verdict.pairs import PairFigures, pair_figures

if TYPE_CHECKING:
    from core.state import State

LOOK_CAP = 300
"""Maximum number of looks of a server; the files of older ones remain."""
PAIR_CAP = 1_000
"""Maximum number of pairs that are rated of one look; the proxy refuses further ones."""


class RunningLook(msgspec.Struct, kw_only=True):
    """A look in progress."""

    look_id: str
    role: str
    step: int | None = None
    run: int = 0
    samples: int = 0
    done: int = 0
    since: float = 0.0
    """Unix seconds when it began."""


class PairRatings(msgspec.Struct, kw_only=True):
    """The ratings of blind pairs of one look and its baseline."""

    baseline_id: str
    look_id: str
    baseline_step: int | None = None
    step: int | None = None
    counts: events.PairCounts = events.PairCounts()
    pairs: list[events.PairRated] = msgspec.field(default_factory=list)
    """In order of arrival, skipped ones included, without `counts`; at most `PAIR_CAP`."""

    @property
    def skipped(self) -> int:
        """Number of pairs that raters did not judge."""
        return sum(pair.result is None for pair in self.pairs)

    @property
    def figures(self) -> PairFigures | None:
        """Estimates of the share of pairs in which now is better; None before the first rating."""
        rated = [pair for pair in self.pairs if pair.result is not None]
        return pair_figures(
            [pair.result for pair in rated if pair.result is not None],
            [pair.automatic for pair in rated],
            [pair.parts for pair in rated],
            (self.counts.before, self.counts.tie, self.counts.now),
        )


class Progress(msgspec.Struct, kw_only=True):
    """The progress measurement of one server."""

    probe_set: events.ProbeSetLoaded | None = None
    """None until the proxy has looked for one."""
    paused: str = ""
    """Why requests are not trained on; empty if they are."""
    rewound: events.Rewound | None = None
    """The last rewind; None before the first."""
    rewinds: int = 0
    """Number of rewinds so far."""
    running: RunningLook | None = None
    looks: list[events.LookEnded] = msgspec.field(default_factory=list)
    """Ended looks without their prompts, newest last; `LOOK_CAP` of them, and the baseline in use
    and the best looks."""
    before: tuple[events.PromptFigures, ...] = ()
    """Results by prompt of the baseline in use."""
    now: tuple[events.PromptFigures, ...] = ()
    """Results by prompt of the newest complete look after it."""
    best_rewards: events.LookEnded | None = None
    """The best verified look against the baseline in use, with the rewards by prompt; None before a
    look is better with certainty."""
    pairs: PairRatings | None = None
    """The newest ratings of blind pairs; None before the first one."""

    @property
    def newest(self) -> events.LookEnded | None:
        """The newest complete look that is not a baseline."""
        return next(
            (look for look in reversed(self.looks) if look.complete and look.baseline_id), None
        )

    @property
    def baseline(self) -> events.LookEnded | None:
        """The baseline in use; None before the first complete one."""
        baselines = (
            look for look in reversed(self.looks) if look.complete and look.role == "baseline"
        )
        return next(baselines, None)

    @property
    def verified(self) -> list[events.LookEnded]:
        """The looks that are better than the baseline in use with certainty, best first; then the
        baseline.

        The best one has the highest lower limit.
        """
        baseline = self.baseline
        if baseline is None:
            return []
        better = [
            (look.verdict.low, look.at, look)
            for look in self.looks
            if look.complete
            and look.baseline_id == baseline.look_id
            and look.verdict is not None
            and look.verdict.outcome == "better"
        ]
        better.sort(key=lambda found: found[:2], reverse=True)
        return [*(found[2] for found in better), baseline]

    @property
    def best(self) -> events.LookEnded | None:
        """The best verified look whose weights were saved: as a checkpoint of the embedded engine,
        or by the job of another server."""
        return next((ended for ended in self.verified if ended.checkpoint or ended.saved_as), None)

    @property
    def best_step(self) -> int | None:
        """Global step of the best verified look, saved or not; None without a baseline."""
        return next((ended.step for ended in self.verified), None)

    @property
    def current(self) -> events.LookEnded | None:
        """The newest complete look against the baseline in use; None before it."""
        newest, baseline = self.newest, self.baseline
        same = newest and baseline and newest.baseline_id == baseline.look_id
        return newest if same else None

    @property
    def pair_ratings(self) -> PairRatings | None:
        """The ratings of pairs with the baseline in use; None before the first one."""
        baseline = self.baseline
        same = self.pairs and baseline and self.pairs.baseline_id == baseline.look_id
        return self.pairs if same else None


@lru_cache(maxsize=256)
def progress_changed(name: str) -> Dirty:
    """Return the keys that stand for a change of the progress measurement of one server."""
    return frozenset(("progress", f"progress:{name}"))


def _of_server(change: Callable[["State", Progress, Any], None]) -> Handler:
    """Return a handler that changes the measurement of the server of its event."""

    def handle(state: "State", event: Any) -> Dirty:
        change(state, state.progress.setdefault(event.server, Progress()), event)
        return progress_changed(event.server)

    return handle


def _loaded(state: "State", progress: Progress, event: events.ProbeSetLoaded) -> None:
    progress.probe_set = event


def _started(state: "State", progress: Progress, event: events.LookStarted) -> None:
    progress.running = record_of(RunningLook, event, since=event.at)


def _advanced(state: "State", event: events.LookAdvanced) -> Dirty:
    progress = state.progress.get(event.server)
    running = progress.running if progress is not None else None
    if running is None or running.look_id != event.look_id:
        return NOTHING
    running.done = event.done
    return progress_changed(event.server)


def _ended(state: "State", progress: Progress, event: events.LookEnded) -> None:
    progress.running = None
    run = server_of(state, event.server).engine_run
    look = replace(event, engine_run=run, prompts=())
    if look.checkpoint:
        progress.looks = [
            replace(earlier, checkpoint="") if earlier.checkpoint == look.checkpoint else earlier
            for earlier in progress.looks  # it was replaced
        ]
    progress.looks.append(look)
    if look.complete and look.role == "baseline":
        progress.before, progress.now = event.prompts, ()
        progress.best_rewards = None
    elif look.complete:
        progress.now = event.prompts
        _note_best(progress, look, event)
    _drop_oldest(progress)
    note_look(state, event)


def _note_best(progress: Progress, look: events.LookEnded, event: events.LookEnded) -> None:
    """Retain the rewards of a look that is the best verified one now."""
    best = next(iter(progress.verified), None)
    if best is look:
        rewards = tuple(
            events.PromptFigures(id=prompt.id, rewards=prompt.rewards) for prompt in event.prompts
        )
        progress.best_rewards = replace(look, prompts=rewards)


def _drop_oldest(progress: Progress) -> None:
    looks = progress.looks
    if len(looks) <= LOOK_CAP:
        return
    retained = (progress.baseline, progress.best, *progress.verified[:1])
    look_ids = {look.look_id for look in retained if look is not None}
    while len(looks) > LOOK_CAP:
        del looks[next(place for place, ended in enumerate(looks) if ended.look_id not in look_ids)]


def end_looks(state: "State") -> Dirty:
    """Drop the looks that the previous proxy did not finish."""
    for progress in state.progress.values():
        progress.running = None
    return frozenset(("progress",))


def _pair_rated(state: "State", event: events.PairRated) -> Dirty:
    progress = state.progress.setdefault(event.server, Progress())
    ratings = progress.pairs
    compared = event.baseline_id, event.look_id
    if ratings is None or (ratings.baseline_id, ratings.look_id) != compared:
        ratings = progress.pairs = record_of(PairRatings, event)
    if len(ratings.pairs) >= PAIR_CAP or any(pair.place == event.place for pair in ratings.pairs):
        return NOTHING
    ratings.pairs.append(replace(event, counts=events.PairCounts()))
    return progress_changed(event.server)


def _paused(state: "State", progress: Progress, event: events.TrainingPaused) -> None:
    progress.paused = event.cause


def _resumed(state: "State", progress: Progress, event: events.TrainingResumed) -> None:
    progress.paused = ""


def _rewound(state: "State", progress: Progress, event: events.Rewound) -> None:
    progress.rewound = event
    progress.rewinds += 1


PROGRESS_HANDLERS: Handlers = {
    events.ProbeSetLoaded: _of_server(_loaded),
    events.LookStarted: _of_server(_started),
    events.LookAdvanced: _advanced,
    events.LookEnded: _of_server(_ended),
    events.Rewound: _of_server(_rewound),
    events.PairRated: _pair_rated,
    events.TrainingPaused: _of_server(_paused),
    events.TrainingResumed: _of_server(_resumed),
}
