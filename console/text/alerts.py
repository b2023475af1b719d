"""Texts of alerts: for each kind, the cause and what the operator can do.

The proxy sends only kinds and parameters (`core.events.alerts`); all texts are made here.
Advice looks keys up by their action, because the operator can change them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from ajet_swarm.api.watcher import TROUBLES
from ajet_swarm.common.text import one_line
from console.text.causes import pause_words, worse_words
from console.text.traits import trait_words
from console.text.unknown_alerts import listed
from core.events import AlertRaised
from core.events import alerts as kinds
from core.state import Alert

LARGER_WINDOW = 4096
"""Context window, in tokens, of the torch backend where neither option nor job names one."""
_Alert = TypeVar("_Alert", Alert, AlertRaised)


@dataclass(frozen=True, slots=True)
class AdviceContext:
    """Facts about this console that advice depends on: keys, screens and permissions."""

    keys: Mapping[str, str]
    """Id of an action -> its key as displayed."""
    screens: Mapping[str, int]
    """Name of a screen -> the digit that opens it."""
    read_only: bool = False
    """Whether commands are disabled; advice that names one is left out."""
    watch_only: bool = False
    """Whether the proxy only watches the servers."""


class AlertText(NamedTuple):
    """Text of an alert."""

    cause: str
    todo: str = ""
    """What the operator can do; may be empty."""


def alert_text(alert: Alert | AlertRaised, context: AdviceContext) -> AlertText:
    """Return the text of an alert.

    An alert that has its text keeps it. If the kind is unknown, as in a newer version, or the
    parameters do not fit it, the kind and the parameters are listed.
    """
    if alert.cause:
        return AlertText(alert.cause, alert.todo)
    params = kinds.read_params(alert.alert_kind, alert.params)
    if params is None:
        return AlertText(listed(alert))
    return WORDS[type(params)](params, context)


def in_words(alert: _Alert, context: AdviceContext) -> _Alert:
    """Return the alert, or its event, with its cause and advice filled in as sentences."""
    cause, todo = alert_text(alert, context)
    return msgspec.structs.replace(alert, cause=cause, todo=todo)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- servers -------------------------------------------------------------------------------------


def _off(one: kinds.ServerOff, context: AdviceContext) -> AlertText:
    clients = f"; on it then: {', '.join(one.clients)}" if one.clients else ""
    cause = f"{one.server} is off: {one.probe or TROUBLES.get(one.trouble, one.trouble)}{clients}"
    if context.watch_only:
        return AlertText(cause, "Its operator has to start it again")
    todo = f"Users are answered 503 until it rolls again. {_start(context)}"
    return AlertText(cause, _if_writable(context, todo))


def _if_writable(context: AdviceContext, todo: str) -> str:
    """Return advice that names a command; empty if commands are disabled."""
    return "" if context.read_only else todo


def _start(context: AdviceContext) -> str:
    return f"{context.screens['engine']} opens Engine: `{context.keys['engine.start']}` starts it"


def _lost(one: kinds.ServerLost, context: AdviceContext) -> AlertText:
    todo = "Check that it runs and that the URL is right; requests wait or are answered 503"
    if context.watch_only:
        todo = "Check that it runs and that the URL is right; it is polled until it answers"
    return AlertText(f"{one.server} does not answer: {one.error}", todo)


def _refused(one: kinds.UsersRefused, context: AdviceContext) -> AlertText:
    cause = f"users are answered 503: {one.server} is {one.state}"
    return AlertText(cause, _if_writable(context, _start(context)))


def _boot(one: kinds.BootStalled, context: AdviceContext) -> AlertText:
    rest = "its operator has to stop it"
    if not context.watch_only:
        rest = "stop the engine and start it again"
    todo = f"A failed start stays so on a real server: {rest}"
    return AlertText(f"{one.server} has been BOOTING for more than {one.minutes:.0f} min", todo)


def _start_failed(one: kinds.StartFailed, context: AdviceContext) -> AlertText:
    failed = f"`{one.step}` failed: {one.error}" if one.step else one.error
    remedy = one.remedy
    if not remedy:
        remedy = "Stop it and try again"
        if one.step:
            again = "orrect the job, start it again"
            remedy = f"C{again}" if one.off else f"Stop the engine, c{again}"
    todo = f"{remedy}. When it failed: {one.left}" if one.left else remedy
    return AlertText(f"{one.server} did not start: {failed}", todo)


def _hold(one: kinds.RatingsHoldUp, context: AdviceContext) -> AlertText:
    users = _count(one.users, "waiting user") if one.users else ""
    rows = f"{_count(one.rows, 'row')} of the mock user" if one.rows else ""
    held = " and ".join(filter(None, (users, rows))) or "the weight update"
    subject = "1 open rating holds" if one.ratings == 1 else f"{one.ratings} open ratings hold"
    keys, engine = context.keys, context.screens["engine"]
    todo = f"{context.screens['rate']} opens Rate: "
    if one.unscored < one.ratings:
        todo += f"`{keys['rating.accept_all']}` accepts all automatic rewards, "
    if one.unscored:
        todo += f"`{keys['group.rescore']}` re-scores a group without one ({one.unscored}), "
    todo += f"`{keys['rating.abort_all']}` aborts them, or go on rating. For good, on {engine}: "
    todo += f"`{keys['engine.start_hand']}` the job for rating by hand, or "
    todo += f"`{keys['engine.job']}` a larger batch"
    return AlertText(f"{subject} up {held}", _if_writable(context, todo))


def _held(one: kinds.BatchHeldUp, context: AdviceContext) -> AlertText:
    texts = [_holder(holder) for holder in one.holders]
    if one.users:
        texts.append(f"{_count(one.users, 'user')} wait{'s' if one.users == 1 else ''}")
    todo = "Abort them to end the batch now, or wait for their end"
    if context.watch_only:
        todo = "The client that holds them has to end them, or the server takes them back"
    return AlertText(f"ROLLING_POST for {one.seconds:.0f} s: {'; '.join(texts)}", todo)


def _holder(one: kinds.BatchHolder) -> str:
    more = one.count - len(one.episodes)
    named = ", ".join(one.episodes) + (f" and {more} more" if more > 0 else "")
    episodes = _count(one.count, "episode")
    quiet, left = one.quiet or 0.0, one.left or 0.0
    match one.by:
        case "client":
            seen = "" if one.quiet is None else f", last seen {quiet:.0f} s ago"
            until = "" if one.left is None else f", taken back in {left:.0f} s"
            client = one.name or "without a name"
            return f"{episodes} held by client {client}{seen} ({named}){until}"
        case "group":
            return f"{episodes} of our group {one.name} ({named}): no answer for {quiet:.0f} s"
        case "groups":
            return f"{_count(one.count, 'more group')} of ours"
        case _:
            return f"{episodes} of ours that no group holds ({named})"


def _taken(one: kinds.EpisodeTaken, context: AdviceContext) -> AlertText:
    by = f"client {one.client} has it now" if one.client else "aborted"
    cause = (
        f"somebody else took an episode of group {one.group:.12} on {one.server}: {by} after "
        f"{one.idle:.0f} s of {one.limit:.0f} s idle"
    )
    engine, inside = context.screens["engine"], context.keys["engine.inside"]
    todo = (
        f"Any client may abort any episode there. {engine} opens Engine, `{inside}` shows who is "
        "on it; the group goes on with what it has"
    )
    return AlertText(cause, _if_writable(context, todo))


def _tokens(one: kinds.RestartLost, context: AdviceContext) -> AlertText:
    lost = []
    if one.claimed:
        lost.append(_count(one.claimed, "claimed episode"))
    if one.open:
        lost.append(f"the answers of {_count(one.open, 'open group')}")
    if one.finished:
        votes = f" ({one.rated} human-rated)" if one.rated else ""
        lost.append(f"{_count(one.finished, 'finished group')} of this update{votes}")
    if one.tokens:
        lost.append("the tokens of all earlier episodes")
    opens = f"{context.keys['overview.alert']} opens them"
    if one.finished:
        todo = f"{opens}: no update trains on finished ones"
        if not context.read_only:
            todo += f", {context.keys['group.rerun']} asks one again"
        todo += "; open ones get new episodes while users wait" if one.open else ""
    elif one.open:
        todo = "Open groups get new episodes while their users wait, else they are aborted. "
        todo += opens
    else:
        todo = "What was trained up to the last update is kept"
    return AlertText(f"{one.server} was restarted. Lost: {', '.join(lost)}", todo)


def _observe(one: kinds.ObserveMode, context: AdviceContext) -> AlertText:
    return AlertText(
        "observe mode: answers, rewards and ratings are recorded, nothing is trained",
        "To train, name a swarm server with --swarm-url",
    )


def _upstream(one: kinds.UpstreamTrouble, context: AdviceContext) -> AlertText:
    return AlertText(
        f"the upstream does not answer as it should: {one.error}",
        "Check its key and the name of its model",
    )


# --- requests and groups -------------------------------------------------------------------------


def _room(one: kinds.TooFewEpisodes, context: AdviceContext) -> AlertText:
    return AlertText(
        f"{one.candidates} candidates are wanted, {one.server} has {one.room} episodes at a time: "
        f"{one.room} are used",
        "Lower proxy.repeats or what the hook returns, or raise the job's batch",
    )


def _cut(one: kinds.PromptsCut, context: AdviceContext) -> AlertText:
    window = f"{one.window} tokens" if one.window else "the engine's window"
    cause = f"prompts are cut to {window}: answers will be poor"
    cause += "" if one.trained else ", and these groups are not trained on"
    engine = "`ajet-console engine --backend torch --model smollm2`"
    larger = f"{engine} ({LARGER_WINDOW} tokens) or a GPU server"
    if one.window >= LARGER_WINDOW:
        larger = "a GPU server"
    todo = f"Use {larger}; `ajet-console engine --strict-context` refuses such prompts with a 400"
    return AlertText(cause, todo)


def _limited(one: kinds.SessionLimited | kinds.KeyLimited, context: AdviceContext) -> AlertText:
    return AlertText(
        f"{one.kind} {one.name} is answered 429, it is over {one.limit}: {one.query}",
        f"Stop that client, or raise proxy.{one.kind}_calls and proxy.{one.kind}_cap",
    )


_RECOVERED = {
    "ended": "{} finished and sent now",
    "recorded": "{} finished and recorded",
    "unknown": "{} finished, perhaps sent before, not confirmed",
    "expired": "{} finished too late to be sent",
    "refused": "{} finished and refused by the server",
    "given back": "{} not finished and given back",
    "gone": "{} not finished and no longer held by the server",
    "stray": "{} claimed and not yet noted in the journal, given back",
}
"""Outcome of episodes -> text, in the order in which the alert lists them."""


def _recovered(one: kinds.Recovered, context: AdviceContext) -> AlertText:
    groups = "1 group was" if one.groups == 1 else f"{one.groups} groups were"
    waited = f" ({one.unrated} waiting for a rating)" if one.unrated else ""
    cause = f"the proxy ended while {groups} open{waited} on {one.server}{_lost_votes(one)}"
    if one.situation == "silent":
        cause += ": the server does not answer, they stay open until it does"
    elif one.situation == "removed":
        cause += ", which is no longer configured: "
        cause += "the server frees their episodes only at its own time limit"
    else:
        fates = [
            text.format(one.outcomes[name])
            for name, text in _RECOVERED.items()
            if one.outcomes.get(name)
        ]
        cause += f"; episodes: {', '.join(fates)}" if fates else "; they held no episode"
    opens = f"{context.keys['overview.alert']} opens the groups"
    return AlertText(cause, f"Users without an answer were cut off. {opens}")


def _lost_votes(one: kinds.Recovered) -> str:
    if not one.votes_lost:
        return ""
    rest = one.votes_lost - len(one.votes)
    more = f" and {rest} more" if rest > 0 else ""
    votes = "1 vote is lost" if one.votes_lost == 1 else f"{one.votes_lost} votes are lost"
    return f"; {votes}, the server no longer holds the episodes: {', '.join(one.votes)}{more}"


def _strays(one: kinds.EpisodesReturned, context: AdviceContext) -> AlertText:
    cause = f"1 episode on {one.server} belonged to no group of ours: it was given back"
    if one.episodes != 1:
        cause = f"{one.episodes} episodes on {one.server} belonged to no group of ours: "
        cause += "they were given back"
    return AlertText(cause, "Nothing is left to do")


def _waited(one: kinds.WaitedAtStop, context: AdviceContext) -> AlertText:
    fates = {
        "given up, nothing was sent": one.dropped,
        "rated in time": one.rated,
        "sent with the automatic reward": one.automatic,
    }
    total = sum(fates.values())
    groups = "1 group" if total == 1 else f"{total} groups"
    listed = ", ".join(f"{count} {fate}" for fate, count in fates.items() if count)
    cause = f"{groups} waited for a rating when the proxy was stopped: {listed}"
    return AlertText(
        cause, f"{context.keys['overview.alert']} opens them: each group shows its outcome"
    )


# --- rewards -------------------------------------------------------------------------------------


def _place(file: str, line: int) -> str:
    if not file:
        return ""
    return f"{file}:{line}: " if line else f"{file}: "


def _rewards(one: kinds.RewardsNotLoaded, context: AdviceContext) -> AlertText:
    meanwhile = "the last good version stays active" if one.kept else "groups go to the operator"
    return AlertText(
        f"the rewards did not load: {_place(one.file, one.line)}{one.error}; {meanwhile}",
        "Correct the file and save it: it is loaded again at once. "
        f"{context.screens['rewards']} shows its fault",
    )


def _rewards_ended(one: kinds.RewardsEnded, context: AdviceContext) -> AlertText:
    todo = "If it goes on, correct what ends it and save the file; "
    return AlertText(one.error, f"{todo}{context.screens['rewards']} shows the fault")


def _rewards_gone(one: kinds.RewardsGone, context: AdviceContext) -> AlertText:
    return AlertText(
        f"the built-in rewards train now: the rewards of the last run are gone, {one.path}",
        "Restore that file or folder; dismiss this when the built-in rewards are wanted",
    )


_SCORING = {
    "cache": "groups that its cache does not answer are not scored meanwhile",
    "version": "the last good version stays active",
}


def _judge(one: kinds.JudgeTrouble, context: AdviceContext) -> AlertText:
    what = "was not reached yet" if one.unreached else "is in trouble"
    meanwhile = _SCORING.get(one.scoring, "groups go to the operator")
    cause = f"the judge {one.judge} {what}: {_place(one.file, one.line)}{one.error}; {meanwhile}"
    todo = f"`rewards-enable {one.judge} off` scores without it"
    if one.unreached:
        return AlertText(cause, f"It is tried again automatically; {todo}")
    counts = f"{context.screens['rewards']} shows its counts"
    opens = f"{context.keys['rewards.edit']} there opens the file"
    return AlertText(cause, f"{counts}, {opens}; {todo}")


def _unscored(one: kinds.Unscored, context: AdviceContext) -> AlertText:
    cause = "the last group has no automatic reward and trains nothing"
    if one.of != 1:
        share = f"{one.count} of the last {one.of} groups"
        cause = f"{share} have no automatic reward and train nothing"
    cause += f": {one.error}"
    if one.waiting:
        waits = " waits" if one.waiting == 1 else "s wait"
        cause += f"; {one.waiting} open group{waits} for you"
    remedy = "Save a corrected version: open groups are re-scored with it "
    remedy += f"({context.screens['rewards']} shows the fault)"
    if one.time_limit:
        remedy = (
            f"Make it faster, or raise rewards.time_limit (now {one.time_limit:g} s) and restart "
            "the proxy"
        )
    rescores, aborts = context.keys["group.rescore"], context.keys["group.abort"]
    todo = (
        f"{remedy}. On a group ({context.screens['requests']}): `{rescores}` re-scores, "
        f"`{aborts}` aborts, or rate it by hand"
    )
    return AlertText(cause, _if_writable(context, todo))


def _hook(one: kinds.HookFailed, context: AdviceContext) -> AlertText:
    if not one.error:
        return AlertText(
            "the hook for new requests took too long and was left out",
            f"{context.screens['log']} shows the log; make the hook faster",
        )
    return AlertText(
        f"the hook for new requests failed: {one.error}",
        f"{context.screens['log']} shows the traceback; correct the hook and save it",
    )


def _hacking(one: kinds.RewardHacking, context: AdviceContext) -> AlertText:
    noun, more = trait_words(one.trait)
    beyond = ""
    if one.parts:
        names = ", ".join(f"`{one_line(name, 40)}`" for name in one.parts)
        what = f"the part {names} gives" if len(one.parts) == 1 else f"the parts {names} give"
        beyond = f", without what {what}"
    cause = (
        f"rewards follow {noun}{beyond}: r {one.r:+.2f} (95 % {one.low:+.2f} to {one.high:+.2f}) "
        f"over {one.answers} answers"
    )
    groups = ", ".join(one_line(group, 40) for group in one.groups) or "the winners"
    rewards = context.screens["rewards"]
    return AlertText(
        cause, f"Look at {groups}: is the winner better, or just {more}? See Rewards ({rewards})"
    )


def _dead(one: kinds.NoSignal, context: AdviceContext) -> AlertText:
    return AlertText(
        f"{one.dead} of the {one.groups} groups of the last {one.steps} global steps have no "
        "signal: their answers got equal or almost equal rewards, from which the policy learns "
        "almost nothing",
        f"{context.screens['rewards']} shows the values of each part: let one tell answers apart, "
        "or use harder questions",
    )


def _reward_scale(one: kinds.RewardScale, context: AdviceContext) -> AlertText:
    cause = (
        f"the rewards go from {one.low:.3g} to {one.high:.3g}: they are expected to lie in 0 to 1"
    )
    if one.narrow:
        cause = f"all rewards lie between {one.low:.4g} and {one.high:.4g}: "
        cause += "they hardly tell answers apart"
    return AlertText(cause, "Check on Rewards that weights sum to 1 and that hooks return 0 to 1")


def _reward_outlier(one: kinds.RewardOutlier, context: AdviceContext) -> AlertText:
    return AlertText(
        f"reward {one.reward:.4g} of candidate {one.candidate} in group {one_line(one.group, 40)} "
        f"is {one.deviations:.1f} deviations from the others",
        "Open the group: its parts show the cause of that reward",
    )


def _worse(one: kinds.PolicyWorse, context: AdviceContext) -> AlertText:
    at = "" if one.step is None else f" at step {one.step}"
    todo = _rewind(one.best, context)
    if one.paused:
        resumes = context.keys["progress.resume"]
        todo += f". Nothing is trained until then; `{resumes}` trains on without it"
    cause = f"the policy of {one.server} is worse than the baseline by {one.below:.2f}{at}"
    return AlertText(cause, _if_writable(context, todo))


def _no_training(one: kinds.NoTraining, context: AdviceContext) -> AlertText:
    screen, key = context.screens["progress"], context.keys["progress.resume"]
    todo = f"Users are answered, nothing is trained. {screen} opens Progress: `{key}` resumes"
    return AlertText(pause_words(one.server, one.reason), _if_writable(context, todo))


def _below_best(one: kinds.PolicyBelowBest, context: AdviceContext) -> AlertText:
    at = "" if one.step is None else f" at step {one.step}"
    less = f"{one.below:.2f} less ({one.least:.2f} to {one.most:.2f})"
    than = "its best verified step" if one.than is None else f"at step {one.than}, its best one"
    cause = f"the mean reward of {one.server}{at} is {less} than {than}"
    return AlertText(cause, _if_writable(context, _rewind(one.best, context)))


def _worse_parts(one: kinds.PartsWorse, context: AdviceContext) -> AlertText:
    but = "the reward is better, but " if one.verdict == "better" else ""
    return AlertText(
        f"{one.server}: {but}worse than the baseline: {worse_words(one.parts)}",
        f"{context.screens['progress']} shows the answers that changed; a part with a weight on "
        f"{context.screens['rewards']} makes it count",
    )


def _rewind(best: int | None, context: AdviceContext) -> str:
    screen, key = context.screens["progress"], context.keys["progress.rewind"]
    to = "" if best is None else f" to step {best}"
    return f"{screen} shows what changed; `{key}` there rewinds{to}"


# --- the program itself --------------------------------------------------------------------------


def _port(one: kinds.PortTaken, context: AdviceContext) -> AlertText:
    leave, stop = context.keys["app.quit"], context.keys["quit.stop"]
    return AlertText(
        f"port {one.port} is taken: the fake vLLM listens on {one.url}",
        f"Point applications at {one.url}/v1. For port {one.port}: free it, stop the proxy "
        f"({leave}, then {stop}) and start again",
    )


_EFFECTS = {"untrained": ": nothing is trained on", "unsent": ": no reward is sent"}


def _journal(one: kinds.JournalFailed, context: AdviceContext) -> AlertText:
    if one.error:
        return AlertText(one.error, one.remedy)
    shows = f"{context.screens['log']} shows why"
    return AlertText(f"the journal cannot be written{_EFFECTS.get(one.effect, '')}", shows)


def _journal_file(one: kinds.JournalFileChanged, context: AdviceContext) -> AlertText:
    return AlertText(one.notice, f"{context.screens['log']} shows the cause")


def _journal_damage(one: kinds.JournalDamaged, context: AdviceContext) -> AlertText:
    todo = "Restart the proxy: the start sets the file aside and keeps what can be read"
    return AlertText(f"the journal is damaged: {one.damage}", todo)


def _journal_prune(one: kinds.JournalNotPruned, context: AdviceContext) -> AlertText:
    cause = f"the journal is not pruned and may exceed its limits: {one.error}"
    todo = f"It is tried again every minute; {context.screens['log']} shows the cause"
    return AlertText(cause, todo)


def _telemetry(one: kinds.TelemetryFailed, context: AdviceContext) -> AlertText:
    return AlertText(f"{one.name} takes no data: {one.error}", "Training goes on; data is dropped")


def _part(one: kinds.PartFailed, context: AdviceContext) -> AlertText:
    cause = f"a part of the proxy failed and was started again: {one.part}: {one.error}"
    return AlertText(cause, f"A fault of the program; {context.screens['log']} shows its cause")


def _process(one: kinds.ProcessEnded, context: AdviceContext) -> AlertText:
    again = "" if context.read_only else " and to start it again"
    engine, log = context.screens["engine"], context.screens["log"]
    todo = f"Press {engine} for its last log lines{again}; {log} for its log"
    return AlertText(f"{one.role} {one.detail}", one.remedy or todo)


WORDS: Mapping[type[kinds.AlertParams], Callable[[Any, AdviceContext], AlertText]] = {
    kinds.ServerOff: _off,
    kinds.ServerLost: _lost,
    kinds.UsersRefused: _refused,
    kinds.BootStalled: _boot,
    kinds.StartFailed: _start_failed,
    kinds.RatingsHoldUp: _hold,
    kinds.BatchHeldUp: _held,
    kinds.EpisodeTaken: _taken,
    kinds.RestartLost: _tokens,
    kinds.ObserveMode: _observe,
    kinds.UpstreamTrouble: _upstream,
    kinds.TooFewEpisodes: _room,
    kinds.PromptsCut: _cut,
    kinds.SessionLimited: _limited,
    kinds.KeyLimited: _limited,
    kinds.Recovered: _recovered,
    kinds.EpisodesReturned: _strays,
    kinds.WaitedAtStop: _waited,
    kinds.RewardsNotLoaded: _rewards,
    kinds.RewardsEnded: _rewards_ended,
    kinds.RewardsGone: _rewards_gone,
    kinds.JudgeTrouble: _judge,
    kinds.Unscored: _unscored,
    kinds.HookFailed: _hook,
    kinds.RewardHacking: _hacking,
    kinds.NoSignal: _dead,
    kinds.RewardScale: _reward_scale,
    kinds.RewardOutlier: _reward_outlier,
    kinds.PolicyWorse: _worse,
    kinds.NoTraining: _no_training,
    kinds.PolicyBelowBest: _below_best,
    kinds.PartsWorse: _worse_parts,
    kinds.PortTaken: _port,
    kinds.JournalFailed: _journal,
    kinds.JournalFileChanged: _journal_file,
    kinds.JournalDamaged: _journal_damage,
    kinds.JournalNotPruned: _journal_prune,
    kinds.TelemetryFailed: _telemetry,
    kinds.PartFailed: _part,
    kinds.ProcessEnded: _process,
}
"""Kind of alert -> function that makes its text."""
