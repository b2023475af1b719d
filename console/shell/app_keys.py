"""The key bindings of the app, which work on every screen."""

from textual.binding import Binding, BindingType

from console.models.screen_registry import SCREENS


def _screen_keys() -> list[BindingType]:
    bindings: list[BindingType] = []
    for screen in SCREENS:
        bindings.append(
            Binding(
                f"f{screen.number}",
                f"go('{screen.name}')",
                screen.title,
                show=False,
                tooltip=screen.help,
                id=f"screen.{screen.name}",
            )
        )
        bindings.append(
            Binding(str(screen.digit), f"go('{screen.name}', True)", screen.title, show=False)
        )
    return bindings


EVERYWHERE: list[BindingType] = [
    *_screen_keys(),
    Binding(
        "question_mark",
        "help",
        "Help",
        key_display="?",
        id="app.help",
        tooltip="Keys and help of the focused part",
    ),
    Binding("f12", "help", "Help", show=False, id="app.help_typing", tooltip="As text is typed"),
    Binding(
        "ctrl+o",
        "jump",
        "Jump",
        show=False,
        priority=True,
        id="app.jump",
        tooltip="Jump to any part of the screen by one letter",
    ),
    Binding(
        "colon",
        "line",
        "Go to",
        show=False,
        key_display=":",
        id="app.line",
        tooltip="Go to a screen by its name",
    ),
    Binding(
        "ctrl+z",
        "suspend_process",
        "Suspend",
        show=False,
        priority=True,
        id="app.suspend",
        tooltip="Back to the shell; its `fg` continues the console",
    ),
    Binding(
        "ctrl+q",
        "quit",
        "Quit",
        priority=True,
        id="app.quit",
        tooltip="Asks first if something runs",
    ),
]
"""The screens by F-key and digit, then the other keys."""
