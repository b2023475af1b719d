"""One-line descriptions of events: the subject and what happened.

Minor events (single claims, leases, each count of the pool) have no line.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ajet_swarm.common.text import content_text, ended_words, one_line, plural
from console.models.advice import advice_context
from console.text.alert_words import AdviceContext
from console.text.alerts import in_words
from console.text.causes import cause_words, held_down
from console.text.format import numbers
from core import events as ev
from core.events import Event, GroupEvent
from core.verdict.conclusion import sentence

QUERY = 60
"""Maximum number of characters of a user's text in a line."""
_LONGEST = 300
"""Maximum number of characters of a line."""
_ABOUT = {
    "rewards_changed": "rewards",
    "what_if_changed": "rewards",
    "alert_raised": "alert",
    "alert_cleared": "alert",
}
"""Kind of event -> its subject, where that is no group and no server."""
_OF_ENGINE = frozenset(
    {"engine_changed", "engine_lost", "pool_changed", "update_done", "job_sent", "work_changed"}
)
Words = str | tuple[str, str]
"""The text of a line; with its level if that is not `info`."""


@dataclass(frozen=True, slots=True)
class EventLine:
    """The line of an event."""

    about: str
    """Subject: group, server or process."""
    text: str
    level: str = "info"
    source: str = "proxy"
    """The log it belongs to: proxy, engine or mock."""


def event_line(event: Event, context: AdviceContext | None = None) -> EventLine | None:
    """Return the line of an event; None when it has none.

    Args:
        event: The event.
        context: Keys and screens that the advice of an alert names; by default the default keys.
    """
    if isinstance(event, ev.AlertRaised):
        event = in_words(event, context or advice_context())
    describe = _LINES.get(type(event))
    if describe is None:
        return None
    words = describe(event)
    text, level = (words, "info") if isinstance(words, str) else words
    about, source = _ABOUT.get(event.kind) or event.server or "proxy", "proxy"
    if isinstance(event, GroupEvent):
        about = event.group_id
    elif event.kind.startswith("mock_"):
        about, source = "mock user", "mock"
    elif event.kind in _OF_ENGINE:
        source = "engine"
    return EventLine(one_line(about, 40), one_line(text, _LONGEST), level, source)


def _opened(event: ev.GroupOpened) -> str:
    kind = "" if event.episode_type == "train" else f" ({event.episode_type})"
    return f"asked{kind}, {event.n} candidates: {one_line(event.shown_query, QUERY)}"


def _answered(event: ev.CandidatesAnswered) -> str:
    first = event.candidates[0]
    if len(event.candidates) == 1:
        numbers = f"candidate {first.index + 1}"
    else:
        numbers = "candidates " + ", ".join(
            str(candidate.index + 1) for candidate in event.candidates
        )
    text = one_line(content_text(first.message.get("content")), QUERY)
    return f"{numbers} in {max(candidate.seconds for candidate in event.candidates):.1f} s: {text}"


def _failed(event: ev.CandidateFailed) -> Words:
    again = "; retried" if event.retried else ""
    if event.unretried:
        again = f"; not retried: {event.unretried}"
    return f"candidate {event.index + 1} failed: {event.cause}{again}", "warning"


def _scored(event: ev.GroupScored) -> str:
    rewards = numbers([score.reward for score in event.scores])
    causes = [
        f"{score.index + 1} {cause}"
        for score in event.scores
        if (cause := held_down(score.parts, score.reward))
    ]
    reasons = f" ({', '.join(causes)})" if causes else ""
    return f"scored {rewards}, best {event.best + 1}{reasons}"


def _awaited(event: ev.RatingAwaited) -> str:
    left = max(0.0, event.until - event.at)
    return f"waits for a rating, {left:.0f} s, then {event.fallback} ({event.why})"


def _rated(event: ev.GroupRated | ev.VoteCast) -> str:
    order = " ".join(str(index + 1) for index in event.order)
    scores = " ".join(f"{score:g}" for score in event.scores)
    by = f" by {event.rater}" if event.rater else ""
    verb = "vote" if isinstance(event, ev.VoteCast) else "rated"
    return f"{verb}{by}: {event.rating} {order or scores}".rstrip()


def _settled(event: ev.DisagreementSettled) -> str:
    order = " ".join(str(index + 1) for index in event.order)
    by = f" by {event.rater}" if event.rater else ""
    return f"disagreement settled{by}: {event.rating} {order}".rstrip()


def _returned(event: ev.AnswerReturned) -> str:
    if event.index is None:
        return f"the user got no answer after {event.waited:.1f} s"
    return f"the user got candidate {event.index + 1} after {event.waited:.1f} s ({event.why})"


def _sealed(event: ev.GroupSealed) -> str:
    rewards = numbers([reward.reward for reward in event.rewards])
    fate = f"no signal: {event.dead}" if event.dead else "will train"
    return f"finished {rewards} ({event.source}), {fate}"


def _closed(event: ev.GroupClosed) -> Words:
    cause = f": {cause_words(event)}" if event.cause else ""
    return f"{event.phase.lower()}{cause}", "info" if event.phase == "DONE" else "warning"


def _alert(event: ev.AlertRaised) -> Words:
    level = event.level if event.level in ("info", "warning", "error") else "warning"
    return ". ".join(filter(None, (event.cause, event.todo))), level


def _rewards(event: ev.RewardsChanged) -> Words:
    if event.ok:
        return f"loaded {event.source} {event.version}".rstrip()
    if event.waits and not event.cause:
        return f"the newest rewards wait for {event.waits}"
    where = f" ({event.file}:{event.line})" if event.file and event.line else ""
    judge = event.judge_in_trouble
    what = f"judge {judge} in trouble" if judge else "broken"
    return f"{what}: {event.cause}{where}", "warning" if event.level == "warning" else "error"


def _probe_set(event: ev.ProbeSetLoaded) -> Words:
    if event.error:
        return f"no probe set: {event.error.removeprefix('no probe set: ')}", "warning"
    count = f"{len(event.prompts)} held-out prompts, never trained on"
    if not event.enabled:
        count += "; looks are off (`probe.share: 0`)"
    return f"probe set {event.source}: {count}"


def _look_name(event: ev.LookStarted | ev.LookEnded) -> str:
    word = "baseline" if event.role == "baseline" else "look"
    return word if event.step is None else f"{word} at step {event.step}"


def _look_ended(event: ev.LookEnded) -> Words:
    name = _look_name(event)
    if event.outcome != "complete":
        how = "was cut short" if event.outcome == "cut" else "failed"
        return f"{name} {how}: {event.cause}", "warning"
    mean = f"{event.mean:.2f} ({event.low:.2f} to {event.high:.2f}) in {event.seconds:.0f} s"
    verdict = f"; {sentence(event.verdict)}" if event.verdict is not None else ""
    again = f"; new comparison: {event.restarted}" if event.restarted else ""
    return f"{name}: {mean}{verdict}{again}"


def _rewound(event: ev.Rewound) -> str:
    step = "the baseline" if event.step is None else f"step {event.step}"
    what = "the job has the model" if event.model else "restored from"
    return f"rewound to the weights of {step}: {what} {event.restored}"


def _training_run(event: ev.TrainingRunIdentified) -> str:
    start = f", begun with {event.start}" if event.start else ""
    return f"the weights are of training run {event.number} ({event.name}){start}"


def _what_if(event: ev.WhatIfChanged) -> Words:
    what, summary = event.what or "the rewards as saved", event.summary
    if event.phase == "doing":
        text = f"what if {what}: {event.done} of {event.total} groups"
    elif event.phase == "done" and summary is not None:
        text = (
            f"what if {what}: {summary.flips} winners flip, {summary.died} groups die, "
            f"{summary.revived} revive, of {summary.compared}"
        )
    else:
        text = f"what if {what}: {event.phase}" + (f": {event.cause}" if event.cause else "")
    return text, "warning" if event.phase == "failed" else "info"


def _engine(event: ev.EngineChanged) -> str:
    step = "" if event.step is None else f", step {event.step}"
    detail = f": {event.detail}" if event.detail else ""
    state = event.state if event.state != "UNKNOWN" else f"unknown ({event.raw})"
    return f"{state}{step}{detail}"


def _pool(event: ev.PoolChanged) -> Words:
    text = (
        f"pool {event.completed_tasks}/{event.task_target} tasks, "
        f"{event.completed_episodes}/{event.episode_target} episodes, {event.running} running"
    )
    return text, "debug"


def _update(event: ev.UpdateDone) -> str:
    names = {"reward_mean": "mean reward sent", "loss": "loss", "kl": "kl"}
    stats = ", ".join(
        f"{word} {event.stats[name]:.3g}" for name, word in names.items() if name in event.stats
    )
    return f"update of step {event.step}" + (f": {stats}" if stats else "")


def _work(event: ev.WorkChanged) -> Words:
    current = next((step.title for step in event.steps if step.phase == "doing"), "")
    text = f"{event.work} {event.phase}: {event.said or current}".rstrip(": ")
    return text, "warning" if event.phase == "failed" else "info"


def _try(event: ev.TryAnswered) -> str:
    outcome = event.error or f"in {event.seconds:.1f} s: {one_line(event.text, QUERY)}"
    return f"try {event.try_id} {outcome}"


def _retries(event: ev.MockRetried) -> str:
    again = f"{plural(event.retries, 'request')} sent again so far" if event.retries else ""
    return ": ".join(filter(None, (again, event.waiting))) or "goes on"


def _row(event: ev.MockRowDone) -> str:
    outcome = f"in {event.seconds:.1f} s" if event.ok else f"failed: {event.error}"
    return f"row {event.row_id} {outcome}: {one_line(event.query, QUERY)}"


_LINES: Mapping[type[Event], Callable[[Any], Words]] = {
    ev.ProxyStarted: lambda e: f"started, pid {e.pid}, {e.url}, rating {e.rating_mode}",
    ev.ProxyStopped: lambda e: "stopped" + (f": {e.reason}" if e.reason else ""),
    ev.ConsoleAttached: lambda e: f"a console attached ({e.consoles} now)",
    ev.ConsoleDetached: lambda e: f"a console disconnected ({e.consoles} now)",
    ev.RatingModeChanged: lambda e: f"rating mode {e.mode}",
    ev.RewardsChanged: _rewards,
    ev.WhatIfChanged: _what_if,
    ev.ProbeSetLoaded: _probe_set,
    ev.LookStarted: lambda e: f"{_look_name(e)} begins: {e.samples} answers",
    ev.LookEnded: _look_ended,
    ev.TrainingPaused: lambda e: (f"training is paused: {e.cause}", "warning"),
    ev.TrainingResumed: lambda e: "training is resumed",
    ev.Rewound: _rewound,
    ev.TrainingRunIdentified: _training_run,
    ev.RequestRefused: lambda e: (f"{e.status}: {e.cause}", "warning"),
    ev.AlertRaised: _alert,
    ev.AlertCleared: lambda e: ": ".join(filter(None, ("over", e.key, e.note))),
    ev.EngineChanged: _engine,
    ev.EngineLost: lambda e: (f"does not answer: {e.error}", "warning"),
    ev.PoolChanged: _pool,
    ev.UpdateDone: _update,
    ev.JobSent: lambda e: f"received a job ({e.how})",
    ev.WorkChanged: _work,
    ev.TryAsked: lambda e: f"try {e.try_id} sent: {one_line(e.prompt, QUERY)}",
    ev.TryAnswered: _try,
    ev.RunNamed: lambda e: f"engine run named {e.name}" if e.name else "name of a run removed",
    ev.RunNoted: lambda e: f"note on an engine run: {e.note}" if e.note else "note removed",
    ev.RunPinned: lambda e: "engine run pinned" if e.pinned else "engine run not pinned any more",
    ev.GroupOpened: _opened,
    ev.RequestJoined: lambda e: "the same request arrived again and waits for the same answer",
    ev.RequestReplayed: lambda e: "the same request arrived again and got the stored answer",
    ev.ClaimsReturned: lambda e: f"{len(e.episode_uuids)} claims given back: {e.cause}",
    ev.CandidatesAnswered: _answered,
    ev.CandidateFailed: _failed,
    ev.GroupScored: _scored,
    ev.ScoringAbstained: lambda e: (f"no automatic reward: {e.part}: {e.cause}", "warning"),
    ev.RatingAwaited: _awaited,
    ev.GroupRated: _rated,
    ev.VoteCast: _rated,
    ev.VoteWithdrawn: lambda e: f"vote by {e.rater or 'a console'} withdrawn",
    ev.DisagreementSettled: _settled,
    ev.RatingUndone: lambda e: "the rating is undone",
    ev.AnswerReturned: _returned,
    ev.GroupSealed: _sealed,
    ev.EpisodeAborted: lambda e: f"episode of candidate {e.index + 1} given back: {e.reason}",
    ev.GroupClosed: _closed,
    ev.GroupLost: lambda e: (f"finished, lost by {e.cause}: will not train", "warning"),
    ev.GroupMarked: lambda e: "marked" if e.marked else "mark cleared",
    ev.GroupNoted: lambda e: f"note: {e.note}" if e.note else "note removed",
    ev.GroupEdited: lambda e: f"candidate {e.index + 1} corrected",
    ev.RatingRepeated: lambda e: "rated again: " + ("agrees" if e.agrees else "differs"),
    ev.MockStarted: lambda e: f"started: {e.total} rows of {e.dataset}",
    ev.MockPaused: lambda e: "paused",
    ev.MockResumed: lambda e: "resumed",
    ev.MockStopping: lambda e: "stopping after the requests in flight",
    ev.MockRetried: _retries,
    ev.MockRowDone: _row,
    ev.MockRowSkipped: lambda e: f"{e.place} {e.line} skipped: {e.cause}",
    ev.MockFinished: lambda e: ended_words(e.how, e.cause),
}
