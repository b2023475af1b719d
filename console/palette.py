"""The command palette: screens, orders that can be given now, themes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from console.loss import loss
from console.offers import Offer, offers
from console.themes import THEMES
from core.commands import COMMANDS

if TYPE_CHECKING:
    from console.app import ConsoleApp

Entry = tuple[str, str, Callable[[], Any]]


def entries(app: "ConsoleApp") -> Iterator[Entry]:
    """Title ("area: Verb"), help and action of everything on offer now."""
    front = app.front
    group = front.target_group if front is not None else None
    server = front.target_server if front is not None else None
    for offer in offers(app.session, group, server):
        yield offer.title, offer.help, partial(give, app, offer)
    for place in app.places:
        if place.name != app.current_mode:
            title = f"Screen: {place.title}  (F{place.digit})"
            yield title, place.help, partial(app.action_go, place.name)
    for name in THEMES:
        if name != app.theme:
            yield f"Theme: {name}", "Colours of this console", partial(setattr, app, "theme", name)
    yield "Console: Help", "Text and keys of this screen", app.action_help
    yield "Console: Quit", "Asks when something runs", app.action_quit


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
    if offer.danger:
        verb = offer.title.partition(": ")[2]
        body = loss(app.session, offer.command, args)
        if not await app.confirm(offer.title, body, verb.partition(" ")[0]):
            return
    await app.order(offer.command, **args)


class ConsoleCommands(Provider):
    """Feeds Textual's palette."""

    def _entries(self) -> list[Entry]:
        return list(entries(cast("ConsoleApp", self.app)))

    async def discover(self) -> Hits:
        """Everything on offer, before anything is typed."""
        for title, help_text, run in self._entries():
            yield DiscoveryHit(title, run, help=help_text)

    async def search(self, query: str) -> Hits:
        """What fits the query."""
        matcher = self.matcher(query)
        for title, help_text, run in self._entries():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, text=title, help=help_text)
