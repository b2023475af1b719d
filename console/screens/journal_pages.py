"""Loading of older groups from the journal into a list: visible page and search."""

import contextlib
from collections.abc import Callable

from ajet_swarm.common.errors import AjetError
from console.screens.base import ConsoleScreen
from console.screens.parts import ScreenPart, in_background
from console.session.history import PAGE, Search
from console.widgets.group_list import GroupList
from core.state import Group


class JournalPages(ScreenPart):
    """Loads rows of a group list that are only in the journal: the visible page, a search."""

    def __init__(self, screen: ConsoleScreen, on_loaded: Callable[[], None]) -> None:
        """Create the reader of a screen.

        Args:
            screen: The screen with the list.
            on_loaded: Called when the group under the cursor may have been read.
        """
        super().__init__(screen)
        self._on_loaded = on_loaded
        self._error = ""
        """Error of the last failed read; empty after a success."""
        self._running: Search | None = None

    @property
    def _groups(self) -> GroupList:
        return self.screen.query_one(GroupList)

    @in_background("history", exclusive=True)
    async def read_page(self, first: int) -> None:
        """Read the page from row `first`; a newer call cancels this one."""
        history = self.session.history
        start = history.start
        if not await self._read(first, PAGE, history.put):
            return
        if start != history.start:  # there are fewer rows than expected
            self.screen.update_view(frozenset({"groups"}))
        self._groups.loaded()
        self._on_loaded()

    async def _read(
        self, first: int, limit: int, store: Callable[[int, list[Group]], None]
    ) -> bool:
        try:
            store(*await self.session.read_history(first, limit))
        except AjetError as error:
            if self._error != str(error):
                self._error = str(error)
                self.host.say(f"The journal cannot be read: {error}", "error")
            return False
        self._error = ""
        return self.screen.is_mounted

    def read_start(self) -> None:
        """Read the start of the journal once, before the cursor gets there."""
        if self._groups.model.evicted and not self.session.history.start_known:
            self.session.history.start_known = True
            self._read_start()

    @in_background("history-start", exclusive=True)
    async def _read_start(self) -> None:
        """Read an empty page for its metadata; the first real page reports a failure."""
        with contextlib.suppress(AjetError):
            await self.session.read_history(0, 0)
            if self.screen.is_mounted and self.session.history.start:
                self.screen.update_view(frozenset({"groups"}))

    def search_further(self) -> None:
        """Continue a search that paused after enough matches."""
        search = self._groups.model.search
        if search is not None and search.paused and not search.finished:
            search.resume()
            self.search()

    def search(self) -> None:
        """Start the journal search of the list's filter unless it is already running."""
        search = self._groups.model.search
        if search is not None and not search.paused and search is not self._running:
            self._running = search
            self._search(search)

    @in_background("search", exclusive=True)
    async def _search(self, search: Search) -> None:
        """Read the journal until enough matches are found or the filter changes."""
        model, history = self._groups.model, self.session.history
        try:
            while not search.paused and model.search is search:
                first, count = search.next_page()
                if not await self._read(
                    first, count, lambda at, groups: search.add_page(at, groups, history)
                ):
                    return
                self.screen.update_view(frozenset({"groups"}))
        finally:
            if self._running is search:
                self._running = None
