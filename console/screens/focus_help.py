"""The help of the widget in focus."""

from textual.widget import Widget

_TEXTS = {
    "ItemList": (
        "the list",
        "Enter opens what is under the cursor: for a part its results on the newest groups, for a "
        "group its candidates. The cursor stays on its row while others come in.",
    ),
    "GroupList": (
        "the list of requests",
        "The cursor stays on its group while others come in. Enter opens it, a second click too; "
        "past the last row the list continues from the journal.",
    ),
    "LogView": (
        "the lines of the log",
        "It stays at the newest line until you scroll up. Up and Down take a cursor along them; "
        "the line under it stands below in full. t folds the tracebacks; Enter, or a click, "
        "unfolds the one under the cursor.",
    ),
    "ServerPanel": (
        "one swarm server",
        "Start, stop and restart apply to this one. Tab goes to the next.",
    ),
    "CheckpointPanel": (
        "the checkpoints of this server",
        "The cursor says which one is restored. The engine's own checkpoints stay.",
    ),
    "FilterText": (
        "the filter",
        "Words of the request and terms that must all hold. Tab completes, Enter keeps it, Esc "
        "clears it.",
    ),
    "TextArea": (
        "a text of several lines",
        "Letters are text here. Esc leaves, Ctrl+O jumps to another part, F-keys to other screens.",
    ),
    "Input": (
        "a line of text",
        "Letters and digits are text here. Enter confirm, Esc cancel, Ctrl+O jumps to another "
        "part, F-keys to other screens.",
    ),
    "Button": ("a button", "Enter presses it, Tab goes to the next."),
}


def about(widget: Widget | None) -> tuple[str, str]:
    """Return the name and the explanation of a widget; both empty when there is none."""
    if widget is None:
        return "", ""
    for base in type(widget).__mro__:
        if base.__name__ in _TEXTS:
            name, text = _TEXTS[base.__name__]
            return name, widget.HELP or text
    return "", widget.HELP or ""
