"""Keys for the target group of a screen, the same in list, detail and Rate."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from console.screens.base import ConsoleScreen
from console.screens.dialogs.abort import AbortScreen
from console.screens.group.conversation import ConversationScreen
from console.screens.group.model import abort_question, copy_text, curl_of
from console.screens.group.rater import rater_args
from console.screens.group.request import Entry, context_words, conversation
from console.screens.group.text import abort_extra
from console.session.command_plans import obstacle
from console.ui.keys import keys
from console.widgets.key_area import KeyArea
from core.commands.plan_groups import missing_votes
from core.events import Event
from core.state import Group

_NOT_STORED = "The request of this group is no longer stored"


def digit_bindings(action: str, title: str, tooltip: str) -> list[BindingType]:
    """Return bindings of the digits to `action(1)` to `action(9)`, one entry of the footer."""
    return [
        Binding(str(digit), f"{action}({digit})", title, digit == 1, display, tooltip=tooltip)
        for digit, display in enumerate(("1-9", *[None] * 8), 1)
    ]


async def read_events(area: KeyArea, group: Group | None, what: str) -> Sequence[Event] | None:
    """Return the events of a group for a key; None, with a message, if they cannot be read."""
    if group is not None:
        try:
            return await area.session.group_events(group.group_id)
        except AjetError as error:
            area.host.say(f"The {what} cannot be read: {error}", "error")
    return None


class GroupTarget:
    """The group that the keys of a screen apply to; by default the screen's `target_group`."""

    def __init__(self, screen: ConsoleScreen) -> None:
        self._screen = screen

    @property
    def group(self) -> Group | None:
        """The group; None for none, or for one that is no longer in memory."""
        name = self._screen.target_group
        return self._screen.session.group(name) if name is not None else None

    @property
    def candidate(self) -> int:
        """Index of the candidate that `copy` applies to."""
        group = self.group
        return (group.best or 0) if group is not None else 0

    def number_of(self, index: int) -> str:
        """Return the number of a candidate on this screen."""
        return str(index + 1)

    def abort_details(self, group: Group) -> str:
        """Return the sentences about user and rating for the abort dialog."""
        return abort_extra(group)

    def whole_text(self, index: int) -> str:
        """Return the whole text of a candidate if the screen has fetched it, else ""."""
        return ""

    def succeeded(self, command: str, text: str) -> None:
        """Show the outcome of a command on the group, unless the screen shows its effect."""


class GroupArea(KeyArea):
    """A key area about one group."""

    def __init__(self, target: GroupTarget, *, focusable: bool = False) -> None:
        """`target` is the group that the keys apply to."""
        super().__init__(focusable=focusable)
        self.target = target

    def obstacle(self, action: str) -> str | None:
        return obstacle(action, self.target.group, self.session)


class GroupKeys(GroupArea):
    """The keys for one group, with the same meaning in the list, the detail and on Rate."""

    WRITING: ClassVar[frozenset[str]] = frozenset(
        {"accept", "unrate", "abort", "rescore", "refill", "rerun", "mark", "note"}
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("a", "accept", "Accept", "group.accept", "Finish it now, by its rating if it has one"),
            ("u", "unrate", "Undo", "group.unrate", "Undo the vote until it is sent"),
            ("x", "abort", "Abort", "group.abort", "Give its episodes back; asks first"),
            ("R", "refill", "Refill", "group.refill", "Request missing candidates, score again"),
        ),
        *keys(
            ("S", "rescore", "Re-score", "group.rescore", "Score again with the current rewards"),
            ("A", "rerun", "Ask again", "group.rerun", "Send its request again as a new group"),
            ("m", "mark", "Mark", "group.mark", "Set or clear the ★"),
            ("n", "note", "Note", "group.note", "Write a note on the group"),
            ("c", "copy", "Copy", "group.copy", "Copy the selected answer"),
            ("C", "curl", "Copy as curl", "group.curl", "Copy the request as a command line"),
            shown=False,
        ),
    ]

    @work(group="command", exit_on_error=False)
    async def send(self, name: str, /, **args: Any) -> None:
        """Send a command in the background; a toast shows a refusal, the screen a success."""
        outcome = await self.session.command(name, **args)
        if not outcome.ok:
            self.host.say(outcome.message, "error")
        elif self.is_mounted:
            self.target.succeeded(name, outcome.message)

    def _send(self, name: str, **args: Any) -> None:
        """Send a command about the group, if there is one."""
        if (group := self.target.group) is not None:
            self.send(name, group_id=group.group_id, **args)

    def action_accept(self) -> None:
        """Finish the group with the rewards known now; ask an operator if votes are missing."""
        group, session = self.target.group, self.session
        votes = missing_votes(session.state, group) if group is not None else ""
        if group is not None and votes and session.identity.permits("operator"):
            self._accept_without(group, votes)
        else:
            self._send("group.accept")

    @work(group="question", exclusive=True, exit_on_error=False)
    async def _accept_without(self, group: Group, votes: str) -> None:
        counts = "They count now" if group.votes else "The automatic reward counts"
        body = f"It has {votes}. {counts}, and the other raters can no longer vote."
        if await self.host.confirm("Accept without the missing votes?", body, "Accept"):
            self.send("group.accept", group_id=group.group_id, override=True)

    def action_unrate(self) -> None:
        """Undo the rating."""
        self._send("group.unrate", **rater_args(self.session))

    def action_mark(self) -> None:
        """Set or clear the mark."""
        if (group := self.target.group) is not None:
            self._send("group.mark", marked=not group.marked)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_note(self) -> None:
        """Ask for a note and store it."""
        if (group := self.target.group) is not None:
            note = await self.host.ask("Note on this group", "Empty clears it", group.note)
            if note is not None:
                self.send("group.note", group_id=group.group_id, note=note)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_abort(self) -> None:
        """State the loss, ask for a reason, abort."""
        if (group := self.target.group) is not None:
            body = abort_question(self.session, group, self.target.abort_details(group))
            reason = await self.host.push_screen_wait(AbortScreen("Abort this group?", body))
            if reason is not None:
                given = {"reason": reason} if reason else {}
                self.send("group.abort", group_id=group.group_id, **given)

    def action_rescore(self) -> None:
        """Score the group again with the present rewards."""
        self._send("group.rescore")

    def action_refill(self) -> None:
        """Request candidates for the places that have none."""
        self._send("group.refill")

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_rerun(self) -> None:
        """Send the same request again; a toast reports it, because it becomes another group."""
        if (group := self.target.group) is not None:
            await self.host.send_command("group.rerun", group_id=group.group_id)

    def action_copy(self) -> None:
        """Copy the selected answer to the clipboard."""
        group, index = self.target.group, self.target.candidate
        if group and (text := copy_text(group, index, self.target.whole_text(index))):
            self.host.copy(text, f"Answer {self.target.number_of(index)} copied")

    @work(group="curl", exclusive=True, exit_on_error=False)
    async def action_curl(self) -> None:
        """Copy the request to the clipboard as a command line that sends it again."""
        if (events := await read_events(self, self.target.group, "request")) is None:
            return
        if text := curl_of(events, self.session.state.proxy_url):
            self.host.copy(text, "Request copied as curl")
        else:
            self.host.say(_NOT_STORED, "warning")


class DetailKeys(GroupKeys):
    """The keys for the group on screen; reads its whole request, and shows it on demand."""

    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("i", "conversation", "Conversation", "group.conversation", "System prompt, tools, turns"),
        shown=False,
    )

    def __init__(self, target: GroupTarget) -> None:
        super().__init__(target)
        self.entries: Sequence[Entry] = ()
        """The request of the group on screen; empty until it is read."""
        self._read_for: str | None = None
        """Id of the group whose request was read last."""

    def context(self) -> str:
        """Return the context of the question, as `turn 3, 5 tools`; empty until it is read.

        The request is read from the journal, once per group.
        """
        if (group := self.target.group) is None:
            return ""
        if self._read_for != group.group_id:
            self._read_for, self.entries = group.group_id, ()
            self._read(group.group_id)
        return context_words(self.entries, group.turns)

    @work(group="conversation", exclusive=True, exit_on_error=False)
    async def _read(self, group_id: str) -> None:
        try:
            entries = conversation(await self.session.group_events(group_id))
        except AjetError:
            return  # the key reads it again, and reports the cause
        if group_id == self._read_for and self.is_mounted:
            self.entries = entries
            self.changed()

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_conversation(self) -> None:
        """Read the request again and show all of it."""
        group = self.target.group
        events = await read_events(self, group, "conversation")
        if group is None or events is None:
            return
        if not (entries := conversation(events)):
            self.host.say(_NOT_STORED, "warning")
            return
        turn = f", turn {group.turns}" if group.turns else ""
        await self.host.push_screen_wait(ConversationScreen(f"Conversation{turn}", entries))
