"""Widgets whose height follows their content, and whose border can carry a title."""

from typing import Self

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget


class FramedWidget(Widget):
    """Measures its size in every layout that it requests.

    Textual caches the box of a layout that runs while the widget is still changing. A layout
    requested meanwhile would reuse that box, and the widget would keep a wrong height.
    """

    _in_border: Content | None = None

    @property
    def framed(self) -> bool:
        """Whether it has a border whose upper edge has room for a title."""
        return bool(self.styles.border_top[0])

    def put_in_border(self, title: Content) -> None:
        """Show `title` in the border, unless it is there already."""
        before = self._in_border
        if before is None or before.plain != title.plain or before.spans != title.spans:
            self._in_border = title
            self.border_title = title

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Refresh; a layout that was requested before is discarded."""
        if layout:
            self._layout_required = False
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
