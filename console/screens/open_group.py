"""Open groups by their ids: from an alert, from the `:` line, from the palette."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from core.state import Group

if TYPE_CHECKING:
    from console.screens.group import GroupScreen

LEAST = 3
"""Characters from which the palette takes what is typed for the beginning of an id."""
MOST = 8
"""Groups the palette offers for one beginning."""


@dataclass(frozen=True, slots=True)
class IdMatch:
    """A group one of whose ids begins as asked."""

    group: Group
    candidate: int | None = None
    """Index of the candidate whose episode it is; None for an id of the group itself."""

    @property
    def title(self) -> str:
        """`Group: 5f58eeb4a4ec`, `Episode: 3f5bc3c9…`."""
        if self.candidate is None:
            return f"Group: {one_line(self.group.group_id, 40)}"
        return f"Episode: {one_line(self.group.candidates[self.candidate].episode_uuid, 40)}"


def id_matches(groups: Iterable[Group], text: str) -> list[IdMatch]:
    """Groups whose id, request id or one of whose episodes' ids begins with `text`, in order."""
    wanted = text.strip().lower()
    if not wanted:
        return []
    found: list[IdMatch] = []
    for group in groups:
        if any(one.lower().startswith(wanted) for one in (group.group_id, group.request_id)):
            found.append(IdMatch(group))
            continue
        for place, one in enumerate(group.candidates):
            if one.episode_uuid.lower().startswith(wanted):
                found.append(IdMatch(group, place))
                break
    return found


def known_matches(app: AppHost, text: str) -> list[IdMatch]:
    """Matches among the groups in memory, newest first; an id in full is the only one."""
    groups = list(app.session.state.groups.values())
    found = id_matches(reversed(groups), text)
    same = [one for one in found if one.group.group_id == text.strip()]
    return same or found


def open_matches(app: AppHost, found: Sequence[IdMatch]) -> None:
    """Open one group, with the candidate that was asked for, or list several."""
    if len(found) == 1:
        group = found[0].group
        app.push_screen(_screen(app, group, [group.group_id], found[0].candidate))
    elif found:
        list_groups(app, [one.group.group_id for one in found])


def open_groups(app: AppHost, ids: Sequence[str]) -> None:
    """Open exactly these groups: the detail of one, a filtered list of several."""
    if len(ids) != 1:
        list_groups(app, ids)
        return
    group = app.session.group(ids[0])
    if group is not None:
        app.push_screen(_screen(app, group, ids))
        return
    app.run_worker(read_and_open(app, ids[0]), group="group", exclusive=True, exit_on_error=False)


async def read_and_open(app: AppHost, group_id: str) -> None:
    """Open a group that only the journal has; say so when there is none."""
    try:
        group = await app.session.read_group(group_id)
    except AjetError as error:
        app.say(f"Group {one_line(group_id, 40)} cannot be read: {error}", "error")
        return
    if group is None:
        app.say(f"There is no group or episode `{one_line(group_id, 40)}`", "warning")
    else:
        app.push_screen(_screen(app, group, [group.group_id]))


def list_groups(app: AppHost, ids: Sequence[str]) -> None:
    """Show these groups alone on Requests."""
    from console.screens.requests import RequestsScreen

    app.action_go("requests")
    if app.current_mode == "requests" and len(app.screen_stack) > 1:
        app.action_go("requests")  # its front page
    screen = app.screen
    if isinstance(screen, RequestsScreen):
        screen.call_after_refresh(screen.filter.show_only, tuple(ids))


def _screen(
    app: AppHost, group: Group, others: Sequence[str], candidate: int | None = None
) -> "GroupScreen":
    from console.screens.group import GroupScreen  # the start imports no other screen

    def known(group_id: str) -> Group | None:
        return app.session.group(group_id) or (group if group_id == group.group_id else None)

    return GroupScreen(group.group_id, list(others), known, candidate=candidate)
