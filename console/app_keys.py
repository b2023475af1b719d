"""The keys that work on every screen."""

from textual.binding import Binding, BindingType

from console.places import SCREENS


def _places() -> list[BindingType]:
    bindings: list[BindingType] = []
    for place in SCREENS:
        bindings.append(
            Binding(
                f"f{place.digit}",
                f"go('{place.name}')",
                place.title,
                show=False,
                tooltip=place.help,
                id=f"screen.{place.name}",
            )
        )
        bindings.append(
            Binding(str(place.digit), f"go('{place.name}', True)", place.title, show=False)
        )
    return bindings


EVERYWHERE: list[BindingType] = [
    *_places(),
    Binding(
        "question_mark",
        "help",
        "Help",
        key_display="?",
        id="app.help",
        tooltip="Keys and text of what has the focus",
    ),
    Binding("f12", "help", "Help", show=False, id="app.help_typing", tooltip="As text is typed"),
    Binding(
        "ctrl+o",
        "jump",
        "Jump",
        show=False,
        priority=True,
        id="app.jump",
        tooltip="A letter on everything that can be gone to",
    ),
    Binding(
        "colon",
        "line",
        "Go to",
        show=False,
        key_display=":",
        id="app.line",
        tooltip="A screen by its name",
    ),
    Binding(
        "ctrl+q",
        "quit",
        "Quit",
        priority=True,
        id="app.quit",
        tooltip="Asks when something runs",
    ),
]
"""Screens by F-key and digit, then the rest."""
