"""The key bindings of the app, which work on every screen."""

from textual.binding import Binding, BindingType

from console.models.screen_registry import SCREENS, ScreenSpec
from console.ui.keys import keys

_HELP, _JUMP = "Keys and help of the focused part", "Jump to any part of the screen by one letter"
_SUSPEND = "Back to the shell; its `fg` continues the console"
_QUIT = "Asks first if something runs"


def _keys_of(spec: ScreenSpec) -> tuple[tuple[str, ...], ...]:
    by_function_key = f"f{spec.number}", f"go('{spec.name}')", spec.title
    return (
        (*by_function_key, f"screen.{spec.name}", spec.help),
        (str(spec.digit), f"go('{spec.name}', True)", spec.title),
    )


EVERYWHERE: list[BindingType] = [
    *keys(*(row for spec in SCREENS for row in _keys_of(spec)), shown=False),
    *keys(("question_mark", "help", "Help", "app.help", _HELP, "?")),
    *keys(("f12", "help", "Help", "app.help_typing", "As text is typed"), shown=False),
    Binding("ctrl+o", "jump", "Jump", False, None, True, _JUMP, id="app.jump"),
    *keys(("colon", "line", "Go to", "app.line", "Go to a screen by its name", ":"), shown=False),
    Binding("ctrl+z", "suspend_process", "Suspend", False, None, True, _SUSPEND, id="app.suspend"),
    Binding("ctrl+q", "quit", "Quit", True, None, True, _QUIT, id="app.quit"),
]
"""The screens by F-key and digit, then the other keys; the last ones come before those of parts."""
