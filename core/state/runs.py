"""A summary of each engine run, made from the events of servers, groups and looks."""

import hashlib
from typing import TYPE_CHECKING

import msgspec

from core import events
from core.state.common import NOTHING, Dirty, Handlers
from core.verdict.conclusion import Verdict

if TYPE_CHECKING:
    from core.state import Group, Server, State, StepStats

ENGINE_RUN_CAP = 1_000
"""Maximum number of engine runs with a summary; the oldest one without a pin is dropped."""
PIN_CAP = 200
"""Maximum number of pinned engine runs; the proxy refuses further ones."""
CURVE_CAP = 64
"""Maximum number of points of the curve of an engine run."""
WEIGHTS_CAP = 8
VERSIONS_CAP = 16
"""Maximum number of training runs, and of versions of the rewards, of an engine run."""
JOB_CAP = 20_000
"""Maximum characters of a job that is stored with an engine run."""
REWARDS_CAP = 200
"""Maximum number of versions of the rewards whose parts are stored."""

RUNNING_UNTIL = (1 << 63) - 1
"""Greater than the number of any event: the end of a run that has not ended."""


class RunPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Mean reward of one step of a run, or of several consecutive steps."""

    step: int
    """Global step; the last one of several."""
    mean: float
    """Mean automatic reward."""
    steps: int = 1
    """Number of steps in the mean."""


class EngineRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Summary of one engine run: a server's engine from a start to the stop."""

    number: int
    """From 1, over all servers of the journal."""
    server: str
    engine_run: int = 0
    """`Server.engine_run` during the run."""
    first_seq: int
    """Number of the event with which it began; identifies it in events."""
    last_seq: int = 0
    """Number of the event with which it ended; 0 while it runs."""
    began: float
    """Unix seconds; the first reading if it began before the proxy watched the server."""
    ended: float | None = None
    """Unix seconds; the last sign of it if its end was not seen. None while it runs."""
    active: float = 0.0
    """Unix seconds of the newest event that changed this summary."""
    ending: str = ""
    """How it ended: stopped, restarted, job (another job was applied), unseen (the server did not
    answer then, or nothing watched it) or removed (the proxy does not have the server any more);
    empty while it runs."""
    job: str = ""
    """Key of its job in `EngineRuns.jobs`; empty if unknown."""
    model: str = ""
    """Model as the server reports it; empty if unknown."""
    weights: list[str] = msgspec.field(default_factory=list)
    """Names of the training runs of its weights, newest last; at most `WEIGHTS_CAP`."""
    first_step: int | None = None
    """Global step at its first samples; None before them."""
    last_step: int | None = None
    """Newest global step."""
    groups: int = 0
    """Number of sealed groups."""
    rated: int = 0
    """Number of them that a person rated."""
    dead: int = 0
    first_reward: RunPoint | None = None
    """Its first step with automatic rewards."""
    curve: list[RunPoint] = msgspec.field(default_factory=list)
    """Mean automatic reward by step; at most `CURVE_CAP` points."""
    stride: int = 1
    """Number of steps of a point, except for the newest ones."""
    rewards: list[str] = msgspec.field(default_factory=list)
    """Versions of the automatic rewards, newest last; at most `VERSIONS_CAP`."""
    verdict: Verdict | None = None
    """The newest verdict of a look during the run; None before it."""
    verdict_step: int | None = None
    """Global step of that look."""
    name: str = ""
    note: str = ""
    """Name and note of the operator."""
    pinned: bool = False
    """Its groups are never pruned."""

    @property
    def brief(self) -> bool:
        """Whether its curve is not read yet, see `core.state.brief`."""
        return self.first_reward is not None and not self.curve

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.ended is None

    @property
    def updates(self) -> int:
        """Number of policy updates, from the global steps."""
        return (self.last_step or 0) - (self.first_step or 0)

    @property
    def finished_curve(self) -> list[RunPoint]:
        """The curve without a newest step whose batch is not complete, unless it is the only one.

        Such a step has a few groups, and their mean says little.
        """
        unfinished = len(self.curve) > 1 and self.curve[-1].step == self.last_step
        return self.curve[:-1] if unfinished else self.curve

    @property
    def last_reward(self) -> RunPoint | None:
        """Its newest finished step with automatic rewards."""
        curve = self.finished_curve
        return curve[-1] if curve else None

    @property
    def span(self) -> tuple[int, int]:
        """Numbers of its first and last event."""
        return self.first_seq, self.last_seq or RUNNING_UNTIL


class EngineRuns(msgspec.Struct, kw_only=True):
    """The engine runs of all servers."""

    count: int = 0
    """Number of runs so far, dropped ones included."""
    runs: list[EngineRun] = msgspec.field(default_factory=list)
    """Newest last; at most `ENGINE_RUN_CAP`."""
    jobs: dict[str, str] = msgspec.field(default_factory=dict)
    """YAML of each job of these runs, by key."""
    rewards: dict[str, tuple[events.RewardPart, ...]] = msgspec.field(default_factory=dict)
    """Parts of the reward by version, oldest first; at most `REWARDS_CAP`."""
    current: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of the run in progress, by server."""

    def numbered(self, number: int) -> EngineRun | None:
        """Return a run by its number; None if there is none."""
        return next((run for run in reversed(self.runs) if run.number == number), None)

    def began_with(self, first_seq: int) -> EngineRun | None:
        """Return a run by the number of its first event; None if there is none."""
        return next((run for run in reversed(self.runs) if run.first_seq == first_seq), None)

    def running_on(self, server: str) -> EngineRun | None:
        """Return the run in progress on a server; None if there is none."""
        number = self.current.get(server)
        return None if number is None else self.numbered(number)

    def job_of(self, run: EngineRun) -> str:
        """Return the YAML of a run's job; empty if unknown."""
        return self.jobs.get(run.job, "")

    def pinned_spans(self) -> list[tuple[int, int]]:
        """Return the numbers of the first and last events of the pinned runs, joined and in order.

        May be called from any thread.
        """
        spans: list[tuple[int, int]] = []
        for first, last in sorted(run.span for run in list(self.runs) if run.pinned):
            if spans and first <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
            else:
                spans.append((first, last))
        return spans


RUNS: Dirty = frozenset(("runs",))
_NO_RUN = frozenset({"OFFLINE", "UNKNOWN", "OBSERVING", "CANNOT_CONNECT"})
"""States of a server in which no engine run begins."""
_NEWEST = 4
"""Number of newest points of a curve that have one step each: late groups still change them."""


def note_engine(
    state: "State", server: "Server", event: events.EngineChanged, *, starts: bool
) -> None:
    """Begin, continue or end the run of a server; call it before the server is changed.

    Args:
        state: The state.
        server: The server as it was before the event.
        event: A reading of its engine.
        starts: Whether the engine was started since the last reading.
    """
    run = state.engine_runs.running_on(server.name)
    if run is not None and (starts or event.state == "OFFLINE"):
        _end(state, run, event.seq, event.at, _ending(server, starts=starts))
        run = None
    if event.state in _NO_RUN:
        return
    if run is None:
        run = _begin(state, server, event.seq, event.at, server.engine_run + starts)
    run.active = event.at
    if event.step and event.state == "ROLLING":
        _note_step(run, event.step)


def _ending(server: "Server", *, starts: bool) -> str:
    if server.lost:
        return "unseen"
    if server.work is not None and not server.work.over:
        return "job"
    return "restarted" if starts else "stopped"


def _begin(state: "State", server: "Server", seq: int, at: float, engine_run: int) -> EngineRun:
    runs = state.engine_runs
    runs.count += 1
    run = EngineRun(
        number=runs.count,
        server=server.name,
        engine_run=engine_run,
        first_seq=seq,
        began=at,
        active=at,
        job=_job_key(state, server),
        model=server.pool.model if server.pool is not None else "",
    )
    runs.runs.append(run)
    runs.current[server.name] = run.number
    if len(runs.runs) > ENGINE_RUN_CAP:
        _drop_oldest(state)
    return run


def _job_key(state: "State", server: "Server") -> str:
    """Return the key of the job that a start runs; empty if another client started the engine."""
    job = server.job
    if job is None or server.foreign_start or not 0 < len(job.yaml) <= JOB_CAP:
        return ""
    key = hashlib.sha256(job.yaml.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    state.engine_runs.jobs.setdefault(key, job.yaml)
    return key


def _drop_oldest(state: "State") -> None:
    """Drop the oldest run that is neither pinned nor in progress, and a job without a run."""
    runs = state.engine_runs
    unneeded = (at for at, run in enumerate(runs.runs) if not run.pinned and not run.running)
    del runs.runs[next(unneeded, 0)]
    keys = {run.job for run in runs.runs}
    for key in [job for job in runs.jobs if job not in keys]:
        del runs.jobs[key]


def _end(state: "State", run: EngineRun, seq: int, at: float, ending: str) -> None:
    run.last_seq = seq
    run.ended = run.active if ending in ("unseen", "removed") else at
    run.ending = ending
    state.engine_runs.current.pop(run.server, None)


def end_removed(state: "State", event: events.ProxyStarted, before: "dict[str, Server]") -> None:
    """End the runs of servers that the proxy does not have any more.

    Args:
        state: The state with the servers of the new proxy.
        event: Its start.
        before: The servers of the proxy before it.
    """
    for name in list(state.engine_runs.current):
        run = state.engine_runs.running_on(name)
        server = state.servers.get(name)
        if run is not None and (server is None or server is not before.get(name)):
            _end(state, run, event.seq, event.at, "removed")


def note_seen(state: "State", server: "Server", at: float) -> None:
    """Record that the server answered at a time, after which nothing may watch it."""
    if (run := state.engine_runs.running_on(server.name)) is not None:
        run.active = max(run.active, at)


def note_model(state: "State", server: "Server", model: str) -> None:
    """Record the model that a server reports."""
    if (run := state.engine_runs.running_on(server.name)) is not None:
        run.model = model


def note_weights(state: "State", server: "Server", name: str) -> None:
    """Record the training run of the weights."""
    run = state.engine_runs.running_on(server.name)
    if run is not None and name not in run.weights:
        run.weights.append(name)
        del run.weights[:-WEIGHTS_CAP]


def note_update(state: "State", server: "Server", step: int, at: float) -> None:
    """Record that the update of a step is done."""
    if (run := state.engine_runs.running_on(server.name)) is not None:
        _note_step(run, step + 1)
        run.active = at


def note_look(state: "State", event: events.LookEnded) -> None:
    """Record the verdict of a look."""
    run = state.engine_runs.running_on(event.server)
    if run is not None and event.outcome == "complete" and event.verdict is not None:
        run.verdict, run.verdict_step = event.verdict, event.step


def note_rewards(state: "State", event: events.RewardsChanged) -> None:
    """Record the parts of a version of the rewards."""
    if not event.version or not event.parts:
        return
    rewards = state.engine_runs.rewards
    rewards.pop(event.version, None)
    rewards[event.version] = event.parts
    while len(rewards) > REWARDS_CAP:
        del rewards[next(iter(rewards))]


def note_group(
    state: "State", server: "Server", group: "Group", stats: "StepStats", seq: int, at: float
) -> None:
    """Count a group that was sealed, and put the mean reward of its step into the curve.

    Args:
        state: The state.
        server: Server of the group.
        group: The group, whose engine run is in progress.
        stats: Figures of its step, this group included.
        seq: Number of the event.
        at: Its time, Unix seconds.
    """
    run = state.engine_runs.running_on(server.name)
    if run is None:
        if server.state in _NO_RUN:
            return
        run = _begin(state, server, seq, at, server.engine_run)  # of a journal without its start
    run.active = at
    run.groups += 1
    run.rated += group.source == "human"
    run.dead += bool(group.dead)
    if group.version and (not run.rewards or run.rewards[-1] != group.version):
        if group.version in run.rewards:
            run.rewards.remove(group.version)
        run.rewards.append(group.version)
        del run.rewards[:-VERSIONS_CAP]
    _note_step(run, stats.step)
    if stats.auto:
        _note_reward(run, RunPoint(stats.step, round(stats.auto_mean, 5)))


def _note_step(run: EngineRun, step: int) -> None:
    if run.first_step is None or step < run.first_step:
        run.first_step = step
    if run.last_step is None or step > run.last_step:
        run.last_step = step


def _note_reward(run: EngineRun, point: RunPoint) -> None:
    """Add a step to the curve, or replace its figure."""
    curve = run.curve
    if run.first_reward is None or point.step <= run.first_reward.step:
        run.first_reward = point
    if curve and curve[-1].step == point.step:  # the usual case
        curve[-1] = point
        return
    for place in range(len(curve) - 1, max(-1, len(curve) - 1 - _NEWEST), -1):
        if curve[place].step == point.step and curve[place].steps == 1:
            curve[place] = point
            return
    if curve and point.step <= curve[-1].step:
        return  # its step is part of a mean
    curve.append(point)
    settled = len(curve) - _NEWEST
    if settled >= 2 and curve[settled - 2].steps + curve[settled - 1].steps <= run.stride:
        curve[settled - 2 : settled] = [_joined(curve[settled - 2], curve[settled - 1])]
    if len(curve) > CURVE_CAP:
        run.stride *= 2
        run.curve = _thinned(curve[:-_NEWEST], run.stride) + curve[-_NEWEST:]


def _thinned(points: list[RunPoint], stride: int) -> list[RunPoint]:
    """Return the points with neighbours joined to at most `stride` steps each."""
    thinned: list[RunPoint] = []
    for point in points:
        if thinned and thinned[-1].steps + point.steps <= stride:
            thinned[-1] = _joined(thinned[-1], point)
        else:
            thinned.append(point)
    return thinned


def _joined(left: RunPoint, right: RunPoint) -> RunPoint:
    steps = left.steps + right.steps
    mean = (left.mean * left.steps + right.mean * right.steps) / steps
    return RunPoint(right.step, round(mean, 5), steps)


def _annotated(
    state: "State", event: events.RunNamed | events.RunNoted | events.RunPinned
) -> Dirty:
    if (run := state.engine_runs.began_with(event.first_seq)) is None:
        return NOTHING
    match event:
        case events.RunNamed():
            run.name = event.name
        case events.RunNoted():
            run.note = event.note
        case events.RunPinned():
            run.pinned = event.pinned
    return RUNS


RUN_HANDLERS: Handlers = dict.fromkeys(
    (events.RunNamed, events.RunNoted, events.RunPinned), _annotated
)
