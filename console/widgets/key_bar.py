"""The keys that work now, at the foot of a screen."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.css.query import NoMatches
from textual.events import Resize
from textual.widgets import Footer, Input, TextArea
from textual.widgets._footer import FooterKey

SOON = 0.05
"""Seconds until a screen that is not whole yet is looked at again."""
MOST = 12
"""Keys that are shown on a wide screen, too, unless the screen says otherwise (`most_keys`)."""
_ALWAYS = frozenset({"help", "quit"})
"""Actions whose key is shown however narrow the screen is."""
_IN_FIELDS: Mapping[str, Mapping[str, str]] = {
    "enter": {"Submit": "Done"},
    "escape": {},
    "tab": {"Focus Next": "Next"},
    "f12": {},
}
"""Keys that work while text is typed, with shorter words for Textual's own ones."""


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
    _width = 0

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
        typing = isinstance(self.screen.focused, Input | TextArea)
        offers: dict[str, Offer] = {}
        if typing:  # bare letters are text there, so these are all the keys there are
            for key, word in _IN_FIELDS.items():
                if key in active:
                    one = self._offer(active[key])
                    said = word.get(one.description, one.description)
                    offers[one.action] = one._replace(description=said)
        for found in active.values():
            if found.binding.show and found.binding.action not in offers:
                offers[found.binding.action] = self._offer(found)
        shown = list(offers.values())
        if not typing:
            shown = self._with_spare(shown, active.values())
        room = self.screen.size.width
        most = getattr(self.screen, "most_keys", MOST)
        if self.app.ENABLE_COMMAND_PALETTE and self.app.COMMAND_PALETTE_BINDING in active:
            palette = self._offer(active[self.app.COMMAND_PALETTE_BINDING], "-command-palette")
            if not self.screen.has_class("-narrow"):  # it is hidden there
                room -= _cells(palette) + 1
            return (*_fitting(shown, room, most), palette)
        return _fitting(shown, room, most)

    def _with_spare(self, shown: Sequence[Offer], active: Iterable[ActiveBinding]) -> list[Offer]:
        """Those shown, the first ones first, then what else there is, then help and the way out."""
        hidden: dict[str, ActiveBinding] = {}
        for one in active:
            if not one.binding.show:
                hidden.setdefault(one.binding.action, one)
        spare = [
            self._offer(hidden[action])
            for action in getattr(self.screen, "spare_keys", ())
            if action in hidden
        ]
        lead = getattr(self.screen, "first_keys", ())
        own = [one for one in shown if one.action not in _ALWAYS]
        own.sort(key=lambda one: lead.index(one.action) if one.action in lead else len(lead))
        return [*own, *spare, *(one for one in shown if one.action in _ALWAYS)]

    def _offer(self, active: ActiveBinding, kind: str = "") -> Offer:
        binding = active.binding
        words: Mapping[str, str] = getattr(self.screen, "footer_words", {})
        return Offer(
            binding.key,
            self.app.get_key_display(binding),
            words.get(binding.action, binding.description),
            binding.action,
            active.enabled,
            active.tooltip or (binding.tooltip or binding.description if kind else ""),
            kind,
        )

    def on_resize(self, event: Resize) -> None:
        """Another width: other keys fit."""
        if event.size.width != self._width:
            self._width = event.size.width
            self.call_after_refresh(self.recompose)


def _cells(offer: Offer) -> int:
    """Cells a key takes, with the space that parts it from the next one."""
    return cell_len(f"{offer.display} {offer.description}") + 1


def _fitting(shown: Sequence[Offer], room: int, most: int) -> tuple[Offer, ...]:
    """Those that fit, at most `most`, in their order; help and the way out before all others."""
    room += 1  # nothing parts the last one from the edge
    kept = {one.action for one in shown if one.action in _ALWAYS}
    room -= sum(_cells(one) for one in shown if one.action in kept)
    for one in shown:
        if one.action in kept:
            continue
        room -= _cells(one)
        if room < 0 or len(kept) == most:
            break
        kept.add(one.action)
    return tuple(one for one in shown if one.action in kept)
