"""Keys of a screen or of an area, as a table:

BINDINGS = keys(
    ("e", "edit", "Edit", "rewards.edit", "The file in your editor"),
    ("j", "move(1)", "Down"),
)
"""

from textual.binding import Binding, BindingType

SCROLLING = (
    ("up,k", "scroll_pane(-1)", "Up"),
    ("down,j", "scroll_pane(1)", "Down"),
    ("pageup", "scroll_pane(-10)", "Page up"),
    ("pagedown,space", "scroll_pane(10)", "Page down"),
)
"""Keys of a screen that is one text; `ConsoleScreen.scrolled` names it."""


def keys(*rows: tuple[str, ...], shown: bool = True) -> list[BindingType]:
    """Return the bindings of a table.

    Args:
        *rows: Key, action, title; then the id, by which the operator can choose another key, and
            what the help says about it. A key without an id is not in the footer.
        shown: Whether the footer shows those with an id, also where there is little room.
    """
    return [_binding(shown, *row) for row in rows]


def _binding(
    shown: bool, key: str, action: str, title: str, name: str = "", about: str = ""
) -> Binding:
    return Binding(key, action, title, shown and bool(name), id=name or None, tooltip=about)
