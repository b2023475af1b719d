"""Tools of the rater beside voting: edit, give reasons, read, compare, clear the queue."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import plural
from console.models.alerts import held_up
from console.models.group_text import whole_texts
from console.models.guidelines import Guidelines, read_guidelines
from console.models.rating.raters import typed_vote, votes_text
from console.screens.dialogs.abort import AbortScreen
from console.screens.group import GroupScreen
from console.screens.group_actions import GroupActions
from console.screens.parts import ScreenPart, in_background
from console.screens.rate.context import RatingContext
from console.screens.rate.dialogs import (
    AgreementScreen,
    GuidelinesScreen,
    HeldScreen,
    TagScreen,
    tag_names,
)
from console.screens.rate.mode import ModeScreen
from console.screens.rate.raters import RatersScreen
from console.screens.rate.votes import VoteController
from console.widgets.editor import edit_text
from core.commands.plan_groups import abort_all_consequences
from core.state import Group

WRITING_TOOLS = frozenset({"edit", "tags", "accept_all", "abort_all", "name"})
"""Actions that a read-only console does not offer."""
_ABOUT_ONE = frozenset({"edit", "tags", "diff", "step"})
_READING = frozenset({"guidelines", "judge", "unsure"})
"""Actions that a read-only console needs only beside a group."""
_STALL = frozenset({"accept_all", "abort_all"})


class RatingTools(ScreenPart):
    """Keys of the rating screen that do not vote."""

    BINDINGS: ClassVar[Sequence[BindingType]] = (
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
            tooltip="Show the rating guidelines",
        ),
        Binding(
            "d",
            "diff",
            "Compare",
            show=False,
            id="rate.diff",
            tooltip="Word differences of the others from one answer",
        ),
        Binding(
            "j",
            "judge",
            "Agreement",
            show=False,
            id="rate.judge",
            tooltip="Your votes compared with the automatic rewards",
        ),
        Binding(
            "r",
            "raters",
            "Raters",
            show=False,
            id="rate.raters",
            tooltip="Who rates, pace and agreement of each rater, disagreements to settle",
        ),
        Binding(
            "f",
            "unsure",
            "Only unsure",
            show=False,
            id="rate.unsure",
            tooltip="Only groups on which the automatic rewards are unsure, or all again",
        ),
        Binding(
            "U",
            "held",
            "Held votes",
            show=False,
            id="rate.held",
            tooltip="Votes that are not sent yet; Enter undoes one",
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
            tooltip="When open ratings cause a stall: send all automatic rewards; asks first",
        ),
        Binding(
            "X",
            "abort_all",
            "Abort all",
            show=False,
            id="rating.abort_all",
            tooltip="When open ratings cause a stall: abort those groups; asks first",
        ),
    )

    def __init__(
        self, context: RatingContext, votes: VoteController, group_actions: GroupActions
    ) -> None:
        super().__init__(context.screen)
        self._context = context
        self._queue = context.queue
        self._votes = votes
        self._group_actions = group_actions

    def obstacle(self, action: str) -> str | None:
        """Return why a tool is unavailable now; ask the vote controller about other actions."""
        context = self._context
        if action in _ABOUT_ONE:
            return None if context.group is not None else ""
        if action in _READING and context.group is None and self.session.read_only:
            return None if action == "unsure" and self._queue.only_unsure else ""
        if action == "held":
            return None if context.held_votes() else "You have no held votes"
        if action in _STALL:
            stalls = held_up(self.session.state, self.session.now())
            return None if stalls else "No open rating causes a stall"
        return self._votes.obstacle(action)

    # --- guidelines, reasons, mode -----------------------------------------------------------

    async def _read_guidelines(self) -> Guidelines | None:
        path = self.session.rating.guidelines
        self._context.guidelines = await asyncio.to_thread(read_guidelines, path)
        return self._context.guidelines

    @in_background("guidelines", exclusive=True)
    async def load_guidelines(self) -> None:
        """Read the guidelines: their version is recorded with the votes."""
        try:
            await self._read_guidelines()
            self._context.repaint()
        except AjetError as error:
            self.host.say(str(error), "warning")

    @in_background("question", exclusive=True)
    async def action_guidelines(self) -> None:
        """Read the file again and show it."""
        try:
            guidelines = await self._read_guidelines()
        except AjetError as error:
            self.host.say(str(error), "warning")
            return
        if guidelines is None:
            self._context.hint("No guidelines: set rating.guidelines to a Markdown file")
        else:
            await self.host.push_screen_wait(GuidelinesScreen(guidelines))

    @in_background("question", exclusive=True)
    async def action_tags(self) -> None:
        """Ask for the reasons."""
        ballot = self._context.ballot
        names = tag_names(self.session.rating.tags)
        if ballot is None:
            return
        if not names:
            self._context.hint("No reasons to choose from: list them in rating.tags")
            return
        ballot.tags = await self.host.push_screen_wait(TagScreen(names, ballot.tags))
        self._context.repaint()

    @in_background("question", exclusive=True)
    async def action_mode(self) -> None:
        """Ask for the rating mode and switch to it."""
        present = self.session.state.rating_mode
        mode = await self.host.push_screen_wait(ModeScreen(present))
        if mode is not None and mode != present:
            self._group_actions.commands.send("rating.mode", mode=mode)

    # --- corrections -------------------------------------------------------------------------

    @in_background("question", exclusive=True)
    async def action_edit(self) -> None:
        """Open the best answer in the editor, and store the result."""
        group, index = self._context.group, self._best_index()
        if group is None:
            return
        if index is None:
            self._context.hint("Which one? Type the best answer's digit first, or choose with Tab")
            return
        try:
            before = await self._whole_text(group, index)
            after = await edit_text(self.host, before)
        except AjetError as error:
            self.host.say(str(error), "error")
            return
        if after == before:
            self._queue.set_message("nothing was changed", hint=True)
        elif not after.strip():
            self.host.say("The text is empty; nothing was stored", "warning")
        else:
            await self._store(group, index, after)
        if self.screen.is_mounted:
            self._context.repaint()

    def _best_index(self) -> int | None:
        """Return the answer typed as best, else the selected one."""
        ballot, cards = self._context.ballot, self._context.answers
        if ballot is None:
            return None
        vote = ballot.vote()
        if vote is not None and vote.order:
            return vote.order[0]
        return self._group_actions.target.candidate if cards.selected is not None else None

    async def _whole_text(self, group: Group, index: int) -> str:
        candidate = group.candidates[index]
        if not candidate.text:
            number = self._group_actions.target.number_of(index)
            raise AjetError(f"answer {number} has no text to edit")
        if not candidate.cut:
            return candidate.text
        _, texts = whole_texts(await self.session.group_events(group.group_id))
        if index not in texts:
            raise AjetError("the whole text is not in the journal")
        return texts[index].text

    async def _store(self, group: Group, index: int, edited: str) -> None:
        outcome = await self.session.command(
            "group.edit",
            group_id=group.group_id,
            index=index,
            edited=edited,
            **self._group_actions.rater_args(),
        )
        if not outcome.ok:
            self.host.say(f"The correction was not stored: {outcome.message}", "error")
            return
        self._queue.set_message(
            "correction stored as a preference; reward and user's answer stay as they are",
            hint=True,
        )
        ballot = self._context.ballot
        same = ballot is not None and ballot.group_id == group.group_id
        if ballot is not None and same and ballot.empty and not ballot.scoring:
            ballot.record_key(self.session.now())
            ballot.digit(ballot.shown.index(index) + 1)

    def action_diff(self) -> None:
        """Compare the others with the best, selected or first answer, or stop comparing."""
        ballot = self._context.ballot
        if ballot is None or not ballot.shown:
            return
        best = self._best_index()
        base = ballot.shown[0] if best is None else best
        ballot.base = None if ballot.base is not None else base
        self._context.repaint()

    # --- earlier votes -----------------------------------------------------------------------

    @in_background("question", exclusive=True)
    async def action_judge(self) -> None:
        """Show the agreement with the automatic rewards, and open a chosen disagreement."""
        group_id = await self.host.push_screen_wait(AgreementScreen(self.session))
        if group_id is not None:
            await self.host.push_screen(GroupScreen(group_id))

    @in_background("question", exclusive=True)
    async def action_raters(self) -> None:
        """Show the raters; open or settle a chosen disagreement."""
        chosen = await self.host.push_screen_wait(RatersScreen(self.session))
        if chosen is None:
            return
        if chosen.action == "open":
            await self.host.push_screen(GroupScreen(chosen.group_id))
            return
        group = self.session.group(chosen.group_id)
        if group is not None:
            await self._settle(group)

    async def _settle(self, group: Group) -> None:
        """Ask for the decisive vote on a group and send it."""
        if not self.session.allows("group.settle"):
            self.host.say("Only an operator settles disagreements", "warning")
            return
        fate = "It was sent: recorded for export" if group.sealed_at is not None else "Not sent yet"
        label = f"{votes_text(group)}. {fate}. The best candidate's number, or all, best first"
        text = await self.host.ask("Settle the disagreement", label)
        if text is None or not text.strip():
            return
        try:
            vote = typed_vote(text, len(group.candidates))
        except AjetError as error:
            self.host.say(str(error), "error")
            return
        rater = self._group_actions.rater_args()
        await self.host.send_command("group.settle", group_id=group.group_id, **vote, **rater)

    @in_background("question", exclusive=True)
    async def action_held(self) -> None:
        """List the votes that can still be undone, and undo the chosen one."""
        group_id = await self.host.push_screen_wait(HeldScreen(self.session, self._queue))
        group = self.session.state.groups.get(group_id or "")
        if group is not None and group in self._context.held_votes():
            self._votes.undo_vote(group)
        elif group_id is not None:
            self.host.say("It is sent: too late to undo it", "warning")

    def action_unsure(self) -> None:
        """Show only groups the automatic rewards are unsure about, or all again."""
        self._queue.only_unsure = not self._queue.only_unsure
        self._context.repaint()

    # --- groups that cause a stall -----------------------------------------------------------

    @in_background("question", exclusive=True)
    async def action_accept_all(self) -> None:
        """Confirm, then send the automatic rewards of all groups that cause a stall."""
        state = self.session.state
        servers = list(held_up(state, self.session.now()))
        groups = [one for one in state.waiting() if one.rating is None and one.server in servers]
        body = f"{plural(len(groups), 'group')} without a rating: the automatic rewards are sent."
        if lacking := sum(bool(one.votes) for one in groups):
            body += f" On {lacking} of them votes are missing: the votes so far are sent instead."
        if await self.host.confirm("Accept all automatic rewards?", body, "Accept all"):
            for name in servers:
                self._group_actions.commands.send("rating.accept_all", server=name)

    @in_background("question", exclusive=True)
    async def action_abort_all(self) -> None:
        """State the loss, ask for a reason, abort all groups that cause a stall."""
        state = self.session.state
        servers = list(held_up(state, self.session.now()))
        title = "Abort all groups that cause the stall?"
        body = "\n".join(abort_all_consequences(state, servers))
        reason = await self.host.push_screen_wait(AbortScreen(title, body))
        if reason is None:
            return
        args = {"reason": reason} if reason else {}
        for name in servers:
            self._group_actions.commands.send("rating.abort_all", server=name, **args)
