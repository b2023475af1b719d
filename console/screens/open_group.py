"""Open groups by their ids: from an alert, from the `:` line, from the palette."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from core.state import Group

if TYPE_CHECKING:
    from console.screens.group.screen import GroupScreen

MIN_PREFIX = 3
"""Characters from which the palette treats text as the start of an id."""
MAX_MATCHES = 8
"""Most groups that the palette offers for the start of an id."""


@dataclass(frozen=True, slots=True)
class IdMatch:
    """A group whose id, or the id of one of its episodes, matches."""

    group: Group
    candidate: int | None = None
    """Index of the candidate with that episode; None when an id of the group itself matches."""

    @property
    def title(self) -> str:
        """`Group: 5f58eeb4a4ec`, `Episode: 3f5bc3c9…`."""
        if self.candidate is None:
            return f"Group: {one_line(self.group.group_id, 40)}"
        return f"Episode: {one_line(self.group.candidates[self.candidate].episode_uuid, 40)}"


def id_matches(groups: Iterable[Group], text: str) -> list[IdMatch]:
    """Return groups with a group id, request id or episode id that starts with `text`, in order."""
    prefix = text.strip().lower()
    if not prefix:
        return []
    matches: list[IdMatch] = []
    for group in groups:
        if any(name.lower().startswith(prefix) for name in (group.group_id, group.request_id)):
            matches.append(IdMatch(group))
            continue
        for index, candidate in enumerate(group.candidates):
            if candidate.episode_uuid.lower().startswith(prefix):
                matches.append(IdMatch(group, index))
                break
    return matches


def known_matches(app: AppHost, text: str) -> list[IdMatch]:
    """Return matches among the groups in memory, newest first; a full id is the only match."""
    groups = list(app.session.state.groups.values())
    matches = id_matches(reversed(groups), text)
    same = [match for match in matches if match.group.group_id == text.strip()]
    return same or matches


def open_matches(app: AppHost, matches: Sequence[IdMatch]) -> None:
    """Open one group at the candidate of the match, or list several."""
    if len(matches) == 1:
        group = matches[0].group
        app.push_screen(_screen(app, group, [group.group_id], matches[0].candidate))
    elif matches:
        list_groups(app, [match.group.group_id for match in matches])


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
    """Open a group that is only in the journal; show a message when there is none."""
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
    """List only these groups on Requests."""
    from console.screens.requests.screen import RequestsScreen

    app.action_go("requests")
    if app.current_mode == "requests" and len(app.screen_stack) > 1:
        app.action_go("requests")  # its front page
    screen = app.screen
    if isinstance(screen, RequestsScreen):
        screen.call_after_refresh(screen.show_only, tuple(ids))


def _screen(
    app: AppHost, group: Group, others: Sequence[str], candidate: int | None = None
) -> "GroupScreen":
    from console.screens.group.screen import GroupScreen  # the start imports no other screen

    def known(group_id: str) -> Group | None:
        return app.session.group(group_id) or (group if group_id == group.group_id else None)

    return GroupScreen(group.group_id, list(others), known, candidate=candidate)
