"""What can be done to the group a screen points at; the same keys in list, detail and rating."""

from typing import Any, ClassVar

from textual import events, work
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from console.models.consequences import abort_loss
from console.screens.base import ConsoleScreen
from console.screens.dialogs.abort import AbortScreen
from console.text.curl import curl_of
from console.views.group_detail import abort_extra, copy_text, obstacle, vote_refusal
from core.state import Group

WRITING = frozenset(
    {
        "accept",
        "unrate",
        "abort",
        "rescore",
        "refill",
        "rerun",
        "marked",
        "undo",
        "mark",
        "note",
        "held",
        "take",
        "vote",
        "tie",
        "bad",
        "digit",
        "scores",
        "skip",
        "mode",
        "commit",
        "start",
        "pause",
        "resume",
        "stop",
    }
)
"""Actions that a read-only console does not have."""
_SEEN = frozenset({"group.mark"})
"""Orders whose success every screen shows by itself."""


def digit_bindings(action: str, title: str, tooltip: str, first: int = 1) -> list[BindingType]:
    """`action(1)` to `action(9)` on the digits, shown as one entry of the footer."""
    return [
        Binding(
            str(digit),
            f"{action}({digit})",
            title,
            show=digit == 1,
            key_display="1-9" if digit == 1 else None,
            tooltip=tooltip,
        )
        for digit in range(first, 10)
    ]


class GroupVerbs(ConsoleScreen):
    """A screen that points at a group."""

    quiet: ClassVar[bool] = False
    """What went well is seen on the screen itself; only a refusal is told by a toast."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "a",
            "accept",
            "Accept",
            id="group.accept",
            tooltip="Finish it now: with the rating if there is one, else the automatic reward",
        ),
        Binding(
            "u",
            "unrate",
            "Undo",
            id="group.unrate",
            tooltip="Undo the vote until it is sent",
        ),
        Binding(
            "x", "abort", "Abort", id="group.abort", tooltip="Give its episodes back; asks first"
        ),
        Binding(
            "S",
            "rescore",
            "Re-score",
            show=False,
            id="group.rescore",
            tooltip="Score its answers again with the rewards as they are now",
        ),
        Binding(
            "R",
            "refill",
            "Refill",
            id="group.refill",
            tooltip="Ask for the candidates it is short of, and score all again",
        ),
        Binding(
            "A",
            "rerun",
            "Ask again",
            show=False,
            id="group.rerun",
            tooltip="Its request once more, as a new group",
        ),
        Binding("m", "mark", "Mark", show=False, id="group.mark", tooltip="Set or clear the ★"),
        Binding("n", "note", "Note", show=False, id="group.note", tooltip="Write a note on it"),
        Binding(
            "c", "copy", "Copy", show=False, id="group.copy", tooltip="Copy the selected answer"
        ),
        Binding(
            "C",
            "curl",
            "Copy as curl",
            show=False,
            id="group.curl",
            tooltip="Copy the request as a command line",
        ),
    ]

    _present: frozenset[str] = frozenset()
    """Writing actions that made sense at the last look, and `group` where there was one."""

    @property
    def group(self) -> Group | None:
        """The group the keys are about; None for none, or one that is not kept any more."""
        target = self.target_group
        return self.session.group(target) if target is not None else None

    @property
    def candidate(self) -> int:
        """Index of the candidate that `copy` is about."""
        group = self.group
        return (group.best or 0) if group is not None else 0

    def number_of(self, index: int) -> str:
        """What a candidate is called here."""
        return str(index + 1)

    def abort_words(self, group: Group) -> str:
        """What the question before an abort says about the user and the rating."""
        return abort_extra(group)

    def whole_text(self, index: int) -> str:
        """The whole text of a candidate when the screen has it; else empty."""
        return ""

    # --- what the keys can do now ------------------------------------------------------------

    def obstacle(self, action: str) -> str | None:
        """Why an action makes no sense now; None when it does, empty when nothing is to be said."""
        return obstacle(action, self.group, self.session.now())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are there while they make sense; those that write, unless this only watches."""
        if action in WRITING and self.session.read_only:
            return False
        return self.obstacle(action) is None

    def refresh_keys(self) -> None:
        """Make the footer again when other keys make sense than before."""
        found = {action for action in WRITING if self.check_action(action, ())}
        present = frozenset(found | ({"group"} if self.group is not None else set()))
        if present != self._present:
            self._present = present
            self.refresh_bindings()

    def on_key(self, event: events.Key) -> None:
        """A key that makes no sense now says why."""
        if self.session.read_only:
            return
        for node, bindings in self._binding_chain:
            for binding in bindings.key_to_bindings.get(event.key, ()):
                why = self.obstacle(binding.action.partition("(")[0]) if node is self else None
                if why:
                    self.told(why)

    def told(self, why: str) -> None:
        """Say why a key does nothing now."""
        self.host.say(why, "warning")

    # --- orders ------------------------------------------------------------------------------

    def run_command(self, name: str, /, **args: Any) -> None:
        """Order something in the background; how it went is told as `quiet` says."""
        if not self.quiet and name not in _SEEN:
            super().run_command(name, **args)
            return
        self.run_worker(self._order(name, **args), name=name, group="command", exit_on_error=False)

    async def _order(self, name: str, /, **args: Any) -> None:
        outcome = await self.session.command(name, **args)
        if not outcome.ok:
            self.host.say(outcome.message, "error")
        elif self.is_mounted:
            self.ordered(outcome.message)

    def ordered(self, message: str) -> None:
        """An order of a quiet screen went well."""

    def refuse(self, group: Group) -> bool:
        """Say why a vote would change nothing; False when it would be sent."""
        why = vote_refusal(group)
        if why:
            self.host.say(why, "warning")
        return bool(why)

    def action_accept(self) -> None:
        """Seal with what is known."""
        group = self.group
        if group is not None:
            self.run_command("group.accept", group_id=group.group_id)

    def action_unrate(self) -> None:
        """Take the rating back."""
        group = self.group
        if group is not None:
            self.run_command("group.unrate", group_id=group.group_id, **self.rater())

    def action_mark(self) -> None:
        """Set or clear the mark."""
        group = self.group
        if group is not None:
            self.run_command("group.mark", group_id=group.group_id, marked=not group.marked)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_note(self) -> None:
        """Ask for a note and store it."""
        group = self.group
        if group is None:
            return
        given = await self.host.ask("Note on this group", "Empty clears it", group.note)
        if given is not None:
            self.run_command("group.note", group_id=group.group_id, note=given)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_abort(self) -> None:
        """Name the loss, ask, abort."""
        group = self.group
        if group is None:
            return
        body = "\n".join(
            text
            for text in (abort_loss(self.session.state, group), self.abort_words(group))
            if text
        )
        reason = await self.host.push_screen_wait(AbortScreen("Abort this group?", body))
        if reason is not None:
            self.run_command(
                "group.abort", group_id=group.group_id, **({"reason": reason} if reason else {})
            )

    def action_rescore(self) -> None:
        """Score it again with the present rewards."""
        group = self.group
        if group is not None:
            self.run_command("group.rescore", group_id=group.group_id)

    def action_refill(self) -> None:
        """Fresh candidates in the places that have none."""
        group = self.group
        if group is not None:
            self.run_command("group.refill", group_id=group.group_id)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_rerun(self) -> None:
        """Ask the same request again; how that went is told, as its group is another one."""
        group = self.group
        if group is not None:
            await self.host.order("group.rerun", group_id=group.group_id)

    def action_copy(self) -> None:
        """Put the selected answer on the clipboard."""
        group = self.group
        if group is None:
            return
        index = self.candidate
        text = copy_text(group, index, self.whole_text(index))
        if text:
            self.host.copy(text, f"Answer {self.number_of(index)} copied")

    @work(group="curl", exclusive=True, exit_on_error=False)
    async def action_curl(self) -> None:
        """Put the request on the clipboard, as a command line that asks it again."""
        group = self.group
        if group is None:
            return
        try:
            told = await self.session.group_events(group.group_id)
        except AjetError as error:
            self.host.say(f"The request cannot be read: {error}", "error")
            return
        if text := curl_of(told, self.session.state.proxy_url):
            self.host.copy(text, "The request copied as curl")
        else:
            self.host.say("The request of this group is not kept", "warning")

    def rater(self) -> dict[str, str]:
        """Who rates, as an argument of a command."""
        return {"rater": self.session.rater} if self.session.rater else {}
