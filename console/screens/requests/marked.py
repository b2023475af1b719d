"""One action on all marked groups: the actions, their cost, the dialog, the execution."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import plural
from console.models.app_host import AppHost
from console.screens.dialogs.abort import TALL, AbortScreen
from console.screens.group.model import copy_text, curl_of, whole_texts
from console.screens.requests.model import marked_groups
from console.session.app_state import Session
from console.session.command_plans import obstacle
from core.commands.plan_groups import abort_consequences, missing_votes
from core.events import Event
from core.state import Group, State


@dataclass(frozen=True, slots=True)
class BulkVerb:
    """An action on several groups."""

    key: str
    action: str
    """Name of the action on one group."""
    title: str
    command: str
    """Name of the command; empty for an action that only reads."""
    question: Callable[[State, Sequence[Group]], str] | None = None
    """Returns the loss to confirm; None for an action without a question."""

    def fits(self, groups: Sequence[Group], session: Session) -> list[Group]:
        """Return the groups that it applies to."""
        return [group for group in groups if obstacle(self.action, group, session) is None]


def abort_cost(state: State, groups: Sequence[Group]) -> str:
    """Return the cost of aborting several groups."""
    return "\n".join(abort_consequences(state, groups))


def _accept_cost(state: State, groups: Sequence[Group]) -> str:
    skipped = sum(group.is_skipped for group in groups)
    rated = sum(group.rating is not None or bool(group.votes) for group in groups) - skipped
    lacking = sum(bool(missing_votes(state, group)) for group in groups)
    return (
        f"{plural(len(groups), 'group')} finished now: {rated} with the rating, "
        f"{len(groups) - rated - skipped} with the automatic reward"
        + (f", {skipped} skipped" if skipped else "")
        + ". "
        + (f"Votes are missing on {lacking} of them. " if lacking else "")
        + "This cannot be undone."
    )


def _rescore_cost(state: State, groups: Sequence[Group]) -> str:
    return (
        f"The automatic rewards of {plural(len(groups), 'group')} are computed again with the "
        "current rewards. Ratings stay."
    )


def _refill_cost(state: State, groups: Sequence[Group]) -> str:
    count = sum(group.n - len(group.answered) for group in groups)
    return f"{plural(count, 'fresh episode')} claimed for {plural(len(groups), 'short group')}."


def _rerun_cost(state: State, groups: Sequence[Group]) -> str:
    count = sum(group.n for group in groups)
    trained = sum(group.episode_type == "train" for group in groups)
    return (
        f"{plural(len(groups), 'request')} sent again: {plural(count, 'episode')} claimed, "
        f"{plural(trained, 'group')} more in training."
    )


def _pin_cost(state: State, groups: Sequence[Group]) -> str:
    return (
        f"{plural(len(groups), 'prompt')} held out of training from now on. The probe set changes, "
        "so a new comparison begins with a new baseline."
    )


BULK = (
    BulkVerb("a", "accept", "Accept", "group.accept", question=_accept_cost),
    BulkVerb("x", "abort", "Abort", "group.abort", question=abort_cost),
    BulkVerb("S", "rescore", "Re-score", "group.rescore", question=_rescore_cost),
    BulkVerb("R", "refill", "Refill", "group.refill", question=_refill_cost),
    BulkVerb("A", "rerun", "Ask again", "group.rerun", question=_rerun_cost),
    BulkVerb("P", "pin", "Add to the probe set", "group.pin", question=_pin_cost),
    BulkVerb("n", "note", "Note", "group.note"),
    BulkVerb("c", "copy", "Copy the winners", ""),
    BulkVerb("C", "curl", "Copy as curl", ""),
    BulkVerb("m", "mark", "Clear the marks", "group.mark"),
)


def winner_text(group: Group, events: Iterable[Event]) -> str:
    """Return the whole text of a group's winner, or of its first answer; empty without any.

    Args:
        group: The group in state; its texts may be cut.
        events: The events of the group.
    """
    indices = group.answered
    index = group.best if group.best is not None else (indices[0] if indices else 0)
    whole = whole_texts(events)[1].get(index)
    return copy_text(group, index, (whole.text or whole.tool_calls) if whole is not None else "")


class BulkScreen(ModalScreen[BulkVerb | None]):
    """Asks which action to take; each has the same key as for one group."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(verb.key, f"choose({verb.key!r})", verb.title, show=False) for verb in BULK),
        Binding("escape", "dismiss", "Leave", id="bulk.leave"),
    ]

    def __init__(self, groups: Sequence[Group], session: Session) -> None:
        super().__init__()
        self._count = len(groups)
        self._verbs = {
            verb.key: verb for verb in BULK if not verb.command or session.allows(verb.command)
        }
        self._counts = {key: len(verb.fits(groups, session)) for key, verb in self._verbs.items()}

    def compose(self) -> ComposeResult:
        """The number of marked groups, and the actions."""
        with Vertical(classes="dialog"):
            yield Static(plural(self._count, "marked group"), markup=False, classes="dialog-title")
            yield OptionList(
                *(
                    Option(self._row(verb), id=key, disabled=not self._counts[key])
                    for key, verb in self._verbs.items()
                ),
                markup=False,
                compact=True,
            )
            asks = any(verb.question for verb in self._verbs.values())
            more = ". A question states what is lost" if asks else ""
            yield Static(
                f"A key or Enter chooses, Esc cancels{more}", markup=False, classes="dialog-hint"
            )

    def on_mount(self) -> None:
        """Use fewer rows on a small terminal."""
        self.set_class(self.app.size.height < TALL, "-tight")

    def _row(self, verb: BulkVerb) -> str:
        count = self._counts[verb.key]
        fits = "all" if count == self._count else f"{count} of {self._count}"
        return f"{verb.key}  {verb.title:<16} {fits if count else 'none'}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose with Enter or a click."""
        event.stop()
        self.dismiss(self._verbs.get(event.option.id or ""))

    def action_choose(self, key: str) -> None:
        """Choose an action by its key."""
        verb = self._verbs.get(key)
        if verb is not None and self._counts[key]:
            self.dismiss(verb)
        elif verb is not None:
            self.app.notify(f"{verb.title} applies to none of them", severity="warning")


async def act_on_marked(app: AppHost) -> None:
    """Choose an action, confirm its loss once, then run it group by group."""
    session = app.session
    marked = marked_groups(session)
    verb = await app.push_screen_wait(BulkScreen(marked, session))
    if verb is None:
        return
    groups = verb.fits(marked, session)
    if not verb.command:
        await _copy_all(app, verb, groups)
        return
    args = await _ask_args(app, verb, groups)
    if args is None:
        return
    outcomes = [
        await session.command(verb.command, group_id=group.group_id, **args) for group in groups
    ]
    refused = [outcome.message for outcome in outcomes if not outcome.ok]
    done = len(outcomes) - len(refused)
    report = f"{verb.title}: {done} of {plural(len(groups), 'marked group')}"
    if refused:
        report += f". {refused[0]}"
    app.say(report, "warning" if refused else "information")


async def _ask_args(app: AppHost, verb: BulkVerb, groups: list[Group]) -> dict[str, Any] | None:
    """Confirm an action and return its arguments; None when it is canceled.

    An abort takes a reason, a note takes its text.
    """
    state = app.session.state
    title = f"{verb.title} {plural(len(groups), 'marked group')}?"
    body = verb.question(state, groups) if verb.question else ""
    if verb.action == "abort":
        reason = await app.push_screen_wait(AbortScreen(title, body))
        return None if reason is None else ({"reason": reason} if reason else {})
    if verb.action == "note":
        note = await app.ask(title, "Empty clears it")
        return None if note is None else {"note": note}
    if verb.action == "mark":
        return {"marked": False}
    if not await app.confirm(title, body, verb.title):
        return None
    lacking = verb.action == "accept" and any(missing_votes(state, group) for group in groups)
    return {"override": True} if lacking else {}


async def _copy_all(app: AppHost, verb: BulkVerb, groups: list[Group]) -> None:
    """Copy the winner or the request of each group, separated by blank lines."""
    url, texts = app.session.state.proxy_url, []
    try:
        for group in groups:
            events = await app.session.group_events(group.group_id)
            text = curl_of(events, url) if verb.action == "curl" else winner_text(group, events)
            texts += [text] if text else []
    except AjetError as error:
        app.say(f"{verb.title}: nothing copied: {error}", "error")
        return
    what = "request" if verb.action == "curl" else "answer"
    if not texts:
        app.say(f"{verb.title}: no {what} is stored", "warning")
        return
    how = " as curl" if verb.action == "curl" else ""
    short = f" of {plural(len(groups), 'group')}" if len(texts) < len(groups) else ""
    app.copy("\n\n".join(texts), f"{plural(len(texts), what)}{short} copied{how}")
