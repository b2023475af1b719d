"""Bulk actions on marked groups: the dialog and the execution."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import plural
from console.models.bulk import BULK, BulkVerb, verbs, winner_text
from console.screens.dialogs.abort import TALL, AbortScreen
from console.screens.parts import ScreenPart, in_background
from console.session.app_state import Session
from console.text.curl import curl_of
from core.commands.plan_groups import missing_votes
from core.state import Group


class BulkScreen(ModalScreen[BulkVerb | None]):
    """Asks which action to take; each has the same key as for one group."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(verb.key, f"choose({verb.key!r})", verb.title, show=False) for verb in BULK),
        Binding("escape", "leave", "Leave", id="bulk.leave"),
    ]

    def __init__(
        self, groups: Sequence[Group], session: Session, verbs: Sequence[BulkVerb]
    ) -> None:
        super().__init__()
        self._verbs = verbs
        self._count = len(groups)
        self._counts = {verb.key: len(verb.fits(groups, session)) for verb in verbs}

    def compose(self) -> ComposeResult:
        """The number of marked groups, and the actions."""
        with Vertical(classes="dialog"):
            yield Static(plural(self._count, "marked group"), markup=False, classes="dialog-title")
            yield OptionList(
                *(
                    Option(self._row(verb), id=verb.action, disabled=not self._counts[verb.key])
                    for verb in self._verbs
                ),
                markup=False,
                compact=True,
            )
            asks = any(verb.question for verb in self._verbs)
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
        verbs = {verb.action: verb for verb in self._verbs}
        self.dismiss(verbs.get(event.option.id or ""))

    def action_choose(self, key: str) -> None:
        """Choose an action by its key."""
        verb = next((verb for verb in self._verbs if verb.key == key), None)
        if verb is None:
            return
        if self._counts[key]:
            self.dismiss(verb)
        else:
            self.app.notify(f"{verb.title} applies to none of them", severity="warning")

    def action_leave(self) -> None:
        """Cancel."""
        self.dismiss(None)


class MarkedActions(ScreenPart):
    """One action on all groups that carry the mark."""

    BINDINGS: ClassVar[Sequence[BindingType]] = (
        Binding(
            "semicolon",
            "marked",
            "Marked",
            key_display=";",
            id="requests.marked",
            tooltip="One command for all marked groups",
        ),
    )

    @property
    def marked(self) -> list[Group]:
        """The groups that carry the mark, oldest first."""
        return [group for group in self.session.state.groups.values() if group.marked]

    def obstacle(self) -> str | None:
        """Return why no bulk action is available; None when one is."""
        return None if self.marked else "No group is marked: m marks the one under the cursor"

    @in_background("question", exclusive=True)
    async def action_marked(self) -> None:
        """Choose an action, confirm its loss once, then run it group by group."""
        allowed = self.session.allows
        offered = tuple(
            verb
            for verb in verbs(read_only=self.session.read_only)
            if not verb.command or allowed(verb.command)
        )
        verb = await self.host.push_screen_wait(BulkScreen(self.marked, self.session, offered))
        if verb is None:
            return
        groups = verb.fits(self.marked, self.session)
        if not verb.command:
            await self._copy_all(verb, groups)
            return
        args = await self._ask_args(verb, groups)
        if args is None:
            return
        done, refused = 0, []
        for group in groups:
            outcome = await self.session.command(verb.command, group_id=group.group_id, **args)
            done += outcome.ok
            if not outcome.ok:
                refused.append(outcome.message)
        report = f"{verb.title}: {done} of {plural(len(groups), 'marked group')}"
        if refused:
            report += f". {refused[0]}"
        self.host.say(report, "warning" if refused else "information")

    async def _copy_all(self, verb: BulkVerb, groups: list[Group]) -> None:
        """Copy the winner or the request of each group, separated by blank lines."""
        url, texts = self.session.state.proxy_url, []
        try:
            for group in groups:
                events = await self.session.group_events(group.group_id)
                text = curl_of(events, url) if verb.action == "curl" else winner_text(group, events)
                texts += [text] if text else []
        except AjetError as error:
            self.host.say(f"{verb.title}: nothing copied: {error}", "error")
            return
        what = "request" if verb.action == "curl" else "answer"
        if not texts:
            self.host.say(f"{verb.title}: no {what} is stored", "warning")
            return
        how = " as curl" if verb.action == "curl" else ""
        short = f" of {plural(len(groups), 'group')}" if len(texts) < len(groups) else ""
        self.host.copy("\n\n".join(texts), f"{plural(len(texts), what)}{short} copied{how}")

    async def _ask_args(self, verb: BulkVerb, groups: list[Group]) -> dict[str, Any] | None:
        """Ask for the arguments of an action and confirm it; return None when it is canceled.

        An abort takes a reason, a note takes its text.
        """
        title = f"{verb.title} {plural(len(groups), 'marked group')}?"
        body = verb.question(self.session.state, groups) if verb.question else ""
        if verb.action == "abort":
            reason = await self.host.push_screen_wait(AbortScreen(title, body))
            return None if reason is None else ({"reason": reason} if reason else {})
        if verb.ask:
            answer = await self.host.ask(title, "Empty clears it")
            return None if answer is None else {verb.ask: answer}
        if body and not await self.host.confirm(title, body, verb.title):
            return None
        if verb.action == "accept" and any(
            missing_votes(self.session.state, group) for group in groups
        ):
            return {"override": True}
        return dict(verb.args)
