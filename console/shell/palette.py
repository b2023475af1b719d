"""The command palette: screens, commands available now, themes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from textual.app import App
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.css.query import NoMatches

from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost, HostedScreen
from console.models.available_commands import available_commands, unavailable_commands
from console.screens.first_steps.widgets import FirstStepsScreen
from console.screens.group.rater import rate_entries
from console.screens.open_group import MAX_MATCHES, MIN_PREFIX, known_matches, open_matches
from console.screens.progress.pair import pair_entries
from console.screens.requests.export import export_entries
from console.screens.rewards.actions import reward_entries
from console.screens.run_command import run_available
from console.text.theme import THEMES
from core.commands import COMMANDS

NOTHING = "Nothing matches"
LAST = 0.01
"""Score of an entry listed below all available commands."""
KEYS = "? shows the keys of this screen, and so does Enter"
Entry = tuple[str, str, Callable[[], Any]]


def entries(app: AppHost) -> Iterator[Entry]:
    """Yield title ("area: Verb"), help and action of everything available now.

    Harmless entries come first, destructive commands after all others.
    """
    front = app.front
    group, server = _targets(front)
    for place in app.shown_screens:
        if place.name != app.current_mode:
            title = f"Screen: {place.title}  (F{place.number})"
            yield title, place.help, partial(app.action_go, place.name)
    yield "Console: Help", "Text and keys of this screen", app.action_help
    yield "Console: Jump", "Jump to any part of the screen by one letter", app.action_jump
    if app.session.seen and app.session.replay is None:
        about = "What the console does, its loop, and the next steps with one key each"
        yield "Console: First steps", about, lambda: app.push_screen(FirstStepsScreen())
    for command in sorted(
        available_commands(app.session, group, server),
        key=lambda available_command: available_command.danger,
    ):
        yield command.title, command.help, partial(run_available, app, command)
    if front is not None and app.session.seen:
        allowed = app.session.allows("engine.try")
        title = COMMANDS["engine.try"].title if allowed else "Screen: Prompts that were tried"
        yield f"{title}  (ctrl+t)", COMMANDS["engine.try"].help, front.action_try_prompt
    yield from pair_entries(app, server)
    yield from rate_entries(app)
    yield from server_entries(app)
    yield from reward_entries(app)
    yield from export_entries(app)
    if app.session.replay is not None:
        yield from app.session.replay.entries()
    for name in THEMES:
        if name != app.theme:
            yield f"Theme: {name}", "Colours of this console", partial(setattr, app, "theme", name)
    yield "Console: Quit", "Asks first if something runs", app.action_quit


def server_entries(app: AppHost) -> Iterator[Entry]:
    """Yield the entries that open the job or the details of each server."""
    servers, writes = app.session.state.servers, not app.session.read_only
    for name, server in servers.items():
        if server.state == "OBSERVING":
            continue
        where = f" {one_line(name, 24)}" if len(servers) > 1 else ""
        title = f"Engine: Edit the job{where}" if writes else f"Screen: Job{where}"
        about = "The job of the next start" + (": show, change, save, apply" if writes else "")
        yield title, about, partial(app.open_job, name)
        title = f"Engine: Look inside{where}" if writes else f"Screen: Inside{where}"
        about = "Claimed episodes, clients, tasks with rewards, its log"
        yield title, about, partial(_open_inside, app, name)


def _open_inside(app: AppHost, server: str) -> None:
    from console.screens.engine.inside import InsideScreen  # screens are imported on first use

    app.push_screen(InsideScreen(server))


def _targets(front: HostedScreen | None) -> tuple[str | None, str | None]:
    """Return the group and the server selected on a screen; None while it is being mounted."""
    if front is None:
        return None, None
    try:
        return front.target_group, front.target_server
    except NoMatches:
        return None, None


def as_text(text: str) -> str:
    """Escape text for the palette's markup, so that no bracket opens a tag."""
    return text.replace("[", "\\[")


class OncePalette(CommandPalette):
    """Textual's palette, which also ends once when two clicks or keys select at the same time."""

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close it; the second selection closes no other screen and runs nothing."""
        if self.is_current:
            return super().dismiss(result)
        self._selected_command = DiscoveryHit("", lambda: None)
        return AwaitComplete()


def open_palette(app: App[Any]) -> None:
    """Open the palette unless it is open."""
    if not CommandPalette.is_open(app):
        app.push_screen(OncePalette(id="--command-palette"))


class ConsoleCommands(Provider):
    """Provider for Textual's palette; it escapes text, because the palette interprets markup."""

    def _entries(self) -> list[Entry]:
        return list(entries(cast(AppHost, self.app)))

    async def discover(self) -> Hits:
        """Yield everything available, before anything is typed."""
        for title, help_text, run in self._entries():
            yield DiscoveryHit(Content(title), run, text=title, help=as_text(help_text))

    async def search(self, query: str) -> Hits:
        """Yield what matches the query; when nothing does, an entry that opens the help."""
        matcher = self.matcher(query)
        nothing = True
        for title, help_text, run in self._entries():
            score = matcher.match(title)
            if score > 0:
                nothing = False
                yield Hit(score, matcher.highlight(title), run, text=title, help=as_text(help_text))
        app = cast(AppHost, self.app)
        if len(query.strip()) >= MIN_PREFIX:
            for match in known_matches(app, query)[:MAX_MATCHES]:
                nothing = False
                about = as_text(one_line(match.group.query, 80))
                run = partial(open_matches, app, [match])
                yield Hit(1.0, Content(match.title), run, text=match.title, help=about)
        for title, why in unavailable_commands(app.session, _targets(app.front)[0]):
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
