"""A screen whose marked groups can be given one order together."""

from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from console.models.bulk import BulkVerb, verbs, winner_text
from console.screens.bulk import BulkScreen
from console.screens.dialogs.abort import AbortScreen
from console.screens.group_actions import GroupVerbs
from console.text.curl import curl_of
from console.text.format import plural
from core.state import Group


class MarkedVerbs(GroupVerbs):
    """Points at one group, and knows those that carry the mark."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "semicolon",
            "marked",
            "Marked",
            key_display=";",
            id="requests.marked",
            tooltip="One order for all groups that carry the mark",
        ),
    ]

    @property
    def marked(self) -> list[Group]:
        """The groups that carry the mark, oldest first."""
        return [group for group in self.session.state.groups.values() if group.marked]

    def obstacle(self, action: str) -> str | None:
        """`;` needs marks; who only looks on may copy what others have marked."""
        if action == "marked":
            return None if self.marked else "No group is marked: m marks the one under the cursor"
        return super().obstacle(action)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """To copy is no order."""
        if action == "marked":
            return self.obstacle(action) is None
        return super().check_action(action, parameters)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_marked(self) -> None:
        """Choose a verb for all marked groups, name the loss once, do it one by one."""
        offered = verbs(read_only=self.session.read_only)
        now = self.session.now()
        verb = await self.host.push_screen_wait(BulkScreen(self.marked, now, offered))
        if verb is None:
            return
        groups = verb.fits(self.marked, self.session.now())
        if not verb.command:
            await self._copy_all(verb, groups)
            return
        args = await self._asked(verb, groups)
        if args is None:
            return
        done, refused = 0, []
        for group in groups:
            outcome = await self.session.command(verb.command, group_id=group.group_id, **args)
            done += outcome.ok
            if not outcome.ok:
                refused.append(outcome.message)
        told = f"{verb.title}: {done} of {plural(len(groups), 'marked group')}"
        if refused:
            told += f". {refused[0]}"
        self.host.say(told, "warning" if refused else "information")

    async def _copy_all(self, verb: BulkVerb, groups: list[Group]) -> None:
        """Put something of each group on the clipboard, parted by a blank line."""
        url, texts = self.session.state.proxy_url, []
        try:
            for group in groups:
                told = await self.session.group_events(group.group_id)
                text = curl_of(told, url) if verb.action == "curl" else winner_text(group, told)
                texts += [text] if text else []
        except AjetError as error:
            self.host.say(f"{verb.title}: nothing copied: {error}", "error")
            return
        what = "request" if verb.action == "curl" else "answer"
        if not texts:
            self.host.say(f"{verb.title}: no {what} is kept", "warning")
            return
        how = " as curl" if verb.action == "curl" else ""
        short = f" of {plural(len(groups), 'group')}" if len(texts) < len(groups) else ""
        self.host.copy("\n\n".join(texts), f"{plural(len(texts), what)}{short} copied{how}")

    async def _asked(self, verb: BulkVerb, groups: list[Group]) -> dict[str, Any] | None:
        """The arguments of a verb, once the operator has said yes; None keeps things as they are.

        An abort takes a reason, a note its text.
        """
        title = f"{verb.title} {plural(len(groups), 'marked group')}?"
        body = verb.question(self.session.state, groups) if verb.question else ""
        if verb.action == "abort":
            reason = await self.host.push_screen_wait(AbortScreen(title, body))
            return None if reason is None else ({"reason": reason} if reason else {})
        if verb.ask:
            given = await self.host.ask(title, "Empty clears it")
            return None if given is None else {verb.ask: given}
        if body and not await self.host.confirm(title, body, verb.title):
            return None
        return dict(verb.args)
