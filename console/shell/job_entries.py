"""Palette entries that open the job or the details of a server."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost


def job_entries(app: AppHost) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of two entries for each server."""
    servers = app.session.state.servers
    for name, server in servers.items():
        if server.state == "OBSERVING":
            continue
        where = f" {one_line(name, 24)}" if len(servers) > 1 else ""
        writes = not app.session.read_only
        yield (
            f"Engine: Edit the job{where}" if writes else f"Screen: Job{where}",
            "The job of the next start" + (": show, change, save, apply" if writes else ""),
            partial(_open, app, "job", name),
        )
        yield (
            f"Engine: Look inside{where}" if writes else f"Screen: Inside{where}",
            "Claimed episodes, clients, tasks with rewards, its log",
            partial(_open, app, "inside", name),
        )


def _open(app: AppHost, what: str, name: str) -> None:
    from console.screens.engine.inside import InsideScreen
    from console.screens.engine.job import JobScreen

    app.push_screen(JobScreen(name) if what == "job" else InsideScreen(name))
