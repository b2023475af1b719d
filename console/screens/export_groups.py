"""Export of groups: by its key on Requests, and from the palette on every screen."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from console.session.app_state import Session
from console.session.filters import Filter, parse


def export_obstacle(session: Session) -> str | None:
    """Return why nothing can be exported here; None when it can."""
    if session.home is None:
        return "This console has no home of its own: use `ajet-console export --journal FILE`"
    return None


def export_entries(app: AppHost) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of the palette entry; nothing where it cannot be used."""
    if app.session.seen and export_obstacle(app.session) is None:
        yield (
            "Requests: Export groups",
            "Write the marked groups, or all, to a file for a trainer",
            partial(_export_all, app),
        )


def _export_all(app: AppHost) -> None:
    app.run_worker(export(app), group="question", exclusive=True, exit_on_error=False)


async def export(app: AppHost, row_filter: Filter | None = None) -> None:
    """Ask for groups, format and file, then export.

    Args:
        app: The console.
        row_filter: Filter of the list in front, which is proposed; None without one.
    """
    session = app.session
    if session.home is None:  # see `export_obstacle`
        return
    from console.export.run import ExportOptions
    from console.screens.dialogs.export import ExportScreen, report_text

    options = ExportOptions("", session.home)
    choices = _choices(session, row_filter or Filter())
    dialog = ExportScreen(choices, session.home, session.state.proxy_url, options)
    report = await app.push_screen_wait(dialog)
    if report is not None:
        app.say(report_text(report), "warning" if report.damaged else "information")


def _choices(session: Session, row_filter: Filter) -> list[tuple[str, Filter]]:
    """Return the groups that can be exported, as text and filter; the proposed ones first.

    The marked groups are always among them: marks of older groups are in the journal alone.
    """
    others = [("all groups of the journal", Filter())]
    if row_filter:
        text = f"the groups of the journal that match {one_line(row_filter.text, 40)}"
        others.insert(0, (text, row_filter))
    marked = ("the marked groups of the journal", parse("marked:yes"))
    groups = session.state.groups.values()
    has_marked = any(group.marked for group in groups) or session.history.has_marked
    return [marked, *others] if has_marked else [*others, marked]
