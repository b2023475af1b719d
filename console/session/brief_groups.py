"""The brief groups of a session: which ones are still to be read, and their completion.

The feed brings their events at any time. An answer of the proxy may be older than an event that
arrived while it was on its way, so a group with such an event is asked for again.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from core.state import Group
from core.state.brief import complete

if TYPE_CHECKING:
    from console.session.app_state import Session

log = logging.getLogger(__name__)

WHOLE = 50
"""Number of newest groups that come whole with the snapshot: more than a screen lists."""
TEXT_PAGE = 50
"""Groups completed by one request."""

RETRY_SECONDS = 2.0


@dataclass(slots=True)
class TextPage:
    """One request for the texts of brief groups."""

    ids: Sequence[str]
    changed: set[str] = field(default_factory=set)
    """Groups that changed since the request."""


class BriefGroups:
    """The ids of brief groups that are not complete yet."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        """Newest last."""
        self._page: TextPage | None = None

    def begin(self, groups: Mapping[str, Group]) -> None:
        """Start with the groups of a new snapshot; drop an unfinished request."""
        self._waiting = [group_id for group_id, group in groups.items() if group.brief]
        self._page = None

    @property
    def waiting(self) -> int:
        """Number of groups that are not complete."""
        return len(self._waiting)

    @property
    def due(self) -> bool:
        """Whether groups wait and no request is on its way."""
        return bool(self._waiting) and self._page is None

    def note(self, group_id: str) -> None:
        """Record that an event has changed a group."""
        if self._page is not None:
            self._page.changed.add(group_id)

    def next_page(self) -> TextPage:
        """Begin a request for the newest waiting groups."""
        self._page = TextPage(self._waiting[-TEXT_PAGE:])
        return self._page

    def give_up(self, page: TextPage) -> None:
        """End a request that failed; its groups keep waiting."""
        if page is self._page:
            self._page = None

    def put(self, page: TextPage, found: Iterable[Group], groups: Mapping[str, Group]) -> list[str]:
        """Complete groups with the answer to a request; return their ids.

        Args:
            page: The request; nothing happens after a new snapshot.
            found: The whole groups. One that is missing has left the proxy's state.
            groups: The groups of the session.
        """
        if page is not self._page:
            return []
        self._page = None
        again = [group_id for group_id in page.ids if group_id in page.changed]
        self._waiting[-len(page.ids) :] = again
        completed = []
        for whole in found:
            group = groups.get(whole.group_id)
            if group is not None and group.brief and whole.group_id not in page.changed:
                complete(group, whole)
                completed.append(whole.group_id)
        return completed


async def complete_groups(session: "Session") -> None:
    """Read the texts of all brief groups, page by page, until one request fails."""
    brief, link = session.brief, session.link
    while link is not None and brief.due:
        page = brief.next_page()
        try:
            found = await link.groups(page.ids)
            completed = brief.put(page, found, session.state.groups)
            session.touch(["groups", *(f"group:{group_id}" for group_id in completed)])
        except AjetError as error:
            log.warning("the texts of older groups cannot be read: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        finally:
            brief.give_up(page)
