"""Words of alerts whose text depends on their parameters; `console.text.alerts` has the table.

A function takes the parameters of its kind (`core.events.alerts`), and returns the cause and what
the operator can do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ajet_swarm.api.watcher import TROUBLES
from ajet_swarm.common.text import one_line
from console.text.causes import pause_words, worse_words

LARGER_WINDOW = 4096
"""Context window, in tokens, of the torch backend where neither option nor job names one."""


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- servers -------------------------------------------------------------------------------------


def off(params: Any, context: AdviceContext) -> AlertText:
    clients = f"; on it then: {', '.join(params.clients)}" if params.clients else ""
    why = params.probe or TROUBLES.get(params.trouble, params.trouble)
    cause = f"{params.server} is off: {why}{clients}"
    if context.watch_only:
        return AlertText(cause, "Its operator has to start it again")
    todo = f"Users are answered 503 until it rolls again. {_start(context)}"
    return AlertText(cause, _if_writable(context, todo))


def _if_writable(context: AdviceContext, todo: str) -> str:
    """Return advice that names a command; empty if commands are disabled."""
    return "" if context.read_only else todo


def _start(context: AdviceContext) -> str:
    return f"{context.screens['engine']} opens Engine: `{context.keys['engine.start']}` starts it"


def lost(params: Any, context: AdviceContext) -> AlertText:
    todo = "Check that it runs and that the URL is right; requests wait or are answered 503"
    if context.watch_only:
        todo = "Check that it runs and that the URL is right; it is polled until it answers"
    return AlertText(f"{params.server} does not answer: {params.error}", todo)


def refused(params: Any, context: AdviceContext) -> AlertText:
    cause = f"users are answered 503: {params.server} is {params.state}"
    return AlertText(cause, _if_writable(context, _start(context)))


def boot(params: Any, context: AdviceContext) -> AlertText:
    rest = "its operator has to stop it"
    if not context.watch_only:
        rest = "stop the engine and start it again"
    todo = f"A failed start stays so on a real server: {rest}"
    return AlertText(
        f"{params.server} has been BOOTING for more than {params.minutes:.0f} min", todo
    )


def start_failed(params: Any, context: AdviceContext) -> AlertText:
    failed = f"`{params.step}` failed: {params.error}" if params.step else params.error
    remedy = params.remedy
    if not remedy:
        remedy = "Stop it and try again"
        if params.step:
            again = "orrect the job, start it again"
            remedy = f"C{again}" if params.off else f"Stop the engine, c{again}"
    todo = f"{remedy}. When it failed: {params.left}" if params.left else remedy
    return AlertText(f"{params.server} did not start: {failed}", todo)


def hold(params: Any, context: AdviceContext) -> AlertText:
    users = _count(params.users, "waiting user") if params.users else ""
    rows = f"{_count(params.rows, 'row')} of the mock user" if params.rows else ""
    held = " and ".join(filter(None, (users, rows))) or "the weight update"
    subject = (
        "1 open rating holds" if params.ratings == 1 else f"{params.ratings} open ratings hold"
    )
    keys, engine = context.keys, context.screens["engine"]
    todo = f"{context.screens['rate']} opens Rate: "
    if params.unscored < params.ratings:
        todo += f"`{keys['rating.accept_all']}` accepts all automatic rewards, "
    if params.unscored:
        todo += f"`{keys['group.rescore']}` re-scores a group without one ({params.unscored}), "
    todo += f"`{keys['rating.abort_all']}` aborts them, or go on rating. For good, on {engine}: "
    todo += f"`{keys['engine.start_hand']}` the job for rating by hand, or "
    todo += f"`{keys['engine.job']}` a larger batch"
    return AlertText(f"{subject} up {held}", _if_writable(context, todo))


def held(params: Any, context: AdviceContext) -> AlertText:
    texts = [_holder(holder) for holder in params.holders]
    if params.users:
        texts.append(f"{_count(params.users, 'user')} wait{'s' if params.users == 1 else ''}")
    todo = "Abort them to end the batch now, or wait for their end"
    if context.watch_only:
        todo = "The client that holds them has to end them, or the server takes them back"
    return AlertText(f"ROLLING_POST for {params.seconds:.0f} s: {'; '.join(texts)}", todo)


def _holder(params: Any) -> str:
    more = params.count - len(params.episodes)
    named = ", ".join(params.episodes) + (f" and {more} more" if more > 0 else "")
    episodes = _count(params.count, "episode")
    quiet, left = params.quiet or 0.0, params.left or 0.0
    match params.by:
        case "client":
            seen = "" if params.quiet is None else f", last seen {quiet:.0f} s ago"
            until = "" if params.left is None else f", taken back in {left:.0f} s"
            client = params.name or "without a name"
            return f"{episodes} held by client {client}{seen} ({named}){until}"
        case "group":
            return f"{episodes} of our group {params.name} ({named}): no answer for {quiet:.0f} s"
        case "groups":
            return f"{_count(params.count, 'more group')} of ours"
        case _:
            return f"{episodes} of ours that no group holds ({named})"


def taken(params: Any, context: AdviceContext) -> AlertText:
    by = f"client {params.client} has it now" if params.client else "aborted"
    cause = (
        f"somebody else took an episode of group {params.group:.12} on {params.server}: {by} after "
        f"{params.idle:.0f} s of {params.limit:.0f} s idle"
    )
    engine, inside = context.screens["engine"], context.keys["engine.inside"]
    todo = (
        f"Any client may abort any episode there. {engine} opens Engine, `{inside}` shows who is "
        "on it; the group goes on with what it has"
    )
    return AlertText(cause, _if_writable(context, todo))


def tokens(params: Any, context: AdviceContext) -> AlertText:
    lost = []
    if params.claimed:
        lost.append(_count(params.claimed, "claimed episode"))
    if params.open:
        lost.append(f"the answers of {_count(params.open, 'open group')}")
    if params.finished:
        votes = f" ({params.rated} human-rated)" if params.rated else ""
        lost.append(f"{_count(params.finished, 'finished group')} of this update{votes}")
    if params.tokens:
        lost.append("the tokens of all earlier episodes")
    opens = f"{context.keys['list.open']} opens them"
    if params.finished:
        todo = f"{opens}: no update trains on finished ones"
        if not context.read_only:
            todo += f", {context.keys['group.rerun']} asks one again"
        todo += "; open ones get new episodes while users wait" if params.open else ""
    elif params.open:
        todo = "Open groups get new episodes while their users wait, else they are aborted. "
        todo += opens
    else:
        todo = "What was trained up to the last update is kept"
    return AlertText(f"{params.server} was restarted. Lost: {', '.join(lost)}", todo)


# --- requests and groups -------------------------------------------------------------------------


def cut(params: Any, context: AdviceContext) -> AlertText:
    window = f"{params.window} tokens" if params.window else "the engine's window"
    cause = f"prompts are cut to {window}: answers will be poor"
    cause += ", and these groups are not trained on"
    engine = "`ajet-console run engine --backend torch --model smollm2`"
    larger = f"{engine} ({LARGER_WINDOW} tokens) or a GPU server"
    if params.window >= LARGER_WINDOW:
        larger = "a GPU server"
    todo = (
        f"Use {larger}; `ajet-console run engine --strict-context` refuses such prompts with a 400"
    )
    return AlertText(cause, todo)


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


def recovered(params: Any, context: AdviceContext) -> AlertText:
    groups = "1 group was" if params.groups == 1 else f"{params.groups} groups were"
    waited = f" ({params.unrated} waiting for a rating)" if params.unrated else ""
    cause = f"the proxy ended while {groups} open{waited} on {params.server}{_lost_votes(params)}"
    if params.situation == "silent":
        cause += ": the server does not answer, they stay open until it does"
    elif params.situation == "removed":
        cause += ", which is no longer configured: "
        cause += "the server frees their episodes only at its own time limit"
    else:
        fates = [
            text.format(params.outcomes[name])
            for name, text in _RECOVERED.items()
            if params.outcomes.get(name)
        ]
        cause += f"; episodes: {', '.join(fates)}" if fates else "; they held no episode"
    opens = f"{context.keys['list.open']} opens the groups"
    return AlertText(cause, f"Users without an answer were cut off. {opens}")


def _lost_votes(params: Any) -> str:
    if not params.votes_lost:
        return ""
    rest = params.votes_lost - len(params.votes)
    more = f" and {rest} more" if rest > 0 else ""
    votes = "1 vote is lost" if params.votes_lost == 1 else f"{params.votes_lost} votes are lost"
    return f"; {votes}, the server no longer holds the episodes: {', '.join(params.votes)}{more}"


def strays(params: Any, context: AdviceContext) -> AlertText:
    cause = f"1 episode on {params.server} belonged to no group of ours: it was given back"
    if params.episodes != 1:
        cause = f"{params.episodes} episodes on {params.server} belonged to no group of ours: "
        cause += "they were given back"
    return AlertText(cause, "Nothing is left to do")


def waited(params: Any, context: AdviceContext) -> AlertText:
    fates = {
        "given up, nothing was sent": params.dropped,
        "rated in time": params.rated,
        "sent with the automatic reward": params.automatic,
    }
    total = sum(fates.values())
    groups = "1 group" if total == 1 else f"{total} groups"
    listed = ", ".join(f"{count} {fate}" for fate, count in fates.items() if count)
    cause = f"{groups} waited for a rating when the proxy was stopped: {listed}"
    return AlertText(cause, f"{context.keys['list.open']} opens them: each group shows its outcome")


# --- rewards -------------------------------------------------------------------------------------


def _place(file: str, line: int) -> str:
    if not file:
        return ""
    return f"{file}:{line}: " if line else f"{file}: "


def rewards(params: Any, context: AdviceContext) -> AlertText:
    meanwhile = "the last good version stays active" if params.kept else "groups go to the operator"
    return AlertText(
        f"the rewards did not load: {_place(params.file, params.line)}{params.error}; {meanwhile}",
        "Correct the file and save it: it is loaded again at once. "
        f"{context.screens['rewards']} shows its fault",
    )


_SCORING = {
    "cache": "groups that its cache does not answer are not scored meanwhile",
    "version": "the last good version stays active",
}


def judge(params: Any, context: AdviceContext) -> AlertText:
    what = "was not reached yet" if params.unreached else "is in trouble"
    meanwhile = _SCORING.get(params.scoring, "groups go to the operator")
    error = f"{_place(params.file, params.line)}{params.error}"
    cause = f"the judge {params.judge} {what}: {error}; {meanwhile}"
    todo = f"`rewards enable {params.judge} off` scores without it"
    if params.unreached:
        return AlertText(cause, f"It is tried again automatically; {todo}")
    counts = f"{context.screens['rewards']} shows its counts"
    opens = f"{context.keys['rewards.edit']} there opens the file"
    return AlertText(cause, f"{counts}, {opens}; {todo}")


def unscored(params: Any, context: AdviceContext) -> AlertText:
    cause = "the last group has no automatic reward and trains nothing"
    if params.of != 1:
        share = f"{params.count} of the last {params.of} groups"
        cause = f"{share} have no automatic reward and train nothing"
    cause += f": {params.error}"
    if params.waiting:
        waits = " waits" if params.waiting == 1 else "s wait"
        cause += f"; {params.waiting} open group{waits} for you"
    remedy = "Save a corrected version: open groups are re-scored with it "
    remedy += f"({context.screens['rewards']} shows the fault)"
    if params.time_limit:
        limit = f"{params.time_limit:g} s"
        remedy = f"Make it faster, or raise rewards.time_limit (now {limit}) and restart the proxy"
    rescores, aborts = context.keys["group.rescore"], context.keys["group.abort"]
    todo = (
        f"{remedy}. On a group ({context.screens['requests']}): `{rescores}` re-scores, "
        f"`{aborts}` aborts, or rate it by hand"
    )
    return AlertText(cause, _if_writable(context, todo))


def hook(params: Any, context: AdviceContext) -> AlertText:
    if not params.error:
        return AlertText(
            "the hook for new requests took too long and was left out",
            f"{context.screens['log']} shows the log; make the hook faster",
        )
    return AlertText(
        f"the hook for new requests failed: {params.error}",
        f"{context.screens['log']} shows the traceback; correct the hook and save it",
    )


def hacking(params: Any, context: AdviceContext) -> AlertText:
    noun, more = trait_words(params.trait)
    beyond = ""
    if params.parts:
        names = ", ".join(f"`{one_line(name, 40)}`" for name in params.parts)
        what = f"the part {names} gives" if len(params.parts) == 1 else f"the parts {names} give"
        beyond = f", without what {what}"
    cause = (
        f"rewards follow {noun}{beyond}: r {params.r:+.2f} "
        f"(95 % {params.low:+.2f} to {params.high:+.2f}) over {params.answers} answers"
    )
    groups = ", ".join(one_line(group, 40) for group in params.groups) or "the winners"
    rewards = context.screens["rewards"]
    return AlertText(
        cause, f"Look at {groups}: is the winner better, or just {more}? See Rewards ({rewards})"
    )


def reward_scale(params: Any, context: AdviceContext) -> AlertText:
    span = f"{params.low:.3g} to {params.high:.3g}"
    cause = f"the rewards go from {span}: they are expected to lie in 0 to 1"
    if params.narrow:
        cause = f"all rewards lie between {params.low:.4g} and {params.high:.4g}: "
        cause += "they hardly tell answers apart"
    return AlertText(cause, "Check on Rewards that weights sum to 1 and that hooks return 0 to 1")


def reward_outlier(params: Any, context: AdviceContext) -> AlertText:
    return AlertText(
        f"reward {params.reward:.4g} of candidate {params.candidate} in group "
        f"{one_line(params.group, 40)} is {params.deviations:.1f} deviations from the others",
        "Open the group: its parts show the cause of that reward",
    )


def worse(params: Any, context: AdviceContext) -> AlertText:
    at = "" if params.step is None else f" at step {params.step}"
    todo = _rewind(params.best, context)
    if params.paused:
        resumes = context.keys["progress.resume"]
        todo += f". Nothing is trained until then; `{resumes}` trains on without it"
    cause = f"the policy of {params.server} is worse than the baseline by {params.below:.2f}{at}"
    return AlertText(cause, _if_writable(context, todo))


def no_training(params: Any, context: AdviceContext) -> AlertText:
    screen, key = context.screens["progress"], context.keys["progress.resume"]
    todo = f"Users are answered, nothing is trained. {screen} opens Progress: `{key}` resumes"
    return AlertText(pause_words(params.server, params.reason), _if_writable(context, todo))


def below_best(params: Any, context: AdviceContext) -> AlertText:
    at = "" if params.step is None else f" at step {params.step}"
    less = f"{params.below:.2f} less ({params.least:.2f} to {params.most:.2f})"
    than = (
        "its best verified step" if params.than is None else f"at step {params.than}, its best one"
    )
    cause = f"the mean reward of {params.server}{at} is {less} than {than}"
    return AlertText(cause, _if_writable(context, _rewind(params.best, context)))


def worse_parts(params: Any, context: AdviceContext) -> AlertText:
    but = "the reward is better, but " if params.verdict == "better" else ""
    return AlertText(
        f"{params.server}: {but}worse than the baseline: {worse_words(params.parts)}",
        f"{context.screens['progress']} shows the answers that changed; a part with a weight on "
        f"{context.screens['rewards']} makes it count",
    )


def _rewind(best: int | None, context: AdviceContext) -> str:
    screen, key = context.screens["progress"], context.keys["progress.rewind"]
    to = "" if best is None else f" to step {best}"
    return f"{screen} shows what changed; `{key}` there rewinds{to}"


# --- the program itself --------------------------------------------------------------------------


_EFFECTS = {"untrained": ": nothing is trained on", "unsent": ": no reward is sent"}


def journal(params: Any, context: AdviceContext) -> AlertText:
    if params.error:
        return AlertText(params.error, params.remedy)
    shows = f"{context.screens['log']} shows why"
    return AlertText(f"the journal cannot be written{_EFFECTS.get(params.effect, '')}", shows)


def process(params: Any, context: AdviceContext) -> AlertText:
    again = "" if context.read_only else " and to start it again"
    engine, log = context.screens["engine"], context.screens["log"]
    todo = f"Press {engine} for its last log lines{again}; {log} for its log"
    return AlertText(f"{params.role} {params.detail}", params.remedy or todo)


_WORDS: Mapping[str, tuple[str, str]] = {
    "length": ("length", "longer"),
    "repetition": ("repetition within the answer", "more repetitive"),
    "refusal": ("phrases of refusal", "a refusal"),
    "reference": ("overlap with the reference", "closer to a copy of the reference"),
}
"""Trait -> noun, and description of an answer that has more of it."""


def trait_words(trait: str) -> tuple[str, str]:
    """Return a noun for the trait, and a description of an answer that has more of it."""
    return _WORDS.get(trait, (trait, f"higher in {trait}"))
