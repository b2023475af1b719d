"""The `:` line: opens a screen by its name, or a group by its id or an episode's id."""

from ajet_swarm.common.text import did_you_mean
from console.models.app_host import AppHost
from console.screens.open_group import known_matches, open_matches, read_and_open

LONG_ID = 8
"""Minimum length of an id for which the journal is searched as well."""


async def open_by_name(app: AppHost, text: str | None) -> None:
    """Open what `text` names; do nothing for None or an empty text.

    Args:
        app: The app.
        text: The beginning of a screen's name, `q` to quit, or the beginning of an id.
    """
    name = (text or "").strip().lower()
    if not name:
        return
    if name in ("q", "quit"):
        await app.action_quit()
        return
    matches = [p for p in app.places if p.name.startswith(name) or p.title.lower() == name]
    if matches:
        app.action_go(matches[0].name)
    else:
        _open_by_id(app, name)


def _open_by_id(app: AppHost, name: str) -> None:
    """Open the groups whose id, or whose episode's id, begins with `name`."""
    if matches := known_matches(app, name):
        open_matches(app, matches)
        return
    names = [place.name for place in app.places]
    meant = did_you_mean(name, names)
    if len(name) >= LONG_ID and not meant:
        app.run_worker(read_and_open(app, name), group="group", exit_on_error=False)
        return
    more = meant or f"Screens: {', '.join(names)}"
    app.say(f"There is no screen, group or episode `{name}`. {more}", "warning")
