"""Pairs and votes of a rater: asks the proxy for a pair, and sends the vote on it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from console.screens.base import ConsoleScreen
from console.screens.group.rater import with_rater_name
from console.screens.parts import ScreenPart
from core.state import Progress

Phase = Literal["asks", "open", "sends", "rated", "refused"]


class PairVotes(ScreenPart):
    """The open pair of a rater.

    Args:
        screen: The screen that shows it.
        server: Name of the server.
        changed: Called after each change; its argument is whether another pair is shown.

    Attributes:
        pair: Data of the command `progress.pair`; None without a pair.
        vote: Data of the command `progress.vote`; None before the vote.
        phase: What happens now.
        message: Why there is no pair.
    """

    def __init__(self, screen: ConsoleScreen, server: str, changed: Callable[[bool], None]) -> None:
        super().__init__(screen)
        self._server = server
        self._changed = changed
        self.phase: Phase = "asks"
        self.pair: Mapping[str, Any] | None = None
        self.vote: Mapping[str, Any] | None = None
        self.message = "A pair is drawn…"

    @property
    def has_newer(self) -> bool:
        """Whether a look was taken after the one that the ratings are about."""
        progress = self.session.state.progress.get(self._server) or Progress()
        ratings, newest = progress.pair_ratings, progress.current
        return bool(ratings and newest and ratings.look_id != newest.look_id)

    def may(self, action: str) -> bool:
        """Return whether an action has an effect now."""
        phases: Mapping[str, tuple[Phase, ...]] = {
            "choose": ("open",),
            "go_on": ("open", "rated"),
            "newest": ("open", "rated", "refused"),
        }
        return self.phase in phases[action] and (action != "newest" or self.has_newer)

    def action_choose(self, choice: str) -> None:
        """Vote; the first vote of a home asks for a name."""
        with_rater_name(self.screen, lambda: self._send(choice))

    def action_go_on(self) -> None:
        """Skip the pair, or go to the next one after a vote."""
        if self.phase == "rated":
            self.request()
        else:
            self._send("skip")

    def action_newest(self) -> None:
        """Compare the newest look from now on."""
        self.request(newest=True)

    def request(self, newest: bool = False) -> None:
        """Ask for a pair in the background."""
        self.phase = "asks"
        self.screen.refresh_bindings()
        self.screen.run_worker(
            self._next(newest), group="pair", exclusive=True, exit_on_error=False
        )

    async def _next(self, newest: bool = False) -> None:
        outcome = await self.session.command(
            "progress.pair", server=self._server, rater=self.session.rater, newest=newest
        )
        self.vote = None
        if outcome.ok:
            self.pair, self.phase = outcome.data, "open"
        else:
            self.pair, self.phase, self.message = None, "refused", outcome.message
        self._changed(True)

    def _send(self, choice: str) -> None:
        if self.pair is None or self.phase != "open":
            return
        self.phase = "sends"
        self.screen.refresh_bindings()
        work = self._cast(self.pair["pair_id"], choice)
        self.screen.run_worker(work, group="pair", exclusive=True, exit_on_error=False)

    async def _cast(self, pair_id: str, choice: str) -> None:
        outcome = await self.session.command(
            "progress.vote",
            pair_id=pair_id,
            choice=choice,
            server=self._server,
            rater=self.session.rater,
        )
        if not outcome.ok:
            self.host.say(outcome.message, "error")
        if outcome.ok and choice != "skip":
            self.vote, self.phase = outcome.data, "rated"
            self._changed(False)
        else:
            await self._next()
