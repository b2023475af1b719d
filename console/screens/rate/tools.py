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
from console.screens.rate import dialogs, model
from console.screens.rate.ballot import NO_WINNER
from console.screens.rate.inbox.keys import InboxKeys
from console.screens.rate.lease import LeaseKeeper
from console.screens.rate.raters.model import typed_vote
from console.screens.rate.voting import RateArea, RatedGroup, Voting, why_kept
from console.screens.rate.widgets import turn_page
from console.session.group_facts import votes_text
from console.ui.keys import keys
from console.widgets.editor import edit_text
from core.commands.plan_groups import abort_all_consequences
from core.state import Group

_PAGE = "The next page, then the next answer"
_EDIT = "Write the answer that should have been given: for SFT, not sent"
_DIFF = "Word differences of the others from one answer"
_READING = frozenset({"guidelines", "judge", "unsure"})
"""Actions that a read-only console needs only beside a group."""


class AnswerKeys(RateArea):
    """Keys about the answers on screen: select, show, compare, edit, give reasons."""

    WRITING: ClassVar[frozenset[str]] = frozenset({"edit", "tags", "tag"})
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("v", "reveal", "Show", "rate.reveal", "Rewards, marks and numbers"),
            ("tab,right", "step(1)", "Select", "", "The next answer"),
            ("shift+tab,left", "step(-1)", "Previous answer"),
        ),
        *keys(
            ("space,pagedown", "page(1)", "Read on", "rate.page", _PAGE),
            ("pageup", "page(-1)", "Page up"),
            ("down", "scroll_card(3)", "Down"),
            ("up", "scroll_card(-3)", "Up"),
            ("z", "zoom", "Zoom", "rate.zoom"),
            ("e", "edit", "Edit", "rate.edit", _EDIT),
            ("w", "tags", "Why", "rate.tags", "Reasons recorded with the vote"),
            ("d", "diff", "Compare", "rate.diff", _DIFF),
            shown=False,
        ),
        *(Binding(letter, f"tag('{letter}')", show=False) for letter in model.TAG_LETTERS),
    ]

    def __init__(self, queue: model.RateQueue, target: RatedGroup) -> None:
        super().__init__(queue)
        self._target = target

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "tag" and parameters and parameters[0] not in model.tag_keys(self.session):
            return False
        return super().check_action(action, parameters)

    def obstacle(self, action: str) -> str | None:
        works = action in ("tag", "scroll_card") or self.queue.group is not None
        return None if works or (action == "edit" and self._subject() is not None) else ""

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
        self.answers.scroll_by(rows)

    def action_page(self, by: int) -> None:
        """Show the next page, then the next answer."""
        turn_page(self.answers, by)

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
        group, ballot = self.queue.group, self.queue.ballot
        names, keys = model.tag_names(self.session.rating.tags), model.tag_keys(self.session)
        if group is None or ballot is None:
            return
        if not names:
            self.hint("No reasons to choose from: list them in rating.tags")
            return
        asked = dialogs.TagScreen(group.query, names, ballot.tags, keys)
        ballot.tags = await self.host.push_screen_wait(asked)
        self.changed()

    def action_tag(self, key: str) -> None:
        """Give a reason, or clear it: of the typed vote, else of the last one while it is held."""
        name, queue = model.tag_keys(self.session)[key], self.queue
        ballot, last, group = queue.ballot, queue.last, queue.last_voted
        if ballot is not None and not ballot.empty:
            ballot.tags = model.flipped(ballot.tags, name)
            self.changed()
        # of a late vote the proxy keeps no reasons that come after it
        elif not last or not group or queue.late is not None or why_kept(self.session, group):
            self.hint(f"{key} is the reason {name} of a vote that is typed or held; w gives others")
        else:
            args = {**last.args, "tags": model.flipped(last.args.get("tags", ()), name)}
            queue.sent[last.ballot.group_id] = replace(last, args=args)
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
            self.hint("Which one? Type the best answer's digit first, or choose with Tab")
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
            self.hint("nothing was changed")
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
        args = {"group_id": group.group_id, "index": index, "edited": edited}
        outcome = await self.session.command("group.edit", **args, **rater_args(self.session))
        if not outcome.ok:
            kept = " Your draft is kept: e opens it again" if self.session.home else ""
            self.host.say(f"The correction was not stored: {outcome.message}.{kept}", "error")
            return False
        ballot = self.queue.ballot
        same = ballot is not None and ballot.group_id == group.group_id
        if ballot is not None and same and ballot.empty and not ballot.scoring:
            ballot.record_key(self.session.now())
            ballot.digit(ballot.shown.index(index) + 1)
        self.hint("kept as a demonstration for SFT; reward and user's answer stay as they are")
        return True


def draft_file(home: Path | None, group_id: str, index: int) -> Path | None:
    """Return the file of the draft for an answer, by a hash: an id may be no file name."""
    if home is None:
        return None
    name = hashlib.sha256(f"{group_id}:{index}".encode(errors="surrogatepass")).hexdigest()[:16]
    return home / "drafts" / f"{name}.md"


_TIPS = {
    "judge": "Your votes compared with the automatic rewards",
    "raters": "Who rates, pace and agreement of each rater, disagreements to settle",
    "unsure": "Only groups on which the automatic rewards are unsure, or all again",
    "held": "Your votes and what each did: undo a held one, open a sent one, ask again",
    "goal": "Votes to cast in this session; without a number, the rows of the mock user",
    "take": "Rate the group that another console has on screen",
    "accept_all": "When open ratings cause a stall: send all automatic rewards; asks first",
    "abort_all": "When open ratings cause a stall: abort those groups; asks first",
}
"""Action -> its tooltip, where that is long."""


class RaterTools(RateArea):
    """Keys about the queue, the raters and earlier votes."""

    WRITING: ClassVar[frozenset[str]] = frozenset(
        {"mode", "held", "take", "accept_all", "abort_all", "name", "goal"}
    )
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("o", "mode", "Mode", "rating.mode", "off, answer first, hold"),
        ("g", "guidelines", "Guidelines", "rate.guidelines", "Show the rating guidelines"),
        ("j", "judge", "Agreement", "rate.judge", _TIPS["judge"]),
        ("r", "raters", "Raters", "rate.raters", _TIPS["raters"]),
        ("f", "unsure", "Only unsure", "rate.unsure", _TIPS["unsure"]),
        ("U", "held", "Your votes", "rate.held", _TIPS["held"]),
        ("G", "goal", "Goal", "rate.goal", _TIPS["goal"]),
        ("T", "take", "Take over", "rate.take", _TIPS["take"]),
        ("A", "accept_all", "Accept all", "rating.accept_all", _TIPS["accept_all"]),
        ("X", "abort_all", "Abort all", "rating.abort_all", _TIPS["abort_all"]),
        ("N", "name", "Your name", "rate.name", "The rater's name, recorded with all later votes"),
        shown=False,
    )

    def __init__(self, queue: model.RateQueue, lease: LeaseKeeper) -> None:
        super().__init__(queue)
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

    async def _read_guidelines(self) -> bool:
        """Read the guidelines; return False, and say why, if they cannot be read."""
        try:
            path = self.session.rating.guidelines
            self.queue.guidelines = await asyncio.to_thread(model.read_guidelines, path)
        except AjetError as error:
            self.host.say(str(error), "warning")
            return False
        return True

    @work(group="guidelines", exclusive=True, exit_on_error=False)
    async def on_mount(self) -> None:
        """Read the guidelines: their version is recorded with the votes."""
        if await self._read_guidelines():
            self.changed()

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_guidelines(self) -> None:
        """Read the file again and show it."""
        if not await self._read_guidelines():
            return
        if (guidelines := self.queue.guidelines) is None:
            self.hint("No guidelines: set rating.guidelines to a Markdown file")
        else:
            await self.host.push_screen_wait(dialogs.GuidelinesScreen(guidelines))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_mode(self) -> None:
        """Ask for the rating mode and switch to it."""
        present = self.session.state.rating_mode
        mode = await self.host.push_screen_wait(dialogs.ModeScreen(present))
        if mode is not None and mode != present:
            self.group_keys.send("rating.mode", mode=mode)

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
        choice = await self.host.push_screen_wait(dialogs.VotesScreen(self.queue))
        if choice is None:
            return
        group = self.session.state.groups.get(choice.group_id)
        if choice.action == "again":
            self.screen.query_one(InboxKeys).ask(choice.group_id)
        elif group is not None and group in self.queue.held():
            self.screen.query_one(Voting).undo_vote(group)
        else:
            self.host.push_screen(GroupScreen(choice.group_id))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_judge(self) -> None:
        """Show the agreement with the automatic rewards, and open a chosen disagreement."""
        await self._follow(await self.host.push_screen_wait(dialogs.AgreementScreen(self.session)))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_raters(self) -> None:
        """Show the raters; open or settle a chosen disagreement."""
        await self._follow(await self.host.push_screen_wait(dialogs.RatersScreen(self.session)))

    async def _follow(self, choice: dialogs.GroupChoice | None) -> None:
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
                self.group_keys.send("rating.accept_all", server=name)

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
            self.group_keys.send("rating.abort_all", server=name, **args)
