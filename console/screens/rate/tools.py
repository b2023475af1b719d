"""What a rater does beside voting: corrects, gives reasons, reads, looks back, clears the queue."""

import asyncio
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from console.models.guidelines import Guidelines, read_guidelines
from console.screens.dialogs.abort import AbortScreen
from console.screens.group import GroupScreen
from console.screens.rate.dialogs import (
    GuidelinesScreen,
    HeldScreen,
    JudgeScreen,
    TagScreen,
    tag_names,
)
from console.screens.rate.votes import Voting
from console.session.app_state import EVERYTHING
from console.text.format import plural
from console.views.candidate import whole_texts
from console.views.rating import abort_all_loss, held_up
from console.widgets.editor import edit_text
from core.state import Group

_WRITING = frozenset({"edit", "tags", "accept_all", "abort_all", "name"})
_ABOUT_ONE = frozenset({"edit", "tags", "diff", "step"})
_READING = frozenset({"guidelines", "judge", "unsure"})
"""Asides that a console without votes of its own needs only beside a group."""


class Asides(Voting):
    """Keys beside those that vote."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "e",
            "edit",
            "Edit",
            show=False,
            id="rate.edit",
            tooltip="Edit the best answer; kept as a preference, not sent",
        ),
        Binding(
            "w", "tags", "Why", show=False, id="rate.tags", tooltip="Reasons recorded with the vote"
        ),
        Binding(
            "g",
            "guidelines",
            "Guidelines",
            show=False,
            id="rate.guidelines",
            tooltip="The file that says how to rate",
        ),
        Binding(
            "d",
            "diff",
            "Compare",
            show=False,
            id="rate.diff",
            tooltip="What the others say differently from one answer, by words",
        ),
        Binding(
            "j",
            "judge",
            "Agreement",
            show=False,
            id="rate.judge",
            tooltip="Your votes beside the automatic rewards, and where they disagree",
        ),
        Binding(
            "f",
            "unsure",
            "Only unsure",
            show=False,
            id="rate.unsure",
            tooltip="Only groups the automatic rewards cannot tell apart, or all again",
        ),
        Binding(
            "U",
            "held",
            "Held votes",
            show=False,
            id="rate.held",
            tooltip="Votes that are not sent yet; Enter takes one back",
        ),
        Binding(
            "T",
            "take",
            "Take over",
            show=False,
            id="rate.take",
            tooltip="Rate the group that another console has on screen",
        ),
        Binding(
            "A",
            "accept_all",
            "Accept all",
            show=False,
            id="rating.accept_all",
            tooltip="While ratings hold something up: send all automatic rewards; asks first",
        ),
        Binding(
            "X",
            "abort_all",
            "Abort all",
            show=False,
            id="rating.abort_all",
            tooltip="While ratings hold something up: abort those groups; asks first",
        ),
    ]

    def on_mount(self) -> None:
        """Take the settings; the guidelines' version goes with the votes."""
        self.take_settings()
        self._load_guidelines()

    def obstacle(self, action: str) -> str | None:
        """Asides about one group need one; the ways out need something held up."""
        if action in _ABOUT_ONE:
            return None if self.group is not None else ""
        if action in _READING and self.group is None and self.session.read_only:
            return None if action == "unsure" and self.queue.only_unsure else ""
        if action == "held":
            return None if self.held_votes() else "No vote of yours is held"
        if action == "take":
            others = self.queue.with_others(self.session.state, self.session.now())
            return None if others else "No other console has an open group"
        if action in ("accept_all", "abort_all"):
            held = held_up(self.session.state, self.session.now())
            return None if held else "No open rating holds anything up"
        return super().obstacle(action)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A console that only watches has none that writes."""
        if action in _WRITING and self.session.read_only:
            return False
        return super().check_action(action, parameters)

    # --- guidelines and reasons --------------------------------------------------------------

    async def _guidelines(self) -> Guidelines | None:
        path = self.session.rating.guidelines
        found = await asyncio.to_thread(read_guidelines, path)
        self.guided = found.version if found is not None else ""
        self.guide = found
        return found

    @work(group="guidelines", exclusive=True, exit_on_error=False)
    async def _load_guidelines(self) -> None:
        try:
            await self._guidelines()
            self.update_view(EVERYTHING)
        except AjetError as error:
            self.host.say(str(error), "warning")

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_guidelines(self) -> None:
        """Read the file again and show it."""
        try:
            found = await self._guidelines()
        except AjetError as error:
            self.host.say(str(error), "warning")
            return
        if found is None:
            self.hinted("There are no guidelines: rating.guidelines names a Markdown file")
        else:
            await self.app.push_screen_wait(GuidelinesScreen(found))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_tags(self) -> None:
        """Ask for the reasons."""
        ballot = self.ballot
        names = tag_names(self.session.rating.tags)
        if ballot is None:
            return
        if not names:
            self.hinted("There are no reasons to choose from: rating.tags names them")
            return
        ballot.tags = await self.app.push_screen_wait(TagScreen(names, ballot.tags))
        self.update_view(EVERYTHING)

    # --- corrections -------------------------------------------------------------------------

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_edit(self) -> None:
        """Open the best answer in the editor, and keep what comes back."""
        group, index = self.group, self._chosen()
        if group is None:
            return
        if index is None:
            self.hinted("Which one? Type the best answer's digit first, or choose with Tab")
            return
        try:
            before = await self._whole(group, index)
            after = await edit_text(self.host, before)
        except AjetError as error:
            self.host.say(str(error), "error")
            return
        if after == before:
            self.queue.tell("nothing was changed", hint=True)
        elif not after.strip():
            self.host.say("An empty text is no correction; nothing was kept", "warning")
        else:
            await self._keep(group, index, after)
        if self.is_mounted:
            self.update_view(EVERYTHING)

    def _chosen(self) -> int | None:
        """The answer typed as best, else the selected one."""
        ballot, cards = self.ballot, self.answers
        if ballot is None:
            return None
        vote = ballot.vote()
        if vote is not None and vote.order:
            return vote.order[0]
        return self.candidate if cards.selected is not None else None

    async def _whole(self, group: Group, index: int) -> str:
        one = group.candidates[index]
        if not one.text:
            raise AjetError(f"answer {self.number_of(index)} has no text to edit")
        if not one.cut:
            return one.text
        _, found = whole_texts(await self.session.group_events(group.group_id))
        if index not in found:
            raise AjetError("the whole text is not in the journal")
        return found[index].text

    async def _keep(self, group: Group, index: int, edited: str) -> None:
        outcome = await self.session.command(
            "group.edit", group_id=group.group_id, index=index, edited=edited, **self.rater()
        )
        if not outcome.ok:
            self.host.say(f"The correction is lost: {outcome.message}", "error")
            return
        self.queue.tell(
            "correction kept as a preference; reward and user's answer stay as they are", hint=True
        )
        ballot = self.ballot
        here = ballot is not None and ballot.group_id == group.group_id
        if ballot is not None and here and ballot.empty and not ballot.scoring:
            ballot.touched(self.session.now())
            ballot.digit(ballot.shown.index(index) + 1)

    def action_diff(self) -> None:
        """Compare the others with the best, selected or first answer; again ends it."""
        ballot = self.ballot
        if ballot is None or not ballot.shown:
            return
        chosen = self._chosen()
        base = ballot.shown[0] if chosen is None else chosen
        ballot.base = None if ballot.base is not None else base
        self.update_view(EVERYTHING)

    # --- looking back ------------------------------------------------------------------------

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_judge(self) -> None:
        """Agreement, and the way to a group on which there is none."""
        chosen = await self.app.push_screen_wait(JudgeScreen(self.session))
        if chosen is not None:
            await self.app.push_screen(GroupScreen(chosen))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_held(self) -> None:
        """List the votes that can still be taken back, and take the chosen one back."""
        chosen = await self.app.push_screen_wait(HeldScreen(self.session, self.queue))
        group = self.session.state.groups.get(chosen or "")
        if group is not None and group in self.held_votes():
            self.take_back(group)
        elif chosen is not None:
            self.host.say("It is sent: too late to take it back", "warning")

    def action_unsure(self) -> None:
        """Only groups the automatic rewards are unsure about, or all again."""
        self.queue.only_unsure = not self.queue.only_unsure
        self.update_view(EVERYTHING)

    # --- ways out ----------------------------------------------------------------------------

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_accept_all(self) -> None:
        """Ask, then send the automatic rewards of all that hold something up."""
        state = self.session.state
        names = list(held_up(state, self.session.now()))
        count = sum(one.rating is None and one.server in names for one in state.waiting())
        body = f"{plural(count, 'group')} without a rating: the automatic rewards are sent."
        if await self.host.confirm("Accept all automatic rewards?", body, "Accept all"):
            for name in names:
                self.run_command("rating.accept_all", server=name)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_abort_all(self) -> None:
        """Name the loss, ask why, abort all that hold something up."""
        state, now = self.session.state, self.session.now()
        names = list(held_up(state, now))
        title = "Abort all groups that hold it up?"
        screen = AbortScreen(title, abort_all_loss(state, now))
        reason = await self.app.push_screen_wait(screen)
        if reason is None:
            return
        why = {"reason": reason} if reason else {}
        for name in names:
            self.run_command("rating.abort_all", server=name, **why)
