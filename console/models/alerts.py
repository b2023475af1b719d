"""Where the operator handles each alert: screen and key; also what open ratings hold up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line, plural
from console.models.advice import advice_context, context_of
from console.models.screen_registry import SCREENS, ScreenSpec
from console.session.app_state import ChildProcess, Session
from console.session.open_ratings import HOLD, current_alerts
from console.session.server_facts import ended
from console.text.alerts import AdviceContext, alert_text, in_words
from core.events.alerts import ProcessEnded
from core.runtime.sockets import TAKEN
from core.state import Alert, State

PATIENCE = 3.0
"""Seconds a request may wait for its episodes before it counts as held up."""


@dataclass(frozen=True, slots=True)
class AlertAction:
    """How to handle an alert."""

    screen: ScreenSpec
    keys: str = ""
    """Keys to press on that screen; empty when there is only something to read."""
    effect: str = ""
    """The effect, in a word or two."""
    server: str = ""
    """Server whose detail view opens at once; empty for none."""

    @property
    def key_path(self) -> str:
        """All keys to press, starting on the overview: `5 s`."""
        return f"{self.screen.digit} {self.keys}".rstrip()

    @property
    def summary(self) -> str:
        """Keys, screen and effect: `5 s: Engine, start it`."""
        effect = f", {self.effect}" if self.effect else ""
        return f"{self.key_path}: {self.screen.title}{effect}"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Where alerts of one kind are handled, and with which action."""

    screen: str
    effect: str | Callable[[Mapping[str, str]], str]
    """The effect, in a word or two; a function of the keys if it names keys."""
    action: str = ""
    """Id of the action; empty when there is only something to read."""
    read_only_effect: str = ""
    """Text for a read-only console: what the screen shows; empty for `effect`."""


def _hold(keys: Mapping[str, str]) -> str:
    return f"{keys['rating.accept_all']} accepts all, {keys['rating.abort_all']} aborts them"


def _boot(keys: Mapping[str, str]) -> str:
    return f"stop it, then {keys['engine.start']} starts it"


def _unscored(keys: Mapping[str, str]) -> str:
    return f"{keys['group.rescore']} re-scores, {keys['group.abort']} aborts"


def _judge(keys: Mapping[str, str]) -> str:
    return f"its counts; {keys['rewards.edit']} opens the file"


_PARTS = Remedy("rewards", "the values of each part")
_GROUPS = Remedy("requests", "their outcome")
_REWIND = Remedy(
    "progress",
    "back to the best verified step",
    "progress.rewind",
    read_only_effect="the verdict, the prompts that changed",
)
_PROCESS = "its last log lines"
REMEDIES: Mapping[str, Remedy] = {
    "hold": Remedy("rate", _hold, read_only_effect="what waits for a rating"),
    "held": Remedy(
        "engine",
        "the episodes it waits for",
        "engine.inside",
        read_only_effect="the episodes it waits for",
    ),
    "refused": Remedy("engine", "start it", "engine.start", read_only_effect="its state"),
    "off": Remedy("engine", "start it", "engine.start", read_only_effect="its state"),
    "taken": Remedy("engine", "its clients", "engine.inside", read_only_effect="its clients"),
    "tokens": _GROUPS,
    "observe": Remedy("engine", "the upstream"),
    "port": Remedy("log", "its address"),
    "hacking": _PARTS,
    "key": Remedy("log", "its questions"),
    "start": Remedy("engine", "start it again", "engine.start", read_only_effect="its state"),
    "boot": Remedy("engine", _boot, "engine.stop", read_only_effect="its state"),
    "lost": Remedy("engine", "its last state"),
    "upstream": Remedy("engine", "its messages"),
    "recovered": _GROUPS,
    "waited": _GROUPS,
    "strays": _GROUPS,
    "cut": Remedy("requests", "truncated:yes finds them"),
    "session": Remedy("requests", "its questions"),
    "dead": _PARTS,
    "unscored": Remedy("requests", _unscored, read_only_effect="these groups"),
    "room": Remedy("engine", "the job's batch", "engine.job", read_only_effect="its batch"),
    "rewards": Remedy("rewards", "its last fault"),
    "rewards_ended": Remedy("rewards", "its last fault"),
    "rewards_gone": Remedy("rewards", "its last fault"),
    "reward_outlier": _PARTS,
    "reward_scale": _PARTS,
    "judge": Remedy("rewards", _judge, read_only_effect="its counts"),
    "hook": Remedy("log", "the traceback"),
    "paused": Remedy(
        "progress", "resume training", "progress.resume", read_only_effect="why it is paused"
    ),
    "worse": _REWIND,
    "below_best": _REWIND,
    "worse_parts": Remedy("progress", "the parts and the answers"),
    "journal": Remedy("log", "why it cannot be written"),
    "journal_file": Remedy("log", "the cause"),
    "journal_damage": Remedy("log", "what is damaged"),
    "journal_prune": Remedy("log", "why it is not pruned"),
    "telemetry": Remedy("log", "what failed"),
    "part": Remedy("log", "what failed"),
    "process": Remedy("engine", "start it again", read_only_effect=_PROCESS),
    "process:engine": Remedy(
        "engine", "start it again", "engine.restart_process", read_only_effect=_PROCESS
    ),
    "process:proxy": Remedy("engine", "start it again", "proxy.restart", read_only_effect=_PROCESS),
    "process:mock": Remedy("mock", "start it again", "mock.start", read_only_effect=_PROCESS),
}
"""Remedies by the key of an alert, else by its kind; every kind is listed."""
_ANY = Remedy("log", "what happened")
"""Remedy for an unknown kind, such as one of a newer proxy."""


def action_for(
    alert: Alert, screens: Sequence[ScreenSpec] = SCREENS, context: AdviceContext | None = None
) -> AlertAction | None:
    """Return how to handle an alert; None if its screen is not offered.

    Args:
        alert: The alert.
        screens: The screens that this console offers.
        context: Keys to name, and whether commands are enabled; by default the default keys.
    """
    context = context or advice_context()
    remedy = REMEDIES.get(alert.key) or REMEDIES.get(alert.alert_kind) or _ANY
    keys = context.keys[remedy.action] if remedy.action else ""
    effect = remedy.effect if isinstance(remedy.effect, str) else remedy.effect(context.keys)
    if context.read_only and remedy.read_only_effect:
        keys, effect = "", remedy.read_only_effect
    by_name = {screen.name: screen for screen in screens}
    screen = by_name.get(remedy.screen)
    if screen is None and remedy.screen == "rewards":  # the log has the traceback too
        screen = by_name.get("log")
    server = alert.key.partition(":")[2] if alert.alert_kind in ("held", "taken") else ""
    return AlertAction(screen, keys, effect, server) if screen is not None else None


def crash_alerts(session: Session) -> list[Alert]:
    """Return an alert, with its text, for each process that ended unexpectedly."""
    context = context_of(session)
    return [in_words(_crash_alert(child), context) for child in session.crashed]


def _crash_alert(child: ChildProcess) -> Alert:
    detail, remedy = child.detail or "ended", ""
    if TAKEN in detail and ". " in detail:  # keep the advice from being cut off
        detail, _, remedy = detail.rpartition(". ")
    params = ProcessEnded(role=child.role, detail=detail, remedy=remedy)
    return Alert(
        key=f"process:{child.role}",
        alert_kind=params.kind,
        params=params.as_json(),
        level="error",
        at=0.0,
    )


def alerts_by_urgency(session: Session) -> list[Alert]:
    """Return all alerts with their texts: crashed processes, then by severity and age.

    A server that does not answer because its process ended is left out.
    """
    explained = {
        f"lost:{one.name}" for one in session.state.servers.values() if ended(one, session)
    }
    alerts = current_alerts(session.state)
    raised = (one for key, one in alerts.items() if key not in explained)
    ordered = sorted(raised, key=lambda one: (one.level != "error", -one.at))
    context = context_of(session)
    return [*crash_alerts(session), *(in_words(one, context) for one in ordered)]


# --- what open ratings hold up -------------------------------------------------------------------


def held_up(state: State, now: float) -> dict[str, str]:
    """Return the servers on which open ratings hold something up, each with the cause.

    A user counts only after `PATIENCE` seconds, because every request waits for a moment.
    """
    context = advice_context()
    return {
        name: alert_text(alert, context).cause
        for key, alert in current_alerts(state).items()
        if key.startswith(HOLD) and _is_stalled(state, name := key.removeprefix(HOLD), now)
    }


def stall_words(state: State, now: float) -> str:
    """Return what waits for a rating, as text; empty if nothing does."""
    if causes := held_up(state, now):
        return "; ".join(one_line(cause, 120) for cause in causes.values())
    count = sum(
        group.rating is None
        and group.waited is None
        and group.awaiting != "window"
        and now - (group.scored_at or group.opened_at) > PATIENCE
        for group in state.waiting()
    )
    if not count:
        return ""
    return f"{plural(count, 'request')} {'waits' if count == 1 else 'wait'} for your rating"


def _is_stalled(state: State, name: str, now: float) -> bool:
    server = state.servers.get(name)
    if server is not None and server.state == "ROLLING_POST":
        return True
    return any(
        group.server == name and group.phase == "CLAIMING" and now - group.opened_at > PATIENCE
        for group in state.groups.values()
    )
