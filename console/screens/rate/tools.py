"""Keys of the rating screen that do not vote: about the answers, and about queue and raters."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import plural
from console.models.alerts import held_up
from console.screens.dialogs.abort import AbortScreen
from console.screens.group.model import whole_texts
from console.screens.group.rater import ask_name, rater_args
from console.screens.group.screen import GroupScreen
from console.screens.rate.ballot import NO_WINNER
from console.screens.rate.dialogs import (
    GroupChoice,
    GuidelinesScreen,
    ModeScreen,
    TagScreen,
    VotesScreen,
)
from console.screens.rate.inbox.keys import InboxKeys
from console.screens.rate.keys import RateArea, RatedGroup, RateGroupKeys, show_hint
from console.screens.rate.lease import LeaseKeeper
from console.screens.rate.model import (
    TAG_LETTERS,
    Guidelines,
    RateQueue,
    flipped,
    read_guidelines,
    tag_keys,
    tag_names,
)
from console.screens.rate.raters.dialogs import AgreementScreen, RatersScreen
from console.screens.rate.raters.model import typed_vote
from console.screens.rate.voting import Voting, why_kept
from console.session.group_facts import votes_text
from console.widgets.editor import edit_text
from console.widgets.key_area import hidden_keys
from core.commands.plan_groups import abort_all_consequences
from core.state import Group

_READING = frozenset({"guidelines", "judge", "unsure"})
"""Actions that a read-only console needs only beside a group."""


_ANSWER_TIPS = {
    "edit": "Write the answer that should have been given: for SFT, not sent",
    "tags": "Reasons recorded with the vote",
    "diff": "Word differences of the others from one answer",
}
"""Action -> its tooltip."""


class AnswerKeys(RateArea):
    """Keys about the answers on screen: select, show, compare, edit, give reasons."""

    WRITING: ClassVar[frozenset[str]] = frozenset({"edit", "tags", "tag"})
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "reveal", "Show", id="rate.reveal", tooltip="Rewards, marks and numbers"),
        Binding("tab,right", "step(1)", "Select", show=False, tooltip="The next answer"),
        Binding("shift+tab,left", "step(-1)", "Previous answer", show=False),
        Binding(
            "space,pagedown",
            "page(1)",
            "Read on",
            show=False,
            id="rate.page",
            tooltip="The next page, then the next answer",
        ),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("down", "scroll_card(3)", "Down", show=False),
        Binding("up", "scroll_card(-3)", "Up", show=False),
        Binding("z", "zoom", "Zoom", show=False, id="rate.zoom"),
        *hidden_keys(
            _ANSWER_TIPS,
            ("e", "edit", "Edit", "rate.edit"),
            ("w", "tags", "Why", "rate.tags"),
            ("d", "diff", "Compare", "rate.diff"),
        ),
        *(Binding(letter, f"tag('{letter}')", show=False) for letter in TAG_LETTERS),
    ]

    def __init__(self, queue: RateQueue, target: RatedGroup) -> None:
        super().__init__(queue)
        self._target = target

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "tag" and parameters and parameters[0] not in tag_keys(self.session):
            return False
        return super().check_action(action, parameters)

    def obstacle(self, action: str) -> str | None:
        if action == "tag" or (action == "edit" and self._subject() is not None):
            return None
        if action == "scroll_card" or self.queue.group is not None:
            return None
        return ""

    def action_reveal(self) -> None:
        """Show the rewards; the note of the vote records that it was not blind."""
        if (ballot := self.queue.ballot) is not None:
            ballot.revealed = True
            self.changed()

    def action_step(self, by: int) -> None:
        """Select another answer; it gets more room."""
        answers = self.answers
        if answers.cards:
            start = -1 if answers.selected is None and by > 0 else (answers.selected or 0)
            answers.select((start + by) % len(answers.cards))

    def action_scroll_card(self, rows: int) -> None:
        """Scroll the selected answer, or all that stand beside each other."""
        self.answers.reader.scroll(rows)

    def action_page(self, by: int) -> None:
        """Show the next page, then the next answer."""
        self.answers.reader.page(by)

    def action_zoom(self) -> None:
        """Show one answer on the whole screen, or all again."""
        self.answers.toggle_zoom()
        self.changed()

    def action_diff(self) -> None:
        """Compare the others with the best, selected or first answer, or stop comparing."""
        if (ballot := self.queue.ballot) is not None and ballot.shown:
            best = self._best_index()
            base = ballot.shown[0] if best is None else best
            ballot.base = None if ballot.base is not None else base
            self.changed()

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_tags(self) -> None:
        """Ask for the reasons."""
        ballot, names = self.queue.ballot, tag_names(self.session.rating.tags)
        if ballot is None:
            return
        if not names:
            show_hint(self, self.queue, "No reasons to choose from: list them in rating.tags")
            return
        keys = tag_keys(self.session)
        ballot.tags = await self.host.push_screen_wait(TagScreen(names, ballot.tags, keys))
        self.changed()

    def action_tag(self, key: str) -> None:
        """Give a reason, or clear it: of the typed vote, else of the last one while it is held."""
        name, queue = tag_keys(self.session)[key], self.queue
        ballot, last, group = queue.ballot, queue.last, queue.last_voted
        if ballot is not None and not ballot.empty:
            ballot.tags = flipped(ballot.tags, name)
            self.changed()
        # of a late vote the proxy keeps no reasons that come after it
        elif not last or not group or queue.late is not None or why_kept(self.session, group):
            message = f"{key} is the reason {name} of a vote that is typed or held; w gives others"
            show_hint(self, queue, message)
        else:
            args = {**last.args, "tags": flipped(last.args.get("tags", ()), name)}
            queue.sent[last.group_id] = replace(last, args=args)
            self._vote_again(args)

    @work(group="votes", exit_on_error=False)
    async def _vote_again(self, args: dict[str, Any]) -> None:
        outcome = await self.session.command("group.rate", **args)
        if not outcome.ok:
            self.host.say(outcome.message, "error")
        self.changed()

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_edit(self) -> None:
        """Ask for the answer that should have been given, and keep it as a demonstration."""
        subject = self._subject()
        if subject is None:
            message = "Which one? Type the best answer's digit first, or choose with Tab"
            show_hint(self, self.queue, message)
            return
        group, index = subject
        draft = draft_file(self.session.home, group.group_id, index)
        try:
            before = await self._whole_text(group, index)
            after = await edit_text(self.host, before, draft=draft)
        except AjetError as error:
            self.host.say(str(error), "error")
            return
        if after == before:
            show_hint(self, self.queue, "nothing was changed")
        elif not after.strip():
            self.host.say("The text is empty; nothing was stored", "warning")
        elif not await self._store(group, index, after):
            return
        if draft is not None:
            await asyncio.to_thread(draft.unlink, missing_ok=True)

    def _subject(self) -> tuple[Group, int] | None:
        """Return the answer that `e` edits: the best or selected one, else that of the last vote.

        Without a best answer, as of a tie, it is the first one shown.
        """
        queue, index = self.queue, self._best_index()
        group, ballot, last = queue.group, queue.ballot, queue.last
        if group is not None and index is not None:
            return group, index
        if group is not None and ballot is not None and ballot.armed in NO_WINNER:
            return group, ballot.shown[0]
        voted = queue.last_voted
        if voted is None or last is None or last.best is None:
            return None
        return voted, last.best

    def _best_index(self) -> int | None:
        """Return the answer typed as best, else the selected one."""
        ballot = self.queue.ballot
        if ballot is None:
            return None
        vote = ballot.vote()
        if vote is not None and vote.order:
            return vote.order[0]
        return self._target.candidate if self.answers.selected is not None else None

    async def _whole_text(self, group: Group, index: int) -> str:
        candidate = group.candidates[index]
        if not candidate.text:
            raise AjetError(f"answer {self._target.number_of(index)} has no text to edit")
        if not candidate.cut:
            return candidate.text
        _, texts = whole_texts(await self.session.group_events(group.group_id))
        if index not in texts:
            raise AjetError("the whole text is not in the journal")
        return texts[index].text

    async def _store(self, group: Group, index: int, edited: str) -> bool:
        outcome = await self.session.command(
            "group.edit",
            group_id=group.group_id,
            index=index,
            edited=edited,
            **rater_args(self.session),
        )
        if not outcome.ok:
            kept = " Your draft is kept: e opens it again" if self.session.home else ""
            self.host.say(f"The correction was not stored: {outcome.message}.{kept}", "error")
            return False
        ballot = self.queue.ballot
        same = ballot is not None and ballot.group_id == group.group_id
        if ballot is not None and same and ballot.empty and not ballot.scoring:
            ballot.record_key(self.session.now())
            ballot.digit(ballot.shown.index(index) + 1)
        message = "kept as a demonstration for SFT; reward and user's answer stay as they are"
        show_hint(self, self.queue, message)
        return True


def draft_file(home: Path | None, group_id: str, index: int) -> Path | None:
    """Return the file of the draft for an answer, by a hash: an id may be no file name."""
    if home is None:
        return None
    name = hashlib.sha256(f"{group_id}:{index}".encode(errors="surrogatepass")).hexdigest()[:16]
    return home / "drafts" / f"{name}.md"


_TOOL_TIPS = {
    "mode": "off, answer first, hold",
    "guidelines": "Show the rating guidelines",
    "judge": "Your votes compared with the automatic rewards",
    "raters": "Who rates, pace and agreement of each rater, disagreements to settle",
    "unsure": "Only groups on which the automatic rewards are unsure, or all again",
    "held": "Your votes and what each did: undo a held one, open a sent one, ask again",
    "goal": "Votes to cast in this session; without a number, the rows of the mock user",
    "take": "Rate the group that another console has on screen",
    "accept_all": "When open ratings cause a stall: send all automatic rewards; asks first",
    "abort_all": "When open ratings cause a stall: abort those groups; asks first",
    "name": "The rater's name, recorded with all later votes",
}
"""Action -> its tooltip."""


class RaterTools(RateArea):
    """Keys about the queue, the raters and earlier votes."""

    WRITING: ClassVar[frozenset[str]] = frozenset(
        {"mode", "held", "take", "accept_all", "abort_all", "name", "goal"}
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *hidden_keys(
            _TOOL_TIPS,
            ("o", "mode", "Mode", "rating.mode"),
            ("g", "guidelines", "Guidelines", "rate.guidelines"),
            ("j", "judge", "Agreement", "rate.judge"),
            ("r", "raters", "Raters", "rate.raters"),
            ("f", "unsure", "Only unsure", "rate.unsure"),
            ("U", "held", "Your votes", "rate.held"),
            ("G", "goal", "Goal", "rate.goal"),
            ("T", "take", "Take over", "rate.take"),
            ("A", "accept_all", "Accept all", "rating.accept_all"),
            ("X", "abort_all", "Abort all", "rating.abort_all"),
            ("N", "name", "Your name", "rate.name"),
        ),
    ]

    def __init__(
        self, queue: RateQueue, group_keys: RateGroupKeys, voting: Voting, lease: LeaseKeeper
    ) -> None:
        super().__init__(queue)
        self._group_keys = group_keys
        self._voting = voting
        self._lease = lease

    def obstacle(self, action: str) -> str | None:
        queue = self.queue
        if action in _READING and queue.group is None and self.session.read_only:
            return None if action == "unsure" and queue.only_unsure else ""
        if action == "held":
            return None if queue.voted(self.session.state.groups.values()) else "You have no votes"
        if action == "take":
            return None if queue.leased_by_others() else "No other console has an open group"
        if action in ("accept_all", "abort_all"):
            stalls = held_up(self.session.state, self.session.now())
            none = "No open rating causes a stall" if queue.late is None else ""
            return None if stalls else none
        return None

    # --- guidelines, mode, name --------------------------------------------------------------

    async def _read_guidelines(self) -> Guidelines | None:
        path = self.session.rating.guidelines
        self.queue.guidelines = await asyncio.to_thread(read_guidelines, path)
        return self.queue.guidelines

    @work(group="guidelines", exclusive=True, exit_on_error=False)
    async def on_mount(self) -> None:
        """Read the guidelines: their version is recorded with the votes."""
        try:
            await self._read_guidelines()
            self.changed()
        except AjetError as error:
            self.host.say(str(error), "warning")

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_guidelines(self) -> None:
        """Read the file again and show it."""
        try:
            guidelines = await self._read_guidelines()
        except AjetError as error:
            self.host.say(str(error), "warning")
            return
        if guidelines is None:
            message = "No guidelines: set rating.guidelines to a Markdown file"
            show_hint(self, self.queue, message)
        else:
            await self.host.push_screen_wait(GuidelinesScreen(guidelines))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_mode(self) -> None:
        """Ask for the rating mode and switch to it."""
        present = self.session.state.rating_mode
        mode = await self.host.push_screen_wait(ModeScreen(present))
        if mode is not None and mode != present:
            self._group_keys.send("rating.mode", mode=mode)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_name(self) -> None:
        """Ask for the name that is recorded with the next votes."""
        if message := await ask_name(self.host):
            self.queue.set_message(message)
            self.changed()

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_goal(self) -> None:
        """Ask for the number of votes to cast in this session."""
        queue = self.queue
        label = "Votes to cast in this session; empty: none"
        text = await self.host.ask("Your goal", label, str(queue.goal or ""))
        if text is None:
            return
        try:
            queue.goal = max(0, int(text.strip() or 0))
        except ValueError:
            self.host.say("A goal is a number of votes", "warning")
        self.changed()

    # --- votes and raters --------------------------------------------------------------------

    def action_take(self) -> None:
        """Take over the first group that another console has leased, and put it on screen."""
        if others := self.queue.leased_by_others():
            self._lease.take(others[0].group_id)

    def action_unsure(self) -> None:
        """Show only groups the automatic rewards are unsure about, or all again."""
        self.queue.only_unsure = not self.queue.only_unsure
        self.changed()

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_held(self) -> None:
        """List the votes of this rater; undo the chosen one, open its group, or ask it again."""
        choice = await self.host.push_screen_wait(VotesScreen(self.queue))
        if choice is None:
            return
        group = self.session.state.groups.get(choice.group_id)
        if choice.action == "again":
            self.screen.query_one(InboxKeys).ask(choice.group_id)
        elif group is not None and group in self.queue.held():
            self._voting.undo_vote(group)
        else:
            self.host.push_screen(GroupScreen(choice.group_id))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_judge(self) -> None:
        """Show the agreement with the automatic rewards, and open a chosen disagreement."""
        await self._follow(await self.host.push_screen_wait(AgreementScreen(self.session)))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_raters(self) -> None:
        """Show the raters; open or settle a chosen disagreement."""
        await self._follow(await self.host.push_screen_wait(RatersScreen(self.session)))

    async def _follow(self, choice: GroupChoice | None) -> None:
        """Open the chosen group, or ask for the decisive vote on it and send it."""
        group = self.session.group(choice.group_id) if choice is not None else None
        if choice is not None and choice.action == "open":
            await self.host.push_screen(GroupScreen(choice.group_id))
        elif group is not None and not self.session.allows("group.settle"):
            self.host.say("Only an operator settles disagreements", "warning")
        elif group is not None:
            await self._settle(group)

    async def _settle(self, group: Group) -> None:
        fate = "It was sent: recorded for export" if group.sealed_at is not None else "Not sent yet"
        label = f"{votes_text(group)}. {fate}. The best candidate's number, or all, best first"
        text = await self.host.ask("Settle the disagreement", label)
        if text is None or not text.strip():
            return
        try:
            args = {**typed_vote(text, len(group.candidates)), **rater_args(self.session)}
        except AjetError as error:
            self.host.say(str(error), "error")
            return
        await self.host.send_command("group.settle", group_id=group.group_id, **args)

    # --- groups that cause a stall -----------------------------------------------------------

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_accept_all(self) -> None:
        """Confirm, then send the automatic rewards of all groups that cause a stall."""
        state = self.session.state
        servers = list(held_up(state, self.session.now()))
        groups = [
            group for group in state.waiting() if group.rating is None and group.server in servers
        ]
        body = f"{plural(len(groups), 'group')} without a rating: the automatic rewards are sent."
        if lacking := sum(bool(group.votes) for group in groups):
            body += f" On {lacking} of them votes are missing: the votes so far are sent instead."
        if await self.host.confirm("Accept all automatic rewards?", body, "Accept all"):
            for name in servers:
                self._group_keys.send("rating.accept_all", server=name)

    @work(group="question", exclusive=True, exit_on_error=False)
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
            self._group_keys.send("rating.abort_all", server=name, **args)
