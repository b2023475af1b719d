"""What a brief snapshot leaves out: texts of older groups, curves of ended engine runs.

A screen that needs them has them read by page, and the records of the session are completed. The
feed brings events at any time. An answer of the proxy may be older than an event that arrived while
it was on its way, so a record with such an event is asked for again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ajet_swarm.common.errors import AjetError
from core.state.brief import complete

if TYPE_CHECKING:
    from console.session.app_state import Session

log = logging.getLogger(__name__)

Key = TypeVar("Key", str, int)

WHOLE = 10
"""Number of newest groups that come whole with the snapshot: one of them is often opened first."""
TEXT_PAGE = 50
"""Groups completed by one request."""
CURVE_PAGE = 200
"""Engine runs completed by one request."""
RETRY_SECONDS = 2.0


@dataclass(slots=True)
class UnreadPage(Generic[Key]):
    """One request for what is missing of some records."""

    keys: Sequence[Key]
    changed: set[Key] = field(default_factory=set)
    """Records that changed since the request."""


class Unread(Generic[Key]):
    """The keys of the records that are not complete yet.

    Args:
        size: Number of records of a page.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: list[Key] = []
        """Newest last."""
        self._page: UnreadPage[Key] | None = None

    def begin(self, keys: Iterable[Key]) -> None:
        """Start with the brief records of a new snapshot; drop an unfinished request."""
        self._waiting = list(keys)
        self._page = None

    @property
    def waiting(self) -> int:
        """Number of records that are not complete."""
        return len(self._waiting)

    @property
    def due(self) -> bool:
        """Whether records wait and no request is on its way."""
        return bool(self._waiting) and self._page is None

    def note(self, key: Key) -> None:
        """Record that an event has changed a record."""
        if self._page is not None:
            self._page.changed.add(key)

    def next_page(self) -> UnreadPage[Key]:
        """Begin a request for the newest waiting records."""
        self._page = UnreadPage(self._waiting[-self._size :])
        return self._page

    def take(self, page: UnreadPage[Key]) -> frozenset[Key]:
        """End a request that was answered; return the keys for which the answer is current.

        Records that changed meanwhile keep waiting. After a new snapshot no answer is current.
        """
        if page is not self._page:
            return frozenset()
        self._page = None
        again = [key for key in page.keys if key in page.changed]
        self._waiting[-len(page.keys) :] = again
        return frozenset(page.keys) - page.changed

    def give_up(self, page: UnreadPage[Key]) -> None:
        """End a request without an answer; its records keep waiting."""
        if page is self._page:
            self._page = None


async def read_texts(session: "Session") -> None:
    """Complete all brief groups, until one request fails."""
    unread = session.unread_texts

    async def read(page: UnreadPage[str]) -> None:
        assert session.link is not None
        received = await session.link.groups(page.keys)
        current, groups = unread.take(page), session.state.groups
        for whole in received:
            group = groups.get(whole.group_id)
            if group is not None and group.brief and whole.group_id in current:
                complete(group, whole)
        session.touch(["groups", *(f"group:{group_id}" for group_id in current)])

    await _read_all(session, unread, read)


async def read_curves(session: "Session") -> None:
    """Complete the curves of all ended engine runs, until one request fails."""
    unread = session.unread_curves

    async def read(page: UnreadPage[int]) -> None:
        assert session.link is not None
        curves = await session.link.curves(page.keys)
        current = unread.take(page)
        for number, curve in curves.items():
            run = session.state.engine_runs.numbered(number)
            if run is not None and run.brief and number in current:
                run.curve = list(curve)
        session.touch(("runs",))

    await _read_all(session, unread, read)


async def _read_all(
    session: "Session", unread: Unread[Key], read: Callable[[UnreadPage[Key]], Awaitable[None]]
) -> None:
    while session.link is not None and unread.due:
        page = unread.next_page()
        try:
            await read(page)
        except AjetError as error:
            log.warning("details of older records cannot be read: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        finally:
            unread.give_up(page)
