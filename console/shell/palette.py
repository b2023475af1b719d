"""The command palette: screens, orders that can be given now, themes."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.css.query import NoMatches

from ajet_swarm.common.text import known_names, one_line
from console.models.available_commands import Offer, absent, offers
from console.models.consequences import loss, server_of
from console.models.job_commands import loss_of_all
from console.models.reward_edit import change_entries
from console.screens.dialogs.abort import AbortScreen
from console.screens.first_steps import FirstStepsScreen
from console.screens.rater import rate_entries
from console.screens.rewards.entries import reward_entries
from console.shell.group_paths import LEAST, MOST, known_matches, open_matches
from console.shell.job_entries import job_entries
from console.text.theme import THEMES
from console.views.group_detail import abort_extra
from console.views.rating import abort_all_loss
from core.commands import COMMANDS

if TYPE_CHECKING:
    from console.app import ConsoleApp
    from console.screens.base import ConsoleScreen

ABORTS = frozenset({"group.abort", "rating.abort_all"})
"""Orders whose question asks for a reason too."""
NOTHING = "Nothing matches"
LAST = 0.01
"""Score of what stands below all that can be done."""
KEYS = "? shows the keys of this screen; Enter here does, too"
Entry = tuple[str, str, Callable[[], Any]]


def entries(app: "ConsoleApp") -> Iterator[Entry]:
    """Title ("area: Verb"), help and action of everything on offer now.

    What leads when nothing is typed is harmless; what destroys comes after all other orders.
    """
    front = app.front
    group, server = _targets(front)
    for place in app.shown_places:
        if place.name != app.current_mode:
            title = f"Screen: {place.title}  (F{place.digit})"
            yield title, place.help, partial(app.action_go, place.name)
    yield "Console: Help", "Text and keys of this screen", app.action_help
    yield "Console: Jump", "Jump to any part of the screen by one letter", app.action_jump
    if app.session.seen and app.session.replay is None:
        first = "What this is, its loop, and the ways on by one key"
        yield "Console: First steps", first, lambda: app.push_screen(FirstStepsScreen())
    for offer in sorted(offers(app.session, group, server), key=lambda one: one.danger):
        yield offer.title, offer.help, partial(give, app, offer)
    if front is not None and app.session.seen:
        may = app.session.may("engine.try")
        title = COMMANDS["engine.try"].title if may else "Screen: Prompts that were tried"
        yield f"{title}  (ctrl+t)", COMMANDS["engine.try"].help, front.action_try_prompt
    yield from rate_entries(app)
    yield from job_entries(app)
    yield from reward_entries(app)
    yield from change_entries(app)
    if app.session.replay is not None:
        yield from app.session.replay.entries()
    for name in THEMES:
        if name != app.theme:
            yield f"Theme: {name}", "Colours of this console", partial(setattr, app, "theme", name)
    yield "Console: Quit", "Asks first if something runs", app.action_quit


def _targets(front: "ConsoleScreen | None") -> tuple[str | None, str | None]:
    """The group and the server a screen points at; none while it is still being made."""
    if front is None:
        return None, None
    try:
        return front.target_group, front.target_server
    except NoMatches:
        return None, None


def give(app: "ConsoleApp", offer: Offer) -> None:
    """Give an order from the palette; a dangerous one asks first."""
    app.run_worker(_give(app, offer), name=offer.command, group="command", exit_on_error=False)


async def _give(app: "ConsoleApp", offer: Offer) -> None:
    args = dict(offer.args)
    if offer.ask:
        known = {arg.name: arg.help for arg in COMMANDS[offer.command].args}
        given = await app.ask(offer.title, known[offer.ask], offer.value)
        if given is None:
            return
        args[offer.ask] = given
        if offer.command == "engine.restore" and (why := no_checkpoint(app, args)):
            app.say(why, "error")
            return
    if offer.command in ABORTS:
        reason = await app.push_screen_wait(AbortScreen(f"{offer.title}?", _abort(app, offer)))
        if reason is None:
            return
        args.update({"reason": reason} if reason else {})
    elif offer.danger:
        verb = offer.title.partition(": ")[2]
        body = (
            loss_of_all(app.session, offer.command, offer.servers)
            if offer.servers
            else loss(app.session, offer.command, args)
        )
        if not await app.confirm(offer.title, body, verb.partition(" ")[0]):
            return
    if offer.servers:
        async with asyncio.TaskGroup() as tasks:
            for name in offer.servers:
                tasks.create_task(app.order(offer.command, **{**args, "server": name}))
        return
    await app.order(offer.command, **args)


def no_checkpoint(app: "ConsoleApp", args: Mapping[str, Any]) -> str:
    """Why there is no checkpoint to go back to; empty when there is one, or may be an older one."""
    server = server_of(app.session, args.get("server"))
    name = str(args.get("name", "")).strip()
    if server is None or server.checkpoints is None or server.checkpoints_more:
        return ""
    names = ["base", *(one.name for one in server.checkpoints)]
    if name in names:
        return ""
    return f"There is no checkpoint `{one_line(name, 64)}`. {known_names(name, names)}"


def _abort(app: "ConsoleApp", offer: Offer) -> str:
    state = app.session.state
    if offer.command == "rating.abort_all":
        return abort_all_loss(state, app.session.now())
    group = state.groups.get(str(offer.args["group_id"]))
    words = getattr(
        app.front, "abort_words", abort_extra
    )  # which tells no winner while it is blind
    more = words(group) if group is not None else ""
    return "\n".join(text for text in (loss(app.session, offer.command, offer.args), more) if text)


def as_text(text: str) -> str:
    """Text as the palette's markup reads it: no bracket opens a tag, closed or cut short."""
    return text.replace("[", "\\[")


class ConsoleCommands(Provider):
    """Feeds Textual's palette, which would read plain strings as markup."""

    def _entries(self) -> list[Entry]:
        return list(entries(cast("ConsoleApp", self.app)))

    async def discover(self) -> Hits:
        """Everything on offer, before anything is typed."""
        for title, help_text, run in self._entries():
            yield DiscoveryHit(Content(title), run, text=title, help=as_text(help_text))

    async def search(self, query: str) -> Hits:
        """What fits the query; when nothing does, a word on where to look."""
        matcher = self.matcher(query)
        nothing = True
        for title, help_text, run in self._entries():
            score = matcher.match(title)
            if score > 0:
                nothing = False
                yield Hit(score, matcher.highlight(title), run, text=title, help=as_text(help_text))
        app = cast("ConsoleApp", self.app)
        if len(query.strip()) >= LEAST:
            for one in known_matches(app, query)[:MOST]:
                nothing = False
                about = as_text(one_line(one.group.query, 80))
                run = partial(open_matches, app, [one])
                yield Hit(1.0, Content(one.title), run, text=one.title, help=about)
        for title, why in absent(app.session, _targets(app.front)[0]):
            if matcher.match(title) > 0:
                nothing = False
                yield Hit(
                    LAST,
                    Content.styled(f"{title}: not now", "dim"),
                    partial(app.say, f"{title}: {why}", "warning"),
                    text=title,
                    help=as_text(why),
                )
        if nothing:
            yield Hit(LAST, Content(NOTHING), app.action_help, text=NOTHING, help=KEYS)
