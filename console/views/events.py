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
    line = describe(event)
    if isinstance(line, EventLine):
        return line
    about = event.group_id if isinstance(event, GroupEvent) else event.server or "proxy"
    return EventLine(one_line(about, 40), one_line(line, 160))


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


def _failed(event: ev.CandidateFailed) -> EventLine:
    again = "; retried" if event.retried else ""
    if event.unretried:
        again = f"; not retried: {event.unretried}"
    text = f"candidate {event.index + 1} failed: {event.cause}{again}"
    return EventLine(event.group_id, one_line(text), "warning")


def _scored(event: ev.GroupScored) -> str:
    rewards = numbers([score.reward for score in event.scores])
    causes = [
        f"{score.index + 1} {cause}"
        for score in event.scores
        if (cause := held_down(score.parts, score.reward))
    ]
    reasons = f" ({', '.join(causes)})" if causes else ""
    return f"scored {rewards}, best {event.best + 1}{reasons}"


def _abstained(event: ev.ScoringAbstained) -> EventLine:
    text = one_line(f"no automatic reward: {event.part}: {event.cause}")
    return EventLine(event.group_id, text, "warning")


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


def _closed(event: ev.GroupClosed) -> EventLine:
    cause = f": {cause_words(event)}" if event.cause else ""
    level = "info" if event.phase == "DONE" else "warning"
    return EventLine(event.group_id, one_line(f"{event.phase.lower()}{cause}"), level)


def _lost(event: ev.GroupLost) -> EventLine:
    text = f"finished, lost by {event.cause}: will not train"
    return EventLine(event.group_id, one_line(text), "warning")


def _alert(event: ev.AlertRaised) -> EventLine:
    level = event.level if event.level in ("info", "warning", "error") else "warning"
    return EventLine("alert", one_line(". ".join(filter(None, (event.cause, event.todo)))), level)


def _rewards(event: ev.RewardsChanged) -> EventLine:
    if event.ok:
        return EventLine("rewards", one_line(f"loaded {event.source} {event.version}".rstrip()))
    if event.waits and not event.cause:
        return EventLine("rewards", one_line(f"the newest rewards wait for {event.waits}"))
    where = f" ({event.file}:{event.line})" if event.file and event.line else ""
    judge = event.judge_in_trouble
    what = f"judge {judge} in trouble" if judge else "broken"
    level = "warning" if event.level == "warning" else "error"
    return EventLine("rewards", one_line(f"{what}: {event.cause}{where}"), level)


def _probe_set(event: ev.ProbeSetLoaded) -> EventLine:
    if event.error:
        missing = event.error.removeprefix("no probe set: ")
        return EventLine(
            one_line(event.server, 40), one_line(f"no probe set: {missing}", 300), "warning"
        )
    count = f"{len(event.prompts)} held-out prompts, never trained on"
    if not event.enabled:
        count += "; looks are off (`probe.share: 0`)"
    return EventLine(
        one_line(event.server, 40), one_line(f"probe set {event.source}: {count}", 300)
    )


def _look_name(event: ev.LookStarted | ev.LookEnded) -> str:
    word = "baseline" if event.role == "baseline" else "look"
    return word if event.step is None else f"{word} at step {event.step}"


def _look_ended(event: ev.LookEnded) -> EventLine:
    name = _look_name(event)
    if event.outcome != "complete":
        how = "was cut short" if event.outcome == "cut" else "failed"
        return EventLine(
            one_line(event.server, 40), one_line(f"{name} {how}: {event.cause}", 300), "warning"
        )
    mean = f"{event.mean:.2f} ({event.low:.2f} to {event.high:.2f}) in {event.seconds:.0f} s"
    verdict = f"; {sentence(event.verdict)}" if event.verdict is not None else ""
    again = f"; new comparison: {event.restarted}" if event.restarted else ""
    return EventLine(one_line(event.server, 40), one_line(f"{name}: {mean}{verdict}{again}", 300))


def _paused(event: ev.TrainingPaused) -> EventLine:
    return EventLine(
        one_line(event.server, 40), one_line(f"training is paused: {event.cause}", 300), "warning"
    )


def _rewound(event: ev.Rewound) -> EventLine:
    step = "the baseline" if event.step is None else f"step {event.step}"
    what = "the job has the model" if event.model else "restored from"
    text = f"rewound to the weights of {step}: {what} {event.restored}"
    return EventLine(one_line(event.server, 40), one_line(text, 300))


def _training_run(event: ev.TrainingRunIdentified) -> str:
    start = f", begun with {event.start}" if event.start else ""
    return f"the weights are of training run {event.number} ({event.name}){start}"


def _what_if(event: ev.WhatIfChanged) -> EventLine:
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
    return EventLine("rewards", one_line(text), "warning" if event.phase == "failed" else "info")


def _engine(event: ev.EngineChanged) -> EventLine:
    step = "" if event.step is None else f", step {event.step}"
    detail = f": {event.detail}" if event.detail else ""
    state = event.state if event.state != "UNKNOWN" else f"unknown ({event.raw})"
    return EventLine(
        one_line(event.server, 40), one_line(f"{state}{step}{detail}"), source="engine"
    )


def _engine_lost(event: ev.EngineLost) -> EventLine:
    text = one_line(f"does not answer: {event.error}")
    return EventLine(one_line(event.server, 40), text, "warning", "engine")


def _pool(event: ev.PoolChanged) -> EventLine:
    text = (
        f"pool {event.completed_tasks}/{event.task_target} tasks, "
        f"{event.completed_episodes}/{event.episode_target} episodes, {event.running} running"
    )
    return EventLine(one_line(event.server, 40), text, "debug", "engine")


def _update(event: ev.UpdateDone) -> EventLine:
    names = {"reward_mean": "mean reward sent", "loss": "loss", "kl": "kl"}
    stats = ", ".join(
        f"{word} {event.stats[name]:.3g}" for name, word in names.items() if name in event.stats
    )
    text = f"update of step {event.step}" + (f": {stats}" if stats else "")
    return EventLine(one_line(event.server, 40), text, source="engine")


def _work(event: ev.WorkChanged) -> EventLine:
    current = next((step.title for step in event.steps if step.phase == "doing"), "")
    text = f"{event.work} {event.phase}: {event.said or current}".rstrip(": ")
    level = "warning" if event.phase == "failed" else "info"
    return EventLine(one_line(event.server, 40), one_line(text), level, "engine")


def _try(event: ev.TryAnswered) -> str:
    outcome = event.error or f"in {event.seconds:.1f} s: {one_line(event.text, QUERY)}"
    return f"try {event.try_id} {outcome}"


def _mock(text: Callable[[Any], str]) -> Callable[[Any], EventLine]:
    def describe(event: Any) -> EventLine:
        return EventLine("mock user", one_line(text(event)), source="mock")

    return describe


def _retries(event: ev.MockRetried) -> str:
    again = f"{plural(event.retries, 'request')} sent again so far" if event.retries else ""
    return ": ".join(filter(None, (again, event.waiting))) or "goes on"


def _row(event: ev.MockRowDone) -> str:
    outcome = f"in {event.seconds:.1f} s" if event.ok else f"failed: {event.error}"
    return f"row {event.row_id} {outcome}: {one_line(event.query, QUERY)}"


_LINES: Mapping[type[Event], Callable[[Any], str | EventLine]] = {
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
    ev.TrainingPaused: _paused,
    ev.TrainingResumed: lambda e: "training is resumed",
    ev.Rewound: _rewound,
    ev.TrainingRunIdentified: _training_run,
    ev.RequestRefused: lambda e: EventLine("proxy", one_line(f"{e.status}: {e.cause}"), "warning"),
    ev.AlertRaised: _alert,
    ev.AlertCleared: lambda e: EventLine(
        "alert", one_line(": ".join(filter(None, ("over", e.key, e.note))))
    ),
    ev.EngineChanged: _engine,
    ev.EngineLost: _engine_lost,
    ev.PoolChanged: _pool,
    ev.UpdateDone: _update,
    ev.JobSent: lambda e: EventLine(
        one_line(e.server, 40), one_line(f"received a job ({e.how})"), source="engine"
    ),
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
    ev.ScoringAbstained: _abstained,
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
    ev.GroupLost: _lost,
    ev.GroupMarked: lambda e: "marked" if e.marked else "mark cleared",
    ev.GroupNoted: lambda e: f"note: {e.note}" if e.note else "note removed",
    ev.GroupEdited: lambda e: f"candidate {e.index + 1} corrected",
    ev.RatingRepeated: lambda e: "rated again: " + ("agrees" if e.agrees else "differs"),
    ev.MockStarted: _mock(lambda e: f"started: {e.total} rows of {e.dataset}"),
    ev.MockPaused: _mock(lambda e: "paused"),
    ev.MockResumed: _mock(lambda e: "resumed"),
    ev.MockStopping: _mock(lambda e: "stopping after the requests in flight"),
    ev.MockRetried: _mock(_retries),
    ev.MockRowDone: _mock(_row),
    ev.MockRowSkipped: _mock(lambda e: f"{e.place} {e.line} skipped: {e.cause}"),
    ev.MockFinished: _mock(lambda e: ended_words(e.how, e.cause)),
}
