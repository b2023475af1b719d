"""Keys of a screen or of an area, as a table:

BINDINGS = keys(
    ("e", "edit", "Edit", "rewards.edit", "The file in your editor"),
    ("j", "move(1)", "Down"),
)
"""

from textual.binding import Binding, BindingType


def keys(*rows: tuple[str, ...], shown: bool = True) -> list[BindingType]:
    """Return the bindings of a table.

    Args:
        *rows: Key, action, title; then the id, by which the operator can choose another key, what
            the help says about it, and how the footer names the key. One without an id is not in
            the footer.
        shown: Whether the footer shows those with an id, also where there is little room.
    """
    return [_binding(shown, *row) for row in rows]


def _binding(
    shown: bool,
    key: str,
    action: str,
    title: str,
    name: str = "",
    about: str = "",
    display: str | None = None,
) -> Binding:
    return Binding(
        key, action, title, shown and bool(name), display, id=name or None, tooltip=about
    )
