"""The keys that work now, at the foot of a screen."""

from typing import NamedTuple

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

SOON = 0.05
"""Seconds until a screen that is not whole yet is looked at again."""


class Offer(NamedTuple):
    """A key as it is shown."""

    key: str
    display: str
    description: str
    action: str
    enabled: bool
    tooltip: str
    kind: str = ""
    """Class of its style, beside the common one."""


class KeyBar(Footer):
    """A footer that makes its keys anew only when they are others than those shown.

    Textual's own does so each time bindings are looked at, as at each move of the focus, and styles
    each key twice: nearly half of the CPU time of a console that is typed into.
    """

    _offers: tuple[Offer, ...] = ()

    def __init__(self) -> None:
        super().__init__(compact=True)

    async def recompose(self) -> None:
        """Show the keys that work now, where they are others."""
        if not self.is_attached or self._pruning or not self.app.is_running:
            return  # at the end widgets go one by one, also those that say which keys work
        if not self.screen.is_mounted:  # and they come so
            self.call_after_refresh(self.recompose)
            return
        try:
            offers = self._work_now()
        except NoMatches:  # which keys work is a matter of widgets that are still to come
            self.set_timer(SOON, self.recompose)
            return
        if offers != self._offers:
            self._offers = offers
            await super().recompose()

    def compose(self) -> ComposeResult:
        """What `recompose` found."""
        for offer in self._offers:
            yield FooterKey(
                offer.key,
                offer.display,
                offer.description,
                offer.action,
                disabled=not offer.enabled,
                tooltip=offer.tooltip,
                classes=f"-compact {offer.kind}",
            )

    def _work_now(self) -> tuple[Offer, ...]:
        active = self.screen.active_bindings
        offers: dict[str, Offer] = {}
        for _, binding, enabled, tooltip in active.values():
            if binding.show and binding.action not in offers:
                offers[binding.action] = Offer(
                    binding.key,
                    self.app.get_key_display(binding),
                    binding.description,
                    binding.action,
                    enabled,
                    tooltip,
                )
        shown = list(offers.values())
        if self.app.ENABLE_COMMAND_PALETTE and self.app.COMMAND_PALETTE_BINDING in active:
            _, binding, enabled, _ = active[self.app.COMMAND_PALETTE_BINDING]
            shown.append(
                Offer(
                    binding.key,
                    self.app.get_key_display(binding),
                    binding.description,
                    binding.action,
                    enabled,
                    binding.tooltip or binding.description,
                    "-command-palette",
                )
            )
        return tuple(shown)
