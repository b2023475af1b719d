"""The table of alerts on screen: for each kind its cause, what the operator can do, and where.

The proxy sends only kinds and parameters (`core.events.alerts`); all texts are made here and in
`console.text.alert_words`. Advice looks keys up by their action, because the operator can change
them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from console.text import alert_words as words
from console.text.alert_words import AdviceContext, AlertText
from console.text.values import value_words
from core.events import AlertRaised
from core.events.alerts import read_params


@dataclass(frozen=True, slots=True)
class Remedy:
    """Where alerts of one kind are handled, and with which action."""

    screen: str
    effect: str
    """The effect, in a word or two; keys as in the templates of `AlertWords`."""
    action: str = ""
    """Id of the action; empty when there is only something to read."""
    read_only: str = ""
    """Text for a read-only console: what the screen shows; empty for `effect`."""


Words = Callable[[Any, AdviceContext], AlertText] | tuple[str, str]
"""Makes the text of an alert from its parameters; or templates of its cause and its advice, with
parameters as `{p.error}`, keys as `{keys[app.quit]}`, screens as `{screens[log]}`."""


def alert_text(alert: AlertRaised, context: AdviceContext) -> AlertText:
    """Return the text of an alert.

    An alert that has its text keeps it. If the kind is unknown, as in a newer version, or the
    parameters do not fit it, the kind and the parameters are listed.
    """
    if alert.cause:
        return AlertText(alert.cause, alert.todo)
    params = read_params(alert.alert_kind, alert.params)
    if params is None:
        return AlertText(listed(alert))
    made_by, _ = ALERTS[params.kind]
    if not isinstance(made_by, tuple):
        return made_by(params, context)
    names = {"p": params, "keys": context.keys, "screens": context.screens}
    return AlertText(*(template.format_map(names) for template in made_by))


def in_words(alert: AlertRaised, context: AdviceContext) -> AlertRaised:
    """Return the alert with its cause and advice filled in as sentences."""
    cause, todo = alert_text(alert, context)
    return msgspec.structs.replace(alert, cause=cause, todo=todo)


_PARTS = Remedy("rewards", "the values of each part")
_GROUPS = Remedy("requests", "their outcome")
_FAULT = Remedy("rewards", "its last fault")
_REWIND = Remedy(
    "progress",
    "back to the best verified step",
    "progress.rewind",
    "the verdict, the prompts that changed",
)
_STARTS = Remedy("engine", "start it", "engine.start", "its state")
_LIMITED = (
    "{p.kind} {p.name} is answered 429, it is over {p.limit}: {p.query}",
    "Stop that client, or raise proxy.{p.kind}_calls and proxy.{p.kind}_cap",
)
ALERTS: Mapping[str, tuple[Words, Remedy]] = {
    # --- servers ---
    "off": (words.off, _STARTS),
    "lost": (words.lost, Remedy("engine", "its last state")),
    "refused": (words.refused, _STARTS),
    "boot": (
        words.boot,
        Remedy(
            "engine", "stop it, then {keys[engine.start]} starts it", "engine.stop", "its state"
        ),
    ),
    "start": (words.start_failed, Remedy("engine", "start it again", "engine.start", "its state")),
    "hold": (
        words.hold,
        Remedy(
            "rate",
            "{keys[rating.accept_all]} accepts all, {keys[rating.abort_all]} aborts them",
            read_only="what waits for a rating",
        ),
    ),
    "held": (
        words.held,
        Remedy(
            "engine",
            "the episodes it waits for",
            "engine.inside",
            "the episodes it waits for",
        ),
    ),
    "taken": (words.taken, Remedy("engine", "its clients", "engine.inside", "its clients")),
    "tokens": (words.tokens, _GROUPS),
    "observe": (
        (
            "observe mode: answers, rewards and ratings are recorded, nothing is trained",
            "To train, name a swarm server with --swarm-url",
        ),
        Remedy("engine", "the upstream"),
    ),
    "upstream": (
        (
            "the upstream does not answer as it should: {p.error}",
            "Check its key and the name of its model",
        ),
        Remedy("engine", "its messages"),
    ),
    # --- requests and groups ---
    "room": (
        (
            "{p.candidates} candidates are wanted, {p.server} has {p.room} episodes at a time: "
            "{p.room} are used",
            "Lower proxy.repeats or what the hook returns, or raise the job's batch",
        ),
        Remedy("engine", "the job's batch", "engine.job", "its batch"),
    ),
    "cut": (words.cut, Remedy("requests", "truncated:yes finds them")),
    "session": (_LIMITED, Remedy("requests", "its questions")),
    "recovered": (words.recovered, _GROUPS),
    "strays": (words.strays, _GROUPS),
    "waited": (words.waited, _GROUPS),
    # --- rewards ---
    "rewards": (words.rewards, _FAULT),
    "rewards_ended": (
        (
            "{p.error}",
            "If it goes on, correct what ends it and save the file; {screens[rewards]} shows the "
            "fault",
        ),
        _FAULT,
    ),
    "rewards_gone": (
        (
            "the built-in rewards train now: the rewards of the last run are gone, {p.path}",
            "Restore that file or folder; dismiss this when the built-in rewards are wanted",
        ),
        _FAULT,
    ),
    "judge": (
        words.judge,
        Remedy(
            "rewards",
            "its counts; {keys[rewards.edit]} opens the file",
            read_only="its counts",
        ),
    ),
    "unscored": (
        words.unscored,
        Remedy(
            "requests",
            "{keys[group.rescore]} re-scores, {keys[group.abort]} aborts",
            read_only="these groups",
        ),
    ),
    "hook": (words.hook, Remedy("log", "the traceback")),
    "hacking": (words.hacking, _PARTS),
    "dead": (
        (
            "{p.dead} of the {p.groups} groups of the last {p.steps} global steps have no signal: "
            "their answers got equal or almost equal rewards, from which the policy learns almost "
            "nothing",
            "{screens[rewards]} shows the values of each part: let one tell answers apart, or use "
            "harder questions",
        ),
        _PARTS,
    ),
    "reward_scale": (words.reward_scale, _PARTS),
    "reward_outlier": (words.reward_outlier, _PARTS),
    # --- progress ---
    "worse": (words.worse, _REWIND),
    "paused": (
        words.no_training,
        Remedy("progress", "resume training", "progress.resume", "why it is paused"),
    ),
    "below_best": (words.below_best, _REWIND),
    "worse_parts": (words.worse_parts, Remedy("progress", "the parts and the answers")),
    # --- the program itself ---
    "port": (
        (
            "port {p.port} is taken: the fake vLLM listens on {p.url}",
            "Point applications at {p.url}/v1. For port {p.port}: free it, stop the proxy "
            "({keys[app.quit]}, then {keys[quit.stop]}) and start again",
        ),
        Remedy("log", "its address"),
    ),
    "journal": (words.journal, Remedy("log", "why it cannot be written")),
    "journal_file": (
        ("{p.notice}", "{screens[log]} shows the cause"),
        Remedy("log", "the cause"),
    ),
    "journal_damage": (
        (
            "the journal is damaged: {p.damage}",
            "Restart the proxy: the start sets the file aside and keeps what can be read",
        ),
        Remedy("log", "what is damaged"),
    ),
    "journal_prune": (
        (
            "the journal is not pruned and may exceed its limits: {p.error}",
            "It is tried again every minute; {screens[log]} shows the cause",
        ),
        Remedy("log", "why it is not pruned"),
    ),
    "telemetry": (
        ("{p.name} takes no data: {p.error}", "Training goes on; data is dropped"),
        Remedy("log", "what failed"),
    ),
    "part": (
        (
            "a part of the proxy failed and was started again: {p.part}: {p.error}",
            "A fault of the program; {screens[log]} shows its cause",
        ),
        Remedy("log", "what failed"),
    ),
    "process": (words.process, Remedy("engine", "start it again", read_only="its last log lines")),
}
"""Kind of alert, as in `core.events.alerts` -> its words, and where it is handled."""


def listed(alert: AlertRaised) -> str:
    """Return the kind and the parameters: `disk full: path /h, left 3`."""
    head = alert.alert_kind.replace("_", " ")
    pairs = [
        f"{name.replace('_', ' ')} {value_words(value)}" for name, value in alert.params.items()
    ]
    return f"{head}: {', '.join(pairs)}" if pairs else head
