"""Widgets whose height follows what they show."""

from typing import Self

from textual.geometry import Region
from textual.widget import Widget


class Relaid(Widget):
    """Each layout it asks for looks at its size anew.

    Textual keeps the box of a layout that was made after one was asked for and before the widget
    came to rest; asked again meanwhile, it takes that old box, and the widget keeps a wrong height.
    """

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """As of the base; a layout that was asked for before does not count."""
        if layout:
            self._layout_required = False
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
