"""Help of the focused widget."""

from textual.widget import Widget

_TEXTS = {
    "ItemList": (
        "the list",
        "Enter opens what is under the cursor: for a part its results on the newest groups, for a "
        "group its candidates. The cursor stays on its row while new ones arrive.",
    ),
    "GroupList": (
        "the list of requests",
        "The cursor stays on its group while new ones arrive. Enter or a second click opens it; "
        "past the last row the list continues from the journal.",
    ),
    "#alerts": (
        "the alerts",
        "Enter opens exactly the groups the alert names, else the screen on which it is acted on. "
        "d dismisses it until its cause has gone.",
    ),
    "LogView": (
        "the lines of the log",
        "The list follows the newest line until you scroll up. Up and Down move a cursor; the line "
        "under it is shown in full below. t folds the tracebacks; Enter or a click unfolds the one "
        "under the cursor.",
    ),
    "ServerPanel": (
        "one swarm server",
        "Start, stop and restart apply to this one. Tab goes to the next.",
    ),
    "CheckpointPanel": (
        "the checkpoints of this server",
        "The cursor selects the one to restore. The engine's own checkpoints are never pruned.",
    ),
    "FilterText": (
        "the filter",
        "Words of the request and terms; all must match. Tab completes, Enter keeps it, Esc clears "
        "it.",
    ),
    "TextArea": (
        "a text of several lines",
        "Letters are text here. Esc leaves, Ctrl+O jumps to another part, F-keys to other screens.",
    ),
    "Input": (
        "a line of text",
        "Letters and digits are text here. Enter confirms, Esc cancels, Ctrl+O jumps to another "
        "part, F-keys to other screens.",
    ),
    "Button": ("a button", "Enter presses it, Tab goes to the next."),
}


def about(widget: Widget | None) -> tuple[str, str]:
    """Return the name and the explanation of a widget; both empty when there is none."""
    if widget is None:
        return "", ""
    for key in (f"#{widget.id}", *(base.__name__ for base in type(widget).__mro__)):
        if key in _TEXTS:
            name, text = _TEXTS[key]
            return name, widget.HELP or text
    return "", widget.HELP or ""
